//! Validation: which field sections are well-formed requests, responses and trailers (RFC 9113
//! sections 8.1 to 8.5, RFC 8441 section 4).

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Uri};

use super::FieldSection;
use crate::error::Cause;
use crate::head::{Protocol, RequestHead, ResponseHead};

/// Whether a response is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    /// 1xx.
    Informational,
    Final,
}

impl FieldSection {
    /// Converts the section to a request head. `last_authority` caches the connection's last
    /// authority, which is not validated again.
    pub(crate) fn into_request(
        self,
        last_authority: &mut Option<Authority>,
    ) -> Result<RequestHead, Cause> {
        if let Some(cause) = self.malformed {
            return Err(cause);
        }
        if self.status.is_some() {
            return Err(Cause::BadPseudo);
        }
        let method = self.method.ok_or(Cause::BadPseudo)?;
        let authority = match self.authority {
            Some(value) => Some(cached_authority(value, last_authority)?),
            None => None,
        };
        if self.presence.host {
            check_host(&self.headers, authority.as_ref())?;
        }
        let protocol = match self.protocol {
            Some(name) => Some(Protocol::new(name).ok_or(Cause::BadPseudo)?),
            None => None,
        };
        let mut parts = http::uri::Parts::default();
        if method == Method::CONNECT && protocol.is_none() {
            if self.scheme.is_some() || self.path.is_some() {
                return Err(Cause::BadPseudo);
            }
            parts.authority = Some(authority.ok_or(Cause::BadPseudo)?);
        } else {
            let path = self.path.ok_or(Cause::BadPseudo)?;
            let scheme = self.scheme.ok_or(Cause::BadPseudo)?;
            if protocol.is_some() && (method != Method::CONNECT || authority.is_none()) {
                return Err(Cause::BadPseudo);
            }
            parts.path_and_query = Some(parse_path(path, &method)?);
            // `Uri::from_parts` accepts a scheme only with an authority; Host replaces an absent
            // `:authority`.
            parts.authority = match authority {
                None if self.presence.host => match self.headers.get(HOST) {
                    Some(host) => Some(parse_authority(Bytes::copy_from_slice(host.as_bytes()))?),
                    None => None,
                },
                authority => authority,
            };
            parts.scheme = parts.authority.is_some().then_some(scheme);
        }
        let uri = Uri::from_parts(parts).map_err(|_| Cause::BadPseudo)?;
        Ok(RequestHead { method, uri, protocol, headers: self.headers })
    }

    /// Converts the section to a response head.
    pub(crate) fn into_response(self) -> Result<(ResponseHead, ResponseKind), Cause> {
        if let Some(cause) = self.malformed {
            return Err(cause);
        }
        if self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some()
            || self.protocol.is_some()
        {
            return Err(Cause::BadPseudo);
        }
        let status = self.status.ok_or(Cause::BadPseudo)?;
        let kind = match status.as_u16() {
            // 101 does not exist in HTTP/2 (RFC 9113 section 8.6).
            101 => return Err(Cause::BadPseudo),
            100..=199 => ResponseKind::Informational,
            _ => ResponseKind::Final,
        };
        Ok((ResponseHead { status, headers: self.headers }, kind))
    }

    /// Converts the section to trailers.
    pub(crate) fn into_trailers(self) -> Result<HeaderMap, Cause> {
        if let Some(cause) = self.malformed {
            return Err(cause);
        }
        if self.has_pseudo() {
            return Err(Cause::BadPseudo);
        }
        Ok(self.headers)
    }
}

/// Parses content-length, if present. A repeated value is rejected even if it is equal, as over
/// HTTP/1.1: it indicates a faulty sender (RFC 9110 section 8.6 permits both). A value above
/// `i64::MAX` is rejected: a recipient with signed lengths would read it as negative.
pub(crate) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Cause> {
    // Most heads have a few fields: comparing their names is cheaper than a hash.
    let mut lengths =
        headers.iter().filter(|(name, _)| **name == CONTENT_LENGTH).map(|(_, value)| value);
    let Some(length) = lengths.next() else { return Ok(None) };
    let digits = length.as_bytes();
    // `parse` would accept a leading `+`.
    if lengths.next().is_some() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Cause::BadContentLength);
    }
    let digits = core::str::from_utf8(digits).map_err(|_| Cause::BadContentLength)?;
    let length = digits.parse().map_err(|_| Cause::BadContentLength)?;
    if length > i64::MAX.unsigned_abs() {
        return Err(Cause::BadContentLength);
    }
    Ok(Some(length))
}

