//! Requests and responses over TLS and HTTP/2, between this crate's client and server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{Body, answer, bytes, digest, full, get, pair, sha256, url, within};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use smig::{
    BoxError, BulkHint, Config, ConnectionInfo, ErrorCode, Incoming, MigrationConfig,
    MigrationMode, Pacing, Processed,
};
use tokio::sync::{mpsc, oneshot};
use tower::{Service as _, service_fn};

#[tokio::test]
async fn get_and_head() {
    let (server, client) = pair();
    let server = server.start(service_fn(answer)).unwrap();
    let client = client.spares(0).build().unwrap();

    let response = client.request(get(url(&server, "/"))).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(response.headers()["content-length"], "5");
    assert!(response.headers().contains_key("date"));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");

    let head = Request::head(url(&server, "/")).body(Full::<Bytes>::default()).unwrap();
    let response = client.request(head).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());

    let response = client.request(get(url(&server, "/nothing"))).await.unwrap();
    assert_eq!(response.status(), 404);
    assert_eq!(client.stats().connections_opened, 1, "one session");
}

#[tokio::test]
async fn large_bodies_in_both_directions() {
    const LEN: usize = 20 << 20;
    let (server, client) = pair();
    let server = server.start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let expected = sha256(&bytes(LEN));

    let response = client.request(get(url(&server, &format!("/bytes/{LEN}")))).await.unwrap();
    assert_eq!(digest(response.into_body()).await.unwrap(), (expected, LEN as u64));

    let upload = Request::post(url(&server, "/digest")).body(Full::new(bytes(LEN))).unwrap();
    let response = client.request(upload).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), &expected[..]);

    let echo = Request::post(url(&server, "/echo")).body(Full::new(bytes(LEN))).unwrap();
    let response = client.request(echo).await.unwrap();
    assert_eq!(digest(response.into_body()).await.unwrap(), (expected, LEN as u64));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_concurrent_requests() {
    let (server, client) = pair();
    let server = server.start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..500_usize {
        let (client, url) = (client.clone(), url(&server, "/echo"));
        tasks.spawn(async move {
            let body = bytes(number * 37);
            let request = Request::post(url).body(Full::new(body.clone())).unwrap();
            let response = client.request(request).await.unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), body);
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
}

/// Sends a notification on drop.
struct DropGuard(Option<oneshot::Sender<()>>);

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}

#[tokio::test]
async fn dropping_a_request_drops_its_handler() {
    let (entry_sender, mut entries) = mpsc::unbounded_channel();
    let (server, client) = pair();
    let server = server
        .start(service_fn(move |_: Request<Incoming>| {
            let entry_sender = entry_sender.clone();
            async move {
                let (sender, drop_receiver) = oneshot::channel();
                let _guard = DropGuard(Some(sender));
                entry_sender.send(drop_receiver).unwrap();
                std::future::pending::<()>().await;
                Ok::<_, BoxError>(Response::new(full("never")))
            }
        }))
        .unwrap();
    let client = client.build().unwrap();
    let request = client.request(get(url(&server, "/")));
    let drop_receiver = tokio::select! {
        _ = request => panic!("the handler never responds"),
        dropped = entries.recv() => dropped.unwrap(),
    };
    drop_receiver.await.unwrap();
}

#[tokio::test]
async fn dropping_a_response_drops_its_body() {
    struct EndlessBody {
        _guard: DropGuard,
    }
    impl http_body::Body for EndlessBody {
        type Data = Bytes;
        type Error = BoxError;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 10_000])))))
        }
    }
    let (sender, drop_receiver) = oneshot::channel();
    let sender = Arc::new(std::sync::Mutex::new(Some(sender)));
    let (server, client) = pair();
    let server = server
        .start(service_fn(move |_: Request<Incoming>| {
            let body = EndlessBody { _guard: DropGuard(sender.lock().unwrap().take()) };
            async move { Ok::<_, BoxError>(Response::new(body)) }
        }))
        .unwrap();
    let client = client.build().unwrap();
    let mut response = client.request(get(url(&server, "/"))).await.unwrap();
    assert!(response.body_mut().frame().await.unwrap().is_ok());
    drop(response);
    drop_receiver.await.unwrap();
}

