//! One decoded field section, before it is classified as request, response or trailers.

use bytes::Bytes;
use http::header::{COOKIE, HeaderMap, HeaderValue};

use crate::error::Cause;
use crate::hpack::{Field, Pseudo};

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
    pub(super) method: Option<Bytes>,
    pub(super) scheme: Option<Bytes>,
    pub(super) authority: Option<Bytes>,
    pub(super) path: Option<Bytes>,
    pub(super) protocol: Option<Bytes>,
    pub(super) status: Option<Bytes>,
    pub(super) headers: HeaderMap,
    /// Number of cookie crumbs; [`Self::seal`] joins them (RFC 9113 section 8.2.3).
    cookie_crumbs: u32,
    bytes: usize,
    field_count: u32,
    pub(crate) malformed: Option<Cause>,
}

impl FieldSection {
    /// Adds the next field of the block.
    pub(crate) fn push(&mut self, field: Field, limits: SectionLimits) {
        self.bytes += field.size();
        self.field_count += 1;
        if self.bytes > limits.max_bytes as usize || self.field_count > limits.max_fields {
            self.malformed = Some(Cause::HeadersTooLarge);
            return;
        }
        match field {
            Field::Pseudo(name, value) => self.set_pseudo(name, value),
            Field::Regular(name, value) => {
                if name == COOKIE {
                    self.cookie_crumbs += 1;
                }
                if self.headers.try_append(name, value).is_err() {
                    self.malformed = Some(Cause::HeadersTooLarge);
                }
            }
            Field::Malformed(..) => self.fail(Cause::MalformedField),
        }
    }

    fn set_pseudo(&mut self, name: Pseudo, value: Bytes) {
        let slot = match name {
            Pseudo::Method => &mut self.method,
            Pseudo::Scheme => &mut self.scheme,
            Pseudo::Authority => &mut self.authority,
            Pseudo::Path => &mut self.path,
            Pseudo::Protocol => &mut self.protocol,
            Pseudo::Status => &mut self.status,
        };
        // Each at most once, and before all regular fields.
        if slot.is_some() || !self.headers.is_empty() {
            return self.fail(Cause::BadPseudo);
        }
        *slot = Some(value);
    }

    fn fail(&mut self, cause: Cause) {
        self.malformed.get_or_insert(cause);
    }

    /// Completes the section at the end of the field block: joins the cookie crumbs.
    pub(crate) fn seal(&mut self) {
        if self.cookie_crumbs > 1 {
            let crumbs: Vec<&[u8]> =
                self.headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
            if let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
                self.headers.insert(COOKIE, cookie);
            }
        }
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
