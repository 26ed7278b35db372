//! Decoded fields, and their validation according to RFC 9113 section 8.2.1.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

use super::ENTRY_OVERHEAD_BYTES;

/// A pseudo-header field (RFC 9113 sections 8.3.1 and 8.3.2, RFC 8441 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pseudo {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:status`
    Status,
    /// `:protocol` (RFC 8441)
    Protocol,
}

impl Pseudo {
    /// Returns the name as it is on the wire, with its colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Method => ":method",
            Self::Scheme => ":scheme",
            Self::Authority => ":authority",
            Self::Path => ":path",
            Self::Status => ":status",
            Self::Protocol => ":protocol",
        }
    }

    fn from_wire(name: &[u8]) -> Option<Self> {
        Some(match name {
            b":method" => Self::Method,
            b":scheme" => Self::Scheme,
            b":authority" => Self::Authority,
            b":path" => Self::Path,
            b":status" => Self::Status,
            b":protocol" => Self::Protocol,
            _ => return None,
        })
    }
}

/// One field of a header block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A pseudo-header field. The bytes of the value have been validated, but not its meaning.
    Pseudo(Pseudo, Bytes),
    /// A regular field. Its value is marked sensitive if the peer sent it as never indexed (RFC
    /// 7541 section 6.2.3).
    Regular(HeaderName, HeaderValue),
    /// A field that could be decoded, but that HTTP/2 does not allow (RFC 9113 section 8.2.1): the
    /// message is malformed. Contains the reason and the field's size.
    Malformed(&'static str, u32),
}

impl Field {
    /// Returns the field's size, which counts towards SETTINGS_MAX_HEADER_LIST_SIZE and the table
    /// size: the bytes of its name and value, plus 32 (RFC 7541 section 4.1).
    #[inline]
    pub fn size(&self) -> usize {
        match self {
            Self::Pseudo(name, value) => ENTRY_OVERHEAD_BYTES + name.as_str().len() + value.len(),
            Self::Regular(name, value) => ENTRY_OVERHEAD_BYTES + name.as_str().len() + value.len(),
            Self::Malformed(_, size) => *size as usize,
        }
    }
}

/// A field name. It is validated independently of the value, because a literal may refer to the
/// name of an entry whose value is malformed, and the reverse.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Pseudo(Pseudo),
    Regular(HeaderName),
    /// The reason, and the name's length.
    Malformed(&'static str, usize),
}

impl Name {
    /// Validates a name from the wire.
    pub(super) fn from_wire(name: &[u8]) -> Self {
        if name.first() == Some(&b':') {
            return match Pseudo::from_wire(name) {
                Some(pseudo) => Self::Pseudo(pseudo),
                None => Self::Malformed("unknown pseudo-header field", name.len()),
            };
        }
        // `"` is not a token character (RFC 9110 section 5.6.2), but `http` accepts it.
        match HeaderName::from_lowercase(name) {
            Ok(regular) if !name.contains(&b'"') => Self::Regular(regular),
            _ if name.is_empty() => Self::Malformed("empty field name", 0),
            _ if name.iter().any(u8::is_ascii_uppercase) => {
                Self::Malformed("field name with an uppercase letter", name.len())
            }
            _ => Self::Malformed("field name with a forbidden character", name.len()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Pseudo(name) => name.as_str().len(),
            Self::Regular(name) => name.as_str().len(),
            Self::Malformed(_, len) => *len,
        }
    }

    /// Returns the name of `field`; `None` if it is malformed.
    pub(super) fn from_field(field: &Field) -> Option<Self> {
        match field {
            Field::Pseudo(name, _) => Some(Self::Pseudo(*name)),
            Field::Regular(name, _) => Some(Self::Regular(name.clone())),
            Field::Malformed(..) => None,
        }
    }

    /// Validates a value from the wire, and builds the field. Also returns the name if the field is
    /// malformed. The field owns a copy of `value`, so it does not keep a larger buffer alive.
    #[inline]
    pub(super) fn with_value(self, value: &[u8]) -> (Field, Option<Self>) {
        match self {
            Self::Malformed(reason, _) => self.into_malformed(reason, value),
            _ if has_outer_whitespace(value) => {
                self.into_malformed("field value starts or ends with whitespace", value)
            }
            Self::Pseudo(name) => {
                if value.iter().all(|&byte| is_allowed(byte)) {
                    (Field::Pseudo(name, Bytes::copy_from_slice(value)), None)
                } else {
                    self.into_malformed(CONTROL_CHARACTER, value)
                }
            }
            Self::Regular(name) => match HeaderValue::from_bytes(value) {
                Ok(value) => (Field::Regular(name, value), None),
                Err(_) => Self::Regular(name).into_malformed(CONTROL_CHARACTER, value),
            },
        }
    }

    #[cold]
    fn into_malformed(self, reason: &'static str, value: &[u8]) -> (Field, Option<Self>) {
        let size = ENTRY_OVERHEAD_BYTES.saturating_add(self.len()).saturating_add(value.len());
        (Field::Malformed(reason, u32::try_from(size).unwrap_or(u32::MAX)), Some(self))
    }
}

const CONTROL_CHARACTER: &str = "field value with a control character";

fn has_outer_whitespace(value: &[u8]) -> bool {
    matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// Returns whether a pseudo-header field's value may contain this byte; the same as for
/// [`HeaderValue`].
fn is_allowed(byte: u8) -> bool {
    (byte >= b' ' && byte != 0x7f) || byte == b'\t'
}
