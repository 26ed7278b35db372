//! Forwarded header sections: hop-by-hop fields are removed (RFC 9110 section 7.6.1), and what two parsers could
//! interpret differently is rejected, never repaired. Where a message ends is determined in `framing`.

use bytes::Bytes;
use http::header::{
    self, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    MAX_FORWARDS, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Extensions, Method, Request, Response, StatusCode, Uri, Version, request};
use http_body::Frame;
use smig::{BoxError, Protocol, is_host_and_port};

use crate::ProxyError;
use crate::framing::{self, Content, Fields};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// What a request asks for in addition to a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeKind {
    /// Nothing.
    None,
    /// Another protocol on its HTTP/1.1 connection.
    Upgrade(Protocol),
    /// Another protocol on its stream (RFC 8441).
    ExtendedConnect(Protocol),
    /// A tunnel (CONNECT).
    Connect,
}

/// Whether an Upgrade over HTTP/1.1 is honored. A server may ignore it (RFC 9110 section 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrades {
    /// It is honored.
    Heard,
    /// The request is taken as one without it.
    Ignored,
}

/// A request without hop-by-hop fields.
#[derive(Clone, Debug)]
pub struct UpstreamHead {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The other fields, without framing.
    pub fields: Fields,
    /// The URI's authority as a field value, if that exists already.
    pub host: Option<HeaderValue>,
    /// What it asks for in addition to a response.
    pub wish: UpgradeKind,
}

/// Checks a request's header section, removes hop-by-hop fields, and determines the framing of the content. Also
/// returns the extensions.
pub fn validate_request<B: http_body::Body>(
    parts: request::Parts,
    body: B,
    host: Option<HeaderValue>,
    upgrades: Upgrades,
) -> Result<(UpstreamHead, Content<B>, Extensions), ProxyError> {
    let request::Parts { method, uri, version, mut headers, mut extensions, .. } = parts;
    let wish = if version < Version::HTTP_2 {
        // For HTTP/2 the library has checked this.
        check_http1(&method, &uri, version, &headers)?;
        let upgrade = match upgrades {
            // RFC 9110 section 7.8: HTTP/1.0 has no Upgrade.
            Upgrades::Heard if version == Version::HTTP_11 => upgrade_of(&method, &headers),
            Upgrades::Heard | Upgrades::Ignored => None,
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
    if headers.keys().any(poses_as_ours) {
        return Err(ProxyError::BadRequest("a field name differs only by _ from a reserved one"));
    }
    let content = match wish {
        UpgradeKind::None => Content::announced(&headers, body),
        UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) | UpgradeKind::Connect => {
            Content::switched(&headers, body)
        }
    };
    let content = content.map_err(ProxyError::BadRequest)?;
    if headers.contains_key(EXPECT) {
        check_expect(&headers)?;
        // RFC 9110 section 10.1.1: the client does not wait for 100, and a server that sends it anyway would be ahead
        // of the client.
        if content.is_nothing() || wish != UpgradeKind::None || version < Version::HTTP_11 {
            headers.remove(EXPECT);
        }
    }
    if version < Version::HTTP_2 {
        let present = Present::of(&headers);
        strip(&mut headers, present).map_err(ProxyError::BadRequest)?;
    }
    strip_proxys(&mut headers);
    let host = host.filter(|_| uri.authority().is_some());
    Ok((UpstreamHead { method, uri, fields: Fields::of(headers), host, wish }, content, extensions))
}

/// Accepts only 100-continue, and only once: another parser may take a similar value for it.
pub fn check_expect(headers: &HeaderMap) -> Result<(), ProxyError> {
    let mut expectations = headers.get_all(EXPECT).iter();
    let known = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    match (expectations.next().is_none_or(known), expectations.next()) {
        (true, None) => Ok(()),
        (_, _) => Err(ProxyError::Expectation),
    }
}

/// Returns the entry in Via for a message that was received in this version (RFC 9110 section 7.6.3).
pub fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(match version {
        Version::HTTP_10 => "1.0 smig",
        Version::HTTP_2 => "2 smig",
        _ => "1.1 smig",
    })
}

