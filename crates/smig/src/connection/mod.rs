//! Properties of the connection that carried a request, for applications.

mod certificate_names;

use std::net::SocketAddr;
use std::sync::Arc;

use http::uri::Authority;
use smig_proto::Security;

use crate::socket::ConnectionAddrs;
use crate::transport::Transport;

pub(crate) use certificate_names::CertificateNames;

/// How far cleartext connections are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleartextTrust {
    /// HTTP/1.1 and HTTP/2 with prior knowledge, no migration.
    None,
    /// Migration as well. It gives no protection against an attacker on the path: for tests, a lab, or
    /// a network whose users trust each other.
    TrustedNetwork,
}

impl CleartextTrust {
    pub(crate) const fn security(self) -> Security {
        match self {
            Self::None => Security::Ineligible,
            Self::TrustedNetwork => Security::TrustedCleartext,
        }
    }
}

/// Identifies a listener from when it is opened until it is closed. Ids are unique, even among listeners that are
/// opened one after another at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(u64);

impl ListenerId {
    pub(crate) const fn new(id: u64) -> Self {
        Self(id)
    }
}

/// A connection's addresses and its TLS parameters. A server's requests carry one as an extension
/// (`http::Request::extensions`), in an [`std::sync::Arc`]; those over HTTP/2 do not with
/// [`RequestExtensions::Protocol`](crate::RequestExtensions::Protocol).
#[derive(Debug)]
pub struct ConnectionInfo {
    peer: SocketAddr,
    local: SocketAddr,
    tls: Option<TlsInfo>,
    pub(crate) security: Security,
    names: Option<Arc<CertificateNames>>,
    listener: Option<ListenerId>,
}

/// The parameters that TLS negotiated.
#[derive(Clone, Debug)]
pub struct TlsInfo {
    server_name: Option<String>,
    alpn: Option<Vec<u8>>,
    version: Option<rustls::ProtocolVersion>,
    peer_certificates: Vec<rustls::pki_types::CertificateDer<'static>>,
}

impl ConnectionInfo {
    pub(crate) fn new(
        transport: &Transport,
        cleartext_security: Security,
        names: Option<Arc<CertificateNames>>,
    ) -> Self {
        let tls = transport.tls().map(|tls| TlsInfo {
            server_name: transport.server_name().map(str::to_owned),
            alpn: tls.alpn_protocol().map(<[u8]>::to_vec),
            version: tls.protocol_version(),
            peer_certificates: match tls {
                rustls::Connection::Server(tls) => {
                    tls.peer_certificates().unwrap_or_default().to_vec()
                }
                // The server's chain is large and always the same, and nothing reads it.
                rustls::Connection::Client(_) => Vec::new(),
            },
        });
        Self {
            peer: transport.peer(),
            local: transport.local(),
            tls,
            security: transport.security(cleartext_security),
            names,
            listener: None,
        }
    }

    /// Sets the listener that accepted the connection (server).
    pub(crate) const fn with_listener(mut self, listener: ListenerId) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Returns the listener that accepted the connection; `None` at a client.
    #[must_use]
    pub const fn listener(&self) -> Option<ListenerId> {
        self.listener
    }

    /// Returns whether requests for `authority` may use this connection: the client sent this name or no
    /// name by SNI, or the certificate covers it (RFC 9113 section 9.1.1). True wherever the certificate is
    /// not known: on cleartext and with [`ServerTls::from_rustls`](crate::ServerTls::from_rustls).
    #[must_use]
    pub fn serves(&self, authority: &Authority) -> bool {
        let server_name = self.tls.as_ref().and_then(TlsInfo::server_name);
        self.names.as_ref().is_none_or(|names| names.allows(server_name, authority))
    }

    /// Returns the peer's address.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the local address.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns both addresses.
    pub(crate) const fn addrs(&self) -> ConnectionAddrs {
        ConnectionAddrs { local: self.local, peer: self.peer }
    }

    /// Returns the TLS parameters; `None` on cleartext.
    #[must_use]
    pub const fn tls(&self) -> Option<&TlsInfo> {
        self.tls.as_ref()
    }
}

impl TlsInfo {
    /// Returns the name that the client sent by SNI.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the protocol that ALPN negotiated.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.alpn.as_deref()
    }

    /// Returns the TLS version.
    #[must_use]
    pub const fn version(&self) -> Option<rustls::ProtocolVersion> {
        self.version
    }

    /// Returns the client's certificate chain, its own certificate first; empty if it sent none.
    #[must_use]
    pub fn peer_certificates(&self) -> &[rustls::pki_types::CertificateDer<'static>] {
        &self.peer_certificates
    }
}
