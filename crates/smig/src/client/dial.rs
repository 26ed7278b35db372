//! Establishes a transport to a host name: resolution, happy eyeballs (RFC 8305), TLS.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::origin::OriginSecurity;
use super::pool::OriginContext;
use crate::error::{Error, ErrorKind, TimeoutPhase, TlsError};
use crate::transport::{self, Transport};

/// Delay before a connection attempt to the next address starts (RFC 8305 section 5).
const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Timeouts of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct DialTimeouts {
    pub(super) connect: Duration,
    pub(super) handshake: Duration,
}

/// Connects to the origin, at the address that answers first.
pub(super) async fn dial(context: &OriginContext) -> Result<Transport, Error> {
    let (origin, limit) = (&context.origin, context.dial_timeouts.connect);
    let connecting = async {
        let name = origin.host();
        let addrs = context.resolver.resolve(name, origin.port()).await;
        let addrs = addrs
            .map_err(|source| Error::new(ErrorKind::Resolve { host: name.to_owned(), source }))?;
        let failed = |source| Error::new(ErrorKind::Connect { target: origin.to_string(), source });
        connect_any(addrs).await.map_err(failed)
    };
    let tcp = timeout(limit, connecting).await.map_err(|_| {
        Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Connect, after: limit })
    })??;
    secure(tcp, context).await
}

/// Connects to the address that the session uses already.
pub(super) async fn dial_addr(
    addr: SocketAddr,
    context: &OriginContext,
) -> Result<Transport, Error> {
    let limit = context.dial_timeouts.connect;
    let tcp = timeout(limit, TcpStream::connect(addr))
        .await
        .map_err(|_| Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Connect, after: limit }))?
        .map_err(|source| Error::new(ErrorKind::Connect { target: addr.to_string(), source }))?;
    secure(tcp, context).await
}

async fn secure(tcp: TcpStream, context: &OriginContext) -> Result<Transport, Error> {
    let (origin, limit) = (&context.origin, context.dial_timeouts.handshake);
    let handshake_error = |source| {
        let fault = TlsError::from_io(&source);
        Error::new(ErrorKind::Tls { target: origin.to_string(), fault, source })
    };
    match origin.security() {
        OriginSecurity::Cleartext => Transport::cleartext(tcp).map_err(|source| {
            Error::new(ErrorKind::Connect { target: origin.to_string(), source })
        }),
        OriginSecurity::Tls => {
            let name = origin.server_name()?;
            let handshake = async {
                let config = context.trust.config().await?;
                transport::connect(tcp, config, name).await.map_err(handshake_error)
            };
            timeout(limit, handshake).await.map_err(|_| {
                Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Handshake, after: limit })
            })?
        }
    }
}

/// Alternates the address families, beginning with that of the resolver's first address (section
/// 4).
fn interleave(addrs: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_v6 = addrs.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addrs.into_iter().partition(|addr| addr.is_ipv6() == first_v6);
    let mut mixed = VecDeque::new();
    while !first.is_empty() || !second.is_empty() {
        mixed.extend(first.pop_front());
        mixed.extend(second.pop_front());
    }
    mixed
}

/// Connects to the address of a host that answers first. Alternates the address families and
/// staggers the attempts (RFC 8305).
///
/// # Errors
/// No address, or the last attempt's error.
pub async fn connect_any(addrs: Vec<SocketAddr>) -> io::Result<TcpStream> {
    race(interleave(addrs)).await
}

/// Starts the attempts one after another. The first that connects wins; the others are aborted.
async fn race(mut addrs: VecDeque<SocketAddr>) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut last_error = None;
    loop {
        if let Some(addr) = addrs.pop_front() {
            attempts.spawn(TcpStream::connect(addr));
        }
        loop {
            let attempt_result = if addrs.is_empty() {
                attempts.join_next().await
            } else {
                match timeout(CONNECTION_ATTEMPT_DELAY, attempts.join_next()).await {
                    Ok(ended) => ended,
                    Err(_) => break,
                }
            };
            match attempt_result {
                Some(Ok(Ok(tcp))) => return Ok(tcp),
                Some(Ok(Err(error))) => last_error = Some(error),
                Some(Err(_)) => {}
                None if addrs.is_empty() => {
                    return Err(last_error.unwrap_or_else(|| io::Error::other("no addresses")));
                }
                // All attempts so far failed: start the next at once.
                None => break,
            }
            if !addrs.is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_families_alternate() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mixed = interleave(vec![
            addr("[2001:db8::1]:1"),
            addr("[2001:db8::2]:1"),
            addr("192.0.2.1:1"),
            addr("192.0.2.2:1"),
            addr("192.0.2.3:1"),
        ]);
        let v6: Vec<_> = mixed.iter().map(SocketAddr::is_ipv6).collect();
        assert_eq!(v6, [true, false, true, false, false]);
    }

    #[tokio::test]
    async fn a_refused_address_does_not_prevent_the_next() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good_addr = listener.local_addr().unwrap();
        // Bound, but not listening.
        let bound_socket = tokio::net::TcpSocket::new_v4().unwrap();
        bound_socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let refused_addr = bound_socket.local_addr().unwrap();
        let tcp = connect_any(vec![refused_addr, good_addr]).await.unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), good_addr);
        let error = connect_any(vec![refused_addr]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
