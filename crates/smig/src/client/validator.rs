//! What a client needs in order to continue a response with a range request: its validator, and the range of the answer.

use http::header::{CONTENT_RANGE, DATE, ETAG, HeaderMap, LAST_MODIFIED};
use http::{HeaderName, HeaderValue};

/// Returns the value for If-Range of a response: its entity tag if that is strong, otherwise its Last-Modified if that is
/// a strong validator, at least one second before Date (RFC 9110 section 8.8.2.2).
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::ETAG};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(ETAG, HeaderValue::from_static("W/\"5\""));
/// assert_eq!(smig::strong_validator(&headers), None);
/// headers.insert(ETAG, HeaderValue::from_static("\"5\""));
/// assert_eq!(smig::strong_validator(&headers).unwrap(), "\"5\"");
/// ```
#[must_use]
pub fn strong_validator(headers: &HeaderMap) -> Option<&HeaderValue> {
    strong_tag(headers).or_else(|| strong_date(headers))
}

pub(super) fn strong_tag(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(ETAG).filter(|tag| tag.as_bytes().starts_with(b"\"") && tag.to_str().is_ok())
}

fn strong_date(headers: &HeaderMap) -> Option<&HeaderValue> {
    let date = |name: HeaderName| {
        let value = headers.get(name)?;
        Some((value, httpdate::parse_http_date(value.to_str().ok()?).ok()?))
    };
    let ((value, modified_at), (_, now)) = (date(LAST_MODIFIED)?, date(DATE)?);
    (now.duration_since(modified_at).ok()?.as_secs() >= 1).then_some(value)
}

/// `content-range: bytes FIRST-LAST/COMPLETE` (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContentRange {
    /// Offset of the first byte.
    pub first_pos: u64,
    /// Offset of the last byte.
    pub last_pos: u64,
    /// Length of the complete representation in bytes, if the server knows it.
    pub complete_length: Option<u64>,
}

impl ContentRange {
    /// Returns the range of a response; `None` if it has none, or several, or an invalid one.
    #[must_use]
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut fields = headers.get_all(CONTENT_RANGE).iter();
        let (field, None) = (fields.next()?, fields.next()) else { return None };
        let (range, length) = field.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.trim().split_once('-')?;
        let (first_pos, last_pos) = (parse_number(first)?, parse_number(last)?);
        let complete_length = match length.trim() {
            "*" => None,
            length => Some(parse_number(length)?),
        };
        let is_valid =
            first_pos <= last_pos && complete_length.is_none_or(|length| last_pos < length);
        is_valid.then_some(Self { first_pos, last_pos, complete_length })
    }
}

/// Parses digits; `parse` alone would accept a leading `+`.
fn parse_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(n, v)| (n.clone(), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn only_strong_validators_count() {
        let validator = |fields: &[_]| strong_validator(&headers(fields)).cloned();
        assert_eq!(validator(&[(ETAG, "\"a\"")]).unwrap(), "\"a\"");
        assert_eq!(validator(&[(ETAG, "W/\"a\"")]), None);
        let modified = (LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(validator(&[modified.clone(), (DATE, "Sun, 06 Nov 1994 08:49:37 GMT")]), None);
        assert!(validator(&[modified.clone(), (DATE, "Sun, 06 Nov 1994 08:49:39 GMT")]).is_some());
        assert_eq!(validator(&[modified]), None);
    }

    #[test]
    fn content_ranges_are_parsed() {
        let parse = |value| ContentRange::from_headers(&headers(&[(CONTENT_RANGE, value)]));
        let range = ContentRange { first_pos: 5, last_pos: 9, complete_length: Some(10) };
        assert_eq!(parse("bytes 5-9/10"), Some(range));
        assert_eq!(parse("bytes 5-9/*"), Some(ContentRange { complete_length: None, ..range }));
        for bad in [
            "bytes */10",
            "bytes 9-5/10",
            "bytes 5-10/10",
            "bytes +5-9/10",
            "lines 1-2/3",
            "bytes 1-2",
            "",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let mut twice = headers(&[(CONTENT_RANGE, "bytes 5-9/10")]);
        twice.append(CONTENT_RANGE, HeaderValue::from_static("bytes 6-9/10"));
        assert_eq!(ContentRange::from_headers(&twice), None);
    }
}
