//! HTTP/2 servers that refuse, shut down, fail or announce wrong lengths, frame by frame.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use smig::ErrorCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::raw_http2::{block, frame};
use crate::support::{Gateway, Origin, client, get, spec, text, within};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// `:status: 200`.
pub(crate) const OK_BLOCK: &[u8] = &[0x88];
/// `:status: 200`, `content-length: 10`.
const OK_BLOCK_WITH_LENGTH_10: &[u8] = &[0x88, 0x0f, 0x0d, 2, b'1', b'0'];
/// `:status: 103`.
const EARLY_HINTS: &[u8] = b"\x08\x03103";
const REFUSED_STREAM: &[u8] = &[0, 0, 0, 7];
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Longer than any test takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The server's end of a connection.
pub(crate) struct Peer(TcpStream);

impl Peer {
    pub(crate) async fn accept(origin: &mut Origin) -> Self {
        Self::accept_with(origin, &[]).await
    }

    /// Like [`Peer::accept`], with these settings of the server.
    pub(crate) async fn accept_with(origin: &mut Origin, settings: &[u8]) -> Self {
        let mut tcp = origin.accept().await;
        tcp.read_exact(&mut [0; 24]).await.unwrap();
        let mut peer = Self(tcp);
        peer.send(SETTINGS, 0, 0, settings).await;
        peer
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// Returns the stream of the next request.
    pub(crate) async fn next_request(&mut self) -> u32 {
        self.next_of_type(HEADERS).await
    }

    /// Returns the stream of the next frame of this type.
    pub(crate) async fn next_of_type(&mut self, kind: u8) -> u32 {
        loop {
            let (found, stream, _) = self.next_frame().await;
            if found == kind {
                return stream;
            }
        }
    }

    /// Returns the type, stream and length of the next frame.
    pub(crate) async fn next_frame(&mut self) -> (u8, u32, u32) {
        let (kind, _, stream, len) = self.next_frame_with_flags().await;
        (kind, stream, len)
    }

    /// Like [`Peer::next_frame`]; `None` at the end of the connection.
    pub(crate) async fn next_frame_or_end(&mut self) -> Option<(u8, u32, u32)> {
        let (kind, _, stream, len) = self.read_frame().await.ok()?;
        Some((kind, stream, len))
    }

    /// Like [`Peer::next_frame`], with the flags.
    pub(crate) async fn next_frame_with_flags(&mut self) -> (u8, u8, u32, u32) {
        self.read_frame().await.unwrap()
    }

    async fn read_frame(&mut self) -> std::io::Result<(u8, u8, u32, u32)> {
        let (kind, flags, stream, payload) = self.read_with_payload().await?;
        Ok((kind, flags, stream, payload.len() as u32))
    }

    /// Returns the next frame with its payload.
    async fn read_with_payload(&mut self) -> std::io::Result<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await?;
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; len as usize];
        self.0.read_exact(&mut payload).await?;
        Ok((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }
}

pub(crate) async fn setup() -> (Origin, Gateway) {
    let origin = Origin::start().await;
    let gateway = Gateway::in_front_of(format!("h2c://{}", origin.addr));
    (origin, gateway)
}

#[tokio::test]
async fn a_refused_stream_is_retried() {
    let (mut origin, gateway) = setup().await;
    let server_side = async {
        let mut peer = Peer::accept(&mut origin).await;
        let first = peer.next_request().await;
        peer.send(RST_STREAM, 0, first, REFUSED_STREAM).await;
        let second = peer.next_request().await;
        peer.send(HEADERS, END_HEADERS | END_STREAM, second, OK_BLOCK).await;
        peer
    };
    let (client, request) = (client(), get(gateway.url("/")));
    let (response, _peer) = tokio::join!(client.request(request), server_side);
    assert_eq!(response.unwrap().status(), 200);
}

/// The client chooses the deadline of a gRPC call, at which servers reset the stream with CANCEL.
#[tokio::test]
async fn cancelled_requests_do_not_count_against_the_server() {
    let cancel = 8_u32.to_be_bytes();
    let (mut origin, gateway) = setup().await;
    let server_side = async {
        let mut peer = Peer::accept(&mut origin).await;
        let first = peer.next_request().await;
        peer.send(RST_STREAM, 0, first, &cancel).await;
        let second = peer.next_request().await;
        peer.send(HEADERS, END_HEADERS, second, OK_BLOCK).await;
        peer.send(RST_STREAM, 0, second, &cancel).await;
        peer
    };
    let client = client();
    let client_side = async {
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(response.status(), 502);
        let response = client.request(get(gateway.url("/"))).await.unwrap();
        assert_eq!(response.status(), 200);
        let error = response.into_body().collect().await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::Cancel));
    };
    let ((), _peer) = tokio::join!(client_side, server_side);
    assert_eq!(gateway.upstream.servers()[0].status().failures, 0);
}

