//! The target of a request: scheme, host, port.

use std::fmt;

use http::Uri;
use http::uri::Scheme;
use rustls::pki_types::ServerName;

use crate::error::{Error, ErrorKind};

/// A server's scheme, host and port. All requests to one origin share one session; with a server
/// without SMig they may use several sessions of one connection each ([`ClientBuilder::plain_connections`]).
///
/// [`ClientBuilder::plain_connections`]: super::ClientBuilder::plain_connections
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    security: OriginSecurity,
    host: String,
    port: u16,
}

/// Whether an origin is reached over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OriginSecurity {
    Tls,
    Cleartext,
}

impl Origin {
    /// `https://host:port`.
    #[must_use]
    pub fn https(host: impl Into<String>, port: u16) -> Self {
        Self { security: OriginSecurity::Tls, host: host.into(), port }
    }

    /// `http://host:port`.
    #[must_use]
    pub fn http(host: impl Into<String>, port: u16) -> Self {
        Self { security: OriginSecurity::Cleartext, host: host.into(), port }
    }

    /// Returns the origin of a URI.
    ///
    /// # Errors
    /// A URI without scheme or host, with a scheme other than http and https, with a port that is not
    /// a number from 1 to 65535, or with a user name, which would be lost.
    pub fn from_uri(uri: &Uri) -> Result<Self, Error> {
        let invalid_uri = |why: &str| Error::new(ErrorKind::Request(format!("{uri}: {why}")));
        let no_host = || invalid_uri("no host; write https://host/path");
        let authority = uri.authority().ok_or_else(no_host)?;
        if authority.as_str().contains('@') {
            // Without the URI: it may hold a password.
            let why = format!(
                "{}: a user name in the URI is not supported; send an authorization field",
                authority.host()
            );
            return Err(Error::new(ErrorKind::Request(why)));
        }
        let invalid_port = || invalid_uri("the port is invalid; write a number from 1 to 65535");
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host).unwrap_or_default() {
            "" | ":" => None,
            _ => Some(authority.port_u16().filter(|port| *port != 0).ok_or_else(invalid_port)?),
        };
        // Brackets belong to the URI, not to the address.
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Ok(Self::https(host, port.unwrap_or(443))),
            Some(scheme) if *scheme == Scheme::HTTP => Ok(Self::http(host, port.unwrap_or(80))),
            Some(_) => Err(invalid_uri("only https and http are supported")),
            None => Err(invalid_uri("no scheme; write https://host/path")),
        }
    }

    pub(crate) const fn security(&self) -> OriginSecurity {
        self.security
    }

    /// Returns the host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns the name that the certificate must contain.
    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, Error> {
        ServerName::try_from(self.host.clone()).map_err(|_| {
            Error::new(ErrorKind::Request(format!("{}: not a valid host name", self.host)))
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.security {
            OriginSecurity::Tls => "https",
            OriginSecurity::Cleartext => "http",
        };
        if self.host.contains(':') {
            write!(f, "{scheme}://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{scheme}://{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_parsed_from_uris() {
        let origin = |uri: &'static str| Origin::from_uri(&Uri::from_static(uri));
        assert_eq!(origin("https://example.org/x").unwrap(), Origin::https("example.org", 443));
        assert_eq!(origin("http://[::1]:8080/").unwrap(), Origin::http("::1", 8080));
        assert_eq!(origin("http://[::1]:8080/").unwrap().to_string(), "http://[::1]:8080");
        assert!(origin("/path").unwrap_err().is_user());
        assert!(origin("ftp://example.org/").unwrap_err().is_user());
    }

    #[test]
    fn a_port_or_user_that_would_be_ignored_is_an_error() {
        let origin = |uri: &'static str| Origin::from_uri(&Uri::from_static(uri));
        assert_eq!(origin("https://a:/x").unwrap(), Origin::https("a", 443));
        for uri in ["https://a:99999/x", "https://a:0/", "http://[::1]:65536/"] {
            let error = origin(uri).unwrap_err();
            assert!(error.is_user(), "{error}");
            assert!(error.to_string().contains("write a number from 1 to 65535"), "{error}");
        }
        for uri in ["https://user:secret@a/x", "http://user:secret@a:80", "https://user@[::1]/"] {
            let error = origin(uri).unwrap_err();
            assert!(error.is_user() && error.to_string().contains("a user name"), "{error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
