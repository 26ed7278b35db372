//! A server's certificate and key.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// What a TLS listener proves itself with.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<rustls::ServerConfig>);

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
        Ok(Self::from_rustls(config))
    }

    /// A configuration of one's own. ALPN is set to h2 and http/1.1 unless it is set; early data is
    /// switched off.
    #[must_use]
    pub fn from_rustls(mut config: rustls::ServerConfig) -> Self {
        if config.alpn_protocols.is_empty() {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        config.max_early_data_size = 0;
        Self(Arc::new(config))
    }

    pub(super) fn config(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.0)
    }
}
