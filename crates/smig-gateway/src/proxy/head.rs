//! Heads on their way through: what is for one hop only stays here (RFC 9110 section 7.6.1), and what
//! two parsers could read in two ways is refused, never repaired.

use http::header::{
    self, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Extensions, Method, Request, Response, StatusCode, Uri, Version, request};
use smig::Protocol;

use super::Failure;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What a request wants beside a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Nothing.
    Usual,
    /// Another protocol on its HTTP/1.1 connection.
    Upgrade(Protocol),
    /// Another protocol on its stream (RFC 8441).
    Extended(Protocol),
    /// A tunnel (CONNECT).
    Tunnel,
}

/// A request without anything that was for this hop only.
#[derive(Clone, Debug)]
pub(crate) struct Outward {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// The URI's authority as a field has it, if somebody has made it already.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) wish: Wish,
}

/// Checks a request's head and takes away what is for this hop only. What else was known of the request
/// comes back as well.
pub(crate) fn admit(
    parts: request::Parts,
    host: Option<HeaderValue>,
) -> Result<(Outward, Extensions), Failure> {
    let request::Parts { method, uri, version, mut headers, mut extensions, .. } = parts;
    let wish = if version < Version::HTTP_2 {
        // The library checked this for HTTP/2.
        check_http1(&method, &uri, version, &headers)?;
        let upgrade = upgrade_of(&method, &headers);
        if (upgrade.is_some() || method == Method::CONNECT)
            && headers.contains_key(TRANSFER_ENCODING)
        {
            return Err(Failure::BadRequest("content in a request for another protocol"));
        }
        let framing = Framing::of(&headers);
        strip(&mut headers, framing).map_err(Failure::BadRequest)?;
        match upgrade {
            Some(protocol) => Wish::Upgrade(protocol),
            None if method == Method::CONNECT => Wish::Tunnel,
            None => Wish::Usual,
        }
    } else {
        match extensions.remove::<Protocol>() {
            Some(protocol) => Wish::Extended(protocol),
            None if method == Method::CONNECT => Wish::Tunnel,
            None => Wish::Usual,
        }
    };
    if wish != Wish::Usual {
        // What follows the head is not content, and a server that was told of some would wait for it:
        // in the next request, if it does not change the protocol.
        if announces_content(&headers) {
            return Err(Failure::BadRequest("content in a request for another protocol"));
        }
        headers.remove(CONTENT_LENGTH);
    }
    let host = host.filter(|_| uri.authority().is_some());
    Ok((Outward { method, uri, headers, host, wish }, extensions))
}

/// Whether content-length says that there is content, or nothing clear.
fn announces_content(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_LENGTH).iter().any(|length| length != "0")
}

/// Whether the client wants to hear 100 before it sends the body.
pub(crate) fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// RFC 9112: what hyper lets through and another parser may read in another way.
fn check_http1(
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<(), Failure> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Failure::BadRequest("more than one host")),
        (None, None) if version == Version::HTTP_11 => {
            return Err(Failure::BadRequest("no host"));
        }
        (None, None) => {}
        (Some(host), None) => {
            let host = host.as_bytes();
            let plain = Authority::try_from(host).is_ok() && !host.contains(&b'@');
            if !plain && !host.is_empty() {
                return Err(Failure::BadRequest("host is not host[:port]"));
            }
            if let Some(authority) = uri.authority()
                && !authority.as_str().as_bytes().eq_ignore_ascii_case(host)
            {
                return Err(Failure::BadRequest("host is not the target's"));
            }
        }
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(Failure::BadRequest("userinfo in the target"));
    }
    // RFC 9112 section 3.2: authority-form for CONNECT, and only there.
    let fits = match (uri.scheme_str(), uri.authority(), uri.path()) {
        (None, Some(_), "") => *method == Method::CONNECT,
        _ if *method == Method::CONNECT => false,
        (None, None, "*") => *method == Method::OPTIONS,
        (None | Some("http" | "https"), _, path) => path.starts_with('/'),
        (Some(_), ..) => false,
    };
    if !fits {
        return Err(Failure::BadRequest("the target has not the form that the method wants"));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if headers.contains_key(CONTENT_LENGTH) {
            return Err(Failure::BadRequest("transfer-encoding and content-length"));
        }
        if version != Version::HTTP_11 {
            return Err(Failure::BadRequest("transfer-encoding in HTTP/1.0"));
        }
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(Failure::NotImplemented("a transfer-encoding other than chunked"));
        }
    }
    check_length(headers).map_err(Failure::BadRequest)
}

