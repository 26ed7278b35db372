//! Extended CONNECT waits for the server's first SETTINGS frame, which states whether it is supported (RFC 8441
//! section 3), and other requests do not.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use smig::{Cleartext, CleartextTrust, Client, ClientBuilder, Config, Origin, QueueLimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::retries::{HEADERS, Peer};
use crate::support::loopback;

/// SETTINGS_ENABLE_CONNECT_PROTOCOL = 1.
const SETTINGS_FRAME: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1];
/// SETTINGS_MAX_CONCURRENT_STREAMS.
const fn max_streams_frame(number: u8) -> [u8; 15] {
    [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, number]
}
/// Time limit for an expected event.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A client that waits for SETTINGS for longer than any test runs.
fn client_builder() -> ClientBuilder {
    let mut engine = Config::client();
    engine.limits.preface_timeout = TIMEOUT * 10;
    Client::builder().cleartext(Cleartext::PriorKnowledge(CleartextTrust::None)).engine(engine)
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(loopback()).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut tcp, _) = listener.accept().await.unwrap();
    tcp.set_nodelay(true).unwrap();
    tcp.read_exact(&mut [0; 24]).await.unwrap();
    tcp
}

/// Yields to the client, which runs on this thread. Afterwards it has read all that was sent.
async fn let_the_client_run() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn websocket(url: &str) -> Request<Full<Bytes>> {
    let mut request = Request::connect(url).body(Full::default()).unwrap();
    request.extensions_mut().insert(smig::Protocol::new("websocket").unwrap());
    request
}

#[tokio::test]
async fn the_settings_frame_may_arrive_in_pieces() {
    for first_piece_len in 1..SETTINGS_FRAME.len() {
        let (listener, url) = listen().await;
        let client = client_builder().build().unwrap();
        let serving = async {
            let mut tcp = accept(&listener).await;
            let (first_piece, second_piece) = SETTINGS_FRAME.split_at(first_piece_len);
            tcp.write_all(first_piece).await.unwrap();
            let_the_client_run().await;
            tcp.write_all(second_piece).await.unwrap();
            let mut peer = Peer(tcp);
            peer.answer().await;
            peer
        };
        let (response, _peer) = tokio::join!(client.request(websocket(&url)), serving);
        assert_eq!(response.unwrap().status(), 200, "first piece: {first_piece_len} bytes");
    }
}

#[tokio::test]
async fn a_session_that_is_retired_before_settings_arrive_sends_its_request() {
    let (listener, url) = listen().await;
    let client = client_builder().build().unwrap();
    let origin = Origin::from_uri(&url.parse().unwrap()).unwrap();
    let serving = async {
        let mut tcp = accept(&listener).await;
        client.retire(&origin);
        let_the_client_run().await;
        assert!(!client.has_session(&origin));
        tcp.write_all(&SETTINGS_FRAME).await.unwrap();
        let mut peer = Peer(tcp);
        timeout(TIMEOUT, peer.answer()).await.expect("the request on the same connection");
        peer
    };
    let (response, _peer) = tokio::join!(client.request(websocket(&url)), serving);
    assert_eq!(response.unwrap().status(), 200);
}

#[tokio::test]
async fn a_request_that_waits_for_settings_may_be_dropped_and_times_out() {
    let (listener, url) = listen().await;
    let queue = QueueLimit::new(5);
    let builder = || client_builder().queue(queue.clone());
    let client = builder().build().unwrap();
    let origin = Origin::from_uri(&url.parse().unwrap()).unwrap();
    let request = client.submit(&origin, websocket(&url)).unwrap();
    let mut tcp = accept(&listener).await;
    tcp.write_all(&SETTINGS_FRAME[..1]).await.unwrap();
    let_the_client_run().await;
    assert_eq!(queue.available_permits(), 4);
    drop(request);
    let released = async {
        while queue.available_permits() < 5 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, released).await.expect("the queue permit of a dropped request");

    let client = builder().queue_timeout(Duration::from_millis(10)).build().unwrap();
    let error = timeout(TIMEOUT, client.request(websocket(&url))).await.expect("the queue timeout");
    assert!(error.unwrap_err().is_timeout());
}

#[tokio::test]
async fn a_request_of_a_closed_session_is_sent_before_later_ones() {
    let (listener, url) = listen().await;
    let client = client_builder().build().unwrap();
    let origin = Origin::from_uri(&url.parse().unwrap()).unwrap();
    let spawn_request = |method: Method| {
        let (client, request) = (client.clone(), Request::builder().method(method).uri(&url));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        tokio::spawn(async move { client.request(request).await.map(|_| ()) })
    };
    // The first request of a session takes the only stream.
    let open_busy_session = async || {
        let first_task = spawn_request(Method::PUT);
        let mut tcp = accept(&listener).await;
        tcp.write_all(&max_streams_frame(1)).await.unwrap();
        let mut peer = Peer(tcp);
        let (stream, _) = timeout(TIMEOUT, peer.next_frame(HEADERS)).await.expect("a request");
        let_the_client_run().await;
        (first_task, peer, stream)
    };
    let (_failed, old_peer, _) = open_busy_session().await;
    let earlier_task = spawn_request(Method::GET);
    let_the_client_run().await;
    client.retire(&origin);
    let_the_client_run().await;
    let (first_task, mut peer, stream) = open_busy_session().await;
    let later_task = spawn_request(Method::POST);
    let_the_client_run().await;
    drop(old_peer);
    let_the_client_run().await;
    peer.respond(stream).await;
    let (stream, block) = timeout(TIMEOUT, peer.next_frame(HEADERS)).await.expect("a request");
    // `:method: GET` of the static table; POST is 0x83.
    assert_eq!(block[0], 0x82, "the earlier request");
    peer.respond(stream).await;
    timeout(TIMEOUT, peer.answer()).await.expect("the later request");
    for task in [first_task, earlier_task, later_task] {
        task.await.unwrap().unwrap();
    }
}
