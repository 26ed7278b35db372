//! TLS configuration of a listener: certificates by name, which may be replaced while it runs.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustc_hash::FxHashMap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use crate::connection::CertificateNames;
use crate::error::Error;

/// A certificate chain and its private key.
#[derive(Clone, Debug)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    names: Option<Arc<CertificateNames>>,
}

impl Certificate {
    /// Parses a chain and its key in PEM.
    ///
    /// # Errors
    /// There is no certificate or no key, or they do not match.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        let chain = parse_chain(certificate)?;
        let names = chain.first().and_then(CertificateNames::of).map(Arc::new);
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| Error::config(format!("invalid private key: {error}")))?;
        let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
            .map_err(|error| Error::config(format!("certificate and key: {error}")))?;
        Ok(Self { key: Arc::new(key), names })
    }

    fn covers(&self, host: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.covers(host))
    }
}

fn parse_chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Error::config(format!("invalid certificate: {error}")))?;
    if chain.is_empty() {
        return Err(Error::config(
            "no certificate found; a PEM file begins with -----BEGIN CERTIFICATE",
        ));
    }
    Ok(chain)
}

/// Whether the server requests certificates of clients. The trusted CAs are in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// No.
    #[default]
    None,
    /// A certificate must be issued by these CAs; clients without one are served as well.
    Optional(Vec<u8>),
    /// A certificate issued by these CAs is required for a connection.
    Required(Vec<u8>),
}

/// TLS configuration of a listener. Clones share it: a replacement ([`replace`](Self::replace)) applies to all of
/// them.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<RwLock<Arc<HandshakeConfig>>>);

/// The configuration of one handshake.
#[derive(Debug)]
pub(super) struct HandshakeConfig {
    pub(super) config: Arc<ServerConfig>,
    resolver: Option<Arc<CertificateResolver>>,
}

impl HandshakeConfig {
    /// Returns the certificate names for a connection with the SNI `server_name`; `None` if only the service knows
    /// them.
    pub(super) fn names(&self, server_name: Option<&str>) -> Option<Arc<CertificateNames>> {
        self.resolver.as_ref()?.choose(server_name)?.names.clone()
    }
}

/// Certificates, the first of which is the default. A lookup by name takes constant time.
#[derive(Debug)]
struct CertificateResolver {
    certificates: Vec<Certificate>,
    /// The first certificate with the name.
    exact_names: FxHashMap<String, usize>,
    /// The first certificate with a wildcard directly below the name.
    wildcard_names: FxHashMap<String, usize>,
}

impl CertificateResolver {
    fn new(certificates: Vec<Certificate>) -> Self {
        let (mut exact_names, mut wildcard_names) = (FxHashMap::default(), FxHashMap::default());
        for (index, certificate) in certificates.iter().enumerate() {
            for name in certificate.names.iter().flat_map(|names| names.dns_names()) {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(parent) => (&mut wildcard_names, parent.to_owned()),
                    None => (&mut exact_names, name),
                };
                names.entry(name).or_insert(index);
            }
        }
        Self { certificates, exact_names, wildcard_names }
    }

    /// Returns the certificates that may cover a name, in the order in which they were given.
    fn candidates(&self, name: &str) -> impl Iterator<Item = &Certificate> {
        let name = name.to_ascii_lowercase();
        let exact = self.exact_names.get(&name).copied();
        let wildcard =
            name.split_once('.').and_then(|(_, parent)| self.wildcard_names.get(parent).copied());
        let indices = match (exact, wildcard) {
            (Some(exact), Some(wildcard)) if wildcard < exact => [Some(wildcard), Some(exact)],
            both => [both.0, both.1],
        };
        indices.into_iter().flatten().filter_map(|index| self.certificates.get(index))
    }

    fn choose(&self, server_name: Option<&str>) -> Option<&Certificate> {
        let matching = server_name
            .and_then(|name| self.candidates(name).find(|certificate| certificate.covers(name)));
        matching.or_else(|| self.certificates.first())
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.choose(hello.server_name()).map(|certificate| Arc::clone(&certificate.key))
    }
}

