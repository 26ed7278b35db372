//! Validation of received requests: ones that two parsers could interpret differently are rejected.

use http::header::{
    CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue, MAX_FORWARDS, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Authority;
use http::{Extensions, Method, Uri, Version, request};
use smig::{Protocol, is_host_and_port};

use super::hop_by_hop::{
    PresentFields, connection_options, imitates_reserved_field, strip_hop_by_hop,
    strip_proxy_fields,
};
use super::{UpgradeHandling, UpgradeKind, UpstreamHead};
use crate::ProxyError;
use crate::framing::{Content, Fields};

/// Checks a request's header section, removes hop-by-hop fields, and determines the framing of the content. Also
/// returns the extensions.
pub fn validate_request<B: http_body::Body>(
    parts: request::Parts,
    body: B,
    host: Option<HeaderValue>,
    upgrade_handling: UpgradeHandling,
) -> Result<(UpstreamHead, Content<B>, Extensions), ProxyError> {
    let request::Parts { method, uri, version, mut headers, mut extensions, .. } = parts;
    let upgrade = if version < Version::HTTP_2 {
        // For HTTP/2 the engine has checked this.
        check_http1(&method, &uri, version, &headers)?;
        let upgrade = match upgrade_handling {
            // RFC 9110 section 7.8: HTTP/1.0 has no Upgrade.
            UpgradeHandling::Honored if version == Version::HTTP_11 => {
                requested_upgrade(&method, &headers)
            }
            UpgradeHandling::Honored | UpgradeHandling::Ignored => None,
        };
        match upgrade {
            Some(protocol) => UpgradeKind::Upgrade(protocol),
            None if method == Method::CONNECT => UpgradeKind::Connect,
            None => UpgradeKind::None,
        }
    } else {
        match extensions.remove::<Protocol>() {
            Some(protocol) => UpgradeKind::ExtendedConnect(protocol),
            None if method == Method::CONNECT => UpgradeKind::Connect,
            None => UpgradeKind::None,
        }
    };
    let present_fields = PresentFields::of(&headers);
    if headers.keys().any(imitates_reserved_field) {
        return Err(ProxyError::BadRequest("a field name differs only by _ from a reserved one"));
    }
    let content = match upgrade {
        UpgradeKind::None => Content::from_headers(&headers, body),
        UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) | UpgradeKind::Connect => {
            Content::for_upgrade(&headers, body)
        }
    };
    let content = content.map_err(ProxyError::BadRequest)?;
    if present_fields.has(PresentFields::EXPECT) {
        check_expect(&headers)?;
        // RFC 9110 section 10.1.1: only a client over HTTP/1.1 or HTTP/2 that has content to send waits for 100. The
        // expectation of any other is ignored.
        if content.is_empty() || upgrade != UpgradeKind::None || version < Version::HTTP_11 {
            headers.remove(EXPECT);
        }
    }
    if version < Version::HTTP_2 {
        strip_hop_by_hop(&mut headers, present_fields).map_err(ProxyError::BadRequest)?;
    }
    if present_fields.has(PresentFields::PROXY_FIELD) {
        strip_proxy_fields(&mut headers);
    }
    let host = host.filter(|_| uri.authority().is_some());
    Ok((
        UpstreamHead { method, uri, fields: Fields::of(headers), host, upgrade },
        content,
        extensions,
    ))
}

/// Accepts only 100-continue, and only once: another parser may take a similar value for 100-continue.
pub fn check_expect(headers: &HeaderMap) -> Result<(), ProxyError> {
    let mut expectations = headers.get_all(EXPECT).iter();
    let is_continue = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    match (expectations.next().is_none_or(is_continue), expectations.next()) {
        (true, None) => Ok(()),
        (_, _) => Err(ProxyError::Expectation),
    }
}

/// Counts Max-Forwards down, which only OPTIONS and TRACE have (RFC 9110 section 7.6.2). Returns whether the request
/// must not be forwarded.
pub fn decrement_max_forwards(
    method: &Method,
    headers: &mut HeaderMap,
) -> Result<bool, ProxyError> {
    if !matches!(*method, Method::OPTIONS | Method::TRACE) {
        return Ok(false);
    }
    let mut values = headers.get_all(MAX_FORWARDS).iter();
    let Some(hops) = values.next() else { return Ok(false) };
    let digits = std::str::from_utf8(hops.as_bytes()).unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number || values.next().is_some() {
        return Err(ProxyError::BadRequest("max-forwards is not a single number"));
    }
    // A larger number becomes the maximum.
    let hops = digits.parse().unwrap_or(u32::MAX);
    let remaining_hops = hops.checked_sub(1);
    if let Some(left) = remaining_hops {
        headers.insert(MAX_FORWARDS, left.into());
    }
    Ok(remaining_hops.is_none())
}

