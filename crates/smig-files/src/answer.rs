//! From a representation and a request's header fields to a response (RFC 9110 section 13.2.2).
//!
//! Owns the status and the header fields of 200, 206, 304, 412 and 416. Never accesses the file system.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LOCATION, RANGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri};

use crate::body::{FileBody, Piece};
use crate::conditional::{PreconditionResult, evaluate, range_applies};
use crate::multipart::Multipart;
use crate::range::{ByteRange, RangeSelection, select};
use crate::refusal::{ErrorResponse, SendContent, text};
use crate::resource::{ContentSource, Representation};

/// The request header fields that make the response anything but the complete file. If-Range has an
/// effect only together with Range.
const SPECIAL: [HeaderName; 5] =
    [RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE];

/// Returns whether the response is the complete file. Most requests have none of the header fields in
/// question, and one pass over the few that they have decides it.
pub(crate) fn is_plain(request: &HeaderMap) -> bool {
    !request.keys().any(|name| SPECIAL.contains(name))
}

/// Returns the response to GET or HEAD for a representation.
pub(crate) fn answer(
    of: &Representation,
    request: &HeaderMap,
    audience: SendContent,
) -> Response<FileBody> {
    match evaluate(request, of.validators()) {
        PreconditionResult::Proceed => {}
        PreconditionResult::NotModified => return not_modified(of),
        PreconditionResult::Failed => {
            return with_vary(ErrorResponse::PreconditionFailed.response(audience), of);
        }
    }
    // Range is defined only for GET (section 14.2).
    let ranged = audience == SendContent::Client
        && request.contains_key(RANGE)
        && range_applies(request, of.validators(), SystemTime::now());
    if !ranged {
        return whole(of, audience);
    }
    match select(request, of.size()) {
        RangeSelection::Whole => whole(of, audience),
        RangeSelection::One(span) => one(of, span),
        RangeSelection::Many(spans) => many(of, &spans),
        RangeSelection::Unsatisfiable => unsatisfiable(of),
    }
}

fn response(status: StatusCode, headers: HeaderMap, body: FileBody) -> Response<FileBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Returns the response with the complete file.
#[inline]
pub(crate) fn whole(of: &Representation, audience: SendContent) -> Response<FileBody> {
    let body = match (audience, &of.source) {
        (SendContent::Nobody, _) => FileBody::empty(),
        (SendContent::Client, ContentSource::Memory { bytes, .. }) => FileBody::full(bytes.clone()),
        (SendContent::Client, ContentSource::File(file)) => {
            FileBody::file(Arc::clone(file), ByteRange { start: 0, end: of.size() })
        }
    };
    let mut response = Response::new(body);
    *response.headers_mut() = of.headers.clone();
    response
}

fn one(of: &Representation, span: ByteRange) -> Response<FileBody> {
    let mut headers = of.headers.clone();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(span.len()));
    headers.insert(CONTENT_RANGE, ascii(&span.content_range(of.size())));
    let body = match piece(of, span) {
        Piece::Memory(bytes) => FileBody::full(bytes),
        Piece::File(file, span) => FileBody::file(file, span),
    };
    response(StatusCode::PARTIAL_CONTENT, headers, body)
}

fn many(of: &Representation, spans: &[ByteRange]) -> Response<FileBody> {
    let mut headers = of.headers.clone();
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let mut parts = Multipart::new(content_type, of.size());
    for span in spans {
        parts.push(*span, piece(of, *span));
    }
    headers.insert(CONTENT_TYPE, ascii(&parts.content_type()));
    let (queue, length) = parts.finish();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    response(StatusCode::PARTIAL_CONTENT, headers, FileBody::pieces(queue))
}

fn piece(of: &Representation, span: ByteRange) -> Piece {
    match &of.source {
        ContentSource::File(file) => Piece::File(Arc::clone(file), span),
        ContentSource::Memory { bytes, .. } => {
            // Within the size of the content, which is in memory, so it fits into `usize`.
            let place = |at: u64| usize::try_from(at).unwrap_or(bytes.len());
            Piece::Memory(bytes.slice(place(span.start)..place(span.end)))
        }
    }
}

/// Returns a 304 with what a cache needs for its update, without content (section 15.4.5).
fn not_modified(of: &Representation) -> Response<FileBody> {
    let mut headers = of.headers.clone();
    for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, ACCEPT_RANGES] {
        headers.remove(name);
    }
    response(StatusCode::NOT_MODIFIED, headers, FileBody::empty())
}

fn unsatisfiable(of: &Representation) -> Response<FileBody> {
    const TEXT: &str = "416: the file does not have this range\n";
    let mut response = text(StatusCode::RANGE_NOT_SATISFIABLE, TEXT, SendContent::Client);
    let range = format!("bytes */{}", of.size());
    response.headers_mut().insert(CONTENT_RANGE, ascii(&range));
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    with_vary(response, of)
}

fn with_vary(mut response: Response<FileBody>, of: &Representation) -> Response<FileBody> {
    if let Some(vary) = of.headers.get(VARY) {
        response.headers_mut().insert(VARY, vary.clone());
    }
    response
}

/// Redirects a request for a directory without a trailing slash.
///
/// The path has been checked: it begins with exactly one slash and has no backslash, so that no browser
/// can interpret it as another host.
pub(crate) fn redirect(uri: &Uri, audience: SendContent) -> Response<FileBody> {
    const TEXT: &str = "308: this is a directory, its URL ends in a slash\n";
    let location = match uri.query() {
        None => format!("{}/", uri.path()),
        Some(query) => format!("{}/?{query}", uri.path()),
    };
    let Ok(location) = HeaderValue::from_str(&location) else {
        return ErrorResponse::BadPath.response(audience);
    };
    let mut response = text(StatusCode::PERMANENT_REDIRECT, TEXT, audience);
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Returns the response with a directory listing.
pub(crate) fn page(page: Bytes, audience: SendContent) -> Response<FileBody> {
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(page.len()));
    let body = match audience {
        SendContent::Client => FileBody::full(page),
        SendContent::Nobody => FileBody::empty(),
    };
    response(StatusCode::OK, headers, body)
}

/// Builds a header value from generated text: digits, letters and punctuation.
fn ascii(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static(""))
}
