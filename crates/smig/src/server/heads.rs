//! Converts `http` types to the engine's heads and back (RFC 9110, RFC 9113 section 8).

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, DATE, EXPECT, HeaderMap, HeaderValue, VARY};
use http::{Method, Request, StatusCode, Version, response};
use http_body::Body;
use smig_proto::{EndStream, RequestHead, ResponseHead, SharedHead, StreamKey};

use super::exchange::{ContinueExpectation, RequestKind};
use super::shared_lengths::SharedLengths;
use crate::driver::TurnCx;
use crate::stream::{BodyLength, Incoming, content_length};

/// Builds the request for the service.
pub(super) fn build_request(head: RequestHead, body: Incoming) -> Request<Incoming> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = head.uri;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = head.headers;
    if let Some(protocol) = head.protocol {
        request.extensions_mut().insert(protocol);
    }
    request
}

pub(super) fn request_kind(method: &Method) -> RequestKind {
    match *method {
        Method::HEAD => RequestKind::Head,
        Method::CONNECT => RequestKind::Connect,
        _ => RequestKind::Other,
    }
}

pub(super) fn continue_expectation(headers: &HeaderMap) -> ContinueExpectation {
    match headers.get(EXPECT) {
        Some(value) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            ContinueExpectation::Expected
        }
        _ => ContinueExpectation::NotExpected,
    }
}

/// A response's head for the engine, and the plan for its body.
pub(super) struct PreparedResponse {
    pub(super) head: ResponseHead,
    /// The date, if the head has none. Beside the head, because adding a field to the copy of a
    /// prepared map would move the map.
    pub(super) date: Option<HeaderValue>,
    pub(super) body: BodyPlan,
}

/// How a response's body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyPlan {
    /// No body, by the rules of HTTP.
    Forbidden,
    /// No body, because it is empty.
    Empty,
    /// The body, of this length.
    Send(BodyLength),
    /// The other direction of a tunnel.
    Tunnel,
    /// The body is empty although the head announces bytes.
    Missing,
}

/// Completes the head, and decides what is sent as the body. Fields that HTTP/2 forbids are removed by the engine
/// (RFC 9113 section 8.2.2), since services are written for HTTP/1.1, too.
pub(super) fn prepare_response<B: Body>(
    parts: response::Parts,
    body: &B,
    kind: RequestKind,
    date: Option<HeaderValue>,
) -> PreparedResponse {
    let response::Parts { status, mut headers, .. } = parts;
    // Comparing a few names is cheaper than a hash.
    let date = date.filter(|_| !headers.keys().any(|name| *name == DATE));
    let plan = plan_body(status, &mut headers, body, kind);
    PreparedResponse { head: ResponseHead { status, headers }, date, body: plan }
}

/// Adds the fields that are in a response's body to those of its head, which replace others of the same name. Vary is
/// kept from both: a cache must know all that the response depends on.
pub(super) fn add_shared_fields(shared: &HeaderMap, own: &mut HeaderMap) {
    let own_fields = std::mem::replace(own, shared.clone());
    own.extend(own_fields);
    if own.get_all(VARY).iter().ne(shared.get_all(VARY)) {
        for value in shared.get_all(VARY) {
            own.append(VARY, value.clone());
        }
    }
}

/// Returns the response's head if it is sent as it is: all of its fields are shared, without a date, and a body follows
/// whose length they announce.
pub(super) fn shared_head<B: Body>(
    parts: &response::Parts,
    shared: &Arc<HeaderMap>,
    lengths: &SharedLengths,
    body: &B,
    kind: RequestKind,
) -> Option<SharedHead> {
    let is_ordinary = kind == RequestKind::Other && parts.status == StatusCode::OK;
    if !is_ordinary || !parts.headers.is_empty() || body.is_end_stream() {
        return None;
    }
    let length = body.size_hint().exact()?;
    if lengths.announced_by(shared) != Some(length) {
        return None;
    }
    let headers = Arc::clone(shared);
    Some(SharedHead { status: parts.status, headers, content_length: Some(length) })
}

fn plan_body<B: Body>(
    status: StatusCode,
    headers: &mut HeaderMap,
    body: &B,
    kind: RequestKind,
) -> BodyPlan {
    if kind == RequestKind::Connect && status.is_success() {
        headers.remove(CONTENT_LENGTH);
        return BodyPlan::Tunnel;
    }
    let is_bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if kind == RequestKind::Head || is_bodiless {
        return BodyPlan::Forbidden;
    }
    let announced_length = content_length(headers);
    if body.is_end_stream() {
        if announced_length.is_some_and(|bytes| bytes > 0) {
            return BodyPlan::Missing;
        }
        if announced_length.is_none() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        return BodyPlan::Empty;
    }
    match announced_length.or_else(|| body.size_hint().exact()) {
        None => BodyPlan::Send(BodyLength::Unknown),
        Some(bytes) => {
            if announced_length.is_none() {
                headers.insert(CONTENT_LENGTH, bytes.into());
            }
            BodyPlan::Send(BodyLength::Remaining(bytes))
        }
    }
}

/// Sends 421 (Misdirected Request): this connection does not cover the request's name.
pub(super) fn send_misdirected(turn: &mut TurnCx<'_>, key: StreamKey) {
    let status = StatusCode::MISDIRECTED_REQUEST;
    let head = ResponseHead { status, headers: HeaderMap::new() };
    if let Err(error) = turn.session.send_response(key, &head, EndStream::Yes) {
        tracing::debug!(?error, "421 not sent");
    }
}

/// Sends 100 (Continue), so that the client sends its body.
pub(super) fn send_continue(turn: &mut TurnCx<'_>, key: StreamKey) {
    let head = ResponseHead { status: StatusCode::CONTINUE, headers: HeaderMap::new() };
    if let Err(error) = turn.session.send_informational(key, &head) {
        tracing::debug!(?error, "100 not sent");
    }
}
