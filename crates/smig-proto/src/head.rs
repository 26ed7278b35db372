//! Request and response heads in the `http` crate's types, as the application sees them.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};

/// The `:protocol` of an extended CONNECT (RFC 8441 section 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol(Bytes);

impl Protocol {
    /// Creates a protocol name, such as `websocket`; `None` if it is not a token.
    #[must_use]
    pub fn new(name: impl Into<Bytes>) -> Option<Self> {
        let name = name.into();
        // Method tokens and protocol names have the same grammar.
        (Method::from_bytes(&name).is_ok()).then_some(Self(name))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The pseudo-header fields and regular fields of a request.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// `:method`.
    pub method: Method,
    /// `:scheme`, `:authority` and `:path`; for CONNECT the authority alone.
    pub uri: Uri,
    /// `:protocol`, for extended CONNECT.
    pub protocol: Option<Protocol>,
    /// Regular fields.
    pub headers: HeaderMap,
}

/// The status and regular fields of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// `:status`.
    pub status: StatusCode,
    /// Regular fields.
    pub headers: HeaderMap,
}

/// The head of a response whose regular fields other responses have, too. They are not copied, and their block is found by
/// the address of the map.
#[derive(Clone, Debug)]
pub struct SharedHead {
    /// `:status`.
    pub status: StatusCode,
    /// Regular fields.
    pub headers: Arc<HeaderMap>,
    /// The length of the body in bytes, if it is known; the same as content-length among the fields, if that is there.
    pub content_length: Option<u64>,
}
