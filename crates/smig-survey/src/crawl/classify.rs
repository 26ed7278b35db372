//! Classifies responses by their header section: pure functions.

use std::time::Duration;

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION,
    RETRY_AFTER,
};
use http::{Response, StatusCode};

/// Meaning of a response for the crawl.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ResponseClass {
    /// The object exists, with this size in bytes.
    Sized(u64),
    /// The object exists; its size is not given.
    Unsized,
    /// The object is at this location.
    Redirect(String),
    /// The server requests a later retry.
    RetryLater(Option<Duration>),
    /// The server may not support the method; another may succeed.
    MethodRejected,
    /// Any other response: the object does not exist, or the response has no object (204, 304), or it
    /// redirects without a location.
    Refused,
}

/// The status and the header fields of a response.
#[derive(Debug, Clone)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    headers: HeaderMap,
}

impl ResponseHead {
    pub(super) fn from_response<B>(response: &Response<B>) -> Self {
        Self { status: response.status(), headers: response.headers().clone() }
    }

    fn field_text(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the media type without parameters, in lower case.
    pub(super) fn media_type(&self) -> Option<String> {
        let media = self.field_text(&CONTENT_TYPE)?.split(';').next()?.trim().to_ascii_lowercase();
        (!media.is_empty() && media.len() < 100).then_some(media)
    }

    pub(super) fn is_html(&self) -> bool {
        self.media_type().is_some_and(|media| is_html(&media))
    }

    /// Returns the size of the complete object, if the header section gives it.
    fn size(&self) -> Option<u64> {
        if self.status == StatusCode::PARTIAL_CONTENT {
            return self.field_text(&CONTENT_RANGE)?.rsplit_once('/')?.1.trim().parse().ok();
        }
        // The request does not rule out a coding; if the server applies one, Content-Length is another size.
        let coding = self.field_text(&CONTENT_ENCODING).unwrap_or("identity");
        if !coding.eq_ignore_ascii_case("identity") {
            return None;
        }
        self.field_text(&CONTENT_LENGTH)?.trim().parse().ok()
    }

    pub(super) fn classify(&self) -> ResponseClass {
        match self.status.as_u16() {
            200 | 203 | 206 => self.size().map_or(ResponseClass::Unsized, ResponseClass::Sized),
            301 | 302 | 303 | 307 | 308 => match self.field_text(&LOCATION) {
                Some(location) => ResponseClass::Redirect(location.to_owned()),
                None => ResponseClass::Refused,
            },
            // A range request for an empty object.
            416 => ResponseClass::Sized(0),
            429 | 503 => {
                let seconds =
                    self.field_text(&RETRY_AFTER).and_then(|text| text.trim().parse().ok());
                ResponseClass::RetryLater(seconds.map(Duration::from_secs))
            }
            400 | 403 | 405 | 406 | 500 | 501 => ResponseClass::MethodRejected,
            _ => ResponseClass::Refused,
        }
    }
}

/// Returns whether a page of this media type has links.
pub(super) fn is_html(media: &str) -> bool {
    matches!(media, "text/html" | "application/xhtml+xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, headers: &[(&str, &str)]) -> ResponseHead {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        ResponseHead::from_response(&response.body(()).unwrap())
    }

    #[test]
    fn responses_are_classified() {
        for (status, headers, class) in [
            (200, &[("content-length", "12")][..], ResponseClass::Sized(12)),
            (200, &[], ResponseClass::Unsized),
            (
                200,
                &[("content-length", "12"), ("content-encoding", "gzip")],
                ResponseClass::Unsized,
            ),
            (
                206,
                &[("content-length", "1"), ("content-range", "bytes 0-0/77")],
                ResponseClass::Sized(77),
            ),
            (
                206,
                &[("content-length", "1"), ("content-range", "bytes 0-0/*")],
                ResponseClass::Unsized,
            ),
            (416, &[], ResponseClass::Sized(0)),
            (301, &[("location", "/x")], ResponseClass::Redirect("/x".into())),
            (301, &[], ResponseClass::Refused),
            (304, &[], ResponseClass::Refused),
            (405, &[], ResponseClass::MethodRejected),
            (404, &[("content-length", "12")], ResponseClass::Refused),
            (429, &[("retry-after", "7")], ResponseClass::RetryLater(Some(Duration::from_secs(7)))),
            (
                503,
                &[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")],
                ResponseClass::RetryLater(None),
            ),
            (204, &[], ResponseClass::Refused),
        ] {
            assert_eq!(head(status, headers).classify(), class, "{status} {headers:?}");
        }
    }

    #[test]
    fn html_is_known_by_its_type() {
        assert!(head(200, &[("content-type", "Text/HTML; charset=x")]).is_html());
        assert!(!head(200, &[("content-type", "text/plain")]).is_html());
        assert!(!head(200, &[]).is_html());
    }
}
