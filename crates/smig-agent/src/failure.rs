//! Failures of local requests, with their form in each protocol of local clients.

use http::StatusCode;

/// Why a request got no response from its destination.
#[derive(Debug)]
pub(crate) struct LocalError {
    status: StatusCode,
    reply: Reply,
    text: String,
}

/// Replies of SOCKS5 (RFC 1928 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

impl LocalError {
    pub(crate) fn new(status: StatusCode, text: String) -> Self {
        let reply = match status {
            StatusCode::FORBIDDEN => Reply::NotAllowed,
            StatusCode::GATEWAY_TIMEOUT => Reply::TimedOut,
            _ => Reply::GeneralFailure,
        };
        Self { status, reply, text }
    }

    pub(crate) const fn not_allowed(mut self) -> Self {
        self.reply = Reply::NotAllowed;
        self
    }

    /// Sets the SOCKS reply by a proxy error type (RFC 9209 section 2.3).
    pub(crate) fn because(mut self, kind: Option<&str>) -> Self {
        self.reply = match kind {
            Some("connection_refused") => Reply::ConnectionRefused,
            Some("dns_error" | "destination_not_found" | "destination_unavailable") => {
                Reply::HostUnreachable
            }
            Some("destination_ip_unroutable") => Reply::NetworkUnreachable,
            Some("dns_timeout" | "connection_timeout") => Reply::TimedOut,
            Some("destination_ip_prohibited" | "http_request_denied") => Reply::NotAllowed,
            _ => self.reply,
        };
        self
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) const fn reply(&self) -> Reply {
        self.reply
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