#[tokio::test]
async fn a_cancelled_request_is_retried_on_another_server() {
    let mut origins = [Origin::start().await, Origin::start().await];
    let urls = origins.each_ref().map(|origin| format!("h2c://{}", origin.addr));
    let gateway = Gateway::start(&spec(&urls.each_ref().map(String::as_str)));
    let [first_origin, second_origin] = &mut origins;
    let server_side = async {
        // Whichever server is picked first.
        let mut first_peer = tokio::select! {
            peer = Peer::accept(first_origin) => peer,
            peer = Peer::accept(second_origin) => peer,
        };
        let stream = first_peer.next_request().await;
        first_peer.send(RST_STREAM, 0, stream, &8_u32.to_be_bytes()).await;
        let second_accept = async {
            tokio::select! {
                peer = Peer::accept(first_origin) => peer,
                peer = Peer::accept(second_origin) => peer,
            }
        };
        let mut second_peer = within("the other server's request", second_accept).await;
        let stream = second_peer.next_request().await;
        second_peer.send(HEADERS, END_HEADERS | END_STREAM, stream, OK_BLOCK).await;
        (first_peer, second_peer)
    };
    let (client, request) = (client(), get(gateway.url("/")));
    let (response, _peers) = tokio::join!(client.request(request), server_side);
    assert_eq!(response.unwrap().status(), 200);
}

/// RFC 9110 section 8.6.
#[tokio::test]
async fn a_204_response_has_no_content_length() {
    let (mut origin, gateway) = setup().await;
    let server_side = async {
        let mut peer = Peer::accept(&mut origin).await;
        let stream = peer.next_request().await;
        // `:status: 204`, `content-length: 0`.
        let head = [0x89, 0x0f, 0x0d, 1, b'0'];
        peer.send(HEADERS, END_HEADERS | END_STREAM, stream, &head).await;
        peer
    };
    let (client, request) = (client(), get(gateway.url("/")));
    let (response, _peer) = tokio::join!(client.request(request), server_side);
    let response = response.unwrap();
    assert_eq!(response.status(), 204);
    assert!(!response.headers().contains_key("content-length"), "{:?}", response.headers());
}

#[tokio::test]
async fn a_request_is_retried_on_another_connection_after_goaway() {
    let (mut origin, gateway) = setup().await;
    let server_side = async {
        let mut leaving_peer = Peer::accept(&mut origin).await;
        leaving_peer.next_request().await;
        leaving_peer.send(GOAWAY, 0, 0, &[0; 8]).await;
        let mut peer = Peer::accept(&mut origin).await;
        let stream = peer.next_request().await;
        peer.send(HEADERS, END_HEADERS, stream, OK_BLOCK).await;
        peer.send(DATA, END_STREAM, stream, b"ok").await;
        (leaving_peer, peer)
    };
    let (client, request) = (client(), get(gateway.url("/")));
    let (response, _peers) = tokio::join!(client.request(request), server_side);
    assert_eq!(text(response.unwrap().into_body()).await, "ok");
}

