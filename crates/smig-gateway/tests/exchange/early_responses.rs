//! HTTP/2 servers that respond before they have the complete request (RFC 9113 section 8.1).

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use smig::{BoxError, CleartextTrust, Config, ConnectionInfo, Incoming, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::http2::{
    DATA, END_HEADERS, END_STREAM, HEADERS, OK_BLOCK, Peer, RST_STREAM, SETTINGS, setup,
};
use crate::raw_http2::{block, frame};
use crate::support::{Gateway, Origin, client, get, loopback, spec};

/// Longer than any test takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
const ACK: u8 = 1;
const CANCEL: &[u8] = &[0, 0, 0, 8];

/// A client's HTTP/2 connection with uploads that stall after one byte.
struct Uploads(TcpStream);

impl Uploads {
    async fn start(gateway: &Gateway, count: u32) -> Self {
        let head =
            block(&[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        for n in 0..count {
            bytes.extend(frame(HEADERS, END_HEADERS, 2 * n + 1, &head));
            bytes.extend(frame(DATA, 0, 2 * n + 1, b"x"));
        }
        Self(gateway.connect(bytes).await)
    }

    /// Reads `count` frames of this type, and resets the stream of each with `reset_code`,
    /// if there is one.
    async fn read_frames(&mut self, kind: u8, count: usize, reset_code: Option<&[u8]>) {
        let mut found_frames = 0;
        while found_frames < count {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.unwrap();
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            self.0.read_exact(&mut vec![0; len as usize]).await.unwrap();
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match head[3] {
                SETTINGS if head[4] == 0 => {
                    self.0.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
                }
                found_kind if found_kind == kind => {
                    found_frames += 1;
                    if let Some(code) = reset_code {
                        self.0.write_all(&frame(RST_STREAM, 0, stream, code)).await.unwrap();
                    }
                }
                _ => {}
            }
        }
    }
}

/// A server need not refuse the rest of a request, and an idle client must not occupy its stream.
#[tokio::test]
async fn an_upload_is_reset_when_its_response_has_ended() {
    for with_data in [false, true] {
        let (mut origin, gateway) = setup().await;
        let client_side = async {
            let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\npiece";
            let mut client = gateway.connect(head).await;
            let mut status_line = [0; 12];
            client.read_exact(&mut status_line).await.unwrap();
            assert_eq!(status_line, *b"HTTP/1.1 200");
            client
        };
        let server_side = async {
            let mut peer = Peer::accept(&mut origin).await;
            let stream = peer.next_request().await;
            assert_eq!(peer.next_of_type(DATA).await, stream);
            let end = if with_data { 0 } else { END_STREAM };
            peer.send(HEADERS, END_HEADERS | end, stream, OK_BLOCK).await;
            if with_data {
                peer.send(DATA, END_STREAM, stream, b"ok").await;
            }
            let reset = tokio::time::timeout(TEST_TIMEOUT, peer.next_of_type(RST_STREAM)).await;
            assert_eq!(reset.expect("the stream is reset"), stream);
        };
        // The client stays connected, and idles.
        let (_client, ()) = tokio::join!(client_side, server_side);
    }
}

/// If the server accepts no more, the rest remains queued in the gateway, whether it is complete or
/// not.
#[tokio::test]
async fn an_upload_is_reset_when_the_server_accepts_no_more_data() {
    for (announced_length, sent_bytes, with_data) in
        [(1_000_000, 200_000, false), (1_000_000, 200_000, true), (100_000, 100_000, false)]
    {
        let (mut origin, gateway) = setup().await;
        let client_side = async {
            let head =
                format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {announced_length}\r\n\r\n");
            let mut client = gateway.connect(head).await;
            let (mut reads, mut writes) = client.split();
            let body = vec![b'x'; sent_bytes];
            let mut status_line = [0; 12];
            // The gateway may close the connection when it accepts no more of the body.
            let (_, read) =
                tokio::join!(writes.write_all(&body), reads.read_exact(&mut status_line));
            read.unwrap();
            assert_eq!(status_line, *b"HTTP/1.1 200");
            client
        };
        let server_side = async {
            let mut peer = Peer::accept(&mut origin).await;
            let stream = peer.next_request().await;
            let mut received = 0;
            while received < 65_535 {
                let (kind, frame_stream, len) = peer.next_frame().await;
                if kind == DATA && frame_stream == stream {
                    received += len;
                }
            }
            let end = if with_data { 0 } else { END_STREAM };
            peer.send(HEADERS, END_HEADERS | end, stream, OK_BLOCK).await;
            if with_data {
                peer.send(DATA, END_STREAM, stream, b"ok").await;
            }
            let responded_at = Instant::now();
            let reset = tokio::time::timeout(TEST_TIMEOUT, peer.next_of_type(RST_STREAM)).await;
            assert_eq!(reset.expect("the stream is reset"), stream);
            assert!(responded_at.elapsed() < TEST_TIMEOUT / 2, "the stall timeout reset it");
        };
        let (_client, ()) = tokio::join!(client_side, server_side);
    }
}

/// Resets that one client causes must not close the connection that it shares with others.
#[tokio::test]
async fn reset_uploads_do_not_close_a_shared_connection() {
    let (pieces, queue) = mpsc::unbounded_channel::<Result<Frame<Bytes>, BoxError>>();
    let queue = Arc::new(Mutex::new(Some(queue)));
    let connections = Arc::<Mutex<HashSet<SocketAddr>>>::default();
    let connections_in_handler = Arc::clone(&connections);
    let handler = move |request: Request<Incoming>| {
        let from = request.extensions().get::<Arc<ConnectionInfo>>().unwrap().peer_addr();
        connections_in_handler.lock().unwrap().insert(from);
        let body = if request.uri().path() == "/download" {
            let queue = queue.lock().unwrap().take().unwrap();
            let stream = futures_util::stream::unfold(queue, async |mut queue| {
                let piece = queue.recv().await?;
                Some((piece, queue))
            });
            StreamBody::new(stream).boxed_unsync()
        } else {
            // The request is dropped unread.
            Empty::new().map_err(|never| match never {}).boxed_unsync()
        };
        std::future::ready(Ok::<_, std::io::Error>(Response::new(body)))
    };
    let server = Server::builder()
        .workers(NonZeroUsize::MIN)
        .engine(Config { max_concurrent_streams: 400, ..Config::server() })
        .listen_cleartext(loopback(), CleartextTrust::None)
        .start(tower::service_fn(handler))
        .unwrap();
    let gateway = Gateway::in_front_of(format!("h2c://{}", server.local_addrs()[0]));
    let response = client().request(get(gateway.url("/download"))).await.unwrap();
    let mut download = response.into_body();
    pieces.send(Ok(Frame::data(Bytes::from_static(b"first")))).unwrap();
    let first = download.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, "first");

    let uploads = (0..3).map(|_| async {
        let mut uploads = Uploads::start(&gateway, 100).await;
        // The gateway resets its clients' streams, as it aborts each of the uploads.
        uploads.read_frames(RST_STREAM, 100, None).await;
        uploads
    });
    let uploads =
        tokio::time::timeout(TEST_TIMEOUT, join_all(uploads)).await.expect("all are reset");

    // The server's connection may have been closed.
    let _ = pieces.send(Ok(Frame::data(Bytes::from_static(b"last"))));
    drop(pieces);
    let rest = download.collect().await.expect("the download continues").to_bytes();
    assert_eq!(rest, "last");
    assert_eq!(connections.lock().unwrap().len(), 1, "all were on one connection");
    drop(uploads);
}

/// Servers close connections on which too many streams are reset, for whatever reason; they tolerate 33 per second. A
/// client must not be able to control that rate, neither by stalling nor by resetting its own streams. Requests
/// beyond it use another connection, if one is allowed.
#[tokio::test]
async fn uploads_are_reset_at_a_bounded_rate() {
    const RESET_BURST: u32 = 192;
    const CLIENT_COUNT: u32 = 2;
    const UPLOADS_PER_CLIENT: u32 = 110;
    for (reset_code, max_connections) in [(None, 1), (None, 100), (Some(CANCEL), 100)] {
        let mut origin = Origin::start().await;
        let mut spec = spec(&[&format!("h2c://{}", origin.addr)]);
        spec.max_connections = max_connections;
        let gateway = Gateway::start(&spec);
        let client_side = async {
            let uploads = (0..CLIENT_COUNT).map(|_| async {
                let mut uploads = Uploads::start(&gateway, UPLOADS_PER_CLIENT).await;
                uploads.read_frames(HEADERS, UPLOADS_PER_CLIENT as usize, reset_code).await;
                uploads
            });
            join_all(uploads).await
        };
        let (resets_tx, mut resets) = mpsc::unbounded_channel();
        let server_side = async {
            let mut connection_count = 0;
            loop {
                let peer = Peer::accept(&mut origin).await;
                connection_count += 1;
                assert!(connection_count <= max_connections);
                tokio::spawn(respond_early(peer, RESET_BURST, resets_tx.clone()));
            }
        };
        let counting = async {
            for _ in 0..CLIENT_COUNT * UPLOADS_PER_CLIENT {
                resets.recv().await.unwrap();
            }
        };
        let all = async {
            tokio::select! {
                _ = async { tokio::join!(client_side, counting) } => {}
                never = server_side => never,
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, all).await.expect("all are reset");
    }
}

/// Responds to every request at once, reports each stream that is reset, and checks the rate of resets: 20 per second
/// after a burst of `burst`.
async fn respond_early(mut peer: Peer, burst: u32, resets_tx: mpsc::UnboundedSender<()>) {
    let (started_at, mut resets) = (Instant::now(), 0_u32);
    while let Some((kind, stream, _)) = peer.next_frame_or_end().await {
        match kind {
            HEADERS => peer.send(HEADERS, END_HEADERS | END_STREAM, stream, OK_BLOCK).await,
            RST_STREAM => {
                resets += 1;
                let earliest = Duration::from_secs(1) * resets.saturating_sub(burst) / 20;
                let elapsed = started_at.elapsed();
                assert!(elapsed >= earliest, "reset {resets} after {elapsed:?}");
                if resets_tx.send(()).is_err() {
                    return;
                }
            }
            _ => {}
        }
    }
}
