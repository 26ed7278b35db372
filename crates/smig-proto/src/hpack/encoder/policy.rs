//! Selects the fields to be added to the dynamic table, and maps names to the static table.
//!
//! The table holds about 60 fields. A value that will not recur (the length of a file) is not
//! added, because it would evict one that will. A value that may recur (a path: always the same few
//! for gRPC, mostly different for files) is added when it occurs the second time.

use http::{HeaderName, HeaderValue, header};

use super::super::Pseudo;

/// Encoding of a field, as far as the dynamic table is not needed.
pub(super) enum Known {
    /// The complete field is in the static table, at this index.
    Field(u8),
    /// The name's index in the static table, or 0, and the policy for the field.
    Name(u8, Policy),
}

/// Policy for a field that is not in the static table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Add an entry.
    Index,
    /// Add an entry if the field was seen before.
    IndexSecond,
    /// Do not add an entry: the value will not recur.
    Literal,
    /// The value is a secret: no hop may add an entry (RFC 7541 section 7.1.3).
    Never,
}

/// Credentials shorter than this, in bytes, could be guessed through the table (RFC 7541 section
/// 7.1).
const GUESSABLE: usize = 20;

pub(super) fn pseudo(name: Pseudo, value: &[u8]) -> Known {
    match (name, value) {
        (Pseudo::Authority, b"") => Known::Field(1),
        (Pseudo::Authority, _) => Known::Name(1, Policy::Index),
        (Pseudo::Method, b"GET") => Known::Field(2),
        (Pseudo::Method, b"POST") => Known::Field(3),
        (Pseudo::Method, _) => Known::Name(2, Policy::Index),
        (Pseudo::Path, b"/") => Known::Field(4),
        (Pseudo::Path, b"/index.html") => Known::Field(5),
        (Pseudo::Path, _) => Known::Name(4, Policy::IndexSecond),
        (Pseudo::Scheme, b"http") => Known::Field(6),
        (Pseudo::Scheme, b"https") => Known::Field(7),
        (Pseudo::Scheme, _) => Known::Name(6, Policy::Index),
        (Pseudo::Status, b"200") => Known::Field(8),
        (Pseudo::Status, b"204") => Known::Field(9),
        (Pseudo::Status, b"206") => Known::Field(10),
        (Pseudo::Status, b"304") => Known::Field(11),
        (Pseudo::Status, b"400") => Known::Field(12),
        (Pseudo::Status, b"404") => Known::Field(13),
        (Pseudo::Status, b"500") => Known::Field(14),
        (Pseudo::Status, _) => Known::Name(8, Policy::Index),
        (Pseudo::Protocol, _) => Known::Name(0, Policy::Index),
    }
}

/// Returns the static index of the `:status` field with this value, if it exists.
pub(super) fn status(status: u16) -> Option<u8> {
    Some(match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => return None,
    })
}

pub(super) fn regular(name: &HeaderName, value: &HeaderValue) -> Known {
    let (index, policy) = by_name(name);
    if value.is_sensitive() {
        return Known::Name(index, Policy::Never);
    }
    if index == 16 && value.as_bytes() == b"gzip, deflate" {
        return Known::Field(16);
    }
    match policy {
        Policy::Never if value.len() >= GUESSABLE => Known::Name(index, Policy::Index),
        Policy::Never | Policy::Index | Policy::IndexSecond | Policy::Literal => {
            Known::Name(index, policy)
        }
    }
}

/// Returns the name's index in the static table, or 0, and the policy for its fields; `Never` for
/// credentials.
fn by_name(name: &HeaderName) -> (u8, Policy) {
    match *name {
        header::ACCEPT_CHARSET => (15, Policy::Index),
        header::ACCEPT_ENCODING => (16, Policy::Index),
        header::ACCEPT_LANGUAGE => (17, Policy::Index),
        header::ACCEPT_RANGES => (18, Policy::Index),
        header::ACCEPT => (19, Policy::Index),
        header::ACCESS_CONTROL_ALLOW_ORIGIN => (20, Policy::Index),
        header::AGE => (21, Policy::Literal),
        header::ALLOW => (22, Policy::Index),
        header::AUTHORIZATION => (23, Policy::Never),
        header::CACHE_CONTROL => (24, Policy::Index),
        header::CONTENT_DISPOSITION => (25, Policy::IndexSecond),
        header::CONTENT_ENCODING => (26, Policy::Index),
        header::CONTENT_LANGUAGE => (27, Policy::Index),
        header::CONTENT_LENGTH => (28, Policy::Literal),
        header::CONTENT_LOCATION => (29, Policy::IndexSecond),
        header::CONTENT_RANGE => (30, Policy::Literal),
        header::CONTENT_TYPE => (31, Policy::Index),
        header::COOKIE => (32, Policy::Never),
        header::DATE => (33, Policy::Index),
        header::ETAG => (34, Policy::IndexSecond),
        header::EXPECT => (35, Policy::Index),
        header::EXPIRES => (36, Policy::Index),
        header::FROM => (37, Policy::Index),
        header::HOST => (38, Policy::Index),
        header::IF_MATCH => (39, Policy::IndexSecond),
        header::IF_MODIFIED_SINCE => (40, Policy::IndexSecond),
        header::IF_NONE_MATCH => (41, Policy::IndexSecond),
        header::IF_RANGE => (42, Policy::IndexSecond),
        header::IF_UNMODIFIED_SINCE => (43, Policy::IndexSecond),
        header::LAST_MODIFIED => (44, Policy::IndexSecond),
        header::LINK => (45, Policy::IndexSecond),
        header::LOCATION => (46, Policy::IndexSecond),
        header::MAX_FORWARDS => (47, Policy::Index),
        header::PROXY_AUTHENTICATE => (48, Policy::Index),
        header::PROXY_AUTHORIZATION => (49, Policy::Never),
        header::RANGE => (50, Policy::Literal),
        header::REFERER => (51, Policy::Index),
        header::REFRESH => (52, Policy::Index),
        header::RETRY_AFTER => (53, Policy::Literal),
        header::SERVER => (54, Policy::Index),
        header::SET_COOKIE => (55, Policy::Literal),
        header::STRICT_TRANSPORT_SECURITY => (56, Policy::Index),
        header::TRANSFER_ENCODING => (57, Policy::Index),
        header::USER_AGENT => (58, Policy::Index),
        header::VARY => (59, Policy::Index),
        header::VIA => (60, Policy::Index),
        header::WWW_AUTHENTICATE => (61, Policy::Index),
        _ => (0, outside_static_table(name.as_str())),
    }
}

/// Returns the policy for names that the static table lacks. Some fields of tracing, gRPC and
/// clocks are known to have a different value each time.
fn outside_static_table(name: &str) -> Policy {
    match name {
        "b3" | "traceparent" | "tracestate" | "x-b3-spanid" | "x-b3-traceid" | "x-request-id"
        | "x-request-start" | "x-trace-id" | "x-correlation-id" | "server-timing" => {
            Policy::Literal
        }
        "grpc-timeout"
        | "grpc-message"
        | "grpc-status-details-bin"
        | "grpc-trace-bin"
        | "grpc-tags-bin" => Policy::IndexSecond,
        _ => Policy::Index,
    }
}
