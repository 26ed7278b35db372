//! Bodies: trailers, back-pressure, and failures during transfer.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use smig::{CleartextTrust, Incoming, Server};
use smig_gateway::upstream::Timeouts;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Gateway, Origin, client, get, loopback, spec, text};

#[tokio::test]
async fn trailers_are_forwarded_both_ways() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let frames = [Frame::data(Bytes::from_static(b"body")), Frame::trailers(trailers)];
    let body = StreamBody::new(Frames(frames.into_iter().collect()));
    let request = Request::post(gateway.url("/")).header("trailer", "x-sum").body(body).unwrap();
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        assert!(
            received_request.has_field("transfer-encoding: chunked"),
            "{}",
            received_request.head
        );
        let body = received_request.read_until("\r\n\r\n").await.to_ascii_lowercase();
        assert_eq!(body, "4\r\nbody\r\n0\r\nx-sum: 1\r\n\r\n");
        received_request
            .respond("HTTP/1.1 200 OK\r\nTrailer: x-end\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        received_request.respond("2\r\nok\r\n0\r\nX-End: 2\r\n\r\n").await;
    };
    let client = client();
    let (response, ()) = tokio::join!(client.request(request), server_side);
    let body = response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-end"], "2");
    assert_eq!(body.to_bytes(), "ok");
}

/// The server is no proxy, in any HTTP version (RFC 9110 section 11.7).
#[tokio::test]
async fn proxy_fields_in_trailers_are_removed() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let trailers = |name: &'static str| {
        let fields = [(name, "x"), ("x-sum", "1")];
        let fields = fields.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let frames = [
            Frame::data(Bytes::from_static(b"body")),
            Frame::trailers(HeaderMap::from_iter(fields)),
        ];
        StreamBody::new(Frames(frames.into_iter().collect()))
    };
    let body = trailers("proxy-authorization");
    let request = Request::post(gateway.url("/")).header("trailer", "x-sum, proxy-authorization");
    let request = request.body(body).unwrap();
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        let body = received_request.read_until("\r\n\r\n").await.to_ascii_lowercase();
        assert_eq!(body, "4\r\nbody\r\n0\r\nx-sum: 1\r\n\r\n");
        received_request
            .respond("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n")
            .await;
        received_request.respond("Proxy-Authentication-Info: x\r\nX-Sum: 1\r\n\r\n").await;
    };
    let client = client();
    let (response, ()) = tokio::join!(client.request(request), server_side);
    let body = response.unwrap().into_body().collect().await.unwrap();
    let names: Vec<_> = body.trailers().unwrap().keys().collect();
    assert_eq!(names, ["x-sum"]);

    let handler = move |_: Request<Incoming>| {
        let body = trailers("proxy-authentication-info");
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    };
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(handler))
        .unwrap();
    let gateway = Gateway::in_front_of(format!("h2c://{}", server.local_addrs()[0]));
    let response = client.request(get(gateway.url("/"))).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    let names: Vec<_> = body.trailers().unwrap().keys().collect();
    assert_eq!(names, ["x-sum"]);
}

/// Frames that are all available.
struct Frames(std::collections::VecDeque<Frame<Bytes>>);

impl futures_util::Stream for Frames {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test]
async fn a_get_with_a_body_is_forwarded_with_it() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let frames = Frames([Frame::data(Bytes::from_static(b"body"))].into_iter().collect());
    let request = Request::get(gateway.url("/")).body(StreamBody::new(frames)).unwrap();
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        assert!(
            received_request.has_field("transfer-encoding: chunked"),
            "{}",
            received_request.head
        );
        received_request.read_until("4\r\nbody\r\n0\r\n\r\n").await;
        received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    };
    let client = client();
    let (response, ()) = tokio::join!(client.request(request), server_side);
    assert_eq!(response.unwrap().status(), 200);
}

