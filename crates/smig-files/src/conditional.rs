//! Conditional requests (RFC 9110 section 13).
//!
//! Owns the evaluation of a request's preconditions, in the order of section 13.2.2. Depends only on
//! the validators of the selected representation, not on files.

use std::time::{Duration, SystemTime};

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderName};

/// The validators of a representation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Validators<'a> {
    /// A strong entity-tag, with its quotes.
    pub(crate) etag: &'a [u8],
    /// The value of last-modified, in seconds since 1970; `None` if there is none.
    pub(crate) modified_unix_seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreconditionResult {
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates steps 1 to 4 of section 13.2.2, for GET and HEAD.
pub(crate) fn evaluate(headers: &HeaderMap, validators: Validators<'_>) -> PreconditionResult {
    if headers.contains_key(IF_MATCH) {
        if !any_tag_matches(headers, IF_MATCH, validators.etag, Comparison::Strong) {
            return PreconditionResult::Failed;
        }
    } else if let (Some(since), Some(modified)) =
        (date_unix_seconds(headers, IF_UNMODIFIED_SINCE), validators.modified_unix_seconds)
        && modified > since
    {
        return PreconditionResult::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if any_tag_matches(headers, IF_NONE_MATCH, validators.etag, Comparison::Weak) {
            return PreconditionResult::NotModified;
        }
    } else if let (Some(since), Some(modified)) =
        (date_unix_seconds(headers, IF_MODIFIED_SINCE), validators.modified_unix_seconds)
        && modified <= since
    {
        return PreconditionResult::NotModified;
    }
    PreconditionResult::Proceed
}

/// Evaluates step 5: returns whether If-Range permits the Range header field. True without If-Range.
pub(crate) fn range_applies(
    headers: &HeaderMap,
    validators: Validators<'_>,
    now: SystemTime,
) -> bool {
    let Some(value) = headers.get(IF_RANGE) else { return true };
    let value = value.as_bytes().trim_ascii();
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return value == validators.etag;
    }
    let (Some(date), Some(modified)) =
        (date_unix_seconds(headers, IF_RANGE), validators.modified_unix_seconds)
    else {
        return false;
    };
    // A date is a strong validator only if the file cannot change again within that second
    // (section 8.8.2.2).
    let settled = unix_seconds(now).is_some_and(|now| now > modified + 1);
    date == modified && settled
}

/// Returns a time in whole seconds since 1970, rounded down; `None` before that.
pub(crate) fn unix_seconds(time: SystemTime) -> Option<u64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().as_ref().map(Duration::as_secs)
}

/// Returns a header field's date; any other value is treated as absent (section 13.1.3).
fn date_unix_seconds(headers: &HeaderMap, name: HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    httpdate::parse_http_date(value.to_str().ok()?.trim()).ok().and_then(unix_seconds)
}

/// The comparison functions of section 8.8.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// Returns whether a list of entity-tags has one that equals `etag`, which is strong.
fn any_tag_matches(
    headers: &HeaderMap,
    name: HeaderName,
    etag: &[u8],
    comparison: Comparison,
) -> bool {
    headers.get_all(name).iter().any(|line| {
        let line = line.as_bytes().trim_ascii();
        line == b"*" || list_has(line, etag, comparison)
    })
}

