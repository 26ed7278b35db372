//! Selects the fields to be added to the dynamic table, and maps names to the static table.
//!
//! The table holds about 60 fields. A value that will not recur (the length of a file) is not
//! added, because it would evict one that will. A value that may recur (a path: always the same few
//! for gRPC, mostly different for files) is added when it occurs the second time.

use http::{HeaderName, HeaderValue, header};

use super::super::Pseudo;

/// Result of a lookup of a field in the static table.
pub(super) enum StaticMatch {
    /// The complete field is in the static table, at this index.
    Field(u8),
    /// The name's index in the static table, or 0, and the policy for the field.
    Name(u8, Indexing),
}

/// Policy for a field that is not in the static table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indexing {
    /// Add an entry.
    Index,
    /// Add an entry if the field was seen before.
    OnSecondUse,
    /// Do not add an entry: the value will not recur.
    Literal,
    /// The value is a secret: no hop may add an entry (RFC 7541 section 7.1.3).
    Never,
}

/// Credentials shorter than this, in bytes, could be guessed through the table (RFC 7541 section
/// 7.1).
const MIN_UNGUESSABLE_BYTES: usize = 20;

pub(super) fn pseudo(name: Pseudo, value: &[u8]) -> StaticMatch {
    match (name, value) {
        (Pseudo::Authority, b"") => StaticMatch::Field(1),
        (Pseudo::Authority, _) => StaticMatch::Name(1, Indexing::Index),
        (Pseudo::Method, b"GET") => StaticMatch::Field(2),
        (Pseudo::Method, b"POST") => StaticMatch::Field(3),
        (Pseudo::Method, _) => StaticMatch::Name(2, Indexing::Index),
        (Pseudo::Path, b"/") => StaticMatch::Field(4),
        (Pseudo::Path, b"/index.html") => StaticMatch::Field(5),
        (Pseudo::Path, _) => StaticMatch::Name(4, Indexing::OnSecondUse),
        (Pseudo::Scheme, b"http") => StaticMatch::Field(6),
        (Pseudo::Scheme, b"https") => StaticMatch::Field(7),
        (Pseudo::Scheme, _) => StaticMatch::Name(6, Indexing::Index),
        (Pseudo::Status, b"200") => StaticMatch::Field(8),
        (Pseudo::Status, b"204") => StaticMatch::Field(9),
        (Pseudo::Status, b"206") => StaticMatch::Field(10),
        (Pseudo::Status, b"304") => StaticMatch::Field(11),
        (Pseudo::Status, b"400") => StaticMatch::Field(12),
        (Pseudo::Status, b"404") => StaticMatch::Field(13),
        (Pseudo::Status, b"500") => StaticMatch::Field(14),
        (Pseudo::Status, _) => StaticMatch::Name(8, Indexing::Index),
        (Pseudo::Protocol, _) => StaticMatch::Name(0, Indexing::Index),
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

pub(super) fn regular(name: &HeaderName, value: &HeaderValue) -> StaticMatch {
    let (index, policy) = by_name(name);
    if value.is_sensitive() {
        return StaticMatch::Name(index, Indexing::Never);
    }
    if index == 16 && value.as_bytes() == b"gzip, deflate" {
        return StaticMatch::Field(16);
    }
    match policy {
        Indexing::Never if value.len() >= MIN_UNGUESSABLE_BYTES => {
            StaticMatch::Name(index, Indexing::Index)
        }
        Indexing::Never | Indexing::Index | Indexing::OnSecondUse | Indexing::Literal => {
            StaticMatch::Name(index, policy)
        }
    }
}

/// Returns the name's index in the static table, or 0, and the policy for its fields; `Never` for
/// credentials.
fn by_name(name: &HeaderName) -> (u8, Indexing) {
    match *name {
        header::ACCEPT_CHARSET => (15, Indexing::Index),
        header::ACCEPT_ENCODING => (16, Indexing::Index),
        header::ACCEPT_LANGUAGE => (17, Indexing::Index),
        header::ACCEPT_RANGES => (18, Indexing::Index),
        header::ACCEPT => (19, Indexing::Index),
        header::ACCESS_CONTROL_ALLOW_ORIGIN => (20, Indexing::Index),
        header::AGE => (21, Indexing::Literal),
        header::ALLOW => (22, Indexing::Index),
        header::AUTHORIZATION => (23, Indexing::Never),
        header::CACHE_CONTROL => (24, Indexing::Index),
        header::CONTENT_DISPOSITION => (25, Indexing::OnSecondUse),
        header::CONTENT_ENCODING => (26, Indexing::Index),
        header::CONTENT_LANGUAGE => (27, Indexing::Index),
        header::CONTENT_LENGTH => (28, Indexing::Literal),
        header::CONTENT_LOCATION => (29, Indexing::OnSecondUse),
        header::CONTENT_RANGE => (30, Indexing::Literal),
        header::CONTENT_TYPE => (31, Indexing::Index),
        header::COOKIE => (32, Indexing::Never),
        header::DATE => (33, Indexing::Index),
        header::ETAG => (34, Indexing::OnSecondUse),
        header::EXPECT => (35, Indexing::Index),
        header::EXPIRES => (36, Indexing::Index),
        header::FROM => (37, Indexing::Index),
        header::HOST => (38, Indexing::Index),
        header::IF_MATCH => (39, Indexing::OnSecondUse),
        header::IF_MODIFIED_SINCE => (40, Indexing::OnSecondUse),
        header::IF_NONE_MATCH => (41, Indexing::OnSecondUse),
        header::IF_RANGE => (42, Indexing::OnSecondUse),
        header::IF_UNMODIFIED_SINCE => (43, Indexing::OnSecondUse),
        header::LAST_MODIFIED => (44, Indexing::OnSecondUse),
        header::LINK => (45, Indexing::OnSecondUse),
        header::LOCATION => (46, Indexing::OnSecondUse),
        header::MAX_FORWARDS => (47, Indexing::Index),
        header::PROXY_AUTHENTICATE => (48, Indexing::Index),
        header::PROXY_AUTHORIZATION => (49, Indexing::Never),
        header::RANGE => (50, Indexing::Literal),
        header::REFERER => (51, Indexing::Index),
        header::REFRESH => (52, Indexing::Index),
        header::RETRY_AFTER => (53, Indexing::Literal),
        header::SERVER => (54, Indexing::Index),
        header::SET_COOKIE => (55, Indexing::Literal),
        header::STRICT_TRANSPORT_SECURITY => (56, Indexing::Index),
        header::TRANSFER_ENCODING => (57, Indexing::Index),
        header::USER_AGENT => (58, Indexing::Index),
        header::VARY => (59, Indexing::Index),
        header::VIA => (60, Indexing::Index),
        header::WWW_AUTHENTICATE => (61, Indexing::Index),
        _ => (0, outside_static_table(name.as_str())),
    }
}

/// Returns the policy for names that the static table lacks. Some fields of tracing, gRPC and
/// clocks are known to have a different value each time.
fn outside_static_table(name: &str) -> Indexing {
    match name {
        "b3" | "traceparent" | "tracestate" | "x-b3-spanid" | "x-b3-traceid" | "x-request-id"
        | "x-request-start" | "x-trace-id" | "x-correlation-id" | "server-timing" => {
            Indexing::Literal
        }
        "grpc-timeout"
        | "grpc-message"
        | "grpc-status-details-bin"
        | "grpc-trace-bin"
        | "grpc-tags-bin" => Indexing::OnSecondUse,
        _ => Indexing::Index,
    }
}