/// content-length: one, of digits only.
fn check_length(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(()) };
    let digits = length.as_bytes();
    let fits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if lengths.next().is_some() || !fits {
        return Err("content-length is not one number");
    }
    Ok(())
}

/// The protocol that a request wants to change to, if it is one that is passed on. HTTP/2 is not
/// (`Upgrade: h2c` would smuggle requests past the checks).
fn upgrade_of(method: &Method, headers: &HeaderMap) -> Option<Protocol> {
    let wanted = headers.get(UPGRADE)?;
    let named = options(headers).any(|option| option.eq_ignore_ascii_case("upgrade"));
    let websocket = wanted.as_bytes().eq_ignore_ascii_case(b"websocket");
    if !named || !websocket || *method != Method::GET {
        return None;
    }
    Protocol::new("websocket")
}

/// The options in `connection`.
fn options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|option| !option.is_empty())
}

/// Which fields about framing, and for one hop only, a head has: found in one look, as most heads have
/// one of them at most.
#[derive(Clone, Copy)]
struct Framing(u8);

impl Framing {
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

/// Takes away what is for one hop only. `TE: trailers` stays: it holds for the next hop as well.
fn strip(headers: &mut HeaderMap, framing: Framing) -> Result<(), &'static str> {
    if framing.has(Framing::CONNECTION) {
        strip_named(headers)?;
    }
    for (field, name) in [
        (Framing::CONNECTION, CONNECTION),
        (Framing::KEEP_ALIVE, KEEP_ALIVE),
        (Framing::PROXY_CONNECTION, PROXY_CONNECTION),
        (Framing::TRANSFER_ENCODING, TRANSFER_ENCODING),
        (Framing::UPGRADE, UPGRADE),
    ] {
        if framing.has(field) {
            headers.remove(name);
        }
    }
    if framing.has(Framing::TE) {
        let trailers = headers.get_all(TE).iter().any(|value| {
            let codings = value.as_bytes().split(|octet| *octet == b',');
            codings.into_iter().any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        });
        headers.remove(TE);
        if trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
    Ok(())
}

/// Takes away the fields that `connection` names.
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
        // Whoever could name these could take them away from who trusts them.
        if is_for_all_hops(&name) {
            return Err("connection names a field that is not for one hop");
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

/// Fields that no connection option may name.
fn is_for_all_hops(name: &HeaderName) -> bool {
    const NAMES: [HeaderName; 10] = [
        HOST,
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        header::AUTHORIZATION,
        header::COOKIE,
        header::SET_COOKIE,
        header::CACHE_CONTROL,
        header::CONTENT_TYPE,
        header::FORWARDED,
        header::VIA,
    ];
    NAMES.contains(name) || name.as_str().starts_with("x-forwarded") || name == "x-real-ip"
}

/// The authority that a request is for.
fn authority(outward: &Outward) -> Result<HeaderValue, Failure> {
    if let Some(host) = &outward.host {
        return Ok(host.clone());
    }
    match (outward.uri.authority(), outward.headers.get(HOST)) {
        (Some(authority), _) => HeaderValue::from_str(authority.as_str())
            .map_err(|_| Failure::BadRequest("a bad authority")),
        (None, Some(host)) => Ok(host.clone()),
        (None, None) => Err(Failure::BadRequest("no authority")),
    }
}

/// The request as HTTP/1.1 says it: path as target, authority as host.
pub(crate) fn for_http1<B: http_body::Body>(
    mut outward: Outward,
    body: B,
) -> Result<Request<B>, Failure> {
    if !outward.headers.contains_key(HOST) {
        let host = authority(&outward)?;
        outward.headers.insert(HOST, host);
    }
    if outward.headers.contains_key(TE) {
        outward.headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    let Outward { method, uri, mut headers, wish, .. } = outward;
    // hyper takes a body whose length is not known for none at all with GET and HEAD.
    if !body.is_end_stream() && !headers.contains_key(CONTENT_LENGTH) && wish == Wish::Usual {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = match wish {
        Wish::Tunnel => uri,
        Wish::Usual | Wish::Upgrade(_) | Wish::Extended(_) => origin_form(uri),
    };
    *request.headers_mut() = headers;
    Ok(request)
}

fn origin_form(uri: Uri) -> Uri {
    match uri.into_parts().path_and_query {
        Some(path) => Uri::from(path),
        None => Uri::from_static("/"),
    }
}

/// The request as our client takes it: an absolute URI.
pub(crate) fn for_http2<B>(
    outward: Outward,
    scheme: &Scheme,
    body: B,
) -> Result<Request<B>, Failure> {
    let host = authority(&outward)?;
    let Outward { method, uri, headers, wish, .. } = outward;
    let mut parts = uri.into_parts();
    if parts.authority.is_none() {
        let host = Authority::try_from(host.as_bytes());
        parts.authority = Some(host.map_err(|_| Failure::BadRequest("a bad host"))?);
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    if wish == Wish::Tunnel {
        (parts.scheme, parts.path_and_query) = (None, None);
    } else {
        parts.scheme = Some(scheme.clone());
        parts.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    }
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Failure::BadRequest("a bad target"))?;
    *request.headers_mut() = headers;
    if let Wish::Extended(protocol) | Wish::Upgrade(protocol) = wish {
        *request.method_mut() = Method::CONNECT;
        request.extensions_mut().insert(protocol);
    }
    Ok(request)
}

/// Checks a head that came by HTTP/1.1 and takes away what was for that hop only.
pub(crate) fn accept<B>(response: &mut Response<B>) -> Result<(), Failure> {
    let bad = |why: &'static str| Failure::BadResponse(why.to_owned());
    let status = response.status();
    // hyper keeps unusual reasons; HTTP/2 has none and nobody needs them.
    response.extensions_mut().clear();
    let headers = response.headers_mut();
    let framing = Framing::of(headers);
    if framing.has(Framing::TRANSFER_ENCODING) {
        if framing.has(Framing::CONTENT_LENGTH) {
            return Err(bad("transfer-encoding and content-length"));
        }
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        let chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !codings.next().is_some_and(chunked) || codings.next().is_some() {
            return Err(bad("a transfer-encoding other than chunked"));
        }
    }
    if framing.has(Framing::CONTENT_LENGTH) {
        check_length(headers).map_err(bad)?;
    }
    strip(headers, framing).map_err(bad)?;
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        // RFC 9110 section 8.6.
        headers.remove(CONTENT_LENGTH);
    }
    if framing.has(Framing::TE) {
        headers.remove(TE);
    }
    *response.version_mut() = Version::default();
    Ok(())
}

/// Fields that may not come behind a body (RFC 9110 section 6.5.1): who merges them into the head
/// would be led astray.
pub(crate) fn check_trailers(trailers: &HeaderMap) -> Result<(), &'static str> {
    for name in trailers.keys() {
        if is_of_one_hop(name) || *name == CONTENT_LENGTH || *name == HOST || *name == TE {
            return Err("the trailers hold a field of framing or routing");
        }
    }
    Ok(())
}