#[tokio::test]
async fn a_post_that_may_have_been_processed_is_not_retried() {
    let (mut origin, gateway) = setup().await;
    let server_side = async {
        let mut peer = Peer::accept(&mut origin).await;
        let stream = peer.next_request().await;
        // INTERNAL_ERROR: the server may have processed the request.
        peer.send(RST_STREAM, 0, stream, &2_u32.to_be_bytes()).await;
        peer
    };
    let request = Request::post(gateway.url("/")).body(Full::<bytes::Bytes>::from("x")).unwrap();
    let client = client();
    let (response, _peer) = tokio::join!(client.request(request), server_side);
    let response = response.unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(response.headers()["proxy-status"], "smig; error=connection_terminated");
}

/// Frames: type, flags, payload.
type Frames = &'static [(u8, u8, &'static [u8])];

#[tokio::test]
async fn a_post_is_not_retried_when_refused_after_data_or_a_response() {
    let cases: [(&str, &str, Frames); 4] = [
        ("its body was sent", "x", &[]),
        ("103 came", "", &[(HEADERS, END_HEADERS, EARLY_HINTS)]),
        ("a head came", "", &[(HEADERS, END_HEADERS, OK_BLOCK)]),
        ("data came", "", &[(HEADERS, END_HEADERS, OK_BLOCK), (DATA, 0, b"o")]),
    ];
    for (case, body, prior_frames) in cases {
        let (mut origin, gateway) = setup().await;
        let server_side = async {
            let mut peer = Peer::accept(&mut origin).await;
            let stream = peer.next_request().await;
            if !body.is_empty() {
                peer.next_of_type(DATA).await;
            }
            for (kind, flags, payload) in prior_frames {
                peer.send(*kind, *flags, stream, payload).await;
            }
            peer.send(RST_STREAM, 0, stream, REFUSED_STREAM).await;
            let stream = peer.next_request().await;
            peer.send(HEADERS, END_HEADERS | END_STREAM, stream, OK_BLOCK).await;
            peer
        };
        let client = client();
        let client_side = async {
            let request = Request::post(gateway.url("/")).body(Full::<bytes::Bytes>::from(body));
            let has_failed = match client.request(request.unwrap()).await.unwrap() {
                // 503: the server did not process the request, so that the client may retry it.
                response if response.status().is_server_error() => true,
                response => response.into_body().collect().await.is_err(),
            };
            // If the gateway had retried it, it would have received this response.
            assert!(has_failed, "{case}");
            let next = client.request(get(gateway.url("/"))).await.unwrap();
            assert_eq!(next.status(), 200, "{case}");
        };
        let ((), _peer) = tokio::join!(client_side, server_side);
    }
}

#[tokio::test]
async fn a_truncated_or_inconsistent_body_never_appears_complete() {
    let cases: [(&str, &[u8], Frames); 4] = [
        ("reset", OK_BLOCK, &[(DATA, 0, b"short"), (RST_STREAM, 0, &[0, 0, 0, 2])]),
        ("reset without error", OK_BLOCK, &[(DATA, 0, b"short"), (RST_STREAM, 0, &[0, 0, 0, 0])]),
        ("short", OK_BLOCK_WITH_LENGTH_10, &[(DATA, END_STREAM, b"short")]),
        ("long", OK_BLOCK_WITH_LENGTH_10, &[(DATA, END_STREAM, b"much too long")]),
    ];
    for (case, head, rest) in cases {
        let (mut origin, gateway) = setup().await;
        let server_side = async {
            let mut peer = Peer::accept(&mut origin).await;
            let stream = peer.next_request().await;
            peer.send(HEADERS, END_HEADERS, stream, head).await;
            for (kind, flags, payload) in rest {
                peer.send(*kind, *flags, stream, payload).await;
            }
            peer
        };
        let (client, request) = (client(), get(gateway.url("/")));
        let client_side = async {
            match client.request(request).await.unwrap() {
                // The gateway may notice before it has sent the header section.
                response if response.status() == 502 => true,
                response => response.into_body().collect().await.is_err(),
            }
        };
        let (has_failed, _peer) = tokio::join!(client_side, server_side);
        assert!(has_failed, "{case}");
    }
}

