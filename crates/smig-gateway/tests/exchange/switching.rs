//! WebSocket and CONNECT, from and to each HTTP version.

use std::num::NonZeroUsize;
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use http::Request;
use smig::{CleartextTrust, Origin as Target, Protocol, Server};
use smig_proxy::tunnel::{ConnectResponse, open};
use smig_testkit::port::ReservedPort;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::http2::{self, DATA, END_HEADERS, END_STREAM, HEADERS, Peer, RST_STREAM};
use crate::servers::Echo;
use crate::support::{
    Gateway, Origin, ReceivedRequest, client, get, loopback, spec, wait_until_closed,
};

pub(crate) const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
     Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// Sec-WebSocket-Accept for the key in [`UPGRADE`] (RFC 6455 section 1.3).
pub(crate) const ACCEPT_VALUE: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Returns the value of Sec-WebSocket-Accept for the key in a request.
fn accept_value(request: &ReceivedRequest) -> String {
    let key =
        request.head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash)
}

pub(crate) fn switching_response(accept: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: x\r\n\r\nearly"
    )
}

/// HTTP/1.0 has no Upgrade (RFC 9110 section 7.8): the rest of the request applies.
#[tokio::test]
async fn an_upgrade_in_http_1_0_is_ignored() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let http_1_0_request = UPGRADE.replace("HTTP/1.1", "HTTP/1.0").replace("keep-alive, ", "");
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        for _ in 0..2 {
            assert!(
                !received_request.head.to_ascii_lowercase().contains("\nupgrade:"),
                "{}",
                received_request.head
            );
            received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
            // The connection is reused for the next request.
            received_request = match received_request.next().await {
                Some(next) => next,
                None => return,
            };
        }
    };
    let client_side = async {
        for _ in 0..2 {
            let answer = gateway.send_and_read_to_end(&http_1_0_request).await;
            assert!(
                answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"),
                "{answer}"
            );
            assert!(answer.ends_with("ok"), "{answer}");
        }
        gateway.drain().await;
    };
    tokio::join!(client_side, server_side);
}

/// Receives what followed the server's response, and sends bytes to the server.
pub(crate) async fn exchange_greeting(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    server: &mut (impl AsyncRead + AsyncWrite + Unpin),
) {
    let mut bytes = [0; 5];
    client.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"early");
    client.write_all(b"hello").await.unwrap();
    server.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
}

/// Sends bytes both ways, then ends each direction.
async fn exchange_and_close(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
) {
    exchange_greeting(&mut client, &mut server).await;
    let mut bytes = [0; 5];
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut bytes).await.unwrap(), 0);
    server.write_all(b"after").await.unwrap();
    server.shutdown().await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"after");
}

pub(crate) async fn read_head(tcp: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(tcp.read_u8().await.unwrap());
    }
    String::from_utf8(bytes).unwrap().to_ascii_lowercase()
}

#[tokio::test]
async fn an_upgrade_stays_an_upgrade() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp = gateway.connect(UPGRADE).await;
    let mut received_request = origin.accept_request().await;
    assert!(
        received_request.head.starts_with("GET /chat HTTP/1.1\r\n"),
        "{}",
        received_request.head
    );
    assert!(
        received_request.has_field("connection: upgrade")
            && received_request.has_field("upgrade: websocket"),
        "{}",
        received_request.head
    );
    assert_eq!(accept_value(&received_request), ACCEPT_VALUE);
    received_request.respond(switching_response(ACCEPT_VALUE)).await;
    let head = read_head(&mut tcp).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for field in ["connection: upgrade", "upgrade: websocket", "sec-websocket-protocol: x"] {
        assert!(head.contains(field), "{head}");
    }
    assert!(head.contains(&ACCEPT_VALUE.to_ascii_lowercase()), "{head}");
    exchange_and_close(tcp, received_request.tcp).await;
}

#[tokio::test]
async fn a_websocket_may_finish_during_a_drain() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let (addr, mut tcp) = (gateway.addr(), gateway.connect(UPGRADE).await);
    let mut received_request = origin.accept_request().await;
    received_request.respond(switching_response(ACCEPT_VALUE)).await;
    assert!(read_head(&mut tcp).await.starts_with("http/1.1 101 "));
    let drain_task = tokio::spawn(gateway.drain());
    wait_until_closed(addr).await;
    exchange_and_close(tcp, received_request.tcp).await;
    drain_task.await.unwrap();
}