/// Truncated responses never appear complete to the client.
#[tokio::test]
async fn a_truncated_body_never_appears_complete() {
    for (case, bytes) in [
        ("short", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
        ("no last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n"),
        ("half a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort"),
        ("bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nzz\r\n"),
        (
            "no end of trailers",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n0\r\nx: 1\r\n",
        ),
        (
            "framing in trailers",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n0\r\ncontent-length: 1\r\n\r\n",
        ),
    ] {
        let mut origin = Origin::start().await;
        let gateway = Gateway::in_front_of(origin.url());
        tokio::spawn(async move {
            loop {
                let mut received_request = origin.accept_request().await;
                received_request.respond(bytes).await;
            }
        });
        let response = client().request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(response.status(), 200, "{case}");
        assert!(response.into_body().collect().await.is_err(), "{case}");

        assert_eq!(gateway.upstream.servers()[0].status().failures, 1, "{case}");

        let answer = gateway
            .send_and_read_to_end("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .to_ascii_lowercase();
        // The header section may be lost with the connection.
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        if answer.is_empty() {
            continue;
        }
        assert!(answer.starts_with("http/1.1 200"), "{case}: {answer}");
        if head.contains("content-length: 10") {
            assert!(body.len() < 10, "{case}: {answer}");
        } else {
            assert!(head.contains("transfer-encoding: chunked"), "{case}: {answer}");
            assert!(!body.contains("\r\n0\r\n"), "{case}: {answer}");
        }
    }
}

/// An invalid request never counts against the server, whenever the client sends it.
#[tokio::test]
async fn a_request_that_fails_during_its_response_does_not_count_against_the_server() {
    let mut origin = Origin::start().await;
    let handler = move |_: Request<Incoming>| {
        let pieces = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"short")))];
        let body = StreamBody::new(stream::iter(pieces).chain(stream::pending()));
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    };
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(handler))
        .unwrap();
    let scripted_url = origin.url();
    tokio::spawn(async move {
        let mut received_request = origin.accept_request().await;
        received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort").await;
        // Until the gateway aborts.
        let _ = received_request.tcp.read_to_end(&mut Vec::new()).await;
    });
    for url in [scripted_url, format!("h2c://{}", server.local_addrs()[0])] {
        let gateway = Gateway::in_front_of(&url);
        let (response_tx, response_rx) = tokio::sync::oneshot::channel::<()>();
        let trailers = HeaderMap::from_iter([("host".parse().unwrap(), "x".parse().unwrap())]);
        let frames = stream::once(std::future::ready(Frame::data(Bytes::from_static(b"x")))).chain(
            stream::once(async move {
                response_rx.await.unwrap();
                Frame::trailers(trailers)
            }),
        );
        let body = StreamBody::new(Box::pin(frames.map(Ok::<_, Infallible>)));
        let client = client();
        let response = client.request(Request::post(gateway.url("/")).body(body).unwrap()).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 200, "{url}");
        response_tx.send(()).unwrap();
        assert!(response.into_body().collect().await.is_err(), "{url}");
        assert_eq!(gateway.upstream.servers()[0].status().failures, 0, "{url}");
    }
}

#[tokio::test]
async fn bytes_after_a_response_are_not_the_next_response() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let client = client();
    let server_side = async {
        let mut first_request = origin.accept_request().await;
        first_request
            .respond("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
            .await;
        let mut second_request = origin.accept_request().await;
        second_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood").await;
        (first_request, second_request)
    };
    let client_side = async {
        let first = text(client.request(get(gateway.url("/"))).await.unwrap().into_body()).await;
        let second = text(client.request(get(gateway.url("/"))).await.unwrap().into_body()).await;
        (first, second)
    };
    let ((first, second), _open) = tokio::join!(client_side, server_side);
    assert_eq!((&*first, &*second), ("ok", "good"));
}

#[tokio::test]
async fn a_stalled_response_body_is_aborted() {
    let mut origin = Origin::start().await;
    let mut spec = spec(&[&origin.url()]);
    spec.timeouts =
        Timeouts { stream_idle: Some(Duration::from_millis(50)), ..Timeouts::default() };
    let gateway = Gateway::start(&spec);
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort").await;
        // The gateway closes the connection.
        assert_eq!(received_request.tcp.read(&mut [0; 1]).await.unwrap_or(0), 0);
    };
    let (client, request) = (client(), get(gateway.url("/")));
    let client_side = async {
        let response = client.request(request).await.unwrap();
        assert!(response.into_body().collect().await.is_err());
    };
    tokio::join!(client_side, server_side);
}

