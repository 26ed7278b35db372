//! A server that misbehaves as `smig serve` never does: truncated bodies, wrong ranges, stalls.

use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use smig::{CleartextTrust, Incoming, Server};

use crate::support::content;

pub(crate) const CONTENT_BYTES: usize = 1_000_000;
/// Offset at which the first body is truncated.
pub(crate) const TRUNCATION_OFFSET: usize = 300_000;

/// The server, and a log of its requests.
pub(crate) struct FlakyServer {
    server: Server,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) method: String,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl FlakyServer {
    /// Starts the server. "First" is the first request to the server, whatever its path. Paths:
    /// /cut truncates the first response, and serves the rest afterwards; /changed serves another
    /// file the second time; /shifted resumes at a wrong offset; /silent stalls after one byte;
    /// /unanswered gets no response; /busy responds with 503 the first time, /busy-for-an-hour
    /// always; /post accepts bodies.
    pub(crate) fn start() -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let count = Arc::new(AtomicUsize::new(0));
        let log = Arc::clone(&requests);
        let service = tower::service_fn(move |request: Request<Incoming>| {
            let (log, count) = (Arc::clone(&log), Arc::clone(&count));
            async move { Ok::<_, Infallible>(respond(request, &log, &count).await) }
        });
        let server = Server::builder()
            .listen_cleartext("127.0.0.1:0".parse().unwrap(), CleartextTrust::None)
            .workers(NonZeroUsize::MIN)
            .start(service)
            .unwrap();
        Self { server, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.server.local_addrs()[0])
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn respond(
    request: Request<Incoming>,
    log: &Mutex<Vec<ReceivedRequest>>,
    count: &AtomicUsize,
) -> Response<TestBody> {
    let (parts, body) = request.into_parts();
    let header = |name: &str| Some(parts.headers.get(name)?.to_str().unwrap().to_owned());
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    log.lock().unwrap().push(ReceivedRequest {
        method: parts.method.to_string(),
        range: header("range"),
        if_range: header("if-range"),
        content_type: header("content-type"),
        body,
    });
    let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
    let full_content = content(CONTENT_BYTES);
    let truncated = || {
        let body = TestBody { data: Some(content(TRUNCATION_OFFSET)), end: BodyEnd::Fail };
        response(200, &[("content-length", &CONTENT_BYTES.to_string()), ("etag", "\"one\"")], body)
    };
    let range = |first: usize| format!("bytes {first}-{}/{CONTENT_BYTES}", CONTENT_BYTES - 1);
    match parts.uri.path() {
        "/cut" | "/changed" | "/shifted" if is_first => truncated(),
        "/cut" => response(
            206,
            &[("content-range", &range(TRUNCATION_OFFSET)), ("etag", "\"one\"")],
            TestBody::of(&full_content[TRUNCATION_OFFSET..]),
        ),
        "/changed" => response(200, &[("etag", "\"two\"")], TestBody::of(b"another file")),
        "/shifted" => response(
            206,
            &[("content-range", &range(TRUNCATION_OFFSET + 1))],
            TestBody::of(&full_content[TRUNCATION_OFFSET + 1..]),
        ),
        "/silent" => response(
            200,
            &[("content-length", "10")],
            TestBody { data: Some(vec![b'x']), end: BodyEnd::Stall },
        ),
        "/unanswered" => std::future::pending().await,
        "/busy-for-an-hour" => response(503, &[("retry-after", "3600")], TestBody::of(b"")),
        "/busy" if is_first => response(503, &[("retry-after", "0")], TestBody::of(b"")),
        "/busy" | "/post" => response(200, &[], TestBody::of(b"thanks")),
        _ => response(404, &[], TestBody::of(b"")),
    }
}

fn response(status: u16, headers: &[(&str, &str)], body: TestBody) -> Response<TestBody> {
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body).unwrap()
}

/// A response body, and how it ends.
struct TestBody {
    data: Option<Vec<u8>>,
    end: BodyEnd,
}

#[derive(Clone, Copy)]
enum BodyEnd {
    Complete,
    Fail,
    Stall,
}

impl TestBody {
    fn of(data: &[u8]) -> Self {
        Self { data: Some(data.to_vec()), end: BodyEnd::Complete }
    }
}

impl Body for TestBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match (self.data.take(), self.end) {
            (Some(data), _) => Poll::Ready(Some(Ok(Frame::data(data.into())))),
            (None, BodyEnd::Complete) => Poll::Ready(None),
            (None, BodyEnd::Fail) => Poll::Ready(Some(Err(std::io::Error::other("aborted")))),
            (None, BodyEnd::Stall) => Poll::Pending,
        }
    }
}
