//! Towards a server that does not support SMig: a long response continues on another connection by a range request.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{
    Body, EventRecorder, Events, bytes, full, get, pair, url, wait_for_event, within,
};
use bytes::Bytes;
use http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use smig::{
    BoxError, Client, Config, ConnectionInfo, Incoming, MigrationHint, ObserverEvent,
    RangeContinuation, Server,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tower::service_fn;

const LENGTH: usize = 4 << 20;
const CHUNK: usize = 16 << 10;
const TAG: &str = "\"v1\"";

/// How the server answers a range request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Correct,
    /// 200 with all of it: If-Range did not match.
    Whole,
    NotSatisfiable,
    NotFound,
    OtherTag,
    NoTag,
    OtherStart,
    OtherLength,
    NotToTheEnd,
    NoContentRange,
    OtherEncoding,
    /// The stream is reset instead of answered.
    Panic,
    /// Never.
    Silence,
    /// The head fits, and nothing follows.
    HeadOnly,
    /// The head fits, and the body fails at once.
    NoBody,
    /// The body has more bytes than the range.
    TooLong,
    /// It has fewer.
    TooShort,
    /// It fails, after the first response was cancelled for it.
    Broken,
}

/// A server of one file, which sends a chunk of the whole file for each permit, and ranges without waiting.
struct FileServer {
    server: Server,
    /// Where clients connect to.
    port: u16,
    chunks: Arc<Semaphore>,
    /// First positions of requested ranges.
    ranges: mpsc::UnboundedReceiver<usize>,
    /// Bodies of the whole file that have not ended.
    open_bodies: Arc<AtomicUsize>,
}

impl FileServer {
    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }
}

/// Counts a body while it exists.
struct OpenGuard(Arc<AtomicUsize>);