/// Opens an extended CONNECT for a WebSocket through the gateway.
async fn open_websocket(gateway: &Gateway) -> ConnectResponse {
    open_extended_connect("websocket", gateway).await
}

async fn open_extended_connect(protocol: &'static str, gateway: &Gateway) -> ConnectResponse {
    let mut request = Request::connect(gateway.url("/chat"))
        .header("sec-websocket-version", "13")
        .body(())
        .unwrap();
    request.extensions_mut().insert(Protocol::new(protocol).unwrap());
    let target = Target::http("127.0.0.1", gateway.addr().port());
    open(&client(), &target, request).await.unwrap()
}

#[tokio::test]
async fn extended_connect_becomes_an_upgrade() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        assert!(
            received_request.head.starts_with("GET /chat HTTP/1.1\r\n"),
            "{}",
            received_request.head
        );
        assert!(
            received_request.has_field("connection: upgrade")
                && received_request.has_field("upgrade: websocket"),
            "{}",
            received_request.head
        );
        assert!(
            received_request.has_field("sec-websocket-version: 13"),
            "{}",
            received_request.head
        );
        received_request.respond(switching_response(&accept_value(&received_request))).await;
        received_request
    };
    let (opened, received_request) = tokio::join!(open_websocket(&gateway), server_side);
    let ConnectResponse::Tunnel(head, stream) = opened else { panic!("no tunnel") };
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["sec-websocket-protocol"], "x");
    assert!(!head.headers.contains_key("sec-websocket-accept"));
    exchange_and_close(stream, received_request.tcp).await;
}

#[tokio::test]
async fn an_invalid_websocket_response_is_rejected() {
    for answer in [
        switching_response(ACCEPT_VALUE),
        "HTTP/1.1 101 Other\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n".to_owned(),
        // To an extended CONNECT, 200 means that the WebSocket is open.
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
        "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
    ] {
        let mut origin = Origin::start().await;
        let gateway = Gateway::in_front_of(origin.url());
        let server_side = async {
            let mut received_request = origin.accept_request().await;
            received_request.respond(&answer).await;
            received_request
        };
        let (opened, _received_request) = tokio::join!(open_websocket(&gateway), server_side);
        let ConnectResponse::Refused(response) = opened else { panic!("a tunnel") };
        assert_eq!(response.status(), 502);
        assert_eq!(response.headers()["proxy-status"], "smig; error=http_upgrade_failed");
        // Any client can request a WebSocket where there is none.
        assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
    }
}

/// Over HTTP/1.1, a server that ignores Upgrade answers the GET (RFC 9110 section 7.8).
#[tokio::test]
async fn an_upgrade_that_is_ignored_over_http1_is_a_get() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let (addr, _) = crate::support::fixed_response_origin(ok).await;
    let gateway = Gateway::in_front_of(format!("http://{addr}"));
    let answer = gateway.send_and_read_to_end(UPGRADE.replace("keep-alive", "close")).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nok"), "{answer}");
}