/// Counts Max-Forwards down, which only OPTIONS and TRACE have (RFC 9110 section 7.6.2). Returns whether the request
/// must not be forwarded.
pub fn count_hop(method: &Method, headers: &mut HeaderMap) -> Result<bool, ProxyError> {
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
    let left = hops.checked_sub(1);
    if let Some(left) = left {
        headers.insert(MAX_FORWARDS, left.into());
    }
    Ok(left.is_none())
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
    let fits = match (uri.scheme_str(), uri.authority(), uri.path()) {
        (None, Some(_), "") => *method == Method::CONNECT,
        _ if *method == Method::CONNECT => false,
        (None, None, "*") => *method == Method::OPTIONS,
        (None | Some("http" | "https"), _, path) => path.starts_with('/'),
        (Some(_), ..) => false,
    };
    if !fits {
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
    let is_plain = Authority::try_from(host).is_ok_and(|host| is_host_and_port(&host));
    if !is_plain && !host.is_empty() {
        return Err(ProxyError::BadRequest("host is not host[:port]"));
    }
    match uri.authority() {
        Some(target) if !target.as_str().as_bytes().eq_ignore_ascii_case(host) => {
            Err(ProxyError::BadRequest("host differs from the target's"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the protocol to which a request wants to switch, if the gateway forwards it. HTTP/2 is not forwarded:
/// `Upgrade: h2c` would smuggle requests past the checks.
fn upgrade_of(method: &Method, headers: &HeaderMap) -> Option<Protocol> {
    let wanted = headers.get(UPGRADE)?;
    let named = options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    let websocket = wanted.as_bytes().eq_ignore_ascii_case(b"websocket");
    if !named || !websocket || *method != Method::GET {
        return None;
    }
    Protocol::new("websocket")
}

/// Returns the options in `connection`.
fn options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|option| !option.is_empty())
}

/// The framing and hop-by-hop fields that are present, found in one pass, since most header sections have at most one
/// of them.
#[derive(Clone, Copy)]
struct Present(u8);

impl Present {
    const CONNECTION: u8 = 1;
    const KEEP_ALIVE: u8 = 2;
    const PROXY_CONNECTION: u8 = 4;
    const TRANSFER_ENCODING: u8 = 8;
    const UPGRADE: u8 = 16;
    const TE: u8 = 32;
    const CONTENT_LENGTH: u8 = 64;

    fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |found, name| found | Self::bit(name)))
    }

    fn bit(name: &HeaderName) -> u8 {
        match *name {
            CONNECTION => Self::CONNECTION,
            TRANSFER_ENCODING => Self::TRANSFER_ENCODING,
            UPGRADE => Self::UPGRADE,
            TE => Self::TE,
            CONTENT_LENGTH => Self::CONTENT_LENGTH,
            _ if *name == KEEP_ALIVE => Self::KEEP_ALIVE,
            _ if *name == PROXY_CONNECTION => Self::PROXY_CONNECTION,
            _ => 0,
        }
    }

    const fn has(self, field: u8) -> bool {
        self.0 & field != 0
    }
}

/// Removes hop-by-hop fields. `TE: trailers` stays: it applies to the next hop as well.
fn strip(headers: &mut HeaderMap, present: Present) -> Result<(), &'static str> {
    if present.has(Present::CONNECTION) {
        strip_named(headers)?;
    }
    for (field, name) in [
        (Present::CONNECTION, CONNECTION),
        (Present::KEEP_ALIVE, KEEP_ALIVE),
        (Present::PROXY_CONNECTION, PROXY_CONNECTION),
        (Present::TRANSFER_ENCODING, TRANSFER_ENCODING),
        (Present::UPGRADE, UPGRADE),
    ] {
        if present.has(field) {
            headers.remove(name);
        }
    }
    if present.has(Present::TE) {
        let trailers = headers.get_all(TE).iter().any(|value| {
            let codings = value.as_bytes().split(|byte| *byte == b',');
            codings.into_iter().any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        });
        headers.remove(TE);
        if trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
    Ok(())
}

/// Removes the fields between a client and its proxy (RFC 9110 section 11.7), for all versions. A server behind the
/// gateway is neither: the credentials are not for it, and clients would take its challenge for the gateway's.
pub(crate) fn strip_proxys(headers: &mut HeaderMap) {
    for name in [PROXY_AUTHORIZATION, PROXY_AUTHENTICATE, PROXY_AUTHENTICATION_INFO] {
        headers.remove(name);
    }
}

/// Removes the fields that `connection` names.
fn strip_named(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut connections = headers.get_all(CONNECTION).iter();
    if let (Some(only), None) = (connections.next(), connections.next()) {
        let only = only.as_bytes();
        if only.eq_ignore_ascii_case(b"keep-alive") || only.eq_ignore_ascii_case(b"close") {
            return Ok(());
        }
    }
    let mut named = Vec::new();
    for option in options(headers) {
        let name =
            HeaderName::try_from(option).map_err(|_| "a connection option is not a field name")?;
        // A client could remove these from a request whose recipient relies on them.
        if is_for_all_hops(&name) {
            return Err("connection names an end-to-end field");
        }
        named.push(name);
    }
    if headers.get_all(CONNECTION).iter().any(|value| value.to_str().is_err()) {
        return Err("connection is not a list of field names");
    }
    for name in named.iter().filter(|name| **name != TE) {
        headers.remove(name);
    }
    Ok(())
}

fn is_of_one_hop(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Returns whether a server that maps fields to variables (CGI, WSGI), and does not distinguish `_` and `-`, takes
/// this for a framing field or one that identifies the sender.
fn poses_as_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    if !name.contains('_') {
        return false;
    }
    let other = name.replace('_', "-");
    let other = other.as_str();
    other.starts_with("x-forwarded")
        || ["content-length", "transfer-encoding", "x-real-ip"].contains(&other)
}

/// Returns whether no connection option may name this field.
fn is_for_all_hops(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 13] = [
        HOST,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        MAX_FORWARDS,
        header::AUTHORIZATION,
        header::COOKIE,
        header::SET_COOKIE,
        header::CACHE_CONTROL,
        header::CONTENT_TYPE,
        header::FORWARDED,
        header::VIA,
        HeaderName::from_static("traceparent"),
        HeaderName::from_static("tracestate"),
    ];
    NAMES.contains(name) || says_who_sent(name)
}

