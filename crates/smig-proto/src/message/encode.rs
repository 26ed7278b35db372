//! Encodes heads and trailers as field blocks.

use std::borrow::Cow;

use bytes::BytesMut;
use http::Method;
use http::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;

use super::section::{KEEP_ALIVE, PROXY_CONNECTION};
use crate::head::RequestHead;
use crate::hpack::{Encoder, Headers, OutgoingSection, Pseudo};

/// Appends the field block of a request.
pub(crate) fn encode_request(encoder: &mut Encoder, head: &RequestHead, out: &mut BytesMut) {
    encoder.begin(out);
    encoder.pseudo(Pseudo::Method, head.method.as_str().as_bytes(), out);
    let authority = head.uri.authority().map(|a| a.as_str().as_bytes());
    let authority = authority.or_else(|| head.headers.get(HOST).map(|host| host.as_bytes()));
    if head.method == Method::CONNECT && head.protocol.is_none() {
        encoder.pseudo(Pseudo::Authority, authority.unwrap_or_default(), out);
    } else {
        encoder.pseudo(Pseudo::Scheme, head.uri.scheme_str().unwrap_or("https").as_bytes(), out);
        if let Some(authority) = authority {
            encoder.pseudo(Pseudo::Authority, authority, out);
        }
        encoder.pseudo(Pseudo::Path, path_of(head).as_bytes(), out);
        if let Some(protocol) = &head.protocol {
            encoder.pseudo(Pseudo::Protocol, protocol.as_bytes(), out);
        }
    }
    for (name, value) in &head.headers {
        // `:authority` contains the host.
        if is_sent(name, value) && name != HOST {
            encoder.regular(name, value, out);
        }
    }
}

/// Returns the value of `:path`. A URI may have a query without a path, and `*` is valid only for
/// OPTIONS. In all other cases the value starts with a slash: a request without one is malformed
/// (RFC 9113 section 8.3.1), and a server might close the connection, which other requests share.
fn path_of(head: &RequestHead) -> Cow<'_, str> {
    let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if head.method == Method::OPTIONS && matches!(path, "*" | "/*") {
        return Cow::Borrowed("*");
    }
    if path.starts_with('/') { Cow::Borrowed(path) } else { Cow::Owned(format!("/{path}")) }
}

/// Appends the field block of a response's head, or of trailers.
pub(crate) fn encode_section(
    encoder: &mut Encoder,
    section: OutgoingSection<'_>,
    out: &mut BytesMut,
) {
    encoder.begin(out);
    encoder.section(section, is_sent, out);
}

/// Appends the field block of a trailer section.
pub(crate) fn encode_trailers(encoder: &mut Encoder, trailers: &HeaderMap, out: &mut BytesMut) {
    let headers = Headers::Own(trailers);
    encode_section(encoder, OutgoingSection { status: None, headers, date: None }, out);
}

/// Returns whether HTTP/2 permits the field: not if it is connection-specific (RFC 9113 section
/// 8.2.2). HTTP/1.1 code may have added it.
fn is_sent(name: &HeaderName, value: &HeaderValue) -> bool {
    match *name {
        CONNECTION | TRANSFER_ENCODING | UPGRADE => false,
        TE => value == "trailers",
        _ => *name != KEEP_ALIVE && *name != PROXY_CONNECTION,
    }
}