impl ServerTls {
    /// Reads a certificate chain and its key from PEM files.
    ///
    /// # Errors
    /// A file cannot be read, holds no certificate or key, or they do not match.
    pub fn from_files(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|error| Error::config(format!("cannot read {}: {error}", path.display())))
        };
        Self::from_pem(&read(certificate)?, &read(key)?)
            .map_err(|error| Error::config(format!("{}: {error}", certificate.display())))
    }

    /// Parses a certificate chain and its key in PEM.
    ///
    /// # Errors
    /// There is no certificate or no key, or they do not match.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, Error> {
        let certificate = Certificate::from_pem(certificate, key)?;
        Self::from_certificates(vec![certificate], &ClientCertificates::None)
    }

    /// Uses several certificates: a client gets the first that covers its SNI, or the first of all if none
    /// does or if it sends none.
    ///
    /// # Errors
    /// There is no certificate, or the CAs for clients cannot be parsed.
    pub fn from_certificates(
        certificates: Vec<Certificate>,
        clients: &ClientCertificates,
    ) -> Result<Self, Error> {
        if certificates.is_empty() {
            return Err(Error::config("a TLS listener needs a certificate"));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::config(format!("TLS: {error}")))?;
        let builder = match clients {
            ClientCertificates::None => builder.with_no_client_auth(),
            ClientCertificates::Optional(authorities) => builder.with_client_cert_verifier(
                client_verifier(authorities, provider)?
                    .allow_unauthenticated()
                    .build()
                    .map_err(bad_authorities)?,
            ),
            ClientCertificates::Required(authorities) => builder.with_client_cert_verifier(
                client_verifier(authorities, provider)?.build().map_err(bad_authorities)?,
            ),
        };
        let resolver = Arc::new(CertificateResolver::new(certificates));
        let mut config = builder.with_cert_resolver(Arc::clone(&resolver) as _);
        // Tickets are valid on every worker and need no memory. Another configuration has other ticket keys,
        // so a client that is no longer trusted cannot resume.
        if let Ok(ticketer) = aws_lc_rs::Ticketer::new() {
            config.ticketer = ticketer;
        }
        Ok(Self::from_config(config, Some(resolver)))
    }

    /// Uses a custom configuration. ALPN is set to h2 and http/1.1 unless it is set; early data is disabled
    /// (SMIG-4.10/no-early-data). The service must refuse requests for names that no certificate covers.
    #[must_use]
    pub fn from_rustls(config: ServerConfig) -> Self {
        Self::from_config(config, None)
    }

    fn from_config(mut config: ServerConfig, resolver: Option<Arc<CertificateResolver>>) -> Self {
        if config.alpn_protocols.is_empty() {
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        }
        config.max_early_data_size = 0;
        let handshake_config = HandshakeConfig { config: Arc::new(config), resolver };
        Self(Arc::new(RwLock::new(Arc::new(handshake_config))))
    }

    /// Uses the configuration of `other` from the next handshake on; returns the previous one. Open connections
    /// stay, and others may join them as before (SMIG-4.5/same-identity).
    pub fn replace(&self, other: &Self) -> Self {
        let handshake_config = other.current();
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Self(Arc::new(RwLock::new(std::mem::replace(&mut *current, handshake_config))))
    }

    pub(super) fn current(&self) -> Arc<HandshakeConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn client_verifier(
    authorities: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<rustls::server::ClientCertVerifierBuilder, Error> {
    let mut roots = RootCertStore::empty();
    for authority in parse_chain(authorities)? {
        roots.add(authority).map_err(|error| {
            Error::config(format!("invalid CA certificate for clients: {error}"))
        })?;
    }
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider))
}

fn bad_authorities(error: rustls::server::VerifierBuilderError) -> Error {
    Error::config(format!("CA certificates for clients: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn self_signed_pem(names: &[&str]) -> (String, String) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let self_signed = rcgen::generate_simple_self_signed(names).unwrap();
        (self_signed.cert.pem(), self_signed.signing_key.serialize_pem())
    }

    fn certificate(names: &[&str]) -> Certificate {
        let (certificate, key) = self_signed_pem(names);
        Certificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap()
    }

    // SMIG-4.10/no-early-data
    #[test]
    fn early_data_is_off_whatever_the_configuration_says() {
        let (certificate, key) = self_signed_pem(&["localhost"]);
        let tls = ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let mut config = ServerConfig::clone(&tls.current().config);
        config.max_early_data_size = 1 << 14;
        assert_eq!(ServerTls::from_rustls(config).current().config.max_early_data_size, 0);
    }

    #[test]
    fn certificate_errors_name_the_cause() {
        let (certificate, key) = self_signed_pem(&["localhost"]);
        let error = |certificate: &str, key: &str| {
            ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap_err().to_string()
        };
        assert!(error("", &key).contains("no certificate"));
        assert!(error(&certificate, "").contains("private key"));
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert!(error(&certificate, &other).contains("certificate and key"));
        let clients = ClientCertificates::Required(b"nothing".to_vec());
        let good = Certificate::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert!(ServerTls::from_certificates(vec![good], &clients).is_err());
        assert!(ServerTls::from_certificates(Vec::new(), &ClientCertificates::None).is_err());
    }

    #[test]
    fn the_first_certificate_that_covers_the_name_is_chosen() {
        let resolver = CertificateResolver::new(vec![
            certificate(&["a.example"]),
            certificate(&["*.b.example"]),
            certificate(&["x.b.example", "c.example"]),
        ]);
        let index = |name: Option<&str>| {
            let chosen = resolver.choose(name).unwrap();
            resolver.certificates.iter().position(|one| Arc::ptr_eq(&one.key, &chosen.key)).unwrap()
        };
        assert_eq!(index(Some("a.example")), 0);
        assert_eq!(index(Some("X.B.example")), 1);
        assert_eq!(index(Some("c.example")), 2);
        assert_eq!(index(Some("y.x.b.example")), 0, "a wildcard is for one label");
        assert_eq!(index(Some("elsewhere.example")), 0);
        assert_eq!(index(None), 0);
    }
    #[test]
    fn a_lookup_checks_at_most_two_certificates() {
        let key = rcgen::KeyPair::generate().unwrap();
        let build_certificate = |names: [String; 2]| {
            let params = rcgen::CertificateParams::new(names).unwrap();
            let pem = params.self_signed(&key).unwrap().pem();
            Certificate::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
        };
        let all: Vec<_> = (0..100)
            .map(|n| build_certificate([format!("n{n}.example"), format!("*.w{n}.example")]))
            .collect();
        let resolver = CertificateResolver::new(all);
        for n in 0..100 {
            for name in [format!("N{n}.example"), format!("x.w{n}.example")] {
                let chosen = resolver.choose(Some(&name)).unwrap();
                assert!(Arc::ptr_eq(&chosen.key, &resolver.certificates[n].key), "{name}");
                assert_eq!(resolver.candidates(&name).count(), 1, "{name}");
            }
        }
        assert_eq!(resolver.candidates("elsewhere.example").count(), 0);
    }
}