fn cached_authority(
    value: Bytes,
    last_authority: &mut Option<Authority>,
) -> Result<Authority, Cause> {
    if let Some(last) = last_authority
        && last.as_str().as_bytes() == value
    {
        return Ok(last.clone());
    }
    let authority = parse_authority(value)?;
    *last_authority = Some(authority.clone());
    Ok(authority)
}

fn parse_authority(value: Bytes) -> Result<Authority, Cause> {
    // Userinfo is deprecated and disguises the host (RFC 9113 section 8.3.1).
    if value.contains(&b'@') {
        return Err(Cause::BadAuthority);
    }
    let authority = Authority::from_maybe_shared(value).map_err(|_| Cause::BadAuthority)?;
    is_host_and_port(&authority).then_some(authority).ok_or(Cause::BadAuthority)
}

/// Returns whether an authority is `host[:port]`: without userinfo (RFC 9110 section 4.2.4), and
/// with a port that is empty or a number. [`Authority`] accepts any text as the port, and parses
/// `+80` as 80.
#[must_use]
pub fn is_host_and_port(authority: &Authority) -> bool {
    let Some(rest) = authority.as_str().strip_prefix(authority.host()) else { return false };
    let Some(port) = rest.strip_prefix(':') else { return rest.is_empty() };
    port.is_empty()
        || (port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok())
}

fn check_host(headers: &HeaderMap, authority: Option<&Authority>) -> Result<(), Cause> {
    let mut hosts = headers.get_all(HOST).iter();
    let Some(host) = hosts.next() else { return Ok(()) };
    if hosts.next().is_some() || host.as_bytes().contains(&b'@') {
        return Err(Cause::BadAuthority);
    }
    match authority {
        Some(authority) if !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes()) => {
            Err(Cause::BadAuthority)
        }
        Some(_) | None => Ok(()),
    }
}

fn parse_path(path: Bytes, method: &Method) -> Result<PathAndQuery, Cause> {
    let is_valid = match path.first() {
        Some(b'/') => true,
        Some(b'*') => *method == Method::OPTIONS && path.len() == 1,
        Some(_) | None => false,
    };
    if !is_valid || path.contains(&b'#') {
        return Err(Cause::BadPseudo);
    }
    PathAndQuery::from_maybe_shared(path).map_err(|_| Cause::BadPseudo)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn an_authority_is_a_host_and_an_optional_numeric_port() {
        for (value, is_valid) in [
            ("a", true),
            ("a:", true),
            ("a:80", true),
            ("[::1]", true),
            ("[::1]:80", true),
            ("a:http", false),
            ("a:+80", false),
            ("a:65536", false),
            ("[::1]:+80", false),
            ("[::1]:http", false),
            ("u@a", false),
            ("u:80@a", false),
            ("a@a:80", false),
            ("a:1@a:80", false),
        ] {
            let parsed = parse_authority(Bytes::from_static(value.as_bytes()));
            assert_eq!(parsed.is_ok(), is_valid, "{value}");
            assert_eq!(is_host_and_port(&Authority::from_static(value)), is_valid, "{value}");
        }
    }

    #[test]
    fn a_content_length_is_one_decimal_number_below_2_to_the_63() {
        for (length, expected) in [
            ("0", Some(0)),
            ("005", Some(5)),
            ("9223372036854775807", Some(i64::MAX.unsigned_abs())),
            ("9223372036854775808", None),
            ("18446744073709551615", None),
            ("18446744073709551616", None),
            ("+5", None),
            ("", None),
        ] {
            let value = HeaderValue::from_static(length);
            let headers = [(CONTENT_LENGTH, value)].into_iter().collect();
            assert_eq!(content_length(&headers).ok(), expected.map(Some), "{length}");
        }
    }
}
