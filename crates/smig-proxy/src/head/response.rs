//! Validation of responses from a server.

use http::header::{CONTENT_LENGTH, HeaderValue, TE, TRANSFER_ENCODING};
use http::{Response, StatusCode};

use super::hop_by_hop::{PresentFields, strip_hop_by_hop, strip_proxy_fields};
use crate::{ProxyError, framing};

/// Checks a header section received over HTTP/1.1, and removes hop-by-hop fields.
pub fn validate_response<B>(response: &mut Response<B>) -> Result<(), ProxyError> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ProxyError::BadResponse("101 to a request without upgrade".to_owned()));
    }
    validate_switch_response(response)
}

/// Like [`validate_response`], for responses to requests that switch protocols.
pub fn validate_switch_response<B>(response: &mut Response<B>) -> Result<(), ProxyError> {
    let bad_response = |why: &'static str| ProxyError::BadResponse(why.to_owned());
    let status = response.status();
    // hyper stores unusual reason phrases; HTTP/2 has none, and they are not needed.
    response.extensions_mut().clear();
    let headers = response.headers_mut();
    let present_fields = PresentFields::of(headers);
    if present_fields.has(PresentFields::TRANSFER_ENCODING) {
        if present_fields.has(PresentFields::CONTENT_LENGTH) {
            return Err(bad_response("both transfer-encoding and content-length"));
        }
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !codings.next().is_some_and(is_chunked) || codings.next().is_some() {
            return Err(bad_response("transfer-encoding other than chunked"));
        }
    }
    if present_fields.has(PresentFields::CONTENT_LENGTH) {
        framing::rewrite_length(headers).map_err(bad_response)?;
    }
    strip_hop_by_hop(headers, present_fields).map_err(bad_response)?;
    if present_fields.has(PresentFields::PROXY_FIELD) {
        strip_proxy_fields(headers);
    }
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6.
        headers.remove(CONTENT_LENGTH);
    }
    if present_fields.has(PresentFields::TE) {
        headers.remove(TE);
    }
    Ok(())
}

/// Checks a header section received over HTTP/2, as far as the engine has not done so.
pub fn validate_http2_response<B>(response: &mut Response<B>) -> Result<(), ProxyError> {
    let status = response.status();
    let headers = response.headers_mut();
    let present_fields = PresentFields::of(headers);
    if present_fields.has(PresentFields::PROXY_FIELD) {
        strip_proxy_fields(headers);
    }
    if present_fields.has(PresentFields::CONTENT_LENGTH) {
        framing::rewrite_length(headers).map_err(|why| ProxyError::BadResponse(why.to_owned()))?;
    }
    if status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6.
        headers.remove(CONTENT_LENGTH);
    }
    Ok(())
}
