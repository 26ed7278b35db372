//! Errors of local requests, as HTTP status and as SOCKS reply.

use http::StatusCode;

/// Why a request got no response from its destination.
#[derive(Debug)]
pub(crate) struct LocalError {
    status: StatusCode,
    reply: SocksReply,
    text: String,
}

/// Replies of SOCKS5 (RFC 1928 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum SocksReply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    /// "TTL expired": of the RFC's replies the nearest.
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

impl LocalError {
    pub(crate) fn new(status: StatusCode, text: String) -> Self {
        let reply = match status {
            StatusCode::FORBIDDEN => SocksReply::NotAllowed,
            StatusCode::GATEWAY_TIMEOUT => SocksReply::TimedOut,
            _ => SocksReply::GeneralFailure,
        };
        Self { status, reply, text }
    }

    pub(crate) const fn with_not_allowed(mut self) -> Self {
        self.reply = SocksReply::NotAllowed;
        self
    }

    /// Sets the SOCKS reply that matches a proxy error type (RFC 9209 section 2.3).
    pub(crate) fn with_proxy_error(mut self, kind: Option<&str>) -> Self {
        self.reply = match kind {
            Some("connection_refused") => SocksReply::ConnectionRefused,
            Some("dns_error" | "destination_not_found" | "destination_unavailable") => {
                SocksReply::HostUnreachable
            }
            Some("destination_ip_unroutable") => SocksReply::NetworkUnreachable,
            Some("dns_timeout" | "connection_timeout") => SocksReply::TimedOut,
            Some("destination_ip_prohibited" | "http_request_denied") => SocksReply::NotAllowed,
            _ => self.reply,
        };
        self
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) const fn reply(&self) -> SocksReply {
        self.reply
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}
