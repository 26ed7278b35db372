//! Trust anchors of the program's clients: the system's, a given authority, and for loopback names
//! the development authority.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use smig::Trust;

use crate::dev_cert;

/// Returns the trust anchors for a host, according to the flags --cacert and --insecure.
///
/// # Errors
/// The development authority is damaged.
pub(crate) fn anchors_for(cacert: Option<&Path>, insecure: bool, host: &str) -> Result<Trust> {
    match (cacert, insecure) {
        (Some(path), _) => Ok(Trust::File(path.to_owned())),
        (None, true) => Ok(Trust::DangerAcceptInvalidCerts),
        (None, false) => match dev_cert::authority_path().filter(|_| is_loopback(host)) {
            Some(path) => Ok(Trust::Rustls(Arc::new(client_config_with_authority(&path)?))),
            None => Ok(Trust::System),
        },
    }
}

/// Returns whether `host` is a loopback name (RFC 6761 section 6.3) or a loopback address.
pub(crate) fn is_loopback(host: &str) -> bool {
    let host_part = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let lower = host_part.to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || host_part.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns a TLS configuration that trusts the system's authorities and the development authority.
pub(crate) fn client_config_with_authority(path: &Path) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // A system without authorities is not an error: the development authority is still added.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let bad =
        || format!("the development authority {} is damaged; delete its directory", path.display());
    for certificate in CertificateDer::pem_file_iter(path).with_context(bad)? {
        roots.add(certificate.with_context(bad)?).with_context(bad)?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_and_addresses_are_recognized() {
        for yes in ["localhost", "LOCALHOST", "a.localhost", "127.1.2.3", "[::1]", "::1"] {
            assert!(is_loopback(yes), "{yes}");
        }
        for no in ["localhost.example", "example.org", "10.0.0.1", "[2001:db8::1]"] {
            assert!(!is_loopback(no), "{no}");
        }
    }
}
