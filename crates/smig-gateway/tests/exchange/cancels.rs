//! Clients that cancel their requests before the response. Servers close a connection on which many streams are reset
//! (CVE-2023-44487). Clients share the gateway's connection: cancellations by some of them must not fail the requests
//! of the others.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use smig::{BoxError, CleartextTrust, Incoming, Server};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::http2::{END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use crate::raw_http2::{block, frame};
use crate::support::{Gateway, client, get, loopback, spec, wait_until, within};

const CANCEL: &[u8] = &[0, 0, 0, 8];

type Piece = Result<Frame<Bytes>, BoxError>;

/// A server that responds to /quick at once, streams `pieces` at /download, and never responds to anything else.
struct Origin {
    server: Server,
    pieces: mpsc::UnboundedSender<Piece>,
    arrivals: mpsc::UnboundedReceiver<()>,
}

impl Origin {
    fn start() -> Self {
        let (pieces, queue) = mpsc::unbounded_channel::<Piece>();
        let queue = Arc::new(Mutex::new(Some(queue)));
        let (arrivals_tx, arrivals) = mpsc::unbounded_channel();
        let handler = move |request: Request<Incoming>| {
            let body = match request.uri().path() {
                "/quick" => Some(Full::default().map_err(|never| match never {}).boxed_unsync()),
                "/download" => {
                    let queue = queue.lock().unwrap().take().unwrap();
                    let stream = futures_util::stream::unfold(queue, async |mut queue| {
                        let piece = queue.recv().await?;
                        Some((piece, queue))
                    });
                    Some(StreamBody::new(stream).boxed_unsync())
                }
                _ => None,
            };
            let arrivals_tx = arrivals_tx.clone();
            async move {
                let Some(body) = body else {
                    // No response follows. The test may have ended.
                    let _ = arrivals_tx.send(());
                    return std::future::pending().await;
                };
                Ok::<_, std::io::Error>(Response::new(body))
            }
        };
        let server = Server::builder()
            .workers(NonZeroUsize::MIN)
            .listen_cleartext(loopback(), CleartextTrust::None)
            .start(tower::service_fn(handler))
            .unwrap();
        Self { server, pieces, arrivals }
    }

    fn url(&self) -> String {
        format!("h2c://{}", self.server.local_addrs()[0])
    }

    async fn wait_for_arrivals(&mut self, count: usize) {
        for _ in 0..count {
            self.arrivals.recv().await.unwrap();
        }
    }

    async fn wait_for_resets(&self, total: usize) {
        let is_met = || self.server.stats().streams_reset >= total as u64;
        wait_until("all streams are reset", is_met).await;
    }

    fn send(&self, piece: &'static str) {
        // The server's connection may have been closed.
        let _ = self.pieces.send(Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
    }
}

/// Starts a download, has other clients cancel requests meanwhile, and checks that it completes.
async fn assert_download_survives(
    max_connections: usize,
    cancel: impl AsyncFnOnce(&mut Origin, &Gateway) -> Vec<TcpStream>,
) {
    let mut origin = Origin::start();
    let mut spec = spec(&[&origin.url()]);
    spec.max_connections = max_connections;
    let gateway = Gateway::start(&spec);
    let response = client().request(get(gateway.url("/download"))).await.unwrap();
    let mut download = response.into_body();
    origin.send("first");
    let first = download.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first");

    let cancelling = cancel(&mut origin, &gateway);
    let clients = within("all are cancelled", cancelling).await;
    let client = client();
    let next = client.request(get(gateway.url("/quick")));
    let next = within("the response to the next", next).await.unwrap();
    assert_eq!(next.status(), StatusCode::OK);

    origin.send("last");
    origin.pieces = mpsc::unbounded_channel().0;
    let rest = download.collect().await.expect("the download continues").to_bytes();
    assert_eq!(rest, "last");
    drop(clients);
}

/// Connects a client that sends `count` requests, which remain unanswered.
async fn send_requests(gateway: &Gateway, count: u32) -> TcpStream {
    let head =
        block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    for n in 0..count {
        bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head));
    }
    gateway.connect(bytes).await
}

/// Cancels all of a client's requests.
async fn cancel_requests(client: &mut TcpStream, count: u32) {
    let resets: Vec<u8> =
        (0..count).flat_map(|n| frame(RST_STREAM, 0, 2 * n + 1, CANCEL)).collect();
    client.write_all(&resets).await.unwrap();
}

/// In each round, a new client sends `requests_per_round` requests and cancels all of them.
async fn cancel_in_rounds(
    origin: &mut Origin,
    gateway: &Gateway,
    rounds: usize,
    requests_per_round: u32,
) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for n in 1..=rounds {
        let mut client = send_requests(gateway, requests_per_round).await;
        origin.wait_for_arrivals(requests_per_round as usize).await;
        cancel_requests(&mut client, requests_per_round).await;
        origin.wait_for_resets(n * requests_per_round as usize).await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn cancelled_requests_do_not_close_a_shared_connection() {
    assert_download_survives(100, async |origin, gateway| {
        cancel_in_rounds(origin, gateway, 4, 100).await
    })
    .await;
}

/// Requests that wait while others are cancelled may be cancelled as well.
#[tokio::test]
async fn pending_requests_are_not_opened_on_a_connection_with_many_resets() {
    assert_download_survives(100, async |origin, gateway| {
        let mut first_client = send_requests(gateway, 127).await;
        origin.wait_for_arrivals(127).await;
        // The server allows 128 streams, and one of them is the download.
        let mut second_client = send_requests(gateway, 127).await;
        wait_until("all requests are at the gateway", || gateway.upstream.load() >= 255).await;
        cancel_requests(&mut first_client, 127).await;
        origin.wait_for_arrivals(127).await;
        cancel_requests(&mut second_client, 127).await;
        origin.wait_for_resets(254).await;
        vec![first_client, second_client]
    })
    .await;
}

/// If no other connection is allowed, this one still accepts requests, but fewer at once.
#[tokio::test]
async fn cancels_do_not_close_the_only_connection() {
    assert_download_survives(1, async |origin, gateway| {
        cancel_in_rounds(origin, gateway, 2, 120).await
    })
    .await;
}
