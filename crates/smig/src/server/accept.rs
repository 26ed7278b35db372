//! From an accepted socket to a session: TLS handshake, protocol detection, identity.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use smig_proto::{Security, Session};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::bind::{BACKLOG, ListenerKind, ListenerSpec};
use super::http1::MAX_EMPTY_LINES;
use super::service::{HttpService, ResponseBody};
use super::shared::ServerShared;
use super::worker::Worker;
use super::{http1, identity, worker};
use crate::clock;
use crate::connection::{CertificateNames, ConnectionInfo};
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::limits::OpenPermit;
use crate::observer::ObserverEvent;
use crate::socket::ConnectionAddrs;
use crate::transport::{self, ReceiveOutcome, Transport};

/// The first bytes of HTTP/2's preface (RFC 9113 section 3.4); no HTTP/1.1 request begins with them.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";
/// Limit for protocol detection: a longer first line counts as HTTP/1.1, whose parser has limits of its own.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Pause of the accept loop after accept(2) failed, usually because there are no more file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of connections accepted when a listener is closed, as at shutdown: the length of the backlog of a
/// socket that the server has bound. One that the application has bound may have a longer backlog. What waits there
/// beyond this is reset, unless another process has the socket too.
const MAX_CLOSING_ACCEPTS: i32 = BACKLOG;

/// The protocol of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http2,
    Http1,
}

/// Accepts connections until `close_receiver` is notified or dropped, then also those in the backlog: closing a
/// listener resets the connections that wait there.
pub(super) async fn accept_all<S, B>(
    socket: TcpListener,
    spec: Arc<ListenerSpec>,
    worker: Rc<Worker<S>>,
    mut close_receiver: oneshot::Receiver<()>,
) where
    S: HttpService<B>,
    B: ResponseBody,
{
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = &mut close_receiver => break,
        };
        match accepted {
            Ok((tcp, peer)) => handle_accepted(tcp, peer, &spec, &worker),
            Err(error) if is_connection_error(&error) => {
                tracing::debug!(%error, "connection closed before it was accepted");
            }
            Err(error) => {
                worker.shared.on_exhausted(exhausted_resource(&error), &error);
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
    // Bypass the runtime, whose readiness may be out of date. The number of connections is limited, so that
    // new ones cannot keep the worker from its streams.
    let Ok(socket) = socket.into_std() else { return };
    for _ in 0..MAX_CLOSING_ACCEPTS {
        match socket.accept() {
            Ok((tcp, peer)) => {
                match tcp.set_nonblocking(true).and_then(|()| TcpStream::from_std(tcp)) {
                    Ok(tcp) => handle_accepted(tcp, peer, &spec, &worker),
                    Err(error) => worker.shared.on_exhausted(exhausted_resource(&error), &error),
                }
            }
            Err(error) if is_connection_error(&error) => {}
            // The backlog is empty, or accept fails.
            Err(_) => return,
        }
    }
}

/// Starts to serve a connection, if the limits allow it.
fn handle_accepted<S, B>(
    tcp: TcpStream,
    peer: SocketAddr,
    spec: &Arc<ListenerSpec>,
    worker: &Rc<Worker<S>>,
) where
    S: HttpService<B>,
    B: ResponseBody,
{
    // A limit that was hit has been reported.
    let Ok(permit) = admit(&tcp, peer, &worker.shared) else { return };
    let token = worker.task_token();
    let (spec, worker) = (Arc::clone(spec), Rc::clone(worker));
    tokio::task::spawn_local(async move {
        let _token = token;
        if let Err(error) = establish(tcp, permit, &spec, worker).await {
            tracing::debug!(%error, %peer, "connection not served");
        }
    });
}

/// Serves one connection that the application has accepted, until it has ended or the server is stopped. Must run in a
/// [`LocalSet`](tokio::task::LocalSet), with a worker of its own.
pub(super) async fn serve_accepted<S, B>(
    tcp: TcpStream,
    spec: &ListenerSpec,
    worker: Rc<Worker<S>>,
) -> Result<(), Error>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    let peer = tcp.peer_addr().map_err(|error| Error::io("the connection is lost", error))?;
    let permit = admit(&tcp, peer, &worker.shared)?;
    establish(tcp, permit, spec, Rc::clone(&worker)).await?;
    worker.wait_for_tasks().await;
    Ok(())
}

