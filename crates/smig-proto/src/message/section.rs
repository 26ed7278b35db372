//! One decoded field section, before it is classified as request, response or trailers.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use http::uri::Scheme;
use http::{Method, StatusCode};

use crate::error::Cause;
use crate::hpack::{Field, Pseudo};

pub(super) static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
pub(super) static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
static PRIORITY: HeaderName = HeaderName::from_static("priority");

/// Limits for one field section (CVE-2016-1544, CVE-2022-41723).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionLimits {
    pub(crate) max_bytes: u32,
    pub(crate) max_fields: u32,
}

/// The fields of one field section. `malformed` is the first error; an exceeded limit replaces it.
/// Decoding continues after an error, to keep the HPACK dynamic table in sync.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldSection {
    pub(super) method: Option<Method>,
    pub(super) scheme: Option<Scheme>,
    pub(super) authority: Option<Bytes>,
    pub(super) path: Option<Bytes>,
    pub(super) protocol: Option<Bytes>,
    pub(super) status: Option<StatusCode>,
    pub(super) headers: HeaderMap,
    /// Which fields `headers` has, of those that the engine reads.
    pub(crate) presence: FieldPresence,
    /// Number of cookie crumbs; [`Self::seal`] joins them (RFC 9113 section 8.2.3).
    cookie_crumbs: u32,
    bytes: usize,
    field_count: u32,
    pub(crate) malformed: Option<Cause>,
}

/// The fields that the engine reads, if present: most messages have none of them, and a lookup in
/// the map for each would cost more than decoding the block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldPresence {
    pub(crate) host: bool,
    pub(crate) content_length: bool,
    pub(crate) priority: bool,
}

impl FieldSection {
    /// Adds the next field of the block.
    pub(crate) fn push(&mut self, field: Cow<'_, Field>, limits: SectionLimits) {
        self.bytes += field.size();
        self.field_count += 1;
        if self.bytes > limits.max_bytes as usize {
            self.malformed = Some(Cause::HeadersTooLarge);
            return;
        }
        if self.field_count > limits.max_fields {
            self.malformed = Some(Cause::TooManyFields);
            return;
        }
        match field {
            Cow::Owned(Field::Regular(name, value)) => self.add_regular(name, value),
            Cow::Borrowed(Field::Regular(name, value)) => {
                self.add_regular(name.clone(), value.clone());
            }
            Cow::Owned(Field::Pseudo(name, value)) => self.set_pseudo(name, Cow::Owned(value)),
            Cow::Borrowed(Field::Pseudo(name, value)) => {
                self.set_pseudo(*name, Cow::Borrowed(value));
            }
            Cow::Owned(Field::Malformed(..)) | Cow::Borrowed(Field::Malformed(..)) => {
                self.fail(Cause::MalformedField);
            }
        }
    }

    fn add_regular(&mut self, name: HeaderName, value: HeaderValue) {
        match name {
            COOKIE => self.cookie_crumbs += 1,
            HOST => self.presence.host = true,
            CONTENT_LENGTH => self.presence.content_length = true,
            // Connection-specific fields, which only HTTP/1.1 has (RFC 9113 section 8.2.2).
            CONNECTION | TRANSFER_ENCODING | UPGRADE => self.fail(Cause::ConnectionField),
            TE if value != "trailers" => self.fail(Cause::ConnectionField),
            _ if name == PRIORITY => self.presence.priority = true,
            _ if name == KEEP_ALIVE || name == PROXY_CONNECTION => {
                self.fail(Cause::ConnectionField);
            }
            _ => {}
        }
        if self.headers.try_append(name, value).is_err() {
            self.malformed = Some(Cause::TooManyFields);
        }
    }

    /// Stores a pseudo-header field: each at most once, and before all regular fields.
    fn set_pseudo(&mut self, name: Pseudo, value: Cow<'_, Bytes>) {
        let is_stored = self.headers.is_empty()
            && match name {
                Pseudo::Method => set_once(&mut self.method, Method::from_bytes(&value).ok()),
                Pseudo::Scheme => set_once(&mut self.scheme, parse_scheme(&value)),
                Pseudo::Status => set_once(&mut self.status, StatusCode::from_bytes(&value).ok()),
                Pseudo::Authority => set_once(&mut self.authority, Some(value.into_owned())),
                Pseudo::Path => set_once(&mut self.path, Some(value.into_owned())),
                Pseudo::Protocol => set_once(&mut self.protocol, Some(value.into_owned())),
            };
        if !is_stored {
            self.fail(Cause::BadPseudo);
        }
    }

    fn fail(&mut self, cause: Cause) {
        self.malformed.get_or_insert(cause);
    }

    /// Completes the section at the end of the field block: joins the cookie crumbs. If one of them
    /// must never be indexed, neither must the cookie (RFC 7541 section 6.2.3).
    pub(crate) fn seal(&mut self) {
        if self.cookie_crumbs > 1 {
            let crumbs = self.headers.get_all(COOKIE);
            let is_sensitive = crumbs.iter().any(HeaderValue::is_sensitive);
            let crumbs: Vec<&[u8]> = crumbs.iter().map(HeaderValue::as_bytes).collect();
            if let Ok(mut cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
                cookie.set_sensitive(is_sensitive);
                self.headers.insert(COOKIE, cookie);
            }
        }
    }

    /// Returns the size of the fields, as for SETTINGS_MAX_HEADER_LIST_SIZE.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) const fn field_count(&self) -> u32 {
        self.field_count
    }

    pub(crate) const fn has_status(&self) -> bool {
        self.status.is_some()
    }

    pub(super) const fn has_pseudo(&self) -> bool {
        self.method.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.path.is_some()
            || self.protocol.is_some()
            || self.status.is_some()
    }
}

/// Sets `slot` to a valid value; returns false if it was set, or the value is not valid.
fn set_once<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    let is_first = slot.is_none() && value.is_some();
    if is_first {
        *slot = value;
    }
    is_first
}

fn parse_scheme(scheme: &[u8]) -> Option<Scheme> {
    match scheme {
        b"https" => Some(Scheme::HTTPS),
        b"http" => Some(Scheme::HTTP),
        // RFC 3986 section 3.1; `http` would accept an empty scheme.
        [b'a'..=b'z' | b'A'..=b'Z', ..] => Scheme::try_from(scheme).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SectionLimits = SectionLimits { max_bytes: 65_536, max_fields: 100 };

    fn joined_cookie(crumbs: [(&'static str, bool); 2]) -> HeaderValue {
        let mut section = FieldSection::default();
        for (text, is_sensitive) in crumbs {
            let mut value = HeaderValue::from_static(text);
            value.set_sensitive(is_sensitive);
            section.push(Cow::Owned(Field::Regular(COOKIE, value)), LIMITS);
        }
        section.seal();
        section.headers.remove(COOKIE).unwrap()
    }

    #[test]
    fn a_cookie_with_a_crumb_that_is_never_indexed_is_never_indexed() {
        for (first, second) in [(true, false), (false, true), (true, true), (false, false)] {
            let cookie = joined_cookie([("session=0123456789", first), ("theme=dark", second)]);
            assert_eq!(cookie, "session=0123456789; theme=dark");
            assert_eq!(cookie.is_sensitive(), first || second, "{first}, {second}");
        }
    }
}
