//! Timeouts for slow clients over HTTP/1.1, which equal those over HTTP/2.

use std::num::NonZeroUsize;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use smig::{
    BoxError, CleartextTrust, Config, Incoming, ObserverEvent, Server, ServerBuilder, UpgradedIo,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tower::service_fn;

use crate::support::{
    Body, EventRecorder, Events, answer, bytes, digest, full, loopback, wait_for_event, within,
};

const SHORT_TIMEOUT: Duration = Duration::from_millis(40);
const HOUR: Duration = Duration::from_secs(3600);

/// A cleartext server with long timeouts.
fn server_with_long_timeouts() -> (ServerBuilder, Config) {
    let server = Server::builder()
        .listen_cleartext(loopback(), CleartextTrust::None)
        .workers(NonZeroUsize::MIN)
        .handshake_timeout(HOUR)
        .idle_timeout(HOUR)
        .body_timeout(HOUR);
    let mut engine = Config::server();
    engine.limits.headers_timeout = HOUR;
    engine.limits.stall_timeout = HOUR;
    (server, engine)
}

async fn connect_and_send(server: &Server, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Reads until the connection ends, cleanly or not.
async fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all).await;
    all
}

async fn next_limit_hit(events: &mut Events) -> &'static str {
    match wait_for_event(events, |event| matches!(event, ObserverEvent::LimitHit(_))).await {
        ObserverEvent::LimitHit(limit) => limit,
        _ => unreachable!(),
    }
}

#[tokio::test]
async fn a_request_body_that_does_not_arrive_ends_the_connection() {
    let (server, engine) = server_with_long_timeouts();
    let (observer, mut events) = EventRecorder::new();
    let server = server.engine(engine).body_timeout(SHORT_TIMEOUT).observer(observer);
    let server = server.start(service_fn(answer)).unwrap();
    // A gRPC call may pause, but gRPC does not exist over HTTP/1.1.
    for field in ["", "content-type: application/grpc\r\n"] {
        let head = format!("POST /digest HTTP/1.1\r\nhost: a\r\n{field}content-length: 9000\r\n");
        let stream = connect_and_send(&server, &format!("{head}\r\na few")).await;
        within("the end of a connection whose body stalls", read_to_end(stream)).await;
        assert_eq!(within("the limit", next_limit_hit(&mut events)).await, "slow request body");
    }
}

/// Reads the body in a separate task, as handlers do that forward it.
async fn digest_on_another_task(request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    let (hash, _) = tokio::task::spawn_local(digest(request.into_body())).await??;
    Ok(Response::new(full(hash.to_vec())))
}

#[tokio::test]
async fn a_request_body_that_does_not_arrive_ends_the_connection_for_a_reader_on_another_task() {
    let (server, engine) = server_with_long_timeouts();
    let (observer, mut events) = EventRecorder::new();
    let server = server.engine(engine).body_timeout(SHORT_TIMEOUT).observer(observer);
    let server = server.start(service_fn(digest_on_another_task)).unwrap();
    // Nothing arrives after the head, so only a timer wakes the connection's task.
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n";
    let stream = connect_and_send(&server, head).await;
    within("the end of a connection whose body stalls", read_to_end(stream)).await;
    assert_eq!(within("the limit", next_limit_hit(&mut events)).await, "slow request body");
}

