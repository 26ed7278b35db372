//! Selection of a precompressed sibling (RFC 9110 sections 12.4.1, 12.4.2 and 12.5.3).
//!
//! Owns the content codings of siblings and the choice among the existing ones.

use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, HeaderValue};

/// The content coding of a sibling, in the server's order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coding {
    Brotli,
    Zstd,
    Gzip,
}

impl Coding {
    pub(crate) const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Returns the extension of a sibling's name, without the dot.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zst",
            Self::Gzip => "gz",
        }
    }

    /// Returns the suffix that distinguishes the entity-tag from that of the uncoded file.
    pub(crate) fn etag_suffix(self) -> &'static str {
        match self {
            Self::Brotli => "-br",
            Self::Zstd => "-zst",
            Self::Gzip => "-gz",
        }
    }

    fn token(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    pub(crate) fn header_value(self) -> HeaderValue {
        HeaderValue::from_static(self.token())
    }

    fn is_named(self, token: &str) -> bool {
        token.eq_ignore_ascii_case(self.token())
            || (self == Self::Gzip && token.eq_ignore_ascii_case("x-gzip"))
    }
}

/// A weight in thousandths (section 12.4.2).
type QValue = u16;
const MAX_QVALUE: QValue = 1000;

/// The weight of each coding in a request; `None` if it is not listed.
#[derive(Debug, Default)]
struct AcceptEncoding {
    codings: [Option<QValue>; 3],
    identity: Option<QValue>,
    wildcard: Option<QValue>,
}

/// Returns the best of the existing codings; `None` selects the uncoded file.
///
/// The highest weight wins, then the server's preference. The uncoded file wins only if its weight is
/// explicitly higher, or if nothing else is acceptable: it is sent even if the request excludes it, as
/// section 12.4.1 allows.
pub(crate) fn choose(
    headers: &HeaderMap,
    existing_codings: impl Iterator<Item = Coding>,
) -> Option<Coding> {
    let accept_encoding = parse_accept_encoding(headers);
    let mut best_candidate: Option<(QValue, Coding)> = None;
    for coding in existing_codings {
        let weight =
            accept_encoding.codings[coding as usize].or(accept_encoding.wildcard).unwrap_or(0);
        let better = best_candidate.is_none_or(|(known, other)| (weight, other) > (known, coding));
        if weight > 0 && better {
            best_candidate = Some((weight, coding));
        }
    }
    let (weight, coding) = best_candidate?;
    (weight >= accept_encoding.identity.unwrap_or(0)).then_some(coding)
}

fn parse_accept_encoding(headers: &HeaderMap) -> AcceptEncoding {
    let mut accept_encoding = AcceptEncoding::default();
    let lines = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|line| line.to_str().ok());
    for element in lines.flat_map(|line| line.split(',')) {
        let Some((token, weight)) = parse_element(element) else { continue };
        if token == "*" {
            accept_encoding.wildcard = Some(weight);
        } else if token.eq_ignore_ascii_case("identity") {
            accept_encoding.identity = Some(weight);
        } else if let Some(coding) = Coding::ALL.into_iter().find(|coding| coding.is_named(token)) {
            accept_encoding.codings[coding as usize] = Some(weight);
        }
    }
    accept_encoding
}

/// Parses a list element: token and weight. `None` if it is malformed; it is then skipped.
fn parse_element(element: &str) -> Option<(&str, QValue)> {
    let (token, parameter) = match element.split_once(';') {
        None => (element, None),
        Some((token, parameter)) => (token, Some(parameter)),
    };
    let weight = match parameter {
        None => MAX_QVALUE,
        Some(parameter) => {
            let (name, value) = parameter.split_once('=')?;
            if !name.trim().eq_ignore_ascii_case("q") {
                return None;
            }
            parse_weight(value.trim())?
        }
    };
    Some((token.trim(), weight)).filter(|(token, _)| !token.is_empty())
}

fn parse_weight(value: &str) -> Option<QValue> {
    let (integer_part, decimals) = value.split_once('.').unwrap_or((value, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = decimals.bytes().chain([b'0'; 3]).take(3);
    let thousandths = digits.fold(0, |sum, digit| sum * 10 + QValue::from(digit - b'0'));
    match integer_part {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(MAX_QVALUE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose_for(value: &str, existing_codings: &[Coding]) -> Option<Coding> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap());
        choose(&headers, existing_codings.iter().copied())
    }

    #[test]
    fn the_highest_weight_wins() {
        use Coding::{Brotli, Gzip, Zstd};
        let table = [
            ("gzip, deflate, br, zstd", Some(Brotli)),
            ("zstd, gzip", Some(Zstd)),
            ("gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("gzip;q=1.0, br;q=0.5", Some(Gzip)),
            ("br;q=0.3,zstd;q=0.7,gzip;q=0.5", Some(Zstd)),
            ("br ; q=0.9 , gzip", Some(Gzip)),
            ("br;Q=0.001", Some(Brotli)),
            ("*", Some(Brotli)),
            ("*;q=0.5, gzip;q=0.6", Some(Gzip)),
            ("br;q=0, *", Some(Zstd)),
            ("*;q=0", None),
            ("*;q=0, gzip", Some(Gzip)),
            ("identity", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("identity;q=0", None),
            ("gzip;q=0", None),
            ("gzip;q=0.0000", None),
            ("gzip;q=2", None),
            ("gzip;q=1.001", None),
            ("gzip;q=x", None),
            ("gzip;level=9", None),
            ("deflate", None),
            ("", None),
            (",,;", None),
        ];
        for (value, expected) in table {
            assert_eq!(choose_for(value, &Coding::ALL), expected, "{value}");
        }
    }

    #[test]
    fn only_existing_siblings_are_chosen() {
        assert_eq!(choose_for("br, gzip;q=0.1", &[Coding::Gzip]), Some(Coding::Gzip));
        assert_eq!(choose_for("br", &[Coding::Gzip]), None);
        assert_eq!(choose_for("br", &[]), None);
        assert_eq!(choose(&HeaderMap::new(), Coding::ALL.into_iter()), None);
    }

    #[test]
    fn several_lines_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("br;q=0.1"));
        headers.append(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(choose(&headers, Coding::ALL.into_iter()), Some(Coding::Gzip));
    }
}
