//! A site on loopback: files, paths with errors and redirects, and a log of all requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use http::header::{LOCATION, RANGE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use smig::{BoxError, Incoming, Server, ServerTls};
use smig_files::{FileOptions, Files};
use smig_survey::crawl::Url;
use tower::Service as _;

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct LoggedRequest {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) range: String,
    pub(crate) user_agent: String,
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<LoggedRequest>,
    /// Bytes of content sent, by path.
    sent_bytes_by_path: BTreeMap<String, usize>,
    failing_paths: BTreeSet<String>,
}

/// The site; the server stops when this is dropped.
pub(crate) struct TestSite {
    directory: tempfile::TempDir,
    log: Arc<Mutex<Log>>,
    pub(crate) certificate: String,
    server: Server,
}

impl TestSite {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options =
            FileOptions { cache_ttl: std::time::Duration::ZERO, ..FileOptions::default() };
        let files = Files::new(directory.path(), options).unwrap();
        let certified_key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) =
            (certified_key.cert.pem(), certified_key.signing_key.serialize_pem());
        let tls = ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let log = Arc::<Mutex<Log>>::default();
        let shared = Arc::clone(&log);
        let service = tower::service_fn(move |request: Request<Incoming>| {
            respond(Arc::clone(&shared), files.clone(), request)
        });
        let server =
            Server::builder().listen("127.0.0.1:0".parse().unwrap(), tls).start(service).unwrap();
        Self { directory, log, certificate, server }
    }

    pub(crate) fn url(&self, path: &str) -> Url {
        let port = self.server.local_addrs()[0].port();
        format!("https://localhost:{port}{path}").parse().unwrap()
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Creates a sparse file of this size.
    pub(crate) fn write_sparse(&self, name: &str, bytes: u64) {
        File::create(self.directory.path().join(name)).unwrap().set_len(bytes).unwrap();
    }

    /// Makes this path respond with 500 from now on.
    pub(crate) fn fail(&self, path: &str) {
        self.log.lock().unwrap().failing_paths.insert(path.to_owned());
    }

    pub(crate) fn requests(&self) -> Vec<LoggedRequest> {
        self.log.lock().unwrap().requests.clone()
    }

    /// Returns the bytes of content sent for a path.
    pub(crate) fn sent_bytes(&self, path: &str) -> usize {
        self.log.lock().unwrap().sent_bytes_by_path.get(path).copied().unwrap_or(0)
    }
}

type Body = UnsyncBoxBody<Bytes, BoxError>;

async fn respond(
    log: Arc<Mutex<Log>>,
    mut files: Files,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let path = request.uri().path().to_owned();
    let (is_failing, earlier_requests) = log_request(&log, &request, &path);
    if is_failing {
        return Ok(empty_response(StatusCode::INTERNAL_SERVER_ERROR, None));
    }
    let redirect = |to: &str| Ok(empty_response(StatusCode::FOUND, Some((LOCATION, to))));
    match path.as_str() {
        "/loop" => return redirect("/loop2"),
        "/loop2" => return redirect("/loop"),
        "/chain" => return redirect("/chain2"),
        "/chain2" => return redirect("target.html"),
        "/away" => return redirect("https://off.invalid/"),
        "/once.bin" if earlier_requests == 0 => {
            return Ok(empty_response(StatusCode::SERVICE_UNAVAILABLE, Some((RETRY_AFTER, "0"))));
        }
        "/no-head.bin" if request.method() == Method::HEAD => {
            return Ok(empty_response(StatusCode::METHOD_NOT_ALLOWED, None));
        }
        _ => {}
    }
    let Ok(response) = files.call(request).await;
    Ok(response.map(|body| {
        let counted = body.map_frame(move |frame| {
            frame.map_data(|mut data| {
                let bytes = data.copy_to_bytes(data.remaining());
                *log.lock().unwrap().sent_bytes_by_path.entry(path.clone()).or_default() +=
                    bytes.len();
                bytes
            })
        });
        counted.map_err(Into::into).boxed_unsync()
    }))
}

/// Logs a request; returns whether its path fails and the number of earlier requests for it.
fn log_request(log: &Mutex<Log>, request: &Request<Incoming>, path: &str) -> (bool, usize) {
    let at = Instant::now();
    let text = |headers: &HeaderMap, name: HeaderName| {
        headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let mut log = log.lock().unwrap();
    let earlier_requests = log.requests.iter().filter(|request| request.path == path).count();
    log.requests.push(LoggedRequest {
        at,
        method: request.method().clone(),
        path: path.to_owned(),
        range: text(request.headers(), RANGE),
        user_agent: text(request.headers(), USER_AGENT),
    });
    (log.failing_paths.contains(path), earlier_requests)
}

fn empty_response(status: StatusCode, header: Option<(HeaderName, &str)>) -> Response<Body> {
    let mut response = Response::builder().status(status);
    if let Some((name, value)) = header {
        response = response.header(name, value);
    }
    let empty = Empty::new().map_err(|never| match never {});
    response.body(empty.boxed_unsync()).unwrap()
}
