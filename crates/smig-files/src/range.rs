//! The Range header field (RFC 9110 section 14).
//!
//! Owns the selection of a representation's bytes. A value that is malformed, names another unit or too
//! many ranges, or selects more bytes than there are, is ignored, as section 14.2 allows.

use http::HeaderMap;
use http::header::RANGE;

/// The maximum number of ranges in one request. Players and resuming clients request a handful; each
/// range costs a part header and a read.
const MAX_RANGES: usize = 32;

/// A non-empty range of a representation: from `start`, inclusive, to `end`, exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl ByteRange {
    pub(crate) fn len(self) -> u64 {
        self.end - self.start
    }

    /// Returns the value of content-range for this range of a representation of `size` bytes.
    pub(crate) fn content_range(self, size: u64) -> String {
        format!("bytes {}-{}/{size}", self.start, self.end - 1)
    }
}

/// The parts of a representation that a request selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RangeSelection {
    /// The complete representation.
    Complete,
    Single(ByteRange),
    /// Two or more ranges, in the order requested.
    Multiple(Vec<ByteRange>),
    /// No satisfiable range: 416.
    Unsatisfiable,
}

/// Evaluates the Range header field for a representation of `size` bytes.
pub(crate) fn select(headers: &HeaderMap, size: u64) -> RangeSelection {
    let mut values = headers.get_all(RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return RangeSelection::Complete;
    };
    let Ok(value) = value.to_str() else { return RangeSelection::Complete };
    // Some clients request ranges of every file; 206 cannot describe an empty one.
    if size == 0 {
        return RangeSelection::Complete;
    }
    match parse_ranges(value, size) {
        None => RangeSelection::Complete,
        Some(ranges) => match ranges.as_slice() {
            [] => RangeSelection::Unsatisfiable,
            [range] => RangeSelection::Single(*range),
            _ => RangeSelection::Multiple(ranges),
        },
    }
}

/// Returns the satisfiable ranges; `None` if the header field is to be ignored.
fn parse_ranges(value: &str, size: u64) -> Option<Vec<ByteRange>> {
    let (unit, range_set) = value.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut ranges = Vec::new();
    let mut count = 0;
    for part in range_set.split(',').map(|part| part.trim_matches([' ', '\t'])) {
        if part.is_empty() {
            continue;
        }
        count += 1;
        if count > MAX_RANGES {
            return None;
        }
        ranges.extend(parse_range(part, size)?);
    }
    let total = ranges.iter().map(|range| u128::from(range.len())).sum::<u128>();
    // Overlapping ranges with more bytes than the complete representation are an attack or a mistake.
    let wasteful = ranges.len() > 1 && total > u128::from(size);
    (count > 0 && !wasteful).then_some(ranges)
}

/// Parses one range: outer `None` is a syntax error, inner `None` is not satisfiable.
fn parse_range(part: &str, size: u64) -> Option<Option<ByteRange>> {
    let (first_pos, last_pos) = part.split_once('-')?;
    if first_pos.is_empty() {
        let suffix = parse_number(last_pos)?;
        let range = ByteRange { start: size.saturating_sub(suffix), end: size };
        return Some((suffix > 0).then_some(range));
    }
    let start = parse_number(first_pos)?;
    let end = match last_pos {
        "" => size,
        last => {
            let last = parse_number(last)?;
            if last < start {
                return None;
            }
            last.saturating_add(1).min(size)
        }
    };
    Some((start < size).then_some(ByteRange { start, end }))
}

/// Parses digits; a number too large for any file saturates.
fn parse_number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn select_from_value(value: &str, size: u64) -> RangeSelection {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, HeaderValue::from_str(value).unwrap());
        select(&headers, size)
    }

    fn single_range(start: u64, end: u64) -> RangeSelection {
        RangeSelection::Single(ByteRange { start, end })
    }

    #[test]
    fn a_range_is_single_or_unsatisfiable() {
        let table = [
            ("bytes=0-0", single_range(0, 1)),
            ("bytes=0-", single_range(0, 100)),
            ("bytes=10-19", single_range(10, 20)),
            ("bytes=99-", single_range(99, 100)),
            ("bytes=90-1000", single_range(90, 100)),
            ("bytes=-1", single_range(99, 100)),
            ("bytes=-100", single_range(0, 100)),
            ("bytes=-1000", single_range(0, 100)),
            ("BYTES=0-0", single_range(0, 1)),
            ("bytes= 5-6 ,", single_range(5, 7)),
            ("bytes=0-18446744073709551615", single_range(0, 100)),
            ("bytes=0-99999999999999999999999", single_range(0, 100)),
            ("bytes=-99999999999999999999999", single_range(0, 100)),
            ("bytes=100-", RangeSelection::Unsatisfiable),
            ("bytes=100-200", RangeSelection::Unsatisfiable),
            ("bytes=-0", RangeSelection::Unsatisfiable),
            ("bytes=99999999999999999999999-", RangeSelection::Unsatisfiable),
            ("bytes=5-6,200-300", single_range(5, 7)),
            ("bytes=200-,300-", RangeSelection::Unsatisfiable),
        ];
        for (value, expected) in table {
            assert_eq!(select_from_value(value, 100), expected, "{value}");
        }
    }

    #[test]
    fn several_ranges_keep_their_order() {
        let ranges = vec![ByteRange { start: 50, end: 60 }, ByteRange { start: 0, end: 1 }];
        assert_eq!(select_from_value("bytes=50-59, 0-0", 100), RangeSelection::Multiple(ranges));
    }

    #[test]
    fn invalid_ranges_are_ignored() {
        let too_many_ranges = format!("bytes={}", vec!["0-0"; MAX_RANGES + 1].join(","));
        let table = [
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5",
            "bytes=6-5",
            "bytes=a-b",
            "bytes=1-2-3",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=0x0-1",
            "lines=0-1",
            "bytes:0-1",
            "bytes=0-1,x",
            "bytes=0-,0-",
            "bytes=0-60,40-99",
            &too_many_ranges,
        ];
        for value in table {
            assert_eq!(select_from_value(value, 100), RangeSelection::Complete, "{value}");
        }
        assert_eq!(select_from_value("bytes=0-0", 0), RangeSelection::Complete);
        assert_eq!(select_from_value("bytes=-5", 0), RangeSelection::Complete);
    }

    #[test]
    fn a_repeated_header_is_ignored() {
        let mut headers = HeaderMap::new();
        headers.append(RANGE, HeaderValue::from_static("bytes=0-0"));
        headers.append(RANGE, HeaderValue::from_static("bytes=1-1"));
        assert_eq!(select(&headers, 100), RangeSelection::Complete);
        assert_eq!(select(&HeaderMap::new(), 100), RangeSelection::Complete);
    }

    proptest::proptest! {
        #[test]
        fn ranges_are_within_the_representation(value in "bytes=([0-9]{0,3}-[0-9]{0,3},? ?){1,5}", size in 0..500_u64) {
            let ranges = match select_from_value(&value, size) {
                RangeSelection::Complete | RangeSelection::Unsatisfiable => Vec::new(),
                RangeSelection::Single(range) => vec![range],
                RangeSelection::Multiple(ranges) => ranges,
            };
            for range in &ranges {
                proptest::prop_assert!(range.start < range.end && range.end <= size);
            }
            proptest::prop_assert!(ranges.iter().map(|range| range.len()).sum::<u64>() <= size);
        }
    }

    #[test]
    fn the_value_of_content_range() {
        assert_eq!(ByteRange { start: 0, end: 5 }.content_range(10), "bytes 0-4/10");
    }
}