/// Acquires a new connection's permits. Reports a limit that is hit.
fn admit(tcp: &TcpStream, peer: SocketAddr, shared: &ServerShared) -> Result<OpenPermit, Error> {
    let limit_hit = |limit| {
        shared.on_limit_hit(limit, Some(peer));
        Error::new(ErrorKind::Limit(limit))
    };
    let client_permit = shared.client_quota.try_acquire(peer.ip());
    let client_permit = client_permit.ok_or_else(|| limit_hit("max_connections_per_client"))?;
    let addrs = || Some(ConnectionAddrs { local: tcp.local_addr().ok()?, peer });
    let permit = OpenPermit::try_acquire(
        &shared.open_connections,
        shared.max_connections,
        &shared.events,
        addrs,
    );
    Ok(permit.ok_or_else(|| limit_hit("max_connections"))?.with_client_permit(client_permit))
}

/// Returns which resource is exhausted when accept(2) fails.
fn exhausted_resource(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "this process may open no more files",
        Some(libc::ENFILE) => "this machine may open no more files",
        Some(libc::ENOBUFS | libc::ENOMEM) => "there is not enough memory for sockets",
        _ => "accept failed",
    }
}

/// Returns whether an error of accept(2) concerns the connection and not the listener.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Performs the handshake, then serves HTTP/1.1 to its end, or starts the task of a session.
async fn establish<S, B>(
    tcp: TcpStream,
    permit: OpenPermit,
    spec: &ListenerSpec,
    worker: Rc<Worker<S>>,
) -> Result<(), Error>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    let NegotiatedConn { mut transport, protocol, names } =
        negotiate_with_timeout(tcp, spec, worker.shared.handshake_timeout).await.inspect_err(
            |_| {
                worker.shared.events.on_event(&ObserverEvent::HandshakeFailed);
            },
        )?;
    transport = transport.with_permit(permit);
    let cleartext_security = match spec.kind {
        ListenerKind::Tls(_) => Security::Ineligible,
        ListenerKind::Cleartext(security) => security,
    };
    let identity = identity::compute(&transport, spec.addr, &worker.shared.tenant);
    match protocol {
        Protocol::Http1 => {
            let info = Arc::new(
                ConnectionInfo::new(&transport, cleartext_security, names).with_listener(spec.id),
            );
            http1::serve(transport, info, worker).await;
        }
        Protocol::Http2 => {
            let now = clock::now();
            let session = Session::server(Arc::clone(&worker.shared.engine_config), now);
            worker::spawn_session(&worker, session, |session, conns| {
                let info = ConnectionInfo::new(&transport, cleartext_security, names)
                    .with_listener(spec.id);
                conns.add(session, now, transport, info, identity);
            });
        }
    }
    Ok(())
}

/// Determines the protocol of a connection within a time limit.
async fn negotiate_with_timeout(
    tcp: TcpStream,
    spec: &ListenerSpec,
    after: Duration,
) -> Result<NegotiatedConn, Error> {
    match timeout(after, negotiate(tcp, spec)).await {
        Ok(negotiated) => negotiated.map_err(|error| Error::io("handshake failed", error)),
        Err(_) => Err(Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Handshake, after })),
    }
}

/// A connection whose protocol and certificate names are known.
struct NegotiatedConn {
    transport: Transport,
    protocol: Protocol,
    names: Option<Arc<CertificateNames>>,
}