#[tokio::test]
async fn a_panic_ends_its_own_stream_only() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|request: Request<Incoming>| async move {
            assert_ne!(request.uri().path(), "/panic", "requested by the test");
            answer(request).await
        }))
        .unwrap();
    let client = client.build().unwrap();
    let slow_builder = Request::post(url(&server, "/echo"));
    let (mut sender, body) = channel();
    let slow_request = client.request(slow_builder.body(body).unwrap());
    let panicking_request = async {
        let error = client.request(get(url(&server, "/panic"))).await.unwrap_err();
        assert!(error.is_remote());
        assert_eq!(error.code(), Some(ErrorCode::InternalError));
        sender.send(Ok(Frame::data(bytes(100)))).await.unwrap();
        sender.send(Ok(Frame::trailers(HeaderMap::new()))).await.unwrap();
        sender.close();
    };
    let (slow_response, ()) = tokio::join!(slow_request, panicking_request);
    let body = slow_response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), bytes(100));
    assert_eq!(server.stats().panics, 1);
}

/// A body whose frames the test sends.
struct BodySender(Option<mpsc::Sender<Result<Frame<Bytes>, BoxError>>>);

impl BodySender {
    async fn send(&mut self, frame: Result<Frame<Bytes>, BoxError>) -> Result<(), BoxError> {
        self.0.as_ref().unwrap().send(frame).await.map_err(|_| "no reader".into())
    }

    fn close(&mut self) {
        self.0 = None;
    }
}

fn channel() -> (BodySender, Body) {
    let (sender, mut receiver) = mpsc::channel(1);
    let frames = poll_stream(move |cx| receiver.poll_recv(cx));
    (BodySender(Some(sender)), StreamBody::new(frames).boxed())
}

/// Returns a stream that calls a poll function.
fn poll_stream<T>(
    poll: impl FnMut(&mut Context<'_>) -> Poll<Option<T>>,
) -> impl futures_util::Stream<Item = T> {
    let mut poll = poll;
    futures_util::stream::poll_fn(move |cx| poll(cx))
}

#[tokio::test]
async fn trailers_in_both_directions() {
    let (server, client) = pair();
    let server = server.start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("checksum", "42".parse().unwrap());
    let (mut sender, body) = channel();
    let request = client.request(Request::post(url(&server, "/echo")).body(body).unwrap());
    let sending = async {
        sender.send(Ok(Frame::data("abc".into()))).await.unwrap();
        sender.send(Ok(Frame::trailers(trailers.clone()))).await.unwrap();
    };
    let (response, ()) = tokio::join!(request, sending);
    let collected = response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(collected.trailers(), Some(&trailers));
    assert_eq!(collected.to_bytes(), "abc");
}

#[tokio::test]
async fn a_body_that_fails_or_is_short_is_a_reset() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|request: Request<Incoming>| async move {
            let (mut sender, body) = channel();
            let mut response = Response::new(body);
            match request.uri().path() {
                "/fails" => {
                    tokio::task::spawn_local(async move {
                        sender.send(Ok(Frame::data("abc".into()))).await.unwrap();
                        sender.send(Err("the disk is gone".into())).await.unwrap();
                    });
                }
                _ => {
                    response.headers_mut().insert("content-length", "10".parse().unwrap());
                    tokio::task::spawn_local(async move {
                        sender.send(Ok(Frame::data("abc".into()))).await.unwrap();
                    });
                }
            }
            Ok::<_, BoxError>(response)
        }))
        .unwrap();
    let client = client.build().unwrap();
    for path in ["/fails", "/short"] {
        let response = client.request(get(url(&server, path))).await.unwrap();
        let error = response.into_body().collect().await.unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::InternalError), "{path}: {error}");
        assert_eq!(error.was_processed(), Processed::Maybe);
    }
}

