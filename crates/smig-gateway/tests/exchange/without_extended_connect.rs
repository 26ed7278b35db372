//! WebSocket and CONNECT to TLS servers whose HTTP/2 lacks extended CONNECT (RFC 8441), or that no
//! longer support HTTP/2.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smig::Resolver;
use smig_gateway::upstream::UpstreamSpec;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::servers::tls_config;
use crate::support::{Gateway, loopback, spec, wait_until, within};
use crate::switching::{ACCEPT_VALUE, UPGRADE, exchange_greeting, read_head, switching_response};

/// SETTINGS without an entry.
const EMPTY_SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// SETTINGS with SETTINGS_ENABLE_CONNECT_PROTOCOL.
const EXTENDED_CONNECT_SETTINGS: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1];

const GET_REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// What a server does if ALPN finds no common protocol.
#[derive(Clone, Copy)]
enum NoCommonProtocol {
    Alert,
    /// Like Go: the handshake succeeds without ALPN, and the connection is closed.
    Close,
}

/// A TLS server. Over HTTP/2 it responds with 200, and never ends the first response of a
/// connection; the test serves HTTP/1.1.
struct TlsServer {
    addr: SocketAddr,
    /// Number of connections over HTTP/2.
    http2_connections: Arc<AtomicUsize>,
    /// False: the server supports only HTTP/1.1.
    is_http2_enabled: watch::Sender<bool>,
    /// The SETTINGS frame that begins an HTTP/2 connection.
    settings: watch::Sender<&'static [u8]>,
    http1: mpsc::UnboundedReceiver<TlsStream<TcpStream>>,
}

/// Serves HTTP/2: responds to each request with 200, without END_STREAM to the first of a
/// connection; acknowledges PING.
async fn serve_http2(tls: &mut TlsStream<TcpStream>, settings: &[u8]) -> std::io::Result<()> {
    const HEADERS: u8 = 1;
    const PING: u8 = 6;
    tls.write_all(settings).await?;
    tls.flush().await?;
    tls.read_exact(&mut [0; 24]).await?;
    let mut flags = 4;
    loop {
        let mut head = [0; 9];
        tls.read_exact(&mut head).await?;
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        tls.read_exact(&mut payload).await?;
        match (head[3], head[4]) {
            (HEADERS, _) => {
                let stream = &head[5..];
                tls.write_all(&[&[0, 0, 1, HEADERS, flags], stream, &[0x88]].concat()).await?;
                flags = 5;
            }
            (PING, 0) => {
                tls.write_all(&[&[0, 0, 8, PING, 1, 0, 0, 0, 0], &payload[..]].concat()).await?;
            }
            _ => {}
        }
        tls.flush().await?;
    }
}

impl TlsServer {
    async fn start(alpn: &[&str]) -> Self {
        Self::start_with(alpn, NoCommonProtocol::Alert).await
    }

