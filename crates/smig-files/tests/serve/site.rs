//! A directory, the service over it, and a client that calls it like a server would.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use smig_files::{FileBody, FileOptions, Files};
use tempfile::TempDir;
use tower_service::Service as _;

pub(crate) struct Site {
    temp_directory: TempDir,
    pub(crate) files: Files,
}

/// A response whose body was read to its end.
#[derive(Debug)]
pub(crate) struct CollectedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl CollectedResponse {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// The value of a header; empty if there is none.
    pub(crate) fn header(&self, name: impl http::header::AsHeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("the header is text"))
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with_options(FileOptions::default())
    }

    /// A service that checks the file system at every request.
    pub(crate) fn with_zero_ttl() -> Self {
        Self::with_options(FileOptions {
            cache_ttl: std::time::Duration::ZERO,
            ..FileOptions::default()
        })
    }

    pub(crate) fn with_options(options: FileOptions) -> Self {
        let temp_directory = tempfile::tempdir().expect("a temporary directory");
        let root = temp_directory.path().join("root");
        fs::create_dir(&root).expect("a directory");
        let files = Files::new(&root, options).expect("the directory can be served");
        Self { temp_directory, files }
    }

    pub(crate) fn with_clock(self, clock: fn() -> Instant) -> Self {
        Self { files: self.files.with_clock(clock), ..self }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp_directory.path().join("root").join(name)
    }

    /// Creates a file, and the directories that it is in.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, content).expect("a file");
        self
    }

    pub(crate) async fn send(&self, request: Request<()>) -> Response<FileBody> {
        match self.files.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    pub(crate) async fn fetch(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
    ) -> CollectedResponse {
        read(self.send(request(method, path, headers)).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> CollectedResponse {
        self.fetch(Method::GET, path, &[]).await
    }

    pub(crate) async fn get_with(
        &self,
        path: &str,
        headers: &[(HeaderName, &str)],
    ) -> CollectedResponse {
        self.fetch(Method::GET, path, headers).await
    }
}

pub(crate) fn request(method: Method, path: &str, headers: &[(HeaderName, &str)]) -> Request<()> {
    let mut builder = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        builder = builder.header(name, *value);
    }
    builder.body(()).expect("a request")
}

/// Reads a body, and checks that its announced length is right.
pub(crate) async fn read(response: Response<FileBody>) -> CollectedResponse {
    let (head, body) = response.into_parts();
    let hint = body.size_hint().exact().expect("the size is known");
    assert_eq!(body.is_end_stream(), hint == 0);
    let body = body.collect().await.expect("the body can be read").to_bytes();
    assert_eq!(body.len() as u64, hint);
    if let Some(length) = head.headers.get(CONTENT_LENGTH)
        && hint > 0
    {
        assert_eq!(length.to_str().expect("a number"), hint.to_string());
    }
    CollectedResponse { status: head.status, headers: head.headers, body }
}

/// Bytes that differ between positions near each other.
pub(crate) fn pattern(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}