#[tokio::test]
async fn an_upload_that_fails_is_a_reset() {
    let (server, client) = pair();
    let (error_sender, mut errors) = mpsc::unbounded_channel();
    let server = server
        .start(service_fn(move |request: Request<Incoming>| {
            let error_sender = error_sender.clone();
            // The handler is dropped when its stream is reset; a task that it spawned is not.
            tokio::task::spawn_local(async move {
                error_sender.send(request.into_body().collect().await.err()).unwrap();
            });
            std::future::pending::<Result<Response<Body>, BoxError>>()
        }))
        .unwrap();
    let client = client.build().unwrap();
    let (mut sender, body) = channel();
    let request = client.request(Request::post(url(&server, "/")).body(body).unwrap());
    let sending = async {
        sender.send(Ok(Frame::data("abc".into()))).await.unwrap();
        sender.send(Err("no more".into())).await.unwrap();
    };
    let (response, ()) = tokio::join!(request, sending);
    assert!(response.unwrap_err().is_user());
    let error = errors.recv().await.unwrap().expect("the handler sees the reset");
    assert!(error.is_remote(), "{error}");
}

#[tokio::test]
async fn an_expected_100_continue_is_sent_when_the_handler_reads() {
    let (server, client) = pair();
    let server = server.start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let (mut sender, body) = channel();
    // This handler reads the body before it responds.
    let request = Request::post(url(&server, "/digest")).header("expect", "100-continue");
    let mut request = request.body(body).unwrap();
    let (status_sender, mut statuses) = mpsc::unbounded_channel();
    smig::on_informational(&mut request, move |status, _| status_sender.send(status).unwrap());
    let sending = async {
        let first = within("100", statuses.recv()).await;
        assert_eq!(first, Some(StatusCode::CONTINUE));
        sender.send(Ok(Frame::data(bytes(1000)))).await.unwrap();
        drop(sender);
    };
    let (response, ()) = tokio::join!(client.request(request), sending);
    let digest = response.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(digest, &sha256(&bytes(1000))[..]);
    assert!(statuses.try_recv().is_err(), "it is sent once");
}

#[tokio::test]
async fn a_handler_sends_informational_responses_but_neither_100_nor_101() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|request: Request<Incoming>| async move {
            let sender = request.extensions().get::<smig::InformationalSender>().unwrap().clone();
            for status in [100, 101, 103, 200] {
                sender.send(StatusCode::from_u16(status).unwrap(), HeaderMap::new());
            }
            answer(request).await
        }))
        .unwrap();
    let client = client.build().unwrap();
    let mut request = get(url(&server, "/"));
    let (status_sender, mut statuses) = mpsc::unbounded_channel();
    smig::on_informational(&mut request, move |status, _| status_sender.send(status).unwrap());
    assert_eq!(client.request(request).await.unwrap().status(), 200);
    assert_eq!(within("103", statuses.recv()).await, Some(StatusCode::EARLY_HINTS));
    assert_eq!(within("no other", statuses.recv()).await, None);
}

#[tokio::test]
async fn requests_carry_their_connection() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|request: Request<Incoming>| async move {
            let info = request.extensions().get::<Arc<ConnectionInfo>>().unwrap();
            let tls = info.tls().unwrap();
            let text = format!("{} {}", tls.server_name().unwrap(), info.peer_addr().ip());
            Ok::<_, BoxError>(Response::new(full(text)))
        }))
        .unwrap();
    let client = client.build().unwrap();
    let response = client.request(get(url(&server, "/"))).await.unwrap();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "localhost 127.0.0.1");
}

