//! Which authorities a connection may ask for (RFC 9113 section 9.1.1, RFC 9110 section 7.4).
//!
//! A client may use one connection for every name that the certificate covers, and for no other: a
//! request for another name is misdirected (421).

use http::uri::Authority;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// The names of a server's certificate.
#[derive(Debug)]
pub(crate) struct CertificateNames(CertificateDer<'static>);

impl CertificateNames {
    /// The names of `certificate`, if it can be read.
    pub(super) fn of(certificate: &CertificateDer<'static>) -> Option<Self> {
        ParsedCertificate::try_from(certificate).ok()?;
        Some(Self(certificate.clone()))
    }

    /// The names as they stand in the certificate, wildcards too. They say where to look; whether one is good
    /// for a host is asked of [`cover`](Self::cover).
    pub(super) fn written(&self) -> Vec<String> {
        let Ok(parsed) = webpki::EndEntityCert::try_from(&self.0) else { return Vec::new() };
        parsed.valid_dns_names().map(str::to_ascii_lowercase).collect()
    }

    /// Whether the certificate is good for `host`.
    pub(super) fn cover(&self, host: &str) -> bool {
        let Ok(parsed) = ParsedCertificate::try_from(&self.0) else { return true };
        let Ok(name) = ServerName::try_from(host) else { return false };
        verify_server_name(&parsed, &name).is_ok()
    }

    /// Whether a request for `uri` belongs to a connection that asked for `server_name`. One that
    /// asked for none chose by address: nothing contradicts it.
    pub(crate) fn allow(&self, server_name: Option<&str>, authority: &Authority) -> bool {
        let Some(server_name) = server_name else { return true };
        let host = host(authority);
        host.eq_ignore_ascii_case(server_name) || self.cover(host)
    }
}

/// The host without an address's brackets and a name's last dot.
fn host(authority: &Authority) -> &str {
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_decides_about_other_names() {
        let names = ["a.example".to_owned(), "*.b.example".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let names = CertificateNames::of(made.cert.der()).unwrap();
        let allow = |server_name, uri| {
            names.allow(server_name, http::Uri::from_static(uri).authority().unwrap())
        };
        assert!(allow(Some("a.example"), "https://a.example:8443/"));
        assert!(allow(Some("a.example"), "https://A.EXAMPLE/"));
        assert!(allow(Some("a.example"), "https://a.example./"));
        assert!(allow(Some("a.example"), "https://x.b.example/"));
        assert!(allow(Some("a.example"), "https://127.0.0.1/"));
        assert!(!allow(Some("a.example"), "https://c.example/"));
        assert!(!allow(Some("a.example"), "https://b.example/"));
        assert!(allow(None, "https://c.example/"));
    }
}