/// Parses the list: an entity-tag may contain a comma, so splitting at commas would be wrong.
fn list_has(mut list: &[u8], etag: &[u8], comparison: Comparison) -> bool {
    loop {
        list = list.trim_ascii_start();
        if let Some(rest) = list.strip_prefix(b",") {
            list = rest;
            continue;
        }
        let (is_weak, tag) = match list.strip_prefix(b"W/") {
            Some(tag) => (true, tag),
            None => (false, list),
        };
        let Some(inside) = tag.strip_prefix(b"\"") else { return false };
        let Some(close) = inside.iter().position(|byte| *byte == b'"') else { return false };
        if &tag[..close + 2] == etag && !(is_weak && comparison == Comparison::Strong) {
            return true;
        }
        list = &inside[close + 1..];
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const MODIFIED_DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const DATE_BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const DATE_AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const MODIFIED_UNIX_SECONDS: u64 = 784_111_777;

    const FILE_VALIDATORS: Validators<'static> =
        Validators { etag: b"\"a,b\"", modified_unix_seconds: Some(MODIFIED_UNIX_SECONDS) };

    fn header_map(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn each_condition_has_its_result() {
        use PreconditionResult::{Failed, NotModified, Proceed};
        let table = [
            (IF_MATCH, "\"a,b\"", Proceed),
            (IF_MATCH, "\"x\", \"a,b\"", Proceed),
            (IF_MATCH, "*", Proceed),
            (IF_MATCH, "W/\"a,b\"", Failed),
            (IF_MATCH, "\"x\"", Failed),
            (IF_MATCH, "a,b", Failed),
            (IF_MATCH, "", Failed),
            (IF_NONE_MATCH, "\"a,b\"", NotModified),
            (IF_NONE_MATCH, "W/\"a,b\"", NotModified),
            (IF_NONE_MATCH, ", \"x\" ,W/\"y\", \"a,b\"", NotModified),
            (IF_NONE_MATCH, "*", NotModified),
            (IF_NONE_MATCH, "\"a\"", Proceed),
            (IF_NONE_MATCH, "\"b\"", Proceed),
            (IF_NONE_MATCH, "\"a,b", Proceed),
            (IF_NONE_MATCH, "\"", Proceed),
            (IF_MODIFIED_SINCE, MODIFIED_DATE, NotModified),
            (IF_MODIFIED_SINCE, DATE_AFTER, NotModified),
            (IF_MODIFIED_SINCE, DATE_BEFORE, Proceed),
            (IF_MODIFIED_SINCE, "Sunday, 06-Nov-94 08:49:37 GMT", NotModified),
            (IF_MODIFIED_SINCE, "Sun Nov  6 08:49:37 1994", NotModified),
            (IF_MODIFIED_SINCE, "yesterday", Proceed),
            (IF_UNMODIFIED_SINCE, MODIFIED_DATE, Proceed),
            (IF_UNMODIFIED_SINCE, DATE_AFTER, Proceed),
            (IF_UNMODIFIED_SINCE, DATE_BEFORE, Failed),
            (IF_UNMODIFIED_SINCE, "yesterday", Proceed),
        ];
        for (name, value, expected) in table {
            let headers = header_map(&[(name.clone(), value)]);
            assert_eq!(evaluate(&headers, FILE_VALIDATORS), expected, "{name}: {value}");
        }
    }

    #[test]
    fn conditions_have_the_precedence_of_the_rfc() {
        use PreconditionResult::{Failed, NotModified, Proceed};
        let table: [(&[(HeaderName, &str)], PreconditionResult); 6] = [
            // If-Unmodified-Since is ignored if If-Match is present.
            (&[(IF_MATCH, "\"a,b\""), (IF_UNMODIFIED_SINCE, DATE_BEFORE)], Proceed),
            // If-Modified-Since is ignored if If-None-Match is present.
            (&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, MODIFIED_DATE)], Proceed),
            (&[(IF_NONE_MATCH, "\"a,b\""), (IF_MODIFIED_SINCE, DATE_BEFORE)], NotModified),
            // A failed precondition has precedence over revalidation.
            (&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a,b\"")], Failed),
            (&[(IF_MATCH, "*"), (IF_NONE_MATCH, "\"a,b\"")], NotModified),
            // Two field lines form one list; two dates are invalid.
            (&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"a,b\"")], NotModified),
        ];
        for (fields, expected) in table {
            assert_eq!(evaluate(&header_map(fields), FILE_VALIDATORS), expected, "{fields:?}");
        }
        let twice =
            header_map(&[(IF_MODIFIED_SINCE, MODIFIED_DATE), (IF_MODIFIED_SINCE, MODIFIED_DATE)]);
        assert_eq!(evaluate(&twice, FILE_VALIDATORS), Proceed);
    }

    #[test]
    fn date_conditions_are_ignored_without_last_modified() {
        let file = Validators { modified_unix_seconds: None, ..FILE_VALIDATORS };
        for name in [IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
            assert_eq!(
                evaluate(&header_map(&[(name, MODIFIED_DATE)]), file),
                PreconditionResult::Proceed
            );
        }
    }

    #[test]
    fn if_range_needs_a_strong_match() {
        let settled_time = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_UNIX_SECONDS + 10);
        let table = [
            ("\"a,b\"", true),
            ("W/\"a,b\"", false),
            ("\"x\"", false),
            (MODIFIED_DATE, true),
            (DATE_BEFORE, false),
            (DATE_AFTER, false),
            ("yesterday", false),
        ];
        for (value, expected) in table {
            let headers = header_map(&[(IF_RANGE, value)]);
            assert_eq!(range_applies(&headers, FILE_VALIDATORS, settled_time), expected, "{value}");
        }
        assert!(range_applies(&HeaderMap::new(), FILE_VALIDATORS, settled_time));
        let same_second = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED_UNIX_SECONDS);
        assert!(!range_applies(
            &header_map(&[(IF_RANGE, MODIFIED_DATE)]),
            FILE_VALIDATORS,
            same_second
        ));
    }
}
