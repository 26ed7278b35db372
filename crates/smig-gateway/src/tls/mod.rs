//! Server certificates by name, from files that are watched for renewal; clients' certificates.

mod subject;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use smig::{Certificate, ClientCertificates, ServerTls};
use smig_settings::Diagnostics;

pub use subject::client_common_name;

use crate::config::{ClientCertificateMode, Config, ListenSecurity};

/// Loads the TLS material of the listeners: certificates with their keys, and the CA of clients.
///
/// # Errors
/// A file that cannot be used, with its line and key in the configuration.
pub(crate) fn load_server_tls(config: &Config) -> Result<ServerTls, Diagnostics> {
    let mut certificates = Vec::new();
    for (index, spec) in config.certificates.iter().enumerate() {
        let index = index.to_string();
        let at = |key: &'static str| ["certificate", &index, key].map(str::to_owned);
        let fault = |key, what: String| {
            let at = at(key);
            config.fault(&at.each_ref().map(String::as_str), what)
        };
        let chain = read(&spec.chain).map_err(|what| fault("chain", what))?;
        let key = read(&spec.key).map_err(|what| fault("key", what))?;
        let certificate = Certificate::from_pem(&chain, &key).map_err(|error| {
            let error = error.to_string();
            let config_key = if error.contains("private key") { "key" } else { "chain" };
            fault(config_key, error)
        })?;
        certificates.push(certificate);
    }
    if certificates.is_empty()
        && let Some((chain, key)) = &config.development_certificate
    {
        let certificate = Certificate::from_pem(chain, key)
            .map_err(|error| config.fault(&["certificate"], error.to_string()))?;
        certificates.push(certificate);
    }
    let clients = load_client_auth(config)?;
    let config_key: &[&str] =
        if certificates.is_empty() { &["certificate"] } else { &["tls", "client_ca"] };
    ServerTls::from_certificates(certificates, &clients)
        .map_err(|error| config.fault(config_key, error.to_string()))
}

/// Reads whether client certificates are requested, and by which authorities they are signed.
///
/// # Errors
/// The file cannot be read, with its line and key in the configuration.
pub(crate) fn load_client_auth(config: &Config) -> Result<ClientCertificates, Diagnostics> {
    let Some(path) = &config.tls.client_ca else { return Ok(ClientCertificates::None) };
    let pem = read(path).map_err(|what| config.fault(&["tls", "client_ca"], what))?;
    Ok(match config.tls.client_certificate {
        ClientCertificateMode::Optional => ClientCertificates::Optional(pem),
        ClientCertificateMode::Required => ClientCertificates::Required(pem),
    })
}

/// Returns whether a listener uses TLS.
pub(crate) fn is_used(config: &Config) -> bool {
    config.listen.iter().any(|listen| listen.protocol == ListenSecurity::Tls)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Modification times and sizes of files, to detect their replacement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileVersions(Vec<(PathBuf, Option<(SystemTime, u64)>)>);

impl FileVersions {
    /// Reads the versions of every certificate, key and client CA file of a configuration.
    pub(crate) fn read(config: &Config) -> Self {
        let certificates = config.certificates.iter().flat_map(|spec| [&spec.chain, &spec.key]);
        let version = |path: &PathBuf| {
            let metadata = std::fs::metadata(path).ok();
            let time_and_size = metadata.and_then(|data| Some((data.modified().ok()?, data.len())));
            (path.clone(), time_and_size)
        };
        Self(certificates.chain(&config.tls.client_ca).map(version).collect())
    }
}