/// Returns whether a field identifies the sender of a request, or its original target.
fn says_who_sent(name: &HeaderName) -> bool {
    *name == header::FORWARDED
        || name.as_str().starts_with("x-forwarded")
        || name == "x-real-ip"
        || poses_as_ours(name)
}

/// Returns the authority of a request, as a field value.
fn authority(outward: &UpstreamHead) -> Result<HeaderValue, ProxyError> {
    if let Some(host) = &outward.host {
        return Ok(host.clone());
    }
    match (outward.uri.authority(), outward.fields.get(HOST)) {
        (Some(authority), _) => HeaderValue::from_str(authority.as_str())
            .map_err(|_| ProxyError::BadRequest("invalid authority")),
        (None, Some(host)) => Ok(host.clone()),
        (None, None) => Err(ProxyError::BadRequest("no authority")),
    }
}

/// Returns the request in HTTP/1.1's form: the path as target, the authority in Host.
pub fn for_http1<B: http_body::Body>(
    outward: UpstreamHead,
    content: Content<B>,
) -> Result<Request<Content<B>>, ProxyError> {
    let host = match outward.fields.contains_key(HOST) {
        true => None,
        false => Some(authority(&outward)?),
    };
    let UpstreamHead { mut method, uri, fields, wish, .. } = outward;
    let mut headers = fields.into_headers();
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    let target = match &wish {
        UpgradeKind::Connect => uri,
        UpgradeKind::None | UpgradeKind::Upgrade(_) | UpgradeKind::ExtendedConnect(_) => {
            origin_form(uri)
        }
    };
    if let UpgradeKind::Upgrade(protocol) | UpgradeKind::ExtendedConnect(protocol) = &wish {
        method = Method::GET;
        headers.remove(TE);
        add_upgrade(&mut headers, protocol);
    } else if headers.contains_key(TE) {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    content.write_http1(&method, &mut headers);
    let mut request = Request::new(content);
    *request.method_mut() = method;
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Sets the fields for a switch to another protocol.
pub fn add_upgrade(headers: &mut HeaderMap, protocol: &Protocol) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    if let Ok(protocol) = HeaderValue::from_str(protocol.as_str()) {
        headers.insert(UPGRADE, protocol);
    }
}

fn origin_form(uri: Uri) -> Uri {
    match uri.into_parts().path_and_query {
        Some(path) => Uri::from(path),
        None => Uri::from_static("/"),
    }
}

/// Returns the request in the form for our client, with an absolute URI.
pub fn for_http2<B: http_body::Body>(
    outward: UpstreamHead,
    scheme: &Scheme,
    content: Content<B>,
) -> Result<Request<Content<B>>, ProxyError> {
    let host = authority(&outward)?;
    let UpstreamHead { method, uri, fields, wish, .. } = outward;
    let mut headers = fields.into_headers();
    content.write_http2(&method, &mut headers);
    let mut parts = uri.into_parts();
    if parts.authority.is_none() {
        let host = Authority::try_from(host.as_bytes());
        parts.authority = Some(host.map_err(|_| ProxyError::BadRequest("invalid host"))?);
    }
    let mut request = Request::new(content);
    *request.method_mut() = method;
    if wish == UpgradeKind::Connect {
        (parts.scheme, parts.path_and_query) = (None, None);
    } else {
        parts.scheme = Some(scheme.clone());
        parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    }
    *request.uri_mut() =
        Uri::from_parts(parts).map_err(|_| ProxyError::BadRequest("invalid target"))?;
    *request.headers_mut() = headers;
    if let UpgradeKind::ExtendedConnect(protocol) | UpgradeKind::Upgrade(protocol) = wish {
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(protocol);
    }
    Ok(request)
}

/// Checks a header section received over HTTP/1.1, and removes hop-by-hop fields.
pub fn validate_response<B>(response: &mut Response<B>) -> Result<(), ProxyError> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(ProxyError::BadResponse("101 to a request without upgrade".to_owned()));
    }
    accept_switch(response)
}

