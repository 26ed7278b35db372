//! Priorities (RFC 9218 section 4): urgency and incremental.

use core::fmt;

/// How a response is to be scheduled beside others.
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
    /// What a request without any priority signal gets: its turn. RFC 9218's default, one response
    /// after the other, is for clients that know of priorities; to others a long response would
    /// look like a server that hangs.
    pub const UNSIGNALLED: Self = Self { urgency: 3, incremental: true };

    /// The priority of a request with these fields.
    pub(crate) fn of(headers: &http::HeaderMap) -> Self {
        headers.get("priority").map_or(Self::UNSIGNALLED, |value| Self::parse(value.as_bytes()))
    }

    /// A priority for responses of which any part is useful by itself (`i`): equal ones share.
    #[must_use]
    pub const fn incremental(urgency: u8) -> Self {
        Self { urgency: if urgency > 7 { 7 } else { urgency }, incremental: true }
    }

    /// A priority for responses that are useful when whole: equal ones are sent one by one.
    #[must_use]
    pub const fn sequential(urgency: u8) -> Self {
        Self { urgency: if urgency > 7 { 7 } else { urgency }, incremental: false }
    }

    /// 0 (first) to 7 (last).
    #[must_use]
    pub const fn urgency(self) -> u8 {
        self.urgency
    }

    /// Whether equal ones share the connection.
    #[must_use]
    pub const fn is_incremental(self) -> bool {
        self.incremental
    }

    /// Reads a priority field value: a structured-field dictionary of which `u` and `i` count.
    ///
    /// What cannot be understood keeps its default, as RFC 9218 section 4 asks for.
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