#[tokio::test]
async fn a_protocol_without_an_http1_handshake_uses_up_no_connection() {
    let (addr, connection_count) =
        crate::support::fixed_response_origin("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
    let gateway = Gateway::in_front_of(format!("http://{addr}"));
    for _ in 0..3 {
        let ConnectResponse::Refused(response) = open_extended_connect("x", &gateway).await else {
            panic!("a tunnel")
        };
        assert_eq!(response.status(), 501);
        let response = client().request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(crate::support::text(response.into_body()).await, "ok");
    }
    assert_eq!(gateway.upstream.servers()[0].status().connection_attempts, 1);
    assert_eq!(connection_count.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_refused_websocket_is_forwarded() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.respond("HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno").await;
        received_request
    };
    let (opened, _received_request) = tokio::join!(open_websocket(&gateway), server_side);
    let ConnectResponse::Refused(response) = opened else { panic!("a tunnel") };
    assert_eq!(response.status(), 403);
    assert_eq!(crate::support::text(response.into_body()).await, "no");
}

/// A tunnel that is refused over HTTP/2 ends with END_STREAM, since nothing of it was sent. A reset would count
/// towards the number that the server tolerates on a connection that other clients share, and might truncate the
/// response.
#[tokio::test]
async fn a_websocket_refused_over_http2_is_forwarded() {
    let (mut origin, gateway) = http2::setup().await;
    let server_side = async {
        // SETTINGS_ENABLE_CONNECT_PROTOCOL
        let mut peer = Peer::accept_with(&mut origin, &[0, 8, 0, 0, 0, 1]).await;
        let stream = peer.next_request().await;
        // `:status: 403`, `content-length: 002`.
        peer.send(HEADERS, END_HEADERS, stream, b"\x08\x03403\x0f\x0d\x03002").await;
        loop {
            let (kind, flags, _, len) = peer.next_frame_with_flags().await;
            assert_ne!(kind, RST_STREAM);
            if kind == DATA {
                assert_eq!((flags, len), (END_STREAM, 0));
                break;
            }
        }
        peer.send(DATA, END_STREAM, stream, b"no").await;
        peer
    };
    let refused = async {
        let ConnectResponse::Refused(response) = open_websocket(&gateway).await else {
            panic!("a tunnel")
        };
        assert_eq!(response.status(), 403);
        assert_eq!(response.headers()["content-length"], "2");
        assert_eq!(crate::support::text(response.into_body()).await, "no");
    };
    let both = async { tokio::join!(refused, server_side) };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("the tunnel is refused");
}

fn echo_server() -> Server {
    Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .start(Echo)
        .unwrap()
}

#[tokio::test]
async fn extended_connect_stays_extended_connect() {
    let server = echo_server();
    let gateway = Gateway::in_front_of(format!("h2c://{}", server.local_addrs()[0]));
    let ConnectResponse::Tunnel(head, mut stream) = open_websocket(&gateway).await else {
        panic!("no tunnel")
    };
    assert_eq!(head.headers["x-path"], "/chat");
    stream.write_all(b"hello").await.unwrap();
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut bytes).await.unwrap(), 0);
}

#[tokio::test]
async fn an_upgrade_becomes_extended_connect() {
    let server = echo_server();
    let gateway = Gateway::in_front_of(format!("h2c://{}", server.local_addrs()[0]));
    let mut tcp = gateway.connect(UPGRADE).await;
    let head = read_head(&mut tcp).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains(&ACCEPT_VALUE.to_ascii_lowercase()), "{head}");
    assert!(head.contains("x-path: /chat"), "{head}");
    tcp.write_all(b"hello").await.unwrap();
    let mut bytes = [0; 5];
    tcp.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"hello");
    tcp.shutdown().await.unwrap();
    assert_eq!(tcp.read(&mut bytes).await.unwrap(), 0);
}

#[tokio::test]
async fn connect_is_forwarded_to_the_server() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp = gateway.connect("CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n").await;
    let mut received_request = origin.accept_request().await;
    assert!(
        received_request.head.starts_with("CONNECT db:5432 HTTP/1.1\r\n"),
        "{}",
        received_request.head
    );
    received_request.respond("HTTP/1.1 200 OK\r\n\r\nearly").await;
    assert!(read_head(&mut tcp).await.starts_with("http/1.1 200 "));
    exchange_and_close(tcp, received_request.tcp).await;
    drop(origin);
}

#[tokio::test]
async fn a_reset_on_one_side_resets_the_other() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.respond(switching_response(&accept_value(&received_request))).await;
        received_request
    };
    let (opened, received_request) = tokio::join!(open_websocket(&gateway), server_side);
    let ConnectResponse::Tunnel(_, mut stream) = opened else { panic!("no tunnel") };
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).await.unwrap();
    let socket = received_request.tcp.into_std().unwrap();
    socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    drop(socket);
    assert!(stream.read(&mut bytes).await.is_err());
    while gateway.upstream.load() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_unreachable_server_is_skipped() {
    let closed_port = ReservedPort::new();
    let mut origin = Origin::start().await;
    let gateway = Gateway::start(&spec(&[&format!("http://{closed_port}"), &origin.url()]));
    // Whichever server is picked first.
    for _ in 0..4 {
        let mut tcp = gateway.connect(UPGRADE).await;
        let mut received_request = origin.accept_request().await;
        received_request.respond(switching_response(ACCEPT_VALUE)).await;
        assert!(read_head(&mut tcp).await.starts_with("http/1.1 101 "));
        exchange_and_close(tcp, received_request.tcp).await;
    }
}

