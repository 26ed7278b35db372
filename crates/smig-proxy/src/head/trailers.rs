//! Trailers, which a recipient may merge into the header section (RFC 9110 section 6.5.1).

use bytes::Bytes;
use http::header::{self, CONTENT_LENGTH, HOST, HeaderName, TE};
use http_body::Frame;
use smig::BoxError;

use super::hop_by_hop::{is_hop_by_hop_except_te, is_reserved_field, strip_proxy_fields};

/// Checks a frame of a request. Trailers must not contain fields that identify the sender or a
/// proxy: a recipient may merge them into the header section (RFC 9110 section 6.5.1).
pub(crate) fn validate_request_frame(frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
    let frame = validate_response_frame(frame)?;
    let is_identifying = |name: &HeaderName| {
        is_reserved_field(name) || *name == header::AUTHORIZATION || *name == header::COOKIE
    };
    if frame.trailers_ref().is_some_and(|trailers| trailers.keys().any(is_identifying)) {
        return Err("the trailers contain a field that identifies the sender".into());
    }
    Ok(frame)
}

/// Checks a frame. Trailers must not contain framing or routing fields (RFC 9110 section 6.5.1), since a recipient
/// may merge them into the header section. Fields between a client and its proxy are removed.
pub fn validate_response_frame(mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
    let Some(trailers) = frame.trailers_mut() else { return Ok(frame) };
    strip_proxy_fields(trailers);
    for name in trailers.keys() {
        if is_hop_by_hop_except_te(name) || [CONTENT_LENGTH, HOST, TE].contains(name) {
            return Err("the trailers contain a framing or routing field".into());
        }
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use http::header::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn request_trailers_must_not_identify_the_sender() {
        for (name, in_request, in_response) in [
            ("x-sum", true, true),
            ("grpc-status", true, true),
            // A server may return what it received.
            ("x-forwarded-for", false, true),
            ("x_forwarded_for", false, true),
            ("forwarded", false, true),
            ("x-real-ip", false, true),
            ("authorization", false, true),
            ("cookie", false, true),
            ("host", false, false),
            ("content-length", false, false),
        ] {
            let trailers = || {
                let trailers = [(name.parse().unwrap(), HeaderValue::from_static("1"))];
                Frame::trailers(HeaderMap::from_iter(trailers))
            };
            assert_eq!(validate_request_frame(trailers()).is_ok(), in_request, "{name}");
            assert_eq!(validate_response_frame(trailers()).is_ok(), in_response, "{name}");
        }
    }
}
