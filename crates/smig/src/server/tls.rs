//! A server's certificate and key.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::CertificateNames;
use crate::error::Error;

/// What a TLS listener proves itself with.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<rustls::ServerConfig>,
    names: Option<Arc<CertificateNames>>,
}

impl ServerTls {
    /// Certificate chain and key from PEM files.
    ///
    /// # Errors
    /// A file that cannot be read, holds no certificate or key, or a key that does not fit.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| Error::config(format!("cannot read {}: {error}", path.display())))
        };
        Self::from_pem(&read(certificate)?, &read(key)?)
            .map_err(|error| Error::config(format!("{}: {error}", certificate.display())))
    }

    /// Certificate chain and key in PEM.
    ///
    /// # Errors
    /// No certificate, no key, or a key that does not fit.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        let chain = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| Error::config(format!("bad certificate: {error}")))?;
        if chain.is_empty() {
            return Err(Error::config(
                "no certificate found; a PEM file begins -----BEGIN CERTIFICATE",
            ));
        }
        let names = chain.first().and_then(CertificateNames::of).map(Arc::new);
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| Error::config(format!("bad private key: {error}")))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| Error::config(format!("certificate and key: {error}")))?;
        // Tickets work on every worker and need no memory.
        if let Ok(ticketer) = aws_lc_rs::Ticketer::new() {
            config.ticketer = ticketer;
        }
        Ok(Self { names, ..Self::from_rustls(config) })
    }

    /// A configuration of one's own. ALPN is set to h2 and http/1.1 unless it is set; early data is
    /// switched off (SMIG-4.10). Requests for names that no certificate covers are the service's to
    /// refuse.
    #[must_use]
    pub fn from_rustls(mut config: rustls::ServerConfig) -> Self {
        if config.alpn_protocols.is_empty() {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        config.max_early_data_size = 0;
        Self { config: Arc::new(config), names: None }
    }

    pub(super) fn config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.config)
    }

    pub(super) fn names(&self) -> Option<Arc<CertificateNames>> {
        self.names.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SMIG-4.10
    #[test]
    fn early_data_is_off_whatever_the_configuration_says() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let mut config = rustls::ServerConfig::clone(&tls.config);
        config.max_early_data_size = 1 << 14;
        assert_eq!(ServerTls::from_rustls(config).config().max_early_data_size, 0);
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let error = |certificate: &str, key: &str| {
            ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err().to_string()
        };
        assert!(error("", &key).contains("no certificate"));
        assert!(error(&certificate, "").contains("private key"));
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert!(error(&certificate, &other).contains("certificate and key"));
    }
}
