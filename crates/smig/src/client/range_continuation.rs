//! Which responses may be continued on another connection, by which range request, and which answers fit.
//!
//! A GET is safe and idempotent (RFC 9110 section 9.2), but not every server keeps to that. So only a response that bears
//! the signs of a stored file is continued: 200, a known length, `Accept-Ranges: bytes`, a strong validator, and
//! nothing that tells of a state that the request changed.

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPECT, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, SET_COOKIE, TE, TRAILER,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use smig_proto::{RequestHead, ResponseHead};

use super::validator::{ContentRange, strong_tag, strong_validator};
use crate::stream::content_length;

/// Whether a client continues a long download on another connection by a range request, towards a server over
/// HTTP/2 that does not support SMig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangeContinuation {
    /// Never: the server gets each request once.
    #[default]
    Off,
    /// If the answer can be verified: the response to a GET is 200 with a known length, `Accept-Ranges: bytes` and a
    /// strong validator, and sets no cookie.
    Verified,
}

/// A response that can be continued.
#[derive(Debug)]
pub(super) struct ContinuableResponse {
    request: RequestHead,
    /// The value for If-Range.
    validator: HeaderValue,
    response: ResponseHead,
    length: u64,
}

/// Fields of requests that are not continued: their response depends on more than the resource.
const NON_CONTINUABLE_FIELDS: [HeaderName; 8] = [
    RANGE,
    IF_RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    EXPECT,
    // The trailers of a part are not those of the whole.
    TE,
];

/// Returns whether the request could be sent again with a range. It has no content.
pub(super) fn is_continuable_request(head: &RequestHead) -> bool {
    head.method == Method::GET
        && head.protocol.is_none()
        && !NON_CONTINUABLE_FIELDS.iter().any(|name| head.headers.contains_key(name))
}

