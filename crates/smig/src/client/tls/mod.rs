//! Trust configuration of a client.
//!
//! The system's trust store is read once per process, when first needed, and never on an event loop: it is
//! hundreds of files on a disk that may be slow.

mod verify;
mod x509;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::OnceCell;

use crate::blocking;
use crate::error::{Error, TlsError};
use verify::{AcceptAnyCert, ExplicitTrustVerifier};

/// TLS configuration with the system's certificates. Shared by all clients, as is its cache of TLS sessions.
static SYSTEM_CONFIG: OnceCell<Arc<ClientConfig>> = OnceCell::const_new();

/// Which server certificates a client accepts.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Trust {
    /// Those that the system's trust store accepts.
    #[default]
    System,
    /// The certificates in this PEM file and those that they have signed, and no others.
    File(PathBuf),
    /// The certificates in this PEM text and those that they have signed, and no others.
    Pem(Vec<u8>),
    /// All. An attacker on the path can read and modify everything: for tests only.
    DangerAcceptInvalidCerts,
    /// A custom configuration; its ALPN is replaced.
    Rustls(Arc<ClientConfig>),
    /// The result of an earlier [`load`](Trust::load).
    Loaded(LoadedTrust),
}

/// A [`Trust`] whose files have been read, except the system's trust store, which is read on first use. Cheap to clone:
/// clones share the certificates.
#[derive(Clone, Debug)]
pub struct LoadedTrust(TrustSource);

#[derive(Clone, Debug)]
enum TrustSource {
    /// Read on first use.
    System,
    Ready(Arc<ClientConfig>),
}

impl LoadedTrust {
    /// Returns the TLS configuration, with h2 and http/1.1 for ALPN. The first call in the process waits
    /// until the system's certificates are read. A thread outside the runtime reads them, so that the runtime
    /// can shut down meanwhile.
    ///
    /// # Errors
    /// The system's trust store is empty. The next call reads it again.
    pub async fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let read = || async {
            let failed = |error| Error::io("reading the system's certificates", error);
            blocking::run("trust", || Trust::System.client_config()).await.map_err(failed)?
        };
        match &self.0 {
            TrustSource::Ready(config) => Ok(Arc::clone(config)),
            TrustSource::System => SYSTEM_CONFIG.get_or_try_init(read).await.cloned(),
        }
    }
}

impl Trust {
    /// Reads the named files, if any. The system's trust store is read on first use.
    ///
    /// # Errors
    /// CA certificates that cannot be read.
    pub fn load(&self) -> Result<LoadedTrust, Error> {
        match self {
            Self::System => Ok(LoadedTrust(TrustSource::System)),
            Self::Loaded(loaded) => Ok(loaded.clone()),
            _ => self.client_config().map(|config| LoadedTrust(TrustSource::Ready(config))),
        }
    }

    /// Returns the client's TLS configuration, with h2 and http/1.1 for ALPN. Blocks on file reads; on event
    /// loops, use [`LoadedTrust::config`].
    ///
    /// # Errors
    /// CA certificates that cannot be read.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut config = match self {
            Self::System | Self::Loaded(LoadedTrust(TrustSource::System)) => {
                builder(provider())?.with_root_certificates(system_roots()?).with_no_client_auth()
            }
            Self::Loaded(LoadedTrust(TrustSource::Ready(config))) => return Ok(Arc::clone(config)),
            Self::File(path) => {
                let pem = std::fs::read(path).map_err(|error| {
                    Error::config(format!("cannot read {}: {error}", path.display()))
                })?;
                config_for_pem(&pem)?
            }
            Self::Pem(pem) => config_for_pem(pem)?,
            Self::DangerAcceptInvalidCerts => {
                let provider = provider();
                builder(Arc::clone(&provider))?
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(AcceptAnyCert(provider)))
                    .with_no_client_auth()
            }
            Self::Rustls(config) => ClientConfig::clone(config),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.enable_early_data = false;
        Ok(Arc::new(config))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn builder(
    provider: Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::config(format!("TLS: {error}")))
}

/// Returns a configuration that trusts the certificates of the PEM text, both as authorities and as
/// servers' own.
fn config_for_pem(pem: &[u8]) -> Result<ClientConfig, Error> {
    let certificate_error = |why: String| Error::config(format!("invalid CA certificate: {why}"));
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| certificate_error(error.to_string()))?;
    if certificates.is_empty() {
        return Err(Error::config(
            "no CA certificate found; PEM begins with -----BEGIN CERTIFICATE",
        ));
    }
    let provider = provider();
    let verifier = ExplicitTrustVerifier::new(certificates, Arc::clone(&provider));
    let verifier =
        verifier.map_err(|error| certificate_error(TlsError::from_rustls(&error).to_string()))?;
    Ok(builder(provider)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

fn system_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let native_certs = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(native_certs.certs);
    if roots.is_empty() {
        let why =
            native_certs.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(Error::config(format!(
            "the system has no CA certificates{why}; install ca-certificates or name a CA file"
        )));
    }
    Ok(roots)
}