/// Performs the TLS handshake, if any, and determines the protocol.
async fn negotiate(tcp: TcpStream, spec: &ListenerSpec) -> io::Result<NegotiatedConn> {
    let handshake_config = match &spec.kind {
        ListenerKind::Tls(tls) => tls.current(),
        ListenerKind::Cleartext(_) => {
            let mut transport = Transport::cleartext(tcp)?;
            let protocol = sniff(&mut transport).await?;
            return Ok(NegotiatedConn { transport, protocol, names: None });
        }
    };
    // Saves the client's first flight a round trip on slow links.
    tcp.set_nodelay(true)?;
    let transport = transport::accept(tcp, Arc::clone(&handshake_config.config)).await?;
    let protocol = match transport.alpn() {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    };
    let names = handshake_config.names(transport.server_name());
    Ok(NegotiatedConn { transport, protocol, names })
}

/// Reads until the protocol is determined.
async fn sniff(transport: &mut Transport) -> io::Result<Protocol> {
    loop {
        if let Some(protocol) = detect_protocol(transport.input())? {
            return Ok(protocol);
        }
        if std::future::poll_fn(|cx| transport.poll_receive(cx)).await? == ReceiveOutcome::End {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Determines the protocol from the first bytes, if they suffice.
fn detect_protocol(input: &[u8]) -> io::Result<Option<Protocol>> {
    let known = input.len().min(PREFACE.len());
    if input.get(..known) == PREFACE.get(..known) {
        return Ok((known == PREFACE.len()).then_some(Protocol::Http2));
    }
    let (mut line, mut empty_lines) = (input, 0);
    while let Some(rest) = line.strip_prefix(b"\r\n") {
        if empty_lines == MAX_EMPTY_LINES {
            // The HTTP/1.1 parser refuses them.
            return Ok(Some(Protocol::Http1));
        }
        (line, empty_lines) = (rest, empty_lines + 1);
    }
    match line.iter().position(|&byte| byte == b'\n') {
        Some(end) if is_request_line(line.get(..end).unwrap_or_default()) => {
            Ok(Some(Protocol::Http1))
        }
        // A client that meant HTTP/2 would parse a response in HTTP/1.1 as frames.
        Some(_) => Err(io::Error::other("neither HTTP/2 nor HTTP/1.1")),
        None if input.len() > MAX_LINE_BYTES => Ok(Some(Protocol::Http1)),
        None => Ok(None),
    }
}

/// Returns whether this is the request line of an HTTP/1.x request (RFC 9112 section 3).
fn is_request_line(line: &[u8]) -> bool {
    const VERSION: &[u8] = b" HTTP/1.";
    line.windows(VERSION.len()).any(|part| part == VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_is_detected_from_the_first_bytes() {
        const GET: &str = "GET / HTTP/1.1\r\n";
        const PRI: &str = "PRI * HTTP/2.0\r\n";
        let lines = |count| "\r\n".repeat(count);
        let long_line = "a".repeat(MAX_LINE_BYTES);
        for (input, expected) in [
            (String::new(), None),
            ("PRI * HTTP/2.".to_owned(), None),
            (PRI.to_owned(), Some(Protocol::Http2)),
            ("GET /".to_owned(), None),
            (GET.to_owned(), Some(Protocol::Http1)),
            (long_line.clone(), None),
            (format!("{long_line}a"), Some(Protocol::Http1)),
            // RFC 9112 section 2.2
            ("\r".to_owned(), None),
            (lines(1), None),
            (format!("{}{GET}", lines(1)), Some(Protocol::Http1)),
            (lines(8), None),
            (format!("{}{GET}", lines(8)), Some(Protocol::Http1)),
            (lines(9), Some(Protocol::Http1)),
        ] {
            assert_eq!(detect_protocol(input.as_bytes()).unwrap(), expected, "{input:?}");
        }
        for input in ["\n".to_owned(), "x\r\n".to_owned(), format!("\r\n{PRI}")] {
            assert!(detect_protocol(input.as_bytes()).is_err(), "{input:?}");
        }
    }
}