/// The handshake is a GET without content: it is safe to retry.
#[tokio::test]
async fn a_websocket_is_retried_when_a_reused_connection_ends() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        // The connection is closed when the next request arrives.
        drop(received_request.next().await.unwrap());
        let mut received_request = origin.accept_request().await;
        assert!(received_request.has_field("upgrade: websocket"), "{}", received_request.head);
        received_request.respond(switching_response(ACCEPT_VALUE)).await;
        received_request
    };
    let client_side = async {
        let request = get(gateway.url("/"));
        let response = client().request(request).await.unwrap();
        assert_eq!(crate::support::text(response.into_body()).await, "ok");
        let mut tcp = gateway.connect(UPGRADE).await;
        assert!(read_head(&mut tcp).await.starts_with("http/1.1 101 "));
        tcp
    };
    let both = async { tokio::join!(client_side, server_side) };
    let (tcp, received_request) = crate::support::within("a tunnel", both).await;
    exchange_and_close(tcp, received_request.tcp).await;
    assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
}

#[tokio::test]
async fn a_101_to_connect_is_no_response() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp = gateway.connect("CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n").await;
    origin.accept_request().await.respond(switching_response(ACCEPT_VALUE)).await;
    assert!(read_head(&mut tcp).await.starts_with("http/1.1 502 "));
}

/// Bytes behind a request to switch protocols are processed only after the response: forwarded into the tunnel if
/// there is one, otherwise parsed as requests.
#[tokio::test]
async fn data_sent_ahead_waits_for_the_response() {
    for (head, answer) in [
        (UPGRADE, switching_response(ACCEPT_VALUE)),
        (
            "CONNECT db:5432 HTTP/1.1\r\nHost: db:5432\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nearly".to_owned(),
        ),
    ] {
        let mut origin = Origin::start().await;
        let gateway = Gateway::in_front_of(origin.url());
        // Neither a request, nor bytes that would be rejected as one.
        let mut tcp = gateway.connect(format!("{head}\n\0\x16")).await;
        let mut received_request = origin.accept_request().await;
        assert!(received_request.content.is_empty(), "{head}");
        received_request.respond(answer).await;
        read_head(&mut tcp).await;
        let mut early_data = [0; 3];
        received_request.tcp.read_exact(&mut early_data).await.unwrap();
        assert_eq!(&early_data, b"\n\0\x16", "{head}");
        exchange_and_close(tcp, received_request.tcp).await;
    }
}

#[tokio::test]
async fn pipelined_requests_continue_if_the_protocol_stays() {
    const FORBIDDEN_RESPONSE: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
    const LAST_REQUEST: &str = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (pipelined_bytes, statuses) in [
        (LAST_REQUEST.to_owned(), &["403", "403"][..]),
        (format!("{UPGRADE}{LAST_REQUEST}"), &["403", "403", "403"]),
        ("GET / HTTP/1.1\nHost: a\n\n".to_owned(), &["403", "400"]),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                .to_owned(),
            &["403", "400"],
        ),
    ] {
        let (addr, _) = crate::support::fixed_response_origin(FORBIDDEN_RESPONSE).await;
        let gateway = Gateway::in_front_of(format!("http://{addr}"));
        let answers = gateway.send_and_read_to_end(format!("{UPGRADE}{pipelined_bytes}")).await;
        let lines = answers.lines().filter_map(|line| line.strip_prefix("HTTP/1.1 "));
        let received_statuses: Vec<_> = lines.map(|line| &line[..3]).collect();
        assert_eq!(received_statuses, statuses, "{pipelined_bytes}: {answers}");
    }
}
