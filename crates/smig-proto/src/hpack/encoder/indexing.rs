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
    Always,
    /// Add an entry if the field was seen before.
    OnSecondUse,
    /// Do not add an entry: the value will not recur.
    NotIndexed,
    /// No hop may add an entry (RFC 7541 section 7.1.3): the value is marked as sensitive, or is a
    /// secret that could be guessed through the table.
    NeverIndexed,
}

/// Credentials shorter than this, in bytes, could be guessed through the table (RFC 7541 section
/// 7.1).
const MIN_UNGUESSABLE_BYTES: usize = 20;

pub(super) fn pseudo(name: Pseudo, value: &[u8]) -> StaticMatch {
    match (name, value) {
        (Pseudo::Authority, b"") => StaticMatch::Field(1),
        (Pseudo::Authority, _) => StaticMatch::Name(1, Indexing::Always),
        (Pseudo::Method, b"GET") => StaticMatch::Field(2),
        (Pseudo::Method, b"POST") => StaticMatch::Field(3),
        (Pseudo::Method, _) => StaticMatch::Name(2, Indexing::Always),
        (Pseudo::Path, b"/") => StaticMatch::Field(4),
        (Pseudo::Path, b"/index.html") => StaticMatch::Field(5),
        (Pseudo::Path, _) => StaticMatch::Name(4, Indexing::OnSecondUse),
        (Pseudo::Scheme, b"http") => StaticMatch::Field(6),
        (Pseudo::Scheme, b"https") => StaticMatch::Field(7),
        (Pseudo::Scheme, _) => StaticMatch::Name(6, Indexing::Always),
        (Pseudo::Status, b"200") => StaticMatch::Field(8),
        (Pseudo::Status, b"204") => StaticMatch::Field(9),
        (Pseudo::Status, b"206") => StaticMatch::Field(10),
        (Pseudo::Status, b"304") => StaticMatch::Field(11),
        (Pseudo::Status, b"400") => StaticMatch::Field(12),
        (Pseudo::Status, b"404") => StaticMatch::Field(13),
        (Pseudo::Status, b"500") => StaticMatch::Field(14),
        (Pseudo::Status, _) => StaticMatch::Name(8, Indexing::Always),
        (Pseudo::Protocol, _) => StaticMatch::Name(0, Indexing::Always),
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
    let (index, policy) = index_and_policy(name);
    if value.is_sensitive() {
        return StaticMatch::Name(index, Indexing::NeverIndexed);
    }
    if index == 16 && value.as_bytes() == b"gzip, deflate" {
        return StaticMatch::Field(16);
    }
    match policy {
        Indexing::NeverIndexed if value.len() >= MIN_UNGUESSABLE_BYTES => {
            StaticMatch::Name(index, Indexing::Always)
        }
        Indexing::NeverIndexed
        | Indexing::Always
        | Indexing::OnSecondUse
        | Indexing::NotIndexed => StaticMatch::Name(index, policy),
    }
}

/// Returns the name's index in the static table, or 0, and the policy for its fields;
/// `NeverIndexed` for credentials, of which [`regular`] exempts those that cannot be guessed.
fn index_and_policy(name: &HeaderName) -> (u8, Indexing) {
    match *name {
        header::ACCEPT_CHARSET => (15, Indexing::Always),
        header::ACCEPT_ENCODING => (16, Indexing::Always),
        header::ACCEPT_LANGUAGE => (17, Indexing::Always),
        header::ACCEPT_RANGES => (18, Indexing::Always),
        header::ACCEPT => (19, Indexing::Always),
        header::ACCESS_CONTROL_ALLOW_ORIGIN => (20, Indexing::Always),
        header::AGE => (21, Indexing::NotIndexed),
        header::ALLOW => (22, Indexing::Always),
        header::AUTHORIZATION => (23, Indexing::NeverIndexed),
        header::CACHE_CONTROL => (24, Indexing::Always),
        header::CONTENT_DISPOSITION => (25, Indexing::OnSecondUse),
        header::CONTENT_ENCODING => (26, Indexing::Always),
        header::CONTENT_LANGUAGE => (27, Indexing::Always),
        header::CONTENT_LENGTH => (28, Indexing::NotIndexed),
        header::CONTENT_LOCATION => (29, Indexing::OnSecondUse),
        header::CONTENT_RANGE => (30, Indexing::NotIndexed),
        header::CONTENT_TYPE => (31, Indexing::Always),
        header::COOKIE => (32, Indexing::NeverIndexed),
        header::DATE => (33, Indexing::Always),
        header::ETAG => (34, Indexing::OnSecondUse),
        header::EXPECT => (35, Indexing::Always),
        header::EXPIRES => (36, Indexing::Always),
        header::FROM => (37, Indexing::Always),
        header::HOST => (38, Indexing::Always),
        header::IF_MATCH => (39, Indexing::OnSecondUse),
        header::IF_MODIFIED_SINCE => (40, Indexing::OnSecondUse),
        header::IF_NONE_MATCH => (41, Indexing::OnSecondUse),
        header::IF_RANGE => (42, Indexing::OnSecondUse),
        header::IF_UNMODIFIED_SINCE => (43, Indexing::OnSecondUse),
        header::LAST_MODIFIED => (44, Indexing::OnSecondUse),
        header::LINK => (45, Indexing::OnSecondUse),
        header::LOCATION => (46, Indexing::OnSecondUse),
        header::MAX_FORWARDS => (47, Indexing::Always),
        header::PROXY_AUTHENTICATE => (48, Indexing::Always),
        header::PROXY_AUTHORIZATION => (49, Indexing::NeverIndexed),
        header::RANGE => (50, Indexing::NotIndexed),
        header::REFERER => (51, Indexing::Always),
        header::REFRESH => (52, Indexing::Always),
        header::RETRY_AFTER => (53, Indexing::NotIndexed),
        header::SERVER => (54, Indexing::Always),
        header::SET_COOKIE => (55, Indexing::NotIndexed),
        header::STRICT_TRANSPORT_SECURITY => (56, Indexing::Always),
        header::TRANSFER_ENCODING => (57, Indexing::Always),
        header::USER_AGENT => (58, Indexing::Always),
        header::VARY => (59, Indexing::Always),
        header::VIA => (60, Indexing::Always),
        header::WWW_AUTHENTICATE => (61, Indexing::Always),
        _ => (0, policy_outside_static_table(name.as_str())),
    }
}

/// Returns the policy for names that the static table lacks. Some fields of tracing, gRPC and
/// clocks are known to have a different value each time.
fn policy_outside_static_table(name: &str) -> Indexing {
    match name {
        "b3" | "traceparent" | "tracestate" | "x-b3-spanid" | "x-b3-traceid" | "x-request-id"
        | "x-request-start" | "x-trace-id" | "x-correlation-id" | "server-timing" => {
            Indexing::NotIndexed
        }
        "grpc-timeout"
        | "grpc-message"
        | "grpc-status-details-bin"
        | "grpc-trace-bin"
        | "grpc-tags-bin" => Indexing::OnSecondUse,
        _ => Indexing::Always,
    }
}