impl OpenGuard {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn start(answer: Answer) -> (FileServer, Client, Events) {
    let (server, client) = pair();
    let (chunks, open_bodies) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
    let (range_sender, ranges) = mpsc::unbounded_channel();
    let shared = (Arc::clone(&chunks), Arc::clone(&open_bodies));
    let service = service_fn(move |request: Request<Incoming>| {
        let ((chunks, open_bodies), range_sender) = (shared.clone(), range_sender.clone());
        async move {
            if request.uri().path() == "/" {
                let info = request.extensions().get::<Arc<ConnectionInfo>>().unwrap();
                return Ok(Response::new(full(info.peer_addr().port().to_string())));
            }
            let Some(range) = request.headers().get(RANGE) else {
                return Ok::<_, BoxError>(whole(chunks, OpenGuard::new(&open_bodies)));
            };
            assert_eq!(request.headers()[IF_RANGE], TAG);
            assert_eq!(request.headers()["x-user"], "ann", "the request is the same");
            let first = range.to_str()?.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap();
            range_sender.send(first.parse()?)?;
            part(answer, first.parse()?, open_bodies).await
        }
    });
    let server = server.engine(Config { smig: None, ..Config::server() }).start(service).unwrap();
    let (observer, events) = EventRecorder::new();
    let client =
        client.range_continuation(RangeContinuation::Verified).observer(observer).build().unwrap();
    let port = server.local_addrs()[0].port();
    (FileServer { server, port, chunks, ranges, open_bodies }, client, events)
}

fn whole(chunks: Arc<Semaphore>, guard: OpenGuard) -> Response<Body> {
    let state = (0, bytes(LENGTH), chunks, guard);
    let frames = futures_util::stream::unfold(state, async |(at, file, chunks, guard)| {
        if at == LENGTH {
            return None;
        }
        chunks.acquire().await.unwrap().forget();
        let chunk: Bytes = file.slice(at..at + CHUNK);
        Some((Ok::<_, BoxError>(Frame::data(chunk)), (at + CHUNK, file, chunks, guard)))
    });
    let response = Response::builder().header(ETAG, TAG).header(ACCEPT_RANGES, "bytes");
    response.header(CONTENT_LENGTH, LENGTH).body(StreamBody::new(frames).boxed()).unwrap()
}

async fn part(
    answer: Answer,
    first: usize,
    open_bodies: Arc<AtomicUsize>,
) -> Result<Response<Body>, BoxError> {
    let mut body = bytes(LENGTH).slice(first..);
    let mut range = format!("bytes {first}-{}/{LENGTH}", LENGTH - 1);
    let (mut status, mut tag) = (StatusCode::PARTIAL_CONTENT, Some(TAG));
    let mut headers = HeaderMap::new();
    match answer {
        Answer::Correct => {}
        Answer::Whole => (status, body) = (StatusCode::OK, bytes(LENGTH)),
        Answer::NotSatisfiable => status = StatusCode::RANGE_NOT_SATISFIABLE,
        Answer::NotFound => status = StatusCode::NOT_FOUND,
        Answer::OtherTag => tag = Some("\"v2\""),
        Answer::NoTag => tag = None,
        Answer::OtherStart => range = format!("bytes {}-{}/{LENGTH}", first + 1, LENGTH - 1),
        Answer::OtherLength => range = format!("bytes {first}-{}/{}", LENGTH - 1, LENGTH + 1),
        Answer::NotToTheEnd => range = format!("bytes {first}-{}/{LENGTH}", LENGTH - 2),
        Answer::NoContentRange => range.clear(),
        Answer::OtherEncoding => {
            headers.insert("content-encoding", "gzip".parse()?);
        }
        Answer::Panic => panic!("requested by the test"),
        Answer::Silence => std::future::pending().await,
        Answer::TooLong => body = [body, Bytes::from_static(b"!")].concat().into(),
        Answer::TooShort => body.truncate(body.len() - 1),
        Answer::HeadOnly | Answer::NoBody | Answer::Broken => {}
    }
    let body = match answer {
        Answer::TooLong | Answer::TooShort => {
            let frame = Ok::<_, BoxError>(Frame::data(body));
            StreamBody::new(futures_util::stream::iter([frame])).boxed()
        }
        Answer::Broken => {
            let frames = futures_util::stream::unfold(Some(body), move |first| {
                let open_bodies = Arc::clone(&open_bodies);
                async move {
                    if let Some(mut body) = first {
                        return Some((Ok(Frame::data(body.split_to(CHUNK))), None));
                    }
                    while open_bodies.load(Ordering::SeqCst) > 0 {
                        tokio::task::yield_now().await;
                    }
                    Some((Err::<_, BoxError>("the disk is gone".into()), None))
                }
            });
            StreamBody::new(frames).boxed()
        }
        Answer::HeadOnly => StreamBody::new(futures_util::stream::pending()).boxed(),
        Answer::NoBody => {
            let failure = Err::<Frame<Bytes>, BoxError>("the disk is gone".into());
            StreamBody::new(futures_util::stream::iter([failure])).boxed()
        }
        _ => full(body),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    headers.extend(tag.map(|tag| (Some(ETAG), tag.parse().unwrap())));
    headers.insert(CONTENT_RANGE, range.parse()?);
    *response.headers_mut() = headers;
    Ok(response)
}

/// Returns the port of the connection that a small request takes.
async fn port(server: &FileServer, client: &Client) -> Bytes {
    let response = client.request(get(server.url("/"))).await.unwrap();
    response.into_body().collect().await.unwrap().to_bytes()
}

/// A download that the test reads step by step.
struct Download {
    body: Incoming,
    data: Vec<u8>,
}

impl Download {
    /// Starts, and reads until the client has a second connection.
    async fn start(server: &FileServer, client: &Client) -> Self {
        let first = port(server, client).await;
        let mut request = get(server.url("/file"));
        request.headers_mut().insert("x-user", "ann".parse().unwrap());
        request.extensions_mut().insert(MigrationHint::Migrate);
        let body = client.request(request).await.unwrap().into_body();
        let mut download = Self { body, data: Vec::new() };
        download.step(server).await;
        within("a second connection", async {
            while port(server, client).await == first {
                tokio::task::yield_now().await;
            }
        })
        .await;
        download
    }

    /// Lets the server send two chunks of the whole file, and reads them.
    async fn step(&mut self, server: &FileServer) {
        server.chunks.add_permits(2);
        let until = self.data.len() + 2 * CHUNK;
        while self.data.len() < until {
            self.next().await.unwrap().unwrap();
        }
    }

    /// Lets the server send what is missing up to `first_pos`, and not all.
    fn reach(&self, server: &FileServer, first_pos: usize) {
        let missing = first_pos.saturating_sub(self.data.len()).div_ceil(CHUNK);
        server.chunks.add_permits(missing);
    }

    async fn next(&mut self) -> Option<Result<(), smig::Error>> {
        match self.body.frame().await? {
            Ok(frame) => self.data.extend_from_slice(&frame.into_data().unwrap()),
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(()))
    }

    /// Steps until the range is requested; returns where it begins.
    async fn step_to_range(&mut self, server: &mut FileServer) -> usize {
        within("a range is requested", async {
            loop {
                self.step(server).await;
                if let Ok(first) = server.ranges.try_recv() {
                    return first;
                }
            }
        })
        .await
    }

    /// Reads to the end.
    async fn finish(&mut self) -> Result<(), smig::Error> {
        within("the body ends", async {
            while let Some(result) = self.next().await {
                result?;
            }
            Ok(())
        })
        .await
    }
}

#[tokio::test]
async fn a_response_continues_on_another_connection() {
    let (mut server, client, mut events) = start(Answer::Correct);
    let mut download = Download::start(&server, &client).await;
    let info = download.body.stream_info().unwrap();
    let first_pos = download.step_to_range(&mut server).await;
    assert_eq!(server.open_bodies.load(Ordering::SeqCst), 1, "it runs on");
    // The first response reaches the range, and not its end.
    download.reach(&server, first_pos);
    download.finish().await.unwrap();
    assert!(download.data == bytes(LENGTH), "each byte once");
    let is_continued = |event: &_| matches!(event, ObserverEvent::ResponseContinued { .. });
    let event = wait_for_event(&mut events, is_continued).await;
    let ObserverEvent::ResponseContinued { offset, repeated, .. } = event else { unreachable!() };
    assert_eq!(offset, repeated + first_pos as u64);
    let segments = info.segments();
    let [first, second] = &*segments else { panic!("{segments:?}") };
    assert_eq!((first.start, first.end, first.is_continuation), (0, offset, false));
    assert_eq!((second.start, second.end), (offset, LENGTH as u64));
    assert!(second.is_continuation);
    within("the first response is cancelled", async {
        while server.open_bodies.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let stats = client.stats();
    assert_eq!((stats.responses_continued, stats.connections_opened), (1, 2));
}

#[tokio::test]
async fn a_response_stays_if_the_answer_does_not_fit() {
    for answer in [
        Answer::Whole,
        Answer::NotSatisfiable,
        Answer::NotFound,
        Answer::OtherTag,
        Answer::NoTag,
        Answer::OtherStart,
        Answer::OtherLength,
        Answer::NotToTheEnd,
        Answer::NoContentRange,
        Answer::OtherEncoding,
        Answer::Panic,
        Answer::NoBody,
    ] {
        let (mut server, client, mut events) = start(answer);
        let mut download = Download::start(&server, &client).await;
        download.step_to_range(&mut server).await;
        let is_failed = |event: &_| matches!(event, ObserverEvent::ContinuationFailed { .. });
        wait_for_event(&mut events, is_failed).await;
        server.chunks.add_permits(LENGTH / CHUNK);
        download.finish().await.unwrap();
        assert!(download.data == bytes(LENGTH), "{answer:?}");
        assert!(server.ranges.try_recv().is_err(), "{answer:?}: it is tried once");
        assert_eq!(client.stats().responses_continued, 0, "{answer:?}");
    }
}

#[tokio::test]
async fn a_response_that_ends_before_the_answer_is_complete() {
    // A server may also answer with a head and never send the rest.
    for answer in [Answer::Silence, Answer::HeadOnly] {
        let (mut server, client, _events) = start(answer);
        let mut download = Download::start(&server, &client).await;
        download.step_to_range(&mut server).await;
        // This response comes after the head of the range, on the same connection.
        within("an answer", port(&server, &client)).await;
        server.chunks.add_permits(LENGTH / CHUNK);
        download.finish().await.unwrap();
        assert!(download.data == bytes(LENGTH), "{answer:?}");
        let stats = client.stats();
        assert_eq!((stats.responses_continued, stats.continuations_failed), (0, 0), "{answer:?}");
    }
}

#[tokio::test]
async fn a_rest_of_another_length_is_an_error() {
    for (answer, why) in [
        (Answer::TooLong, "the rest is too long"),
        (Answer::TooShort, "the rest is too short"),
        (Answer::Broken, "INTERNAL_ERROR"),
    ] {
        let (mut server, client, _events) = start(answer);
        let mut download = Download::start(&server, &client).await;
        let first_pos = download.step_to_range(&mut server).await;
        download.reach(&server, first_pos);
        let error = download.finish().await.unwrap_err();
        assert!(error.to_string().contains(why), "{answer:?}: {error}");
        assert!(!error.is_retryable(), "{answer:?}: bytes were delivered");
        assert!(download.body.frame().await.is_none_or(|frame| frame.is_err()), "{answer:?}");
    }
}

#[tokio::test]
async fn dropping_a_continued_response_cancels_its_rest() {
    let (mut server, client, mut events) = start(Answer::Correct);
    let mut download = Download::start(&server, &client).await;
    let first_pos = download.step_to_range(&mut server).await;
    download.reach(&server, first_pos);
    let is_continued = |event: &_| matches!(event, ObserverEvent::ResponseContinued { .. });
    while download.data.len() < first_pos {
        download.next().await.unwrap().unwrap();
    }
    wait_for_event(&mut events, is_continued).await;
    // Neither before nor after the application has seen bytes of the rest may a stream be left.
    drop(download);
    within("no stream is left", async {
        while client.sessions().await.sessions.iter().any(|session| session.open_streams > 0) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_client_repeats_no_request_unless_it_is_allowed() {
    let requests: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let (server, client) = pair();
    let seen = Arc::clone(&requests);
    let server = server
        .engine(Config { smig: None, ..Config::server() })
        .start(service_fn(move |request: Request<Incoming>| {
            seen.lock().unwrap().push(request.headers().clone());
            async {
                let response = Response::builder().header(ETAG, TAG).header(ACCEPT_RANGES, "bytes");
                Ok::<_, BoxError>(response.body(full(bytes(LENGTH)))?)
            }
        }))
        .unwrap();
    // The default.
    let client = client.build().unwrap();
    let mut request = get(url(&server, "/file"));
    request.extensions_mut().insert(MigrationHint::Migrate);
    let body = client.request(request).await.unwrap().into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), bytes(LENGTH));
    assert_eq!(requests.lock().unwrap().len(), 1);
}

/// Starts a TCP proxy in front of the server; each connection's task is sent to the channel.
async fn proxy(server: &mut FileServer) -> mpsc::UnboundedReceiver<AbortHandle> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = server.server.local_addrs()[0];
    server.port = listener.local_addr().unwrap().port();
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let task = tokio::spawn(async move {
                let mut server = TcpStream::connect(addr).await.unwrap();
                // Either side may end it in any way.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
            // A test that has ended has dropped the receiver.
            let _ = sender.send(task.abort_handle());
        }
    });
    receiver
}

#[tokio::test]
async fn a_response_stays_if_the_other_connection_is_lost() {
    let (mut server, client, mut events) = start(Answer::Silence);
    let mut connections = proxy(&mut server).await;
    let mut download = Download::start(&server, &client).await;
    download.step_to_range(&mut server).await;
    let _first = connections.recv().await.unwrap();
    connections.recv().await.unwrap().abort();
    let is_failed = |event: &_| matches!(event, ObserverEvent::ContinuationFailed { .. });
    wait_for_event(&mut events, is_failed).await;
    server.chunks.add_permits(LENGTH / CHUNK);
    download.finish().await.unwrap();
    assert!(download.data == bytes(LENGTH));
}

#[tokio::test]
async fn a_server_that_goes_away_meanwhile_completes_the_response() {
    let (mut server, client, _events) = start(Answer::Silence);
    let mut download = Download::start(&server, &client).await;
    download.step_to_range(&mut server).await;
    let FileServer { server, chunks, .. } = server;
    let shutdown = tokio::spawn(server.shutdown(Duration::from_secs(60)));
    chunks.add_permits(LENGTH / CHUNK);
    download.finish().await.unwrap();
    assert!(download.data == bytes(LENGTH));
    within("the server stops", shutdown).await.unwrap().unwrap();
}