/// Like [`validate_response`], for responses to requests that switch protocols.
pub fn accept_switch<B>(response: &mut Response<B>) -> Result<(), ProxyError> {
    let bad = |why: &'static str| ProxyError::BadResponse(why.to_owned());
    let status = response.status();
    // hyper stores unusual reason phrases; HTTP/2 has none, and they are not needed.
    response.extensions_mut().clear();
    let headers = response.headers_mut();
    let present = Present::of(headers);
    if present.has(Present::TRANSFER_ENCODING) {
        if present.has(Present::CONTENT_LENGTH) {
            return Err(bad("both transfer-encoding and content-length"));
        }
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !codings.next().is_some_and(chunked) || codings.next().is_some() {
            return Err(bad("transfer-encoding other than chunked"));
        }
    }
    if present.has(Present::CONTENT_LENGTH) {
        framing::rewrite_length(headers).map_err(bad)?;
    }
    strip(headers, present).map_err(bad)?;
    strip_proxys(headers);
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6.
        headers.remove(CONTENT_LENGTH);
    }
    if present.has(Present::TE) {
        headers.remove(TE);
    }
    Ok(())
}

/// Does what the engine has not done for a header section received over HTTP/2.
pub fn accept_http2<B>(response: &mut Response<B>) -> Result<(), ProxyError> {
    let status = response.status();
    let headers = response.headers_mut();
    strip_proxys(headers);
    framing::rewrite_length(headers).map_err(|why| ProxyError::BadResponse(why.to_owned()))?;
    if status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6.
        headers.remove(CONTENT_LENGTH);
    }
    Ok(())
}

