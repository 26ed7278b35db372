//! The static table (RFC 7541 Appendix A), for both directions.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};

use super::{Field, Pseudo};

/// Number of entries, which is also the last index.
pub(super) const LEN: usize = 61;

const fn pseudo(name: Pseudo, value: &'static str) -> Field {
    Field::Pseudo(name, Bytes::from_static(value.as_bytes()))
}

const fn regular(name: HeaderName) -> Field {
    regular_with_value(name, "")
}

const fn regular_with_value(name: HeaderName, value: &'static str) -> Field {
    Field::Regular(name, HeaderValue::from_static(value))
}

static ENTRIES: [Field; LEN] = [
    pseudo(Pseudo::Authority, ""),
    pseudo(Pseudo::Method, "GET"),
    pseudo(Pseudo::Method, "POST"),
    pseudo(Pseudo::Path, "/"),
    pseudo(Pseudo::Path, "/index.html"),
    pseudo(Pseudo::Scheme, "http"),
    pseudo(Pseudo::Scheme, "https"),
    pseudo(Pseudo::Status, "200"),
    pseudo(Pseudo::Status, "204"),
    pseudo(Pseudo::Status, "206"),
    pseudo(Pseudo::Status, "304"),
    pseudo(Pseudo::Status, "400"),
    pseudo(Pseudo::Status, "404"),
    pseudo(Pseudo::Status, "500"),
    regular(header::ACCEPT_CHARSET),
    regular_with_value(header::ACCEPT_ENCODING, "gzip, deflate"),
    regular(header::ACCEPT_LANGUAGE),
    regular(header::ACCEPT_RANGES),
    regular(header::ACCEPT),
    regular(header::ACCESS_CONTROL_ALLOW_ORIGIN),
    regular(header::AGE),
    regular(header::ALLOW),
    regular(header::AUTHORIZATION),
    regular(header::CACHE_CONTROL),
    regular(header::CONTENT_DISPOSITION),
    regular(header::CONTENT_ENCODING),
    regular(header::CONTENT_LANGUAGE),
    regular(header::CONTENT_LENGTH),
    regular(header::CONTENT_LOCATION),
    regular(header::CONTENT_RANGE),
    regular(header::CONTENT_TYPE),
    regular(header::COOKIE),
    regular(header::DATE),
    regular(header::ETAG),
    regular(header::EXPECT),
    regular(header::EXPIRES),
    regular(header::FROM),
    regular(header::HOST),
    regular(header::IF_MATCH),
    regular(header::IF_MODIFIED_SINCE),
    regular(header::IF_NONE_MATCH),
    regular(header::IF_RANGE),
    regular(header::IF_UNMODIFIED_SINCE),
    regular(header::LAST_MODIFIED),
    regular(header::LINK),
    regular(header::LOCATION),
    regular(header::MAX_FORWARDS),
    regular(header::PROXY_AUTHENTICATE),
    regular(header::PROXY_AUTHORIZATION),
    regular(header::RANGE),
    regular(header::REFERER),
    regular(header::REFRESH),
    regular(header::RETRY_AFTER),
    regular(header::SERVER),
    regular(header::SET_COOKIE),
    regular(header::STRICT_TRANSPORT_SECURITY),
    regular(header::TRANSFER_ENCODING),
    regular(header::USER_AGENT),
    regular(header::VARY),
    regular(header::VIA),
    regular(header::WWW_AUTHENTICATE),
];

/// Returns the entry at `index`, which starts at 1.
#[inline]
pub(super) fn entry(index: usize) -> Option<&'static Field> {
    ENTRIES.get(index.checked_sub(1)?)
}
