//! Metadata of a partial file, so that it is resumed only with the same content.

use std::path::{Path, PathBuf};

use http::HeaderMap;
use http::header::{CONTENT_RANGE, DATE, ETAG, LAST_MODIFIED};
use serde::{Deserialize, Serialize};

use crate::suffix::with_suffix;

/// Content of `NAME.part.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartMetadata {
    pub(super) url: String,
    /// Value for If-Range: a strong entity tag, or a date.
    pub(super) validator: String,
    /// Length of the complete content, if known.
    pub(super) total: Option<u64>,
}

impl PartMetadata {
    /// Builds the metadata of a response; `None` if it has no strong validator.
    pub(super) fn from_response(
        url: &str,
        headers: &HeaderMap,
        total: Option<u64>,
    ) -> Option<Self> {
        let validator = strong_tag(headers).or_else(|| strong_date(headers))?;
        Some(Self { url: url.to_owned(), validator, total })
    }

    pub(super) fn load(path: &Path, url: &str) -> Option<Self> {
        let metadata: Self = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        (metadata.url == url).then_some(metadata)
    }

    pub(super) fn store(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, serde_json::to_vec(self)?)
    }

    /// Returns the path of the metadata for a partial file.
    pub(super) fn path_for(part: &Path) -> PathBuf {
        with_suffix(part, ".json")
    }
}

fn field_text(headers: &HeaderMap, name: http::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn strong_tag(headers: &HeaderMap) -> Option<String> {
    field_text(headers, ETAG).filter(|tag| tag.starts_with('"')).map(str::to_owned)
}

/// Returns Last-Modified if it is a strong validator: at least one second before Date (RFC 9110
/// section 8.8.2.2).
fn strong_date(headers: &HeaderMap) -> Option<String> {
    let modified = field_text(headers, LAST_MODIFIED)?;
    let modified_at = httpdate::parse_http_date(modified).ok()?;
    let now = httpdate::parse_http_date(field_text(headers, DATE)?).ok()?;
    (now.duration_since(modified_at).ok()?.as_secs() >= 1).then(|| modified.to_owned())
}

/// `content-range: bytes FIRST-LAST/TOTAL` (RFC 9110 section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub(super) first_pos: u64,
    pub(super) last_pos: u64,
    pub(super) total: Option<u64>,
}

impl ContentRange {
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let (range, total) =
            field_text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.trim().split_once('-')?;
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        let total = match total.trim() {
            "*" => None,
            total => Some(total.parse().ok()?),
        };
        (first <= last && total.is_none_or(|total| last < total)).then_some(Self {
            first_pos: first,
            last_pos: last,
            total,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(fields: &[(http::HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(n, v)| (n.clone(), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn only_strong_validators_count() {
        let validator = |fields: &[_]| {
            PartMetadata::from_response("u", &headers(fields), None)
                .map(|metadata| metadata.validator)
        };
        assert_eq!(validator(&[(ETAG, "\"a\"")]).as_deref(), Some("\"a\""));
        assert_eq!(validator(&[(ETAG, "W/\"a\"")]), None);
        let modified = (LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(validator(&[modified.clone(), (DATE, "Sun, 06 Nov 1994 08:49:37 GMT")]), None);
        assert!(validator(&[modified.clone(), (DATE, "Sun, 06 Nov 1994 08:49:39 GMT")]).is_some());
        assert_eq!(validator(&[modified]), None);
    }

    #[test]
    fn content_ranges_are_parsed() {
        let parse = |value| ContentRange::from_headers(&headers(&[(CONTENT_RANGE, value)]));
        let range = ContentRange { first_pos: 5, last_pos: 9, total: Some(10) };
        assert_eq!(parse("bytes 5-9/10"), Some(range));
        assert_eq!(parse("bytes 5-9/*"), Some(ContentRange { total: None, ..range }));
        for bad in ["bytes */10", "bytes 9-5/10", "bytes 5-10/10", "lines 1-2/3", "bytes 1-2", ""] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