    async fn start_with(alpn: &[&str], no_common_protocol: NoCommonProtocol) -> Self {
        let config = |alpn: &[&str]| Arc::new(tls_config(alpn).0);
        let (alpn_config, http1_only, without_alpn) =
            (config(alpn), config(&["http/1.1"]), config(&[]));
        let (http2_enabled, http2_enabled_rx) = watch::channel(true);
        let (settings, settings_rx) = watch::channel(EMPTY_SETTINGS);
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (http2_connections, (sender, http1)) =
            (Arc::<AtomicUsize>::default(), mpsc::unbounded_channel());
        let counted = Arc::clone(&http2_connections);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = rustls::server::Acceptor::default();
                let hello = LazyConfigAcceptor::new(acceptor, tcp).await.unwrap();
                let offers = hello.client_hello().alpn();
                let offers_http2 = offers.into_iter().flatten().any(|name| name == b"h2");
                let config = match (*http2_enabled_rx.borrow(), no_common_protocol) {
                    (false, _) => &http1_only,
                    (true, NoCommonProtocol::Close) if !offers_http2 => &without_alpn,
                    // The handshake fails without a common protocol.
                    (true, _) => &alpn_config,
                };
                let Ok(mut tls) = hello.into_stream(Arc::clone(config)).await else { continue };
                if tls.get_ref().1.alpn_protocol() != Some(b"h2") {
                    if Arc::ptr_eq(config, &without_alpn) {
                        continue;
                    }
                    if sender.send(tls).is_err() {
                        break;
                    }
                    continue;
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let (mut http2_enabled_rx, settings) =
                    (http2_enabled_rx.clone(), *settings_rx.borrow());
                tokio::spawn(async move {
                    // The client may have disconnected.
                    tokio::select! {
                        _ = serve_http2(&mut tls, settings) => {}
                        _ = http2_enabled_rx.wait_for(|speaks| !speaks) => {}
                    }
                });
            }
        });
        Self { addr, http2_connections, is_http2_enabled: http2_enabled, settings, http1 }
    }

    fn gateway(&self) -> Gateway {
        self.gateway_with(100)
    }

    fn gateway_with(&self, max_connections: usize) -> Gateway {
        Gateway::start(&self.spec("127.0.0.1", max_connections))
    }

    /// Returns an upstream of this server, under a name.
    fn spec(&self, name: &str, max_connections: usize) -> UpstreamSpec {
        let mut spec = spec(&[&format!("https://{name}:{}", self.addr.port())]);
        spec.max_connections = max_connections;
        // Below the 30 s after which an idle session ends by itself.
        spec.timeouts.queue = Duration::from_secs(25);
        spec.tls.insecure = true;
        spec.timeouts.response_header = Duration::from_secs(3600);
        spec
    }
}

#[tokio::test]
async fn a_websocket_falls_back_to_http1() {
    let mut server = TlsServer::start(&["h2", "http/1.1"]).await;
    let gateway = server.gateway();
    let mut http2_connections = 0;
    for n in 0..2 {
        let mut client = gateway.connect(UPGRADE).await;
        let mut origin = within("HTTP/1.1", server.http1.recv()).await.unwrap();
        let request = read_head(&mut origin).await;
        assert!(request.starts_with("get /chat http/1.1\r\n"), "{request}");
        assert!(request.contains("upgrade: websocket\r\n"), "{request}");
        origin.write_all(switching_response(ACCEPT_VALUE).as_bytes()).await.unwrap();
        origin.flush().await.unwrap();
        let answer = within("the answer", read_head(&mut client)).await;
        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        exchange_greeting(&mut client, &mut origin).await;
        // The gateway tries extended CONNECT once.
        let current = server.http2_connections.load(Ordering::SeqCst);
        assert!(n == 0 || current == http2_connections, "{http2_connections}, {current}");
        http2_connections = current;
    }
    assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
}

/// The session without extended CONNECT has the only connection that the limit permits.
#[tokio::test]
async fn an_idle_session_is_closed_for_a_waiting_websocket() {
    let mut server = TlsServer::start(&["h2", "http/1.1"]).await;
    let gateway = server.gateway_with(1);
    let mut client = gateway.connect(UPGRADE).await;
    let mut origin = within("HTTP/1.1", server.http1.recv()).await.unwrap();
    read_head(&mut origin).await;
    origin.write_all(switching_response(ACCEPT_VALUE).as_bytes()).await.unwrap();
    origin.flush().await.unwrap();
    let answer = within("the answer", read_head(&mut client)).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    exchange_greeting(&mut client, &mut origin).await;
}