#[tokio::test]
async fn an_unread_response_is_aborted() {
    let (server, mut engine) = server_with_long_timeouts();
    engine.limits.stall_timeout = SHORT_TIMEOUT;
    let (observer, mut events) = EventRecorder::new();
    let server = server.engine(engine).observer(observer).start(service_fn(answer)).unwrap();
    // Exceeds the kernel's buffers.
    let _unread =
        connect_and_send(&server, "GET /bytes/67108864 HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(within("the limit", next_limit_hit(&mut events)).await, "stalled stream");
    within(
        "the end",
        wait_for_event(&mut events, |e| matches!(e, ObserverEvent::ConnectionClosed { .. })),
    )
    .await;
}

/// Connects with a small receive buffer and requests `len` bytes.
async fn request_with_small_buffer(server: &Server, len: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.local_addrs()[0]).await.unwrap();
    let request = format!("GET /bytes/{len} HTTP/1.1\r\nhost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// A length that exceeds the kernel's buffers, and one that fits into them.
const LENGTHS: [usize; 2] = [64 << 20, 20_000];

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_idle() {
    let (server, engine) = server_with_long_timeouts();
    let server =
        server.engine(engine).idle_timeout(SHORT_TIMEOUT).start(service_fn(answer)).unwrap();
    let (clock_server, mut engine) = server_with_long_timeouts();
    engine.limits.headers_timeout = SHORT_TIMEOUT;
    let clock_server = clock_server.engine(engine).start(service_fn(answer)).unwrap();
    for len in LENGTHS {
        let mut stream = request_with_small_buffer(&server, len).await;
        within("a first byte", stream.read_u8()).await.unwrap();
        // Wait for several timeouts.
        for _ in 0..4 {
            let half = connect_and_send(&clock_server, "GET / HTTP/1.1\r\nhos").await;
            within("the end of half a head", read_to_end(half)).await;
        }
        let received = within("the rest", read_to_end(stream)).await;
        assert!(
            received.len() >= len && received.ends_with(&bytes(len)[len - 9..]),
            "{}",
            received.len()
        );
    }
}

#[tokio::test]
async fn an_unread_response_is_aborted_in_user_space_and_in_the_kernel() {
    for len in LENGTHS {
        let (server, mut engine) = server_with_long_timeouts();
        engine.limits.stall_timeout = SHORT_TIMEOUT;
        let (observer, mut events) = EventRecorder::new();
        let server = server.engine(engine).observer(observer).start(service_fn(answer)).unwrap();
        let _unread = request_with_small_buffer(&server, len).await;
        assert_eq!(
            within("the limit", next_limit_hit(&mut events)).await,
            "stalled stream",
            "{len}"
        );
    }
}

#[tokio::test]
async fn a_connection_without_further_requests_is_closed_after_the_idle_timeout() {
    let (server, engine) = server_with_long_timeouts();
    let server =
        server.engine(engine).idle_timeout(SHORT_TIMEOUT).start(service_fn(answer)).unwrap();
    let stream = connect_and_send(&server, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let received = within("the end of an idle connection", read_to_end(stream)).await;
    assert!(received.ends_with(b"hello"), "{}", String::from_utf8_lossy(&received));
}

#[tokio::test]
async fn the_head_timeout_applies_to_the_first_and_to_later_requests() {
    let (server, mut engine) = server_with_long_timeouts();
    engine.limits.headers_timeout = SHORT_TIMEOUT;
    let server = server.engine(engine).start(service_fn(answer)).unwrap();
    for first_request in ["", "GET / HTTP/1.1\r\nhost: a\r\n\r\n"] {
        let mut stream = connect_and_send(&server, first_request).await;
        if !first_request.is_empty() {
            let mut byte = [0; 1];
            within("an answer", stream.read_exact(&mut byte)).await.unwrap();
        }
        stream.write_all(b"GET / HTTP/1.1\r\nhos").await.unwrap();
        within("the end of half a head", read_to_end(stream)).await;
    }
}

/// Switches protocols, then echoes what it receives.
async fn upgrade_to_echo(mut request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::task::spawn_local(async move {
        let (mut io, _) = UpgradedIo::from_upgraded(upgrade.await.unwrap()).unwrap();
        let mut space = [0; 4];
        loop {
            let mut buffer = hyper::rt::ReadBuf::new(&mut space);
            let read = std::future::poll_fn(|cx| {
                hyper::rt::Read::poll_read(std::pin::Pin::new(&mut io), cx, buffer.unfilled())
            });
            if read.await.is_err() || buffer.filled().is_empty() {
                return;
            }
            let received = buffer.filled().to_vec();
            let write = |cx: &mut std::task::Context<'_>| {
                hyper::rt::Write::poll_write(std::pin::Pin::new(&mut io), cx, &received)
            };
            std::future::poll_fn(write).await.unwrap();
        }
    });
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    Ok(response.header("connection", "upgrade").header("upgrade", "echo").body(full(""))?)
}

#[tokio::test]
async fn a_tunnel_may_idle() {
    let (server, mut engine) = server_with_long_timeouts();
    engine.limits.headers_timeout = SHORT_TIMEOUT;
    engine.limits.stall_timeout = SHORT_TIMEOUT;
    let server = server.engine(engine).idle_timeout(SHORT_TIMEOUT).body_timeout(SHORT_TIMEOUT);
    let server = server.start(service_fn(upgrade_to_echo)).unwrap();
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let mut tunnel = connect_and_send(&server, request).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within("the head", tunnel.read_u8()).await.unwrap());
    }
    // The timeouts of another connection on the same worker serve as a clock; wait for several.
    for _ in 0..4 {
        within(
            "the end of half a head",
            read_to_end(connect_and_send(&server, "GET / HTTP/1.1\r\nhos").await),
        )
        .await;
    }
    tunnel.write_all(b"ping").await.unwrap();
    let mut pong = [0; 4];
    within("an echo", tunnel.read_exact(&mut pong)).await.unwrap();
    assert_eq!(&pong, b"ping");
}
