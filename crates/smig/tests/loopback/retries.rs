//! Requests that a client repeats after REFUSED_STREAM, tested against a scripted server.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use smig::{Cleartext, CleartextTrust, Client, Error, ErrorCode, Processed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::loopback;

const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200`.
const OK: &[u8] = &[0x88];
/// `:status: 103`.
const EARLY_HINTS: &[u8] = b"\x08\x03103";
const REFUSED_STREAM: &[u8] = &[0, 0, 0, 7];

/// The server's end of a connection.
pub(crate) struct Peer(pub(crate) TcpStream);

impl Peer {
    async fn accept(listener: &TcpListener) -> Self {
        let (mut tcp, _) = listener.accept().await.unwrap();
        tcp.read_exact(&mut [0; 24]).await.unwrap();
        let mut peer = Self(tcp);
        peer.send(SETTINGS, 0, 0, &[]).await;
        peer
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// Returns the stream of the next frame of this type.
    async fn next(&mut self, kind: u8) -> u32 {
        self.next_frame(kind).await.0
    }

    /// Returns the stream and the payload of the next frame of this type.
    pub(crate) async fn next_frame(&mut self, kind: u8) -> (u32, Vec<u8>) {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.unwrap();
            let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; len as usize];
            self.0.read_exact(&mut payload).await.unwrap();
            if head[3] == kind {
                return (u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload);
            }
        }
    }

    /// Answers the next request.
    pub(crate) async fn answer(&mut self) {
        let stream = self.next(HEADERS).await;
        self.respond(stream).await;
    }

    pub(crate) async fn respond(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, OK).await;
    }
}

async fn setup() -> (TcpListener, Client) {
    let cleartext = Cleartext::PriorKnowledge(CleartextTrust::None);
    let client = Client::builder().cleartext(cleartext).build().unwrap();
    (TcpListener::bind(loopback()).await.unwrap(), client)
}

/// Sends a request and reads the complete response.
async fn fetch(
    client: &Client,
    listener: &TcpListener,
    method: Method,
    body: &'static str,
) -> Result<Bytes, Error> {
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let request = Request::builder().method(method).uri(url).body(Full::<Bytes>::from(body));
    let response = client.request(request.unwrap()).await?;
    Ok(response.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn a_refused_request_without_a_response_is_retried() {
    for method in [Method::GET, Method::POST] {
        let (listener, client) = setup().await;
        let server_side = async {
            let mut peer = Peer::accept(&listener).await;
            let refused = peer.next(HEADERS).await;
            peer.send(RST_STREAM, 0, refused, REFUSED_STREAM).await;
            peer.answer().await;
            peer
        };
        let (fetched, _peer) = tokio::join!(fetch(&client, &listener, method, ""), server_side);
        assert_eq!(fetched.unwrap(), "");
    }
}

/// Frames before the reset on the request's stream: type, flags, payload.
type FramesBeforeReset = &'static [(u8, u8, &'static [u8])];

#[tokio::test]
async fn a_post_whose_body_or_response_began_is_not_retried() {
    let cases: [(&str, &str, FramesBeforeReset, Processed); 4] = [
        // The server did not process it, but a part of the body was consumed.
        ("its body was sent", "x", &[], Processed::No),
        ("103 arrived", "", &[(HEADERS, END_HEADERS, EARLY_HINTS)], Processed::Maybe),
        ("a head arrived", "", &[(HEADERS, END_HEADERS, OK)], Processed::Maybe),
        ("data arrived", "", &[(HEADERS, END_HEADERS, OK), (DATA, 0, b"o")], Processed::Maybe),
    ];
    for (case, body, frames_before_reset, processed) in cases {
        let (listener, client) = setup().await;
        let server_side = async {
            let mut peer = Peer::accept(&listener).await;
            let stream = peer.next(HEADERS).await;
            if !body.is_empty() {
                peer.next(DATA).await;
            }
            for (kind, flags, payload) in frames_before_reset {
                peer.send(*kind, *flags, stream, payload).await;
            }
            peer.send(RST_STREAM, 0, stream, REFUSED_STREAM).await;
            peer.answer().await;
            peer
        };
        let client_side = async {
            // If the POST were repeated, the server would answer that.
            let error = fetch(&client, &listener, Method::POST, body).await.expect_err(case);
            assert_eq!(error.code(), Some(ErrorCode::RefusedStream), "{case}");
            assert_eq!(error.was_processed(), processed, "{case}");
            fetch(&client, &listener, Method::GET, "").await.unwrap();
        };
        let ((), _peer) = tokio::join!(client_side, server_side);
    }
}
