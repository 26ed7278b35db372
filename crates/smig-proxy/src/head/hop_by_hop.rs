//! Hop-by-hop fields, which are removed (RFC 9110 section 7.6.1), and end-to-end fields, which
//! `connection` must not name.

use http::header::{
    self, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
    MAX_FORWARDS, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const PROXY_AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("proxy-authentication-info");

/// Returns the options in `connection`.
pub(super) fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|option| !option.is_empty())
}

/// The fields that need attention and are present, found in one pass, since most header sections have at most one of
/// them: framing, hop-by-hop, and a few more.
#[derive(Clone, Copy)]
pub(super) struct PresentFields(u16);

impl PresentFields {
    pub(super) const CONNECTION: u16 = 1;
    pub(super) const KEEP_ALIVE: u16 = 2;
    pub(super) const PROXY_CONNECTION: u16 = 4;
    pub(super) const TRANSFER_ENCODING: u16 = 8;
    pub(super) const UPGRADE: u16 = 16;
    pub(super) const TE: u16 = 32;
    pub(super) const CONTENT_LENGTH: u16 = 64;
    pub(super) const EXPECT: u16 = 128;
    /// One of those that [`strip_proxy_fields`] removes.
    pub(super) const PROXY_FIELD: u16 = 256;
    pub(super) const HOST: u16 = 512;

    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |found, name| found | Self::bit(name)))
    }

    fn bit(name: &HeaderName) -> u16 {
        match *name {
            CONNECTION => Self::CONNECTION,
            TRANSFER_ENCODING => Self::TRANSFER_ENCODING,
            UPGRADE => Self::UPGRADE,
            TE => Self::TE,
            CONTENT_LENGTH => Self::CONTENT_LENGTH,
            EXPECT => Self::EXPECT,
            HOST => Self::HOST,
            PROXY_AUTHENTICATE | PROXY_AUTHORIZATION => Self::PROXY_FIELD,
            _ if *name == KEEP_ALIVE => Self::KEEP_ALIVE,
            _ if *name == PROXY_CONNECTION => Self::PROXY_CONNECTION,
            _ if *name == PROXY_AUTHENTICATION_INFO => Self::PROXY_FIELD,
            _ => 0,
        }
    }

    pub(super) const fn has(self, field: u16) -> bool {
        self.0 & field != 0
    }
}

/// Removes hop-by-hop fields. `TE: trailers` stays: it applies to the next hop as well.
pub(super) fn strip_hop_by_hop(
    headers: &mut HeaderMap,
    present_fields: PresentFields,
) -> Result<(), &'static str> {
    if present_fields.has(PresentFields::CONNECTION) {
        strip_fields_named_by_connection(headers)?;
    }
    for (field, name) in [
        (PresentFields::CONNECTION, CONNECTION),
        (PresentFields::KEEP_ALIVE, KEEP_ALIVE),
        (PresentFields::PROXY_CONNECTION, PROXY_CONNECTION),
        (PresentFields::TRANSFER_ENCODING, TRANSFER_ENCODING),
        (PresentFields::UPGRADE, UPGRADE),
    ] {
        if present_fields.has(field) {
            headers.remove(name);
        }
    }
    if present_fields.has(PresentFields::TE) {
        let accepts_trailers = headers.get_all(TE).iter().any(|value| {
            let codings = value.as_bytes().split(|byte| *byte == b',');
            codings.into_iter().any(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"trailers"))
        });
        headers.remove(TE);
        if accepts_trailers {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
    }
    Ok(())
}

/// Removes the fields between a client and its proxy (RFC 9110 section 11.7), for all versions. A
/// server behind the gateway is neither: the credentials are not for it, and clients would take its
/// challenge for the gateway's.
pub(super) fn strip_proxy_fields(headers: &mut HeaderMap) {
    for name in [PROXY_AUTHORIZATION, PROXY_AUTHENTICATE, PROXY_AUTHENTICATION_INFO] {
        headers.remove(name);
    }
}

/// Removes the fields that `connection` names.
fn strip_fields_named_by_connection(headers: &mut HeaderMap) -> Result<(), &'static str> {
    let mut connections = headers.get_all(CONNECTION).iter();
    if let (Some(only), None) = (connections.next(), connections.next()) {
        let only = only.as_bytes();
        if only.eq_ignore_ascii_case(b"keep-alive") || only.eq_ignore_ascii_case(b"close") {
            return Ok(());
        }
    }
    let mut named_fields = Vec::new();
    for option in connection_options(headers) {
        let name =
            HeaderName::try_from(option).map_err(|_| "a connection option is not a field name")?;
        // A client could remove these from a request whose recipient relies on them.
        if is_protected_from_connection(&name) {
            return Err("connection names an end-to-end field");
        }
        named_fields.push(name);
    }
    if headers.get_all(CONNECTION).iter().any(|value| value.to_str().is_err()) {
        return Err("connection is not a list of field names");
    }
    for name in named_fields.iter().filter(|name| **name != TE) {
        headers.remove(name);
    }
    Ok(())
}

pub(super) fn is_hop_by_hop_except_te(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == UPGRADE
        || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Returns whether a server that maps fields to variables (CGI, WSGI), and does not distinguish `_` and `-`, takes
/// this for a framing field or one that identifies the sender.
pub(super) fn imitates_reserved_field(name: &HeaderName) -> bool {
    let name = name.as_str();
    // Without a branch for each byte, which is faster for names, most of which are short and have none.
    if !name.bytes().fold(false, |found, byte| found | (byte == b'_')) {
        return false;
    }
    let dashed = name.replace('_', "-");
    let dashed = dashed.as_str();
    dashed.starts_with("x-forwarded")
        || ["content-length", "transfer-encoding", "x-real-ip"].contains(&dashed)
}

/// Returns whether no connection option may name this field.
fn is_protected_from_connection(name: &HeaderName) -> bool {
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
    NAMES.contains(name) || is_reserved_field(name)
}

/// Returns whether a field identifies the sender of a request or its original target, or imitates such a field or a
/// framing field.
pub(super) fn is_reserved_field(name: &HeaderName) -> bool {
    *name == header::FORWARDED
        || name.as_str().starts_with("x-forwarded")
        || name == "x-real-ip"
        || imitates_reserved_field(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_imitate_reserved_fields_are_detected() {
        for (name, imitates) in [
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
            assert_eq!(imitates_reserved_field(&HeaderName::from_static(name)), imitates, "{name}");
        }
    }
}
