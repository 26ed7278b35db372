//! Authorities that a connection's certificate covers (RFC 9113 section 9.1.1, RFC 9110 section 7.4).
//!
//! A client may use one connection for every name that the certificate covers, and for no other: a
//! request for another name is misdirected (421).

use http::uri::Authority;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// The names in a server's certificate.
#[derive(Debug)]
pub(crate) struct CertificateNames(CertificateDer<'static>);

impl CertificateNames {
    /// Creates the names from `certificate`, if it can be parsed.
    pub(crate) fn of(certificate: &CertificateDer<'static>) -> Option<Self> {
        ParsedCertificate::try_from(certificate).ok()?;
        Some(Self(certificate.clone()))
    }

    /// Returns the DNS names in the certificate, in lower case, including wildcards. They are for an index only;
    /// [`covers`](Self::covers) decides whether the certificate is valid for a host.
    pub(crate) fn dns_names(&self) -> Vec<String> {
        let Ok(parsed) = webpki::EndEntityCert::try_from(&self.0) else { return Vec::new() };
        parsed.valid_dns_names().map(str::to_ascii_lowercase).collect()
    }

    /// Returns whether the certificate is valid for `host`.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let Ok(parsed) = ParsedCertificate::try_from(&self.0) else { return true };
        let Ok(name) = ServerName::try_from(host) else { return false };
        verify_server_name(&parsed, &name).is_ok()
    }

    /// Returns whether requests for `authority` may use a connection with the SNI `server_name`. A client that sent
    /// none chose the server by its address, so any authority is allowed.
    pub(crate) fn allows(&self, server_name: Option<&str>, authority: &Authority) -> bool {
        let Some(server_name) = server_name else { return true };
        let host = host(authority);
        host.eq_ignore_ascii_case(server_name) || self.covers(host)
    }
}

/// Returns the host, without the brackets of an IPv6 address or the trailing dot of a name.
fn host(authority: &Authority) -> &str {
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_are_allowed_if_the_certificate_covers_them() {
        let names = ["a.example".to_owned(), "*.b.example".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let names = CertificateNames::of(made.cert.der()).unwrap();
        let allow = |server_name, uri| {
            names.allows(server_name, http::Uri::from_static(uri).authority().unwrap())
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
