//! gRPC through the proxy: how calls are recognized, how long their messages are, and how the proxy
//! reports its own errors to their clients.
//!
//! A call has its own deadline (`grpc-timeout`) or none, and its client ends it: the gateway's
//! timeouts for the response and for an idle body do not apply, those for connecting and for waiting in the queue do.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

pub use smig::is_grpc;

const GRPC_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const CANCELLED: &str = "1";

/// Returns whether a response's body may idle without limit: calls, and server-sent events.
pub fn has_no_idle_limit(headers: &HeaderMap) -> bool {
    const EVENTS: &[u8] = b"text/event-stream";
    let Some(media_type) = headers.get(CONTENT_TYPE) else { return false };
    let media_type = media_type.as_bytes();
    let is_events =
        media_type.get(..EVENTS.len()).is_some_and(|start| start.eq_ignore_ascii_case(EVENTS));
    is_events || (media_type.starts_with(b"application/grpc") && is_grpc(headers))
}

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// Follows the messages of a call in one direction. A body of gRPC has no content-length, but each of its messages
/// begins with its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageTracker {
    prefix: [u8; PREFIX_BYTES],
    /// How much of the prefix has been read.
    prefix_bytes: usize,
    /// What is left of the current message.
    remaining_bytes: u32,
}

impl MessageTracker {
    /// Reads the next bytes of the body.
    pub fn on_data(&mut self, mut data: &[u8]) {
        while let Some((&first, rest)) = data.split_first() {
            if self.remaining_bytes > 0 {
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                let taken = self.remaining_bytes.min(length);
                self.remaining_bytes -= taken;
                data = data.get(taken as usize..).unwrap_or_default();
                continue;
            }
            data = rest;
            if let Some(byte) = self.prefix.get_mut(self.prefix_bytes) {
                *byte = first;
            }
            self.prefix_bytes += 1;
            if self.prefix_bytes == PREFIX_BYTES {
                let [_compressed, length @ ..] = self.prefix;
                self.remaining_bytes = u32::from_be_bytes(length);
                self.prefix_bytes = 0;
            }
        }
    }

    /// Returns how many bytes of the current message have not been read; 0 between two messages.
    #[must_use]
    pub const fn remaining_bytes(&self) -> u32 {
        self.remaining_bytes
    }
}

/// Extension of an error response that the gateway generates: the server reset the call with
/// CANCEL. The gRPC status is then CANCELLED, which does not make clients retry.
#[derive(Clone, Copy, Debug)]
pub struct CancelledByServer;

/// Turns the head of an error response into one for gRPC clients: 200, with the gRPC status that
/// corresponds to the HTTP status. The caller must omit the body. Returns false, and changes
/// nothing, if the HTTP status must remain: redirects, and 407.
pub fn translate<B>(response: &mut Response<B>, message: &str) -> bool {
    let status = response.status();
    if status.is_redirection() || status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        return false;
    }
    *response.status_mut() = StatusCode::OK;
    let code = match response.extensions_mut().remove::<CancelledByServer>() {
        Some(CancelledByServer) => CANCELLED,
        None => grpc_status(status),
    };
    let headers = response.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    headers.insert(STATUS, HeaderValue::from_static(code));
    if let Ok(message) = HeaderValue::try_from(percent_encode(message)) {
        headers.insert(MESSAGE, message);
    }
    true
}

/// Maps an HTTP status to gRPC's status (doc/http-grpc-status-mapping.md).
const fn grpc_status(status: StatusCode) -> &'static str {
    const UNKNOWN: &str = "2";
    const PERMISSION_DENIED: &str = "7";
    const UNIMPLEMENTED: &str = "12";
    const INTERNAL: &str = "13";
    const UNAVAILABLE: &str = "14";
    const UNAUTHENTICATED: &str = "16";
    match status.as_u16() {
        400 => INTERNAL,
        401 => UNAUTHENTICATED,
        403 => PERMISSION_DENIED,
        404 => UNIMPLEMENTED,
        429 | 502 | 503 | 504 => UNAVAILABLE,
        _ => UNKNOWN,
    }
}

/// Percent-encodes a message for `grpc-message`.
fn percent_encode(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for byte in message.trim_end().bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(media_type: &'static str) -> HeaderMap {
        [(CONTENT_TYPE, HeaderValue::from_static(media_type))].into_iter().collect()
    }

    #[test]
    fn calls_are_known_by_their_media_type() {
        for call in ["application/grpc", "application/grpc+proto", "application/grpc;charset=x"] {
            assert!(is_grpc(&head(call)) && has_no_idle_limit(&head(call)), "{call}");
        }
        for other in ["application/grpc-web", "application/json", "application/grpcx"] {
            assert!(!is_grpc(&head(other)) && !has_no_idle_limit(&head(other)), "{other}");
        }
        assert!(
            has_no_idle_limit(&head("Text/Event-Stream; charset=utf-8"))
                && !has_no_idle_limit(&HeaderMap::new())
        );
    }

    #[test]
    fn messages_are_followed_however_they_are_divided() {
        let mut body = Vec::new();
        for length in [300_000_u32, 0, 7] {
            body.push(0);
            body.extend(length.to_be_bytes());
            body.resize(body.len() + length as usize, 0xff);
        }
        for piece_bytes in [1, 2, 3, 1000, body.len()] {
            let mut tracker = MessageTracker::default();
            let mut read = 0;
            for piece in body.chunks(piece_bytes) {
                tracker.on_data(piece);
                read += piece.len();
                let expected = match read {
                    5..=300_005 => 300_005 - read,
                    300_015.. => 300_022 - read,
                    _ => 0,
                };
                assert_eq!(tracker.remaining_bytes() as usize, expected, "{piece_bytes}, {read}");
            }
        }
    }

    #[test]
    fn error_responses_have_a_grpc_status() {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        assert!(translate(&mut response, "100 % ü\n"));
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(response.headers()["grpc-message"], "100 %25 %C3%BC");
        assert_eq!(response.headers()["content-type"], "application/grpc");
        for (status, grpc) in [(403, "7"), (404, "12"), (504, "14"), (500, "2")] {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            assert!(translate(&mut response, ""));
            assert_eq!(response.headers()["grpc-status"], grpc, "{status}");
        }
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response.extensions_mut().insert(CancelledByServer);
        assert!(translate(&mut response, ""));
        assert_eq!(response.headers()["grpc-status"], "1");
        for status in [308, 407] {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            assert!(!translate(&mut response, ""));
            assert_eq!(response.status(), status);
        }
    }
}