/// Rejects what hyper accepts and another parser may interpret differently (RFC 9112).
fn check_http1(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<(), ProxyError> {
    check_host(uri, version, headers)?;
    // RFC 9112 section 3.2: authority-form for CONNECT, and only there.
    let has_valid_form = match (uri.scheme_str(), uri.authority(), uri.path()) {
        (None, Some(_), "") => *method == Method::CONNECT,
        _ if *method == Method::CONNECT => false,
        (None, None, "*") => *method == Method::OPTIONS,
        (None | Some("http" | "https"), _, path) => path.starts_with('/'),
        (Some(_), ..) => false,
    };
    if !has_valid_form {
        return Err(ProxyError::BadRequest("the target has the wrong form for its method"));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(ProxyError::BadRequest("both transfer-encoding and content-length"));
        }
        if version != Version::HTTP_11 {
            return Err(ProxyError::BadRequest("transfer-encoding in HTTP/1.0"));
        }
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(ProxyError::NotImplemented("transfer-encoding other than chunked"));
        }
    }
    Ok(())
}

/// Requires one host, equal to the target's authority if there is one.
fn check_host(uri: &Uri, version: Version, headers: &HeaderMap) -> Result<(), ProxyError> {
    if uri.authority().is_some_and(|authority| !is_host_and_port(authority)) {
        return Err(ProxyError::BadRequest("the target's authority is not host[:port]"));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(ProxyError::BadRequest("more than one host")),
        (None, None) if version == Version::HTTP_11 => {
            return Err(ProxyError::BadRequest("no host"));
        }
        (None, None) => return Ok(()),
        (Some(host), None) => host.as_bytes(),
    };
    let is_host_and_port_only = Authority::try_from(host).is_ok_and(|host| is_host_and_port(&host));
    if !is_host_and_port_only && !host.is_empty() {
        return Err(ProxyError::BadRequest("host is not host[:port]"));
    }
    match uri.authority() {
        Some(target) if !target.as_str().as_bytes().eq_ignore_ascii_case(host) => {
            Err(ProxyError::BadRequest("host differs from the target's"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the protocol to which a request asks to switch, if the gateway forwards it. HTTP/2 is
/// not forwarded: `Upgrade: h2c` would smuggle requests past the checks.
fn requested_upgrade(method: &Method, headers: &HeaderMap) -> Option<Protocol> {
    let requested = headers.get(UPGRADE)?;
    let is_connection_option =
        connection_options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    let is_websocket = requested.as_bytes().eq_ignore_ascii_case(b"websocket");
    if !is_connection_option || !is_websocket || *method != Method::GET {
        return None;
    }
    Protocol::new("websocket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_counted_for_options_and_trace() {
        let decrement = |method: &Method, values: &[&'static str]| -> Result<(bool, String), ()> {
            let values = values.iter().map(|hops| (MAX_FORWARDS, HeaderValue::from_static(hops)));
            let mut headers: HeaderMap = values.collect();
            let is_last = decrement_max_forwards(method, &mut headers).map_err(drop)?;
            let remaining_hops =
                headers.get(MAX_FORWARDS).map(|left| left.to_str().unwrap().to_owned());
            Ok((is_last, remaining_hops.unwrap_or_default()))
        };
        for method in [Method::OPTIONS, Method::TRACE] {
            for (hops, remaining_hops) in [
                ("1", "0"),
                ("070", "69"),
                ("4294967296", "4294967294"),
                ("99999999999999999999999", "4294967294"),
            ] {
                assert_eq!(
                    decrement(&method, &[hops]),
                    Ok((false, remaining_hops.to_owned())),
                    "{hops}"
                );
            }
            assert_eq!(decrement(&method, &["0"]), Ok((true, "0".to_owned())));
            assert_eq!(decrement(&method, &["00"]), Ok((true, "00".to_owned())));
            assert_eq!(decrement(&method, &[]), Ok((false, String::new())));
            for invalid in [&["-1"][..], &["+1"], &[""], &["1, 0"], &["1", "0"], &["a"]] {
                assert_eq!(decrement(&method, invalid), Err(()), "{invalid:?}");
            }
        }
        assert_eq!(decrement(&Method::GET, &["0"]), Ok((false, "0".to_owned())));
    }
}
