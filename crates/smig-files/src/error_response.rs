//! Responses without a file.
//!
//! Owns the status and the text of every error but 416, and the response to OPTIONS. The texts reveal nothing
//! about the server's file system.

use bytes::Bytes;
use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use rustix::io::Errno;

use crate::body::FileBody;

/// The methods that this service supports, as listed in `allow`.
const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// Why the response has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorResponse {
    /// No well-behaved client sends this path: 400.
    BadPath,
    /// No such file, or one that is hidden from clients: 404.
    NotFound,
    /// The file exists, but may not be read; or a directory has no index file, and listings are off: 403.
    Forbidden,
    /// Not GET, HEAD or OPTIONS: 405.
    MethodNotAllowed,
    /// If-Match or If-Unmodified-Since does not hold: 412.
    PreconditionFailed,
    /// Out of file descriptors or memory, or the path keeps changing: 503.
    Busy,
    /// The disk or the file system failed: 500.
    Internal,
}

impl ErrorResponse {
    fn status(self) -> StatusCode {
        match self {
            Self::BadPath => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::BadPath => "400: the request's path is malformed\n",
            Self::NotFound => "404: file not found\n",
            Self::Forbidden => "403: permission denied\n",
            Self::MethodNotAllowed => "405: use GET, HEAD or OPTIONS\n",
            Self::PreconditionFailed => "412: the precondition of the request does not hold\n",
            Self::Busy => "503: the server is too busy to open the file; try again\n",
            Self::Internal => "500: cannot read the file\n",
        }
    }

    /// Returns the response, with a short text as body (omitted for HEAD).
    pub(crate) fn response(self, send_content: SendContent) -> Response<FileBody> {
        let mut response = text_response(self.status(), self.text(), send_content);
        match self {
            Self::MethodNotAllowed => drop(response.headers_mut().insert(ALLOW, ALLOWED_METHODS)),
            Self::Busy => {
                let second = HeaderValue::from_static("1");
                response.headers_mut().insert(RETRY_AFTER, second);
            }
            Self::BadPath
            | Self::NotFound
            | Self::Forbidden
            | Self::PreconditionFailed
            | Self::Internal => {}
        }
        response
    }
}

/// Maps the error of opening or reading a path.
impl From<Errno> for ErrorResponse {
    fn from(errno: Errno) -> Self {
        match errno {
            // XDEV: the path or a symlink in it leaves the directory. LOOP: a symlink where none is
            // allowed. NXIO: a socket, or a device without a driver. All are treated as nonexistent.
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::NAMETOOLONG
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NXIO
            | Errno::NODEV
            | Errno::INVAL
            | Errno::ILSEQ => Self::NotFound,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => Self::Busy,
            _ => Self::Internal,
        }
    }
}

/// Whether a response has content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendContent {
    /// It has (GET).
    Yes,
    /// It has not: the request is for header fields only (HEAD).
    No,
}

/// Returns a response with a short text.
pub(crate) fn text_response(
    status: StatusCode,
    text: &'static str,
    send_content: SendContent,
) -> Response<FileBody> {
    let body = match send_content {
        SendContent::Yes => FileBody::full(Bytes::from_static(text.as_bytes())),
        SendContent::No => FileBody::empty(),
    };
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Returns the response to OPTIONS.
pub(crate) fn options_response() -> Response<FileBody> {
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(ALLOW, ALLOWED_METHODS);
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}