#[tokio::test]
async fn a_tunnel_carries_both_directions() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|request: Request<Incoming>| async move {
            assert_eq!(request.method(), http::Method::CONNECT);
            let body = request.into_body().map_err(BoxError::from).boxed();
            Ok::<_, BoxError>(Response::new(body))
        }))
        .unwrap();
    let client = client.build().unwrap();
    let origin = smig::Origin::https("localhost", server.local_addrs()[0].port());
    let (mut sender, body) = channel();
    let request = Request::connect("example.org:443").body(body).unwrap();
    let mut response = client.request_to(&origin, request).await.unwrap();
    for round in 0..20_usize {
        sender.send(Ok(Frame::data(bytes(100 + round)))).await.unwrap();
        let mut received = Vec::new();
        while received.len() < 100 + round {
            let frame = response.body_mut().frame().await.unwrap().unwrap();
            received.extend_from_slice(frame.data_ref().unwrap());
        }
        assert_eq!(received, bytes(100 + round));
    }
    sender.close();
    assert!(response.body_mut().frame().await.is_none());
}

#[tokio::test]
async fn an_unread_response_stops_its_writer() {
    const WINDOW: usize = 64 << 10;
    const READ_AHEAD: usize = 64 << 10;
    const FRAME: usize = 16 << 10;
    const CHUNK: usize = 10_000;
    static GENERATED_BYTES: AtomicUsize = AtomicUsize::new(0);
    let (server, client) = pair();
    let server = server
        .start(service_fn(|request: Request<Incoming>| async move {
            if request.uri().path() == "/" {
                return Ok::<_, BoxError>(Response::new(full("hello")));
            }
            let frames = poll_stream(|_| {
                GENERATED_BYTES.fetch_add(CHUNK, Ordering::SeqCst);
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; CHUNK])))))
            });
            Ok(Response::new(StreamBody::new(frames).boxed()))
        }))
        .unwrap();
    let mut config = Config::client();
    config.stream_window = WINDOW as u32;
    let client = client.engine(config).build().unwrap();
    let mut unread = client.request(get(url(&server, "/endless"))).await.unwrap();
    assert!(unread.body_mut().frame().await.unwrap().is_ok());
    for _ in 0..100 {
        let response = client.request(get(url(&server, "/"))).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    // The frame that was read above; what the client reads ahead, at most a frame beyond its limit; the stream's window;
    // the server's buffer, at most a chunk beyond its limit.
    let max_bytes = FRAME + (READ_AHEAD + FRAME) + WINDOW + (Config::server().send_buffer + CHUNK);
    let generated_bytes = GENERATED_BYTES.load(Ordering::SeqCst);
    assert!(generated_bytes <= max_bytes, "{generated_bytes} bytes were generated");
}

#[tokio::test]
async fn a_missing_response_is_a_timeout() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|_: Request<Incoming>| {
            std::future::pending::<Result<Response<Body>, BoxError>>()
        }))
        .unwrap();
    let client = client.response_timeout(Duration::from_millis(50)).build().unwrap();
    let error = client.request(get(url(&server, "/"))).await.unwrap_err();
    assert!(error.is_timeout() && !error.is_connect(), "{error}");
}

#[tokio::test]
async fn an_untrusted_certificate_is_a_tls_error() {
    let (server, _) = pair();
    let (_, client) = pair();
    let server = server.start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let error = client.request(get(url(&server, "/"))).await.unwrap_err();
    assert!(error.is_tls(), "{error}");
    assert!(!error.is_timeout());
}

#[tokio::test]
async fn an_idle_session_is_closed() {
    let (server, client) = pair();
    let (observer, mut events) = crate::support::EventRecorder::new();
    let server = server
        .idle_timeout(Duration::from_millis(50))
        .observer(observer)
        .start(service_fn(answer))
        .unwrap();
    let client = client.spares(0).build().unwrap();
    for _ in 0..2 {
        let response = client.request(get(url(&server, "/"))).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        crate::support::wait_for_event(&mut events, |event| {
            matches!(event, smig::ObserverEvent::ConnectionClosed { .. })
        })
        .await;
    }
}

