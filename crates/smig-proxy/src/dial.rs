//! Opens a connection to a server: name lookup, TCP or Unix socket, TLS.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use smig::{LoadedTrust, Resolver, TlsError};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::ProxyError;
use crate::tunnel::ResetOnClose;

/// How long a peer may be silent until its connection is closed; TCP keep-alive probes are sent in the second half of
/// that time. Exchanges that may idle (gRPC, events, tunnels) have no other way to detect a dead peer.
pub const TCP_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddr {
    /// A TCP address.
    Tcp {
        /// A name or an IP address, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// An open connection.
#[derive(Debug)]
pub enum Io {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Over TLS on TCP.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Io {
    /// The server's IP address, if it has one.
    #[must_use]
    pub fn peer_ip(&self) -> Option<IpAddr> {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::Unix(_) => return None,
        };
        tcp.peer_addr().ok().map(|addr| addr.ip().to_canonical())
    }

    /// Returns whether ALPN selected a protocol.
    #[must_use]
    pub fn has_alpn(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol().is_some(),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }

    /// Returns whether ALPN selected HTTP/2.
    #[must_use]
    pub fn is_h2(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol() == Some(b"h2"),
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }
}

/// How to secure a connection.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    /// The certificates that are trusted.
    pub trust: &'a LoadedTrust,
    /// The protocols that are offered.
    pub alpn: AlpnOffer,
}

/// The protocols that ALPN offers to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlpnOffer {
    /// HTTP/2 and HTTP/1.1.
    Both,
    /// HTTP/1.1 alone.
    Http1,
}

/// Connects, without a timeout. Dropping the future drops the connection.
///
/// # Errors
/// [`ProxyError::Resolve`], [`ProxyError::Prohibited`], [`ProxyError::Connect`] or [`ProxyError::Tls`].
pub async fn connect(
    target: &ServerAddr,
    resolver: &Resolver,
    tls: Option<Tls<'_>>,
) -> Result<Io, ProxyError> {
    let (host, port) = match target {
        ServerAddr::Unix(path) => {
            return UnixStream::connect(path).await.map(Io::Unix).map_err(ProxyError::Connect);
        }
        ServerAddr::Tcp { host, port } => (host.as_str(), *port),
    };
    let tcp = connect_tcp(host, port, resolver).await?;
    tcp.set_nodelay(true).map_err(ProxyError::Connect)?;
    enable_keepalive(&tcp);
    let Some(Tls { trust, alpn: offer }) = tls else { return Ok(Io::Tcp(tcp)) };
    let tls_error = |error: io::Error| ProxyError::Tls(TlsError::from_io(&error));
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| tls_error(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let mut config = trust.config().await.map_err(|error| tls_error(io::Error::other(error)))?;
    if offer == AlpnOffer::Http1 {
        Arc::make_mut(&mut config).alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    let tls = TlsConnector::from(config).connect(name, tcp).await.map_err(tls_error)?;
    Ok(Io::Tls(Box::new(tls)))
}

fn enable_keepalive(tcp: &TcpStream) {
    let socket = SockRef::from(tcp);
    let keepalive = TcpKeepalive::new()
        .with_time(TCP_KEEPALIVE_TIMEOUT / 2)
        .with_interval(TCP_KEEPALIVE_TIMEOUT / 8);
    // Best effort. TCP_USER_TIMEOUT would also close connections to peers with a full receive buffer.
    let _ = socket.set_tcp_keepalive(&keepalive.with_retries(4));
}

/// Connects to the first of the name's addresses that accepts.
async fn connect_tcp(host: &str, port: u16, resolver: &Resolver) -> Result<TcpStream, ProxyError> {
    let addrs = resolver.resolve(host, port).await.map_err(ProxyError::from_lookup)?;
    smig::connect_any(addrs).await.map_err(ProxyError::Connect)
}

impl ResetOnClose for Io {
    fn reset_on_close(&mut self) {
        match self {
            Self::Tcp(tcp) => tcp.reset_on_close(),
            Self::Unix(unix) => unix.reset_on_close(),
            // TLS ends without close_notify, TCP with a reset.
            Self::Tls(tls) => tls.get_mut().0.reset_on_close(),
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            // Most requests are a single slice, for which a plain write is cheaper.
            Self::Tcp(tcp) => match bufs {
                [buf] => Pin::new(tcp).poll_write(cx, buf),
                _ => Pin::new(tcp).poll_write_vectored(cx, bufs),
            },
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_write_vectored(),
            Self::Unix(unix) => unix.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Unix(unix) => Pin::new(unix).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_have_keepalive() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let target = ServerAddr::Tcp { host: "127.0.0.1".to_owned(), port };
        let Io::Tcp(tcp) = connect(&target, &Resolver::system(), None).await.unwrap() else {
            panic!("TLS was not requested")
        };
        let socket = SockRef::from(&tcp);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), TCP_KEEPALIVE_TIMEOUT / 2);
        assert_eq!(socket.tcp_user_timeout().unwrap(), None, "peers may stop reading");
    }
}