/// A WebSocket that waits for a connection displaces no session that has requests.
#[tokio::test]
async fn a_busy_session_is_not_closed_for_a_waiting_websocket() {
    let server = TlsServer::start(&["h2", "http/1.1"]).await;
    let (lookups_tx, mut lookups) = mpsc::unbounded_channel();
    let resolver = Resolver::from_fn(move |_| {
        // The test may have ended.
        let _ = lookups_tx.send(());
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    });
    let mut spec = server.spec("a.example", 1);
    spec.dns_cache_time = Duration::ZERO;
    let gateway = Gateway::with_resolver(&spec, resolver);
    let mut endless = gateway.connect(GET_REQUEST).await;
    let answer = within("the first answer", read_head(&mut endless)).await;
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    let _websocket = gateway.connect(UPGRADE).await;
    let waits = async {
        while gateway.upstream.servers()[0].status().pending_requests == 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the WebSocket in the queue", waits).await;
    // Idle connections are checked each second, which begins with a lookup: the second one follows a whole check.
    while lookups.try_recv().is_ok() {}
    for _ in 0..2 {
        within("a check of idle connections", lookups.recv()).await.unwrap();
    }
    let answer =
        within("the second answer", read_head(&mut gateway.connect(GET_REQUEST).await)).await;
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn workers_share_the_protocol_that_a_server_selects() {
    let server = TlsServer::start(&["h2", "http/1.1"]).await;
    let gateway = server.gateway();
    let worker = gateway.another_worker();
    // The first worker determined the protocol by a connection of its own.
    for (gateway, connections) in [(&gateway, 2), (&worker, 3)] {
        let answer = within("an answer", read_head(&mut gateway.connect(GET_REQUEST).await)).await;
        assert!(answer.starts_with("http/1.1 200 "), "{answer}");
        assert_eq!(server.http2_connections.load(Ordering::SeqCst), connections);
    }
}

#[tokio::test]
async fn workers_share_the_fallback_to_http1() {
    let mut server = TlsServer::start(&["h2", "http/1.1"]).await;
    let gateway = server.gateway();
    let worker = gateway.another_worker();
    let mut http2_connections = None;
    for gateway in [&gateway, &worker] {
        let mut client = gateway.connect(UPGRADE).await;
        let mut origin = within("HTTP/1.1", server.http1.recv()).await.unwrap();
        read_head(&mut origin).await;
        origin.write_all(switching_response(ACCEPT_VALUE).as_bytes()).await.unwrap();
        origin.flush().await.unwrap();
        let answer = within("the answer", read_head(&mut client)).await;
        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        // The second worker does not try the server's HTTP/2.
        let current = server.http2_connections.load(Ordering::SeqCst);
        assert_eq!(*http2_connections.get_or_insert(current), current);
    }
}

#[tokio::test]
async fn a_missing_fallback_does_not_count_against_the_server() {
    for no_common_protocol in [NoCommonProtocol::Alert, NoCommonProtocol::Close] {
        let server = TlsServer::start_with(&["h2"], no_common_protocol).await;
        let gateway = server.gateway();
        for _ in 0..2 {
            let mut client = gateway.connect(UPGRADE).await;
            let answer = within("the answer", read_head(&mut client)).await;
            assert!(answer.starts_with("http/1.1 502 "), "{answer}");
            assert!(answer.contains("error=http_upgrade_failed"), "{answer}");
        }
        assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
    }
}

/// Waits until the gateway has no connection to the server.
async fn wait_until_disconnected(gateway: &Gateway) {
    let is_met = || gateway.upstream.servers()[0].status().open_connections == 0;
    wait_until("the session has ended", is_met).await;
}

/// Returns a server that supports only HTTP/1.1 for a while, as during a rolling update, and a gateway that has used
/// its HTTP/2.
async fn server_that_lost_http2() -> (TlsServer, Gateway) {
    let server = TlsServer::start(&["h2", "http/1.1"]).await;
    let gateway = server.gateway();
    let mut client = gateway.connect(GET_REQUEST).await;
    let response = within("a response over HTTP/2", read_head(&mut client)).await;
    assert!(response.starts_with("http/1.1 200 "), "{response}");
    drop(client);
    server.is_http2_enabled.send_replace(false);
    wait_until_disconnected(&gateway).await;
    (server, gateway)
}

#[tokio::test]
async fn websockets_use_http2_again_when_the_server_supports_it() {
    let (mut server, gateway) = server_that_lost_http2().await;
    let mut client = gateway.connect(UPGRADE).await;
    // The session's connection negotiates HTTP/1.1, and cannot carry the WebSocket.
    let _unused = within("the session's connection", server.http1.recv()).await.unwrap();
    let mut origin = within("HTTP/1.1", server.http1.recv()).await.unwrap();
    read_head(&mut origin).await;
    origin.write_all(switching_response(ACCEPT_VALUE).as_bytes()).await.unwrap();
    origin.flush().await.unwrap();
    let answer = within("the answer", read_head(&mut client)).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    server.settings.send_replace(EXTENDED_CONNECT_SETTINGS);
    server.is_http2_enabled.send_replace(true);
    let mut client = gateway.connect(UPGRADE).await;
    let answer = async {
        tokio::select! {
            answer = read_head(&mut client) => answer,
            _ = server.http1.recv() => panic!("over HTTP/1.1"),
        }
    };
    let answer = within("the answer over HTTP/2", answer).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
}

/// The session that the client falls back with must not serve requests once the server has HTTP/2 again.
#[tokio::test]
async fn requests_return_to_http2_when_the_server_selects_it_again() {
    let (mut server, gateway) = server_that_lost_http2().await;
    let mut second = gateway.connect(GET_REQUEST).await;
    let mut upstream = within("HTTP/1.1", server.http1.recv()).await.unwrap();
    read_head(&mut upstream).await;
    upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    upstream.flush().await.unwrap();
    let response = within("the second response", read_head(&mut second)).await;
    assert!(response.starts_with("http/1.1 200 "), "{response}");
    let http2_connections_before = server.http2_connections.load(Ordering::SeqCst);
    server.is_http2_enabled.send_replace(true);
    let mut third = gateway.connect(GET_REQUEST).await;
    let response = async {
        tokio::select! {
            response = read_head(&mut third) => response,
            // The retired session closes it.
            Ok(_) = upstream.read_u8() => panic!("over HTTP/1.1"),
        }
    };
    let response = within("the third response", response).await;
    assert!(response.starts_with("http/1.1 200 "), "{response}");
    // One connection to determine the protocol, one of the session.
    assert_eq!(server.http2_connections.load(Ordering::SeqCst), http2_connections_before + 2);
    assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
}

/// A worker's idle HTTP/1.1 connection is closed for another worker's session.
#[tokio::test]
async fn an_idle_http1_connection_is_closed_for_a_waiting_session() {
    let mut server = TlsServer::start(&["h2", "http/1.1"]).await;
    server.is_http2_enabled.send_replace(false);
    let gateway = server.gateway_with(2);
    let worker = gateway.another_worker();
    let mut http1_client = gateway.connect(GET_REQUEST).await;
    let mut origin = within("HTTP/1.1", server.http1.recv()).await.unwrap();
    read_head(&mut origin).await;
    server.is_http2_enabled.send_replace(true);
    let mut http2_client = gateway.connect(GET_REQUEST).await;
    let answer = within("an answer over HTTP/2", read_head(&mut http2_client)).await;
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    origin.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    origin.flush().await.unwrap();
    let answer = within("the answer over HTTP/1.1", read_head(&mut http1_client)).await;
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    let answer =
        within("another worker's answer", read_head(&mut worker.connect(GET_REQUEST).await)).await;
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_server_that_no_longer_supports_http2_is_detected() {
    const CONNECT_REQUEST: &str = "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n";
    const TUNNEL_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
    let mut server = TlsServer::start(&["h2", "http/1.1"]).await;
    let gateway = server.gateway();
    let first = gateway.connect(CONNECT_REQUEST).await;
    // One connection determined the protocol, the other one is the session's.
    let two = async {
        while server.http2_connections.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
    };
    within("a session", two).await;
    drop(first);
    server.is_http2_enabled.send_replace(false);
    wait_until_disconnected(&gateway).await;
    // The session negotiates HTTP/1.1, and cannot carry a tunnel.
    let mut second = gateway.connect(CONNECT_REQUEST).await;
    let mut origin = within("the second request", server.http1.recv()).await.unwrap();
    read_head(&mut origin).await;
    origin.write_all(TUNNEL_RESPONSE).await.unwrap();
    origin.flush().await.unwrap();
    let answer = within("the second answer", read_head(&mut second)).await;
    assert!(answer.starts_with("http/1.1 502 "), "{answer}");
    let mut third = gateway.connect(CONNECT_REQUEST).await;
    let mut origin = within("the third request", server.http1.recv()).await.unwrap();
    assert!(read_head(&mut origin).await.starts_with("connect db:5432 http/1.1\r\n"));
    origin.write_all(TUNNEL_RESPONSE).await.unwrap();
    origin.flush().await.unwrap();
    let answer = within("the third answer", read_head(&mut third)).await;
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    third.write_all(b"hello").await.unwrap();
    let mut bytes = [0; 5];
    within("data", origin.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"hello");
}