#[tokio::test]
async fn an_unresponsive_peer_is_disconnected() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = smig::Server::builder()
        .listen_cleartext(crate::support::loopback(), smig::CleartextTrust::None)
        .idle_timeout(Duration::from_millis(10))
        .start(service_fn(answer))
        .unwrap();
    let mut mute_client = tokio::net::TcpStream::connect(server.local_addrs()[0]).await.unwrap();
    // Preface, SETTINGS, SETTINGS with ACK; the PING of the server's drain is not answered.
    mute_client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    mute_client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
    let mut received = Vec::new();
    mute_client.read_to_end(&mut received).await.unwrap();
    assert!(!received.is_empty());
    let stopped = server.shutdown(Duration::from_secs(60)).await;
    stopped.unwrap();
}

#[tokio::test]
async fn a_name_that_the_certificate_does_not_cover_is_misdirected() {
    let (server, client) = pair();
    let server = server.start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let origin = smig::Origin::https("localhost", server.local_addrs()[0].port());
    for (uri, status) in
        [("https://127.0.0.1/", 200), ("https://other.example/", 421), ("https://localhost/", 200)]
    {
        let response = client.request_to(&origin, get(uri)).await.unwrap();
        assert_eq!(response.status(), status, "{uri}");
    }
    let all_streams_ended = async {
        while server.stats().streams_completed < 3 {
            tokio::task::yield_now().await;
        }
    };
    within("the end of each stream", all_streams_ended).await;
    assert_eq!((server.stats().streams_opened, server.stats().streams_reset), (3, 0));
}

#[tokio::test]
async fn extended_connect_carries_its_protocol() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|request: Request<Incoming>| async move {
            let protocol = request.extensions().get::<smig::Protocol>().unwrap();
            assert_eq!(protocol.as_str(), "websocket");
            Ok::<_, BoxError>(Response::new(request.into_body()))
        }))
        .unwrap();
    let client = client.build().unwrap();
    let (mut sender, body) = channel();
    let mut request = Request::connect(url(&server, "/chat")).body(body).unwrap();
    request.extensions_mut().insert(smig::Protocol::new("websocket").unwrap());
    // The first request of its session: it waits for the server's SETTINGS.
    let mut response = client.request(request).await.unwrap();
    sender.send(Ok(Frame::data("ping".into()))).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "ping");
}

#[tokio::test]
async fn a_refused_connect_has_a_body() {
    let (server, client) = pair();
    let server = server
        .start(service_fn(|_: Request<Incoming>| async {
            let mut response = Response::new(Full::new(Bytes::from("not there")));
            *response.status_mut() = StatusCode::FORBIDDEN;
            Ok::<_, BoxError>(response)
        }))
        .unwrap();
    let client = client.build().unwrap();
    let origin = smig::Origin::https("localhost", server.local_addrs()[0].port());
    let (_sender, body) = channel();
    let request = Request::connect("example.com:443").body(body).unwrap();
    let response = client.request_to(&origin, request).await.unwrap();
    assert_eq!(response.status(), 403);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "not there");
}