#[tokio::test]
async fn a_cancelled_response_closes_the_server_connection() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let client = client();
    let client_side = async {
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        drop(response);
    };
    let server_side = async {
        let mut received_request = origin.accept_request().await;
        received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort").await;
        assert_eq!(received_request.tcp.read(&mut [0; 1]).await.unwrap_or(0), 0);
    };
    tokio::join!(client_side, server_side);
}

/// Returns the count once it is stable for a while. On a slow machine the result is smaller, never larger.
async fn wait_until_stable(count: &AtomicUsize) -> usize {
    let mut last_count = usize::MAX;
    loop {
        let current_count = count.load(Ordering::SeqCst);
        if current_count == last_count && current_count > 0 {
            return current_count;
        }
        last_count = current_count;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

const PIECE_BYTES: usize = 64 << 10;

/// Returns the maximum that sockets, windows and buffers of both hops can hold, with this machine's settings.
fn max_buffered_bytes() -> usize {
    let largest = |name| {
        let limits = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        limits.split_whitespace().nth(2)?.parse::<usize>().ok()
    };
    let sockets = ["tcp_rmem", "tcp_wmem"].map(|name| largest(name).unwrap_or(6 << 20));
    2 * sockets.iter().sum::<usize>() + (24 << 20)
}

/// Returns a length above [`max_buffered_bytes`], a multiple of [`PIECE_BYTES`].
fn length_beyond_buffers() -> usize {
    (max_buffered_bytes() + (16 << 20)).next_multiple_of(PIECE_BYTES)
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_down_the_origin() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let client = client();
    let bytes_written = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&bytes_written);
    let length = length_beyond_buffers();
    tokio::spawn(async move {
        let mut received_request = origin.accept_request().await;
        received_request
            .respond(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"))
            .await;
        let piece = [b'x'; PIECE_BYTES];
        for _ in 0..length / PIECE_BYTES {
            received_request.tcp.write_all(&piece).await.unwrap();
            count.fetch_add(piece.len(), Ordering::SeqCst);
        }
    });
    let response = client.request(get(gateway.url("/"))).await.unwrap();
    assert!(wait_until_stable(&bytes_written).await < max_buffered_bytes());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), length);
}

#[tokio::test]
async fn an_origin_that_does_not_read_slows_down_the_client() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let client = client();
    let bytes_sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&bytes_sent);
    let length = length_beyond_buffers();
    let body = StreamBody::new(Pieces { remaining_bytes: length, sent_bytes: count });
    let request =
        Request::post(gateway.url("/")).header("content-length", length).body(body).unwrap();
    let client_side = tokio::spawn(async move { client.request(request).await.unwrap().status() });
    let mut received_request = origin.accept_request().await;
    assert!(wait_until_stable(&bytes_sent).await < max_buffered_bytes());
    let mut bytes_read = received_request.content.len();
    let mut buffer = vec![0; 1 << 20];
    while bytes_read < length {
        bytes_read += received_request.tcp.read(&mut buffer).await.unwrap();
    }
    received_request.respond("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(client_side.await.unwrap(), 200);
    assert_eq!(bytes_read, length);
}

struct Pieces {
    remaining_bytes: usize,
    sent_bytes: Arc<AtomicUsize>,
}

impl futures_util::Stream for Pieces {
    type Item = Result<Frame<Bytes>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.remaining_bytes == 0 {
            return Poll::Ready(None);
        }
        self.remaining_bytes -= PIECE_BYTES;
        self.sent_bytes.fetch_add(PIECE_BYTES, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; PIECE_BYTES])))))
    }
}

#[tokio::test]
async fn a_truncated_upload_never_appears_complete() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp = gateway
        .connect("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n")
        .await;
    let mut received_request = origin.accept_request().await;
    received_request.read_until("5\r\nshort\r\n").await;
    tcp.shutdown().await.unwrap();
    drop(tcp);
    let mut rest = Vec::new();
    let _ = received_request.tcp.read_to_end(&mut rest).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"));
}

#[tokio::test]
async fn an_early_response_is_forwarded_during_the_upload() {
    let mut origin = Origin::start().await;
    let gateway = Gateway::in_front_of(origin.url());
    let mut tcp =
        gateway.connect("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nbegin").await;
    let mut received_request = origin.accept_request().await;
    received_request.respond("HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nlong").await;
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    // The gateway closes the connection, since it cannot be reused.
    let mut rest = Vec::new();
    let _ = received_request.tcp.read_to_end(&mut rest).await;
}
