//! Whom a client trusts.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::Error;

/// Which server certificates a client accepts.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Trust {
    /// Those that the system trusts.
    #[default]
    System,
    /// Those signed by the certificates in this PEM file, and no others.
    File(PathBuf),
    /// Those signed by the certificates in this PEM text, and no others.
    Pem(Vec<u8>),
    /// All. Anybody on the path can read and change everything: for tests only.
    DangerAcceptInvalidCerts,
    /// A configuration of one's own; its ALPN is replaced.
    Rustls(Arc<ClientConfig>),
}

impl Trust {
    /// The TLS configuration of a client that trusts so, with h2 and http/1.1 for ALPN.
    ///
    /// # Errors
    /// CA certificates that cannot be read.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut config = match self {
            Self::System => with_roots(system()?)?,
            Self::File(path) => {
                let pem = std::fs::read(path).map_err(|error| {
                    Error::config(format!("cannot read {}: {error}", path.display()))
                })?;
                with_roots(roots(&pem)?)?
            }
            Self::Pem(pem) => with_roots(roots(pem)?)?,
            Self::DangerAcceptInvalidCerts => {
                let provider = provider();
                builder(Arc::clone(&provider))?
                    .dangerous()
                    .with_custom_certificate_verifier(Arc::new(AcceptAll(provider)))
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

fn with_roots(roots: RootCertStore) -> Result<ClientConfig, Error> {
    Ok(builder(provider())?.with_root_certificates(roots).with_no_client_auth())
}

fn system() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
        return Err(Error::config(format!(
            "the system trusts no certificate{why}; install ca-certificates or name a CA file"
        )));
    }
    Ok(roots)
}

fn roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate =
            certificate.map_err(|error| Error::config(format!("bad CA certificate: {error}")))?;
        roots
            .add(certificate)
            .map_err(|error| Error::config(format!("bad CA certificate: {error}")))?;
    }
    if roots.is_empty() {
        return Err(Error::config("no CA certificate found; PEM begins -----BEGIN CERTIFICATE"));
    }
    Ok(roots)
}

/// Accepts every certificate; signatures are still checked, so that the handshake means something.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