impl ContinuableResponse {
    /// Checks the response to a request that [`is_continuable_request`] accepts.
    ///
    /// # Errors
    /// Why it cannot be continued.
    pub(super) fn new(request: RequestHead, response: &ResponseHead) -> Result<Self, &'static str> {
        let headers = &response.headers;
        if response.status != StatusCode::OK {
            return Err("the status is not 200");
        }
        let length = content_length(headers).ok_or("its length is unknown")?;
        let accepts_bytes = |value: &HeaderValue| {
            let mut units = value.to_str().unwrap_or_default().split(',');
            units.any(|unit| unit.trim().eq_ignore_ascii_case("bytes"))
        };
        if !headers.get_all(ACCEPT_RANGES).iter().any(accepts_bytes) {
            return Err("it does not accept ranges");
        }
        if headers.contains_key(SET_COOKIE) {
            return Err("it sets a cookie: the request had an effect");
        }
        if headers.contains_key(TRAILER) {
            return Err("it announces trailers");
        }
        let validator = strong_validator(headers).ok_or("it has no strong validator")?.clone();
        // Encodings share a modification date, and a server may choose another one for a range.
        if headers.contains_key(CONTENT_ENCODING) && strong_tag(headers).is_none() {
            return Err("it is encoded, and has no strong entity tag");
        }
        let response = response.clone();
        Ok(Self { request, validator, response, length })
    }

    /// Returns the length of the complete response in bytes.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the request for the bytes from `first_pos` on.
    pub(super) fn request_from(&self, first_pos: u64) -> RequestHead {
        let mut request = self.request.clone();
        if let Ok(range) = HeaderValue::from_str(&format!("bytes={first_pos}-")) {
            request.headers.insert(RANGE, range);
            request.headers.insert(IF_RANGE, self.validator.clone());
        }
        request
    }

    /// Checks that the answer to [`Self::request_from`] is the rest of the same representation.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn check(&self, first_pos: u64, answer: &ResponseHead) -> Result<(), &'static str> {
        match answer.status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => return Err("the server sent the whole response: it has changed"),
            StatusCode::RANGE_NOT_SATISFIABLE => return Err("the server has no such range"),
            _ => return Err("the server did not answer with 206"),
        }
        let range = ContentRange::from_headers(&answer.headers)
            .ok_or("the answer has no valid Content-Range")?;
        let rest = self.length - first_pos.min(self.length);
        if range.first_pos != first_pos
            || range.complete_length != Some(self.length)
            || range.last_pos + 1 != self.length
        {
            return Err("the answer has another range");
        }
        if content_length(&answer.headers).is_some_and(|length| length != rest) {
            return Err("the answer's length does not match its range");
        }
        // A server that ignores If-Range sends a range of anything.
        let by = if strong_tag(&self.response.headers).is_some() { ETAG } else { LAST_MODIFIED };
        if answer.headers.get(by) != Some(&self.validator) {
            return Err("the answer has another validator");
        }
        let differs = |name| answer.headers.get(&name) != self.response.headers.get(&name);
        if differs(CONTENT_ENCODING) {
            return Err("the answer has another encoding");
        }
        // RFC 9110 section 15.3.7: not required with If-Range, but if it is there, it is the same.
        if answer.headers.contains_key(CONTENT_TYPE) && differs(CONTENT_TYPE) {
            return Err("the answer has another type");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_LENGTH, DATE, HeaderMap};
    use http::{StatusCode, Uri};

    use super::*;

    const FILE: [(HeaderName, &str); 3] =
        [(CONTENT_LENGTH, "5000000"), (ACCEPT_RANGES, "bytes"), (ETAG, "\"a\"")];

    fn request(fields: &[(HeaderName, &'static str)]) -> RequestHead {
        let uri = Uri::from_static("https://localhost/file");
        RequestHead { method: Method::GET, uri, protocol: None, headers: headers(fields) }
    }

    fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(n, v)| (n.clone(), HeaderValue::from_static(v))).collect()
    }

    /// Checks the response of a file with these fields changed; an empty value removes a field.
    fn check(
        status: StatusCode,
        changes: &[(HeaderName, &'static str)],
    ) -> Result<(), &'static str> {
        let mut headers = headers(&FILE);
        for (name, value) in changes {
            headers.remove(name);
            if !value.is_empty() {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        ContinuableResponse::new(request(&[]), &ResponseHead { status, headers }).map(drop)
    }

    #[test]
    fn only_a_plain_get_is_sent_again() {
        assert!(is_continuable_request(&request(&[(http::header::COOKIE, "a=b")])));
        for field in [(RANGE, "bytes=0-"), (IF_NONE_MATCH, "\"a\""), (TE, "trailers")] {
            let name = field.0.clone();
            assert!(!is_continuable_request(&request(&[field])), "{name}");
        }
        for method in [Method::POST, Method::HEAD, Method::OPTIONS] {
            assert!(!is_continuable_request(&RequestHead { method, ..request(&[]) }));
        }
    }

    #[test]
    fn only_what_looks_like_a_stored_file_is_continued() {
        let ok = StatusCode::OK;
        assert_eq!(check(ok, &[]), Ok(()));
        let modified = (LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT");
        let date = (DATE, "Mon, 07 Nov 1994 08:49:37 GMT");
        assert_eq!(check(ok, &[(ETAG, "W/\"a\""), modified.clone(), date.clone()]), Ok(()));
        assert_eq!(check(ok, &[(CONTENT_ENCODING, "gzip")]), Ok(()));
        for (changes, why) in [
            (vec![(CONTENT_LENGTH, "")], "its length is unknown"),
            (vec![(ACCEPT_RANGES, "")], "it does not accept ranges"),
            (vec![(ACCEPT_RANGES, "none")], "it does not accept ranges"),
            (vec![(ETAG, "W/\"a\"")], "it has no strong validator"),
            (vec![(ETAG, ""), modified.clone()], "it has no strong validator"),
            (vec![(TRAILER, "digest")], "it announces trailers"),
            (vec![(SET_COOKIE, "a=b")], "it sets a cookie: the request had an effect"),
            (
                vec![(ETAG, ""), modified, date, (CONTENT_ENCODING, "gzip")],
                "it is encoded, and has no strong entity tag",
            ),
        ] {
            assert_eq!(check(ok, &changes), Err(why));
        }
        assert_eq!(check(StatusCode::PARTIAL_CONTENT, &[]), Err("the status is not 200"));
    }
}
