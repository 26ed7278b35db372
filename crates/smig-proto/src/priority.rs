//! Priorities (RFC 9218 section 4): urgency and incremental.

use core::fmt;

/// The priority of a response relative to other responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    urgency: u8,
    incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// Priority of a request without any priority signal: incremental. RFC 9218's default, one
    /// response after the other, suits clients that know priorities; to other clients, a server
    /// that sends a long response first would appear to hang.
    pub const UNSIGNALLED: Self = Self { urgency: 3, incremental: true };

    /// Returns the priority of a request with these fields.
    pub(crate) fn from_headers(headers: &http::HeaderMap) -> Self {
        headers.get("priority").map_or(Self::UNSIGNALLED, |value| Self::parse(value.as_bytes()))
    }

    /// Creates an incremental priority (`i`), for responses that are useful in part: responses of
    /// equal urgency share the bandwidth.
    #[must_use]
    pub const fn incremental(urgency: u8) -> Self {
        Self { urgency: if urgency > 7 { 7 } else { urgency }, incremental: true }
    }

    /// Creates a non-incremental priority, for responses that are useful only when complete:
    /// responses of equal urgency are sent one by one.
    #[must_use]
    pub const fn sequential(urgency: u8) -> Self {
        Self { urgency: if urgency > 7 { 7 } else { urgency }, incremental: false }
    }

    /// Returns the urgency, 0 (highest) to 7 (lowest).
    #[must_use]
    pub const fn urgency(self) -> u8 {
        self.urgency
    }

    /// Returns whether responses of equal urgency share the connection.
    pub(crate) const fn is_incremental(self) -> bool {
        self.incremental
    }

    /// Parses a priority field value: a structured-field dictionary; only `u` and `i` are
    /// evaluated.
    ///
    /// Members that cannot be parsed keep their defaults (RFC 9218 section 4).
    #[must_use]
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in value.split(|&b| b == b',') {
            let member = member.trim_ascii();
            let member = member.split(|&b| b == b';').next().unwrap_or(member);
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u={}{}", self.urgency, if self.incremental { ", i" } else { "" })
    }
}