#[tokio::test]
async fn a_connection_that_ends_in_a_body_truncates_it() {
    let (mut origin, gateway) = setup().await;
    let server_side = async {
        let mut peer = Peer::accept(&mut origin).await;
        let stream = peer.next_request().await;
        peer.send(HEADERS, END_HEADERS, stream, OK_BLOCK).await;
        peer.send(DATA, 0, stream, b"short").await;
    };
    let (client, request) = (client(), get(gateway.url("/")));
    let client_side = async {
        let response = client.request(request).await.unwrap();
        assert!(response.into_body().collect().await.is_err());
    };
    tokio::join!(client_side, server_side);
}

/// The server's end of a connection, which sends as much as the gateway's windows allow.
struct FloodingServer {
    peer: Peer,
    /// The initial window of each stream.
    initial_stream_window: usize,
    /// The rest of the connection's window.
    connection_window: usize,
}

impl FloodingServer {
    async fn accept(origin: &mut Origin) -> Self {
        let peer = Peer::accept(origin).await;
        Self { peer, initial_stream_window: 65_535, connection_window: 65_535 }
    }

    /// Reads and processes a frame; returns the stream if it was a request.
    async fn read(&mut self) -> Option<u32> {
        let (kind, flags, stream, payload) = self.peer.read_with_payload().await.unwrap();
        match (kind, stream) {
            (SETTINGS, _) if flags & ACK == 0 => {
                self.peer.send(SETTINGS, ACK, 0, &[]).await;
                for entry in payload.chunks_exact(6) {
                    let (id, value) = entry.split_at(2);
                    if id == INITIAL_WINDOW_SIZE.to_be_bytes() {
                        self.initial_stream_window =
                            u32::from_be_bytes(value.try_into().unwrap()) as usize;
                    }
                }
                None
            }
            (WINDOW_UPDATE, 0) => {
                let increment = u32::from_be_bytes(payload.try_into().unwrap());
                self.connection_window += increment as usize;
                None
            }
            (HEADERS, _) => Some(stream),
            _ => None,
        }
    }

    /// Receives the next request and sends the response's header section; returns the stream.
    async fn begin(&mut self) -> u32 {
        loop {
            if let Some(stream) = self.read().await {
                self.peer.send(HEADERS, END_HEADERS, stream, OK_BLOCK).await;
                return stream;
            }
        }
    }

    /// Sends as much of an endless body as the windows allow.
    async fn fill(&mut self, stream: u32) {
        let mut remaining_bytes = self.initial_stream_window.min(self.connection_window);
        self.connection_window -= remaining_bytes;
        while remaining_bytes > 0 {
            let len = remaining_bytes.min(16_384);
            self.peer.send(DATA, 0, stream, &vec![b'x'; len]).await;
            remaining_bytes -= len;
        }
    }

    /// Sends a complete body, once the connection's window allows it.
    async fn end(&mut self, stream: u32, body: &[u8]) {
        while self.connection_window < body.len() {
            self.read().await;
        }
        self.peer.send(DATA, END_STREAM, stream, body).await;
    }
}

/// Connects a client over HTTP/2 that sends a request and reads nothing: its windows are the initial ones (RFC 9113
/// section 6.9.2).
async fn request_without_reading(gateway: &Gateway) -> TcpStream {
    let head =
        block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")]);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
    gateway.connect(bytes).await
}

/// Clients share a session with the server, and so its connection window.
#[tokio::test]
async fn unread_responses_do_not_block_others() {
    let (mut origin, gateway) = setup().await;
    let _one = request_without_reading(&gateway).await;
    let mut server = FloodingServer::accept(&mut origin).await;
    let first = server.begin().await;
    assert!(
        server.connection_window >= 128 * server.initial_stream_window,
        "as many as our servers allow"
    );
    server.fill(first).await;
    let _other = request_without_reading(&gateway).await;
    let second = server.begin().await;
    server.fill(second).await;

    let (client, request) = (client(), get(gateway.url("/")));
    let server_side = async {
        let third = server.begin().await;
        server.end(third, &[b'y'; 1024]).await;
    };
    let client_side = async { text(client.request(request).await.unwrap().into_body()).await };
    let both = async { tokio::join!(client_side, server_side) };
    let (body, ()) =
        tokio::time::timeout(TEST_TIMEOUT, both).await.expect("a response beside others");
    assert_eq!(body, "y".repeat(1024));
}