/// Checks a frame of a request. Trailers must not contain fields that identify the sender or a proxy: a recipient may
/// merge them into the header section (RFC 9110 section 6.5.1).
pub(crate) fn admit_request_frame(frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
    let frame = admit_frame(frame)?;
    let says_who = |name: &HeaderName| {
        says_who_sent(name) || *name == header::AUTHORIZATION || *name == header::COOKIE
    };
    if frame.trailers_ref().is_some_and(|trailers| trailers.keys().any(says_who)) {
        return Err("the trailers contain a field that identifies the sender".into());
    }
    Ok(frame)
}

/// Checks a frame. Trailers must not contain framing or routing fields (RFC 9110 section 6.5.1), since a recipient
/// may merge them into the header section. Fields between a client and its proxy are removed.
pub fn admit_frame(mut frame: Frame<Bytes>) -> Result<Frame<Bytes>, BoxError> {
    let Some(trailers) = frame.trailers_mut() else { return Ok(frame) };
    strip_proxys(trailers);
    for name in trailers.keys() {
        if is_of_one_hop(name) || [CONTENT_LENGTH, HOST, TE].contains(name) {
            return Err("the trailers contain a field of framing or routing".into());
        }
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_who_sent_a_request_is_not_believed_behind_it() {
        for (name, of_request, of_response) in [
            ("x-sum", true, true),
            ("grpc-status", true, true),
            // A server may return what it received.
            ("x-forwarded-for", false, true),
            ("x_forwarded_for", false, true),
            ("forwarded", false, true),
            ("x-real-ip", false, true),
            ("authorization", false, true),
            ("cookie", false, true),
            ("host", false, false),
            ("content-length", false, false),
        ] {
            let trailers = || {
                let trailers = [(name.parse().unwrap(), HeaderValue::from_static("1"))];
                Frame::trailers(HeaderMap::from_iter(trailers))
            };
            assert_eq!(admit_request_frame(trailers()).is_ok(), of_request, "{name}");
            assert_eq!(admit_frame(trailers()).is_ok(), of_response, "{name}");
        }
    }

    #[test]
    fn hops_are_counted_for_options_and_trace() {
        let counted = |method: &Method, values: &[&'static str]| -> Result<(bool, String), ()> {
            let values = values.iter().map(|hops| (MAX_FORWARDS, HeaderValue::from_static(hops)));
            let mut headers: HeaderMap = values.collect();
            let is_last = count_hop(method, &mut headers).map_err(drop)?;
            let left = headers.get(MAX_FORWARDS).map(|left| left.to_str().unwrap().to_owned());
            Ok((is_last, left.unwrap_or_default()))
        };
        for method in [Method::OPTIONS, Method::TRACE] {
            for (hops, left) in [
                ("1", "0"),
                ("070", "69"),
                ("4294967296", "4294967294"),
                ("99999999999999999999999", "4294967294"),
            ] {
                assert_eq!(counted(&method, &[hops]), Ok((false, left.to_owned())), "{hops}");
            }
            assert_eq!(counted(&method, &["0"]), Ok((true, "0".to_owned())));
            assert_eq!(counted(&method, &["00"]), Ok((true, "00".to_owned())));
            assert_eq!(counted(&method, &[]), Ok((false, String::new())));
            for wrong in [&["-1"][..], &["+1"], &[""], &["1, 0"], &["1", "0"], &["a"]] {
                assert_eq!(counted(&method, wrong), Err(()), "{wrong:?}");
            }
        }
        assert_eq!(counted(&Method::GET, &["0"]), Ok((false, "0".to_owned())));
    }

    #[test]
    fn a_field_is_not_taken_for_another() {
        for (name, poses) in [
            ("content_length", true),
            ("transfer_encoding", true),
            ("x_forwarded-for", true),
            ("x-forwarded_proto", true),
            ("x_real_ip", true),
            ("x_forwarded", true),
            ("content-length", false),
            ("x-forwarded-for", false),
            ("x_request_id", false),
            ("content_type", false),
        ] {
            assert_eq!(poses_as_ours(&HeaderName::from_static(name)), poses, "{name}");
        }
    }
}