#[tokio::test]
async fn a_request_body_that_does_not_arrive_is_reset() {
    let (server, client) = pair();
    let limit = Duration::from_millis(40);
    let server = server.body_timeout(limit).start(service_fn(answer)).unwrap();
    let client = client.build().unwrap();
    let (mut sender, body) = channel();
    let request = client.request(Request::post(url(&server, "/digest")).body(body).unwrap());
    let sending = sender.send(Ok(Frame::data("abc".into())));
    let (response, sent) = tokio::join!(request, sending);
    sent.unwrap();
    let error = response.unwrap_err();
    assert!(error.is_remote(), "{error}");
    assert_eq!(error.code(), Some(ErrorCode::Cancel));
    assert_eq!(server.stats().limits_hit, 1);
    // A gRPC call has no limit, and was started before the stream that is reset.
    let (mut call_sender, body) = channel();
    let request = Request::post(url(&server, "/digest"))
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .body(body)
        .unwrap();
    let call = tokio::spawn(client.clone().call(request));
    call_sender.send(Ok(Frame::data("abc".into()))).await.unwrap();
    let (_sender, body) = channel();
    let timed_out = client.request(Request::post(url(&server, "/digest")).body(body).unwrap());
    assert_eq!(timed_out.await.unwrap_err().code(), Some(ErrorCode::Cancel));
    drop(call_sender);
    assert_eq!(call.await.unwrap().unwrap().status(), 200);
    // A stream whose response has started has no limit.
    let (mut sender, body) = channel();
    let request = Request::post(url(&server, "/echo")).body(body).unwrap();
    let mut response = client.request(request).await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(limit).await;
        sender.send(Ok(Frame::data("abc".into()))).await.unwrap();
        let frame = response.body_mut().frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "abc");
    }
}

#[tokio::test]
async fn an_upload_whose_body_is_not_read_leaves_no_stream() {
    let (server, client) = pair();
    let refuse = async |_: Request<Incoming>| {
        Ok::<_, BoxError>(Response::builder().status(502).body(full("gone")).unwrap())
    };
    let server = server.start(service_fn(refuse)).unwrap();
    // No migration: a reset that crosses a MIGRATE is another case.
    let mut rules = MigrationConfig::default();
    rules.mode = MigrationMode::Never;
    let client = client.migration(rules).build().unwrap();
    // A complete body in memory, and an endless one; both exceed the stream's window.
    let endless = futures_util::stream::repeat_with(|| Ok::<_, BoxError>(Frame::data(bytes(9000))));
    let bodies: [Body; 2] = [full(bytes(8 << 20)), StreamBody::new(endless).boxed()];
    for body in bodies {
        let response = client.request(Request::put(url(&server, "/")).body(body).unwrap()).await;
        let response = response.unwrap();
        assert_eq!(response.status(), 502);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "gone");
        let no_stream_left = async {
            while client.sessions().await.sessions.iter().any(|one| !one.streams.is_empty()) {
                tokio::task::yield_now().await;
            }
        };
        within("the end of all streams", no_stream_left).await;
    }
}

/// Upload pacing is on, but on a path as short as this one it limits no credit: whatever the handler's hint, the uploads of
/// a client without SMig are complete, and small requests on their connection are answered meanwhile.
#[tokio::test]
async fn upload_pacing_leaves_uploads_on_a_short_path_complete() {
    const LEN: usize = 8 << 20;
    let (server, client) = pair();
    let handler = |request: Request<Incoming>| {
        if let Some(stream) = request.body().stream_info() {
            let hint = match request.uri().query() {
                Some("bulk") => BulkHint::Bulk,
                Some("interactive") => BulkHint::Interactive,
                _ => BulkHint::None,
            };
            stream.set_incoming_bulk_hint(hint);
        }
        answer(request)
    };
    let server = server.upload_pacing(Pacing::On).start(service_fn(handler)).unwrap();
    let client = client.engine(Config { smig: None, ..Config::client() }).plain_connections(1);
    let client = client.build().unwrap();
    let expected = sha256(&bytes(LEN));
    let uploads = ["/digest", "/digest?bulk", "/digest?interactive"].map(|path| {
        let request = Request::post(url(&server, path)).body(Full::new(bytes(LEN))).unwrap();
        let client = client.clone();
        tokio::spawn(
            async move { client.request(request).await.unwrap().into_body().collect().await },
        )
    });
    while !uploads.iter().all(tokio::task::JoinHandle::is_finished) {
        let small = client.request(get(url(&server, "/"))).await.unwrap();
        assert_eq!(small.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    for upload in uploads {
        assert_eq!(upload.await.unwrap().unwrap().to_bytes(), &expected[..]);
    }
    assert_eq!(client.stats().connections_opened, 1);
}
