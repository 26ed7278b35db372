//! Builds the response from a representation and a request's header fields (RFC 9110 section
//! 13.2.2).
//!
//! Owns the status and the header fields of 200, 206, 304, 308 and 416. Never accesses the file system.

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
use crate::error_response::{ErrorResponse, SendContent, text_response};
use crate::multipart::Multipart;
use crate::range::{ByteRange, RangeSelection, select};
use crate::resource::{ContentSource, Representation};

/// The request header fields with which the response may be other than the complete file. If-Range
/// has an effect only together with Range.
const SELECTIVE_FIELDS: [HeaderName; 5] =
    [RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE];

/// Returns whether the response is the complete file: the request has none of these fields.
pub(crate) fn requests_complete_file(request_headers: &HeaderMap) -> bool {
    !request_headers.keys().any(|name| SELECTIVE_FIELDS.contains(name))
}

/// Returns the response to GET or HEAD for a representation.
pub(crate) fn respond(
    representation: &Representation,
    request_headers: &HeaderMap,
    send_content: SendContent,
) -> Response<FileBody> {
    match evaluate(request_headers, representation.validators()) {
        PreconditionResult::Proceed => {}
        PreconditionResult::NotModified => return not_modified_response(representation),
        PreconditionResult::Failed => {
            return with_vary(
                ErrorResponse::PreconditionFailed.response(send_content),
                representation,
            );
        }
    }
    // Range is defined only for GET (section 14.2).
    let has_range = send_content == SendContent::Yes
        && request_headers.contains_key(RANGE)
        && range_applies(request_headers, representation.validators(), SystemTime::now());
    if !has_range {
        return complete_response(representation, send_content);
    }
    match select(request_headers, representation.size()) {
        RangeSelection::Complete => complete_response(representation, send_content),
        RangeSelection::Single(range) => single_range_response(representation, range),
        RangeSelection::Multiple(ranges) => multiple_ranges_response(representation, &ranges),
        RangeSelection::Unsatisfiable => unsatisfiable_response(representation),
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
pub(crate) fn complete_response(
    representation: &Representation,
    send_content: SendContent,
) -> Response<FileBody> {
    let body = match send_content {
        SendContent::No => FileBody::empty(),
        SendContent::Yes => complete_body(representation),
    };
    response(StatusCode::OK, HeaderMap::clone(&representation.headers), body)
}

/// Returns the response with the complete content of the file, which is not empty. Its own header fields are empty: they
/// are in the body, which shares them with other responses.
#[inline]
pub(crate) fn complete_response_with_shared_headers(
    representation: &Representation,
) -> Response<FileBody> {
    let body = complete_body(representation);
    Response::new(body.with_shared_headers(Arc::clone(&representation.headers)))
}

fn complete_body(representation: &Representation) -> FileBody {
    match &representation.source {
        ContentSource::Memory { bytes, .. } => FileBody::full(bytes.clone()),
        ContentSource::File(file) => {
            FileBody::file(Arc::clone(file), ByteRange { start: 0, end: representation.size() })
        }
    }
}

fn single_range_response(representation: &Representation, range: ByteRange) -> Response<FileBody> {
    let mut headers = HeaderMap::clone(&representation.headers);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(range.len()));
    headers.insert(CONTENT_RANGE, ascii_header_value(&range.content_range(representation.size())));
    let body = match piece(representation, range) {
        Piece::Memory(bytes) => FileBody::full(bytes),
        Piece::File(file, range) => FileBody::file(file, range),
    };
    response(StatusCode::PARTIAL_CONTENT, headers, body)
}

fn multiple_ranges_response(
    representation: &Representation,
    ranges: &[ByteRange],
) -> Response<FileBody> {
    let mut headers = HeaderMap::clone(&representation.headers);
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let mut parts = Multipart::new(content_type, representation.size());
    for range in ranges {
        parts.push(*range, piece(representation, *range));
    }
    headers.insert(CONTENT_TYPE, ascii_header_value(&parts.content_type()));
    let (queue, length) = parts.finish();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    response(StatusCode::PARTIAL_CONTENT, headers, FileBody::pieces(queue))
}

fn piece(representation: &Representation, range: ByteRange) -> Piece {
    match &representation.source {
        ContentSource::File(file) => Piece::File(Arc::clone(file), range),
        ContentSource::Memory { bytes, .. } => {
            // Within the size of the content, which is in memory, so it fits into `usize`.
            let index = |at: u64| usize::try_from(at).unwrap_or(bytes.len());
            Piece::Memory(bytes.slice(index(range.start)..index(range.end)))
        }
    }
}

/// Returns a 304 with the fields that a cache needs for its update, without content (section
/// 15.4.5).
fn not_modified_response(representation: &Representation) -> Response<FileBody> {
    let mut headers = HeaderMap::clone(&representation.headers);
    for name in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING, ACCEPT_RANGES] {
        headers.remove(name);
    }
    response(StatusCode::NOT_MODIFIED, headers, FileBody::empty())
}

fn unsatisfiable_response(representation: &Representation) -> Response<FileBody> {
    const TEXT: &str = "416: the file does not have this range\n";
    let mut response = text_response(StatusCode::RANGE_NOT_SATISFIABLE, TEXT, SendContent::Yes);
    let range = format!("bytes */{}", representation.size());
    response.headers_mut().insert(CONTENT_RANGE, ascii_header_value(&range));
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    with_vary(response, representation)
}

fn with_vary(
    mut response: Response<FileBody>,
    representation: &Representation,
) -> Response<FileBody> {
    if let Some(vary) = representation.headers.get(VARY) {
        response.headers_mut().insert(VARY, vary.clone());
    }
    response
}

/// Redirects a request for a directory without a trailing slash.
///
/// The path has been checked: it begins with exactly one slash and has no backslash, so that no browser
/// can interpret it as another host.
pub(crate) fn redirect(uri: &Uri, send_content: SendContent) -> Response<FileBody> {
    const TEXT: &str = "308: this is a directory, its URL ends in a slash\n";
    let location = match uri.query() {
        None => format!("{}/", uri.path()),
        Some(query) => format!("{}/?{query}", uri.path()),
    };
    let Ok(location) = HeaderValue::from_str(&location) else {
        return ErrorResponse::BadPath.response(send_content);
    };
    let mut response = text_response(StatusCode::PERMANENT_REDIRECT, TEXT, send_content);
    response.headers_mut().insert(LOCATION, location);
    response
}

/// Returns the response with a directory listing.
pub(crate) fn listing_response(page: Bytes, send_content: SendContent) -> Response<FileBody> {
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(page.len()));
    let body = match send_content {
        SendContent::Yes => FileBody::full(page),
        SendContent::No => FileBody::empty(),
    };
    response(StatusCode::OK, headers, body)
}

/// Builds a header value from generated text: digits, letters and punctuation.
fn ascii_header_value(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or(HeaderValue::from_static(""))
}
