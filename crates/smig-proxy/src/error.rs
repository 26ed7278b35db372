//! Errors of an exchange: their status and error type (RFC 9209), whether the request may be
//! retried, and whether the server is at fault.

use std::io;

use http::StatusCode;
use smig::TlsError;

/// Why an exchange has no response from an upstream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The request violates HTTP; nothing was sent.
    #[error("bad request: {0}")]
    BadRequest(&'static str),
    /// The request expects something other than 100 (RFC 9110 section 10.1.1).
    #[error("unknown expectation")]
    Expectation,
    /// The request needs a feature that this proxy does not support.
    #[error("not implemented: {0}")]
    NotImplemented(&'static str),
    /// The client's request body failed or was truncated.
    #[error("the request body failed: {0}")]
    RequestBody(String),
    /// No server is left to try.
    #[error("no server left to try")]
    NoServer,
    /// The maximum number of connections is in use.
    #[error("all connections to the server are in use")]
    ConnectionLimit,
    /// The server's name cannot be resolved.
    #[error("cannot resolve the server's name: {0}")]
    Resolve(io::Error),
    /// The rules forbid all addresses of the server's name.
    #[error("not allowed: {0}")]
    Prohibited(String),
    /// No connection could be established.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// No connection was established in time.
    #[error("timed out connecting")]
    ConnectTimeout,
    /// TLS with the server failed.
    #[error("TLS failed: {0}")]
    Tls(TlsError),
    /// The server did not process the request: it refused the stream, was shutting down, or had closed the
    /// connection before anything of the request was written.
    #[error("the server did not process the request: {0}")]
    Refused(String),
    /// The connection was closed before the response's header section.
    #[error("the connection closed without a response: {0}")]
    Terminated(String),
    /// The server reset the stream with CANCEL, which means that the response is no longer needed: at a call's
    /// deadline, for instance, which the client chose.
    #[error("the server cancelled the request: {0}")]
    Cancelled(String),
    /// A reused connection had been closed.
    #[error("a reused connection had closed: {0}")]
    Stale(String),
    /// The response's header section did not arrive in time.
    #[error("timed out waiting for the response")]
    ResponseTimeout,
    /// The server stopped accepting the request's body.
    #[error("the server stopped accepting the request body")]
    WriteTimeout,
    /// The response is malformed.
    #[error("bad response: {0}")]
    BadResponse(String),
    /// The response's header section exceeds the limit.
    #[error("the response's header section is too large")]
    HeadTooLarge,
    /// The server supports HTTP/2 without extended CONNECT (RFC 8441), or only HTTP/1.1 where
    /// HTTP/2 is required; nothing was sent.
    #[error("upgrade failed: the server does not support extended CONNECT")]
    NoExtendedConnect,
    /// The server did not switch protocols, or did so incorrectly.
    #[error("upgrade failed: {0}")]
    Upgrade(&'static str),
}

impl ProxyError {
    /// Classifies an error of an HTTP/1.1 connection.
    #[must_use]
    pub fn from_hyper(error: hyper::Error) -> Self {
        let text = format_chain(&error);
        if error.is_parse_too_large() {
            return Self::HeadTooLarge;
        }
        if error.is_parse() || error.is_parse_status() {
            return Self::BadResponse(text);
        }
        // The body comes from the client, and so do its errors.
        if error.is_user() || error.is_body_write_aborted() {
            return Self::RequestBody(text);
        }
        Self::Terminated(text)
    }

    /// Classifies an error of a [`smig::Client`].
    #[must_use]
    pub fn from_smig(error: smig::Error) -> Self {
        let text = error.to_string();
        if error.is_resolve() {
            let source = std::error::Error::source(&error);
            let source = source.and_then(|source| source.downcast_ref::<io::Error>());
            let kind = source.map_or(io::ErrorKind::Other, io::Error::kind);
            return Self::from_lookup(match source {
                Some(source) if kind == io::ErrorKind::PermissionDenied => {
                    io::Error::new(kind, source.to_string())
                }
                _ => io::Error::new(kind, text),
            });
        }
        if error.is_busy() {
            return Self::ConnectionLimit;
        }
        if error.is_timeout() {
            return if error.is_connect() { Self::ConnectTimeout } else { Self::ResponseTimeout };
        }
        if let Some(fault) = error.tls_error() {
            return Self::Tls(fault.clone());
        }
        if error.is_connect() {
            let source = std::error::Error::source(&error);
            let source = source.and_then(|source| source.downcast_ref::<io::Error>());
            return Self::Connect(match source.and_then(io::Error::raw_os_error) {
                // The error number is more specific than the text.
                Some(number) if is_local_exhaustion(number) => io::Error::from_raw_os_error(number),
                _ => {
                    let kind = source.map_or(io::ErrorKind::Other, io::Error::kind);
                    io::Error::new(kind, text)
                }
            });
        }
        if error.is_user() {
            return Self::RequestBody(text);
        }
        if error.is_retryable() {
            return Self::Refused(text);
        }
        match error.code() {
            Some(smig::ErrorCode::ProtocolError) if !error.is_remote() => Self::BadResponse(text),
            _ if is_cancel(&error) => Self::Cancelled(text),
            _ => Self::Terminated(text),
        }
    }

    /// Classifies the error of a name lookup.
    #[must_use]
    pub fn from_lookup(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Prohibited(error.to_string()),
            _ => Self::Resolve(error),
        }
    }

    /// Converts [`Self::Terminated`] on a connection that was used before to [`Self::Stale`].
    #[must_use]
    pub fn stale_if_reused(self, was_used: bool) -> Self {
        match self {
            Self::Terminated(text) if was_used => Self::Stale(text),
            other => other,
        }
    }

    /// Returns whether the request may be retried, provided that its body is untouched: the server
    /// did not process it, or may process it twice.
    #[must_use]
    pub const fn may_retry(&self, idempotent: bool) -> bool {
        match self {
            Self::ConnectionLimit
            | Self::Resolve(_)
            | Self::Connect(_)
            | Self::ConnectTimeout
            | Self::Tls(_)
            | Self::NoExtendedConnect
            | Self::Refused(_) => true,
            Self::Terminated(_) | Self::Cancelled(_) | Self::Stale(_) => idempotent,
            // Another attempt would fail like this one.
            Self::BadRequest(_)
            | Self::Expectation
            | Self::NotImplemented(_)
            | Self::NoServer
            | Self::Prohibited(_) => false,
            // The server may have processed it.
            Self::RequestBody(_)
            | Self::ResponseTimeout
            | Self::WriteTimeout
            | Self::BadResponse(_)
            | Self::HeadTooLarge
            | Self::Upgrade(_) => false,
        }
    }

    /// Returns whether it concerns only a connection, and does not reflect on the server.
    #[must_use]
    pub const fn is_connection_specific(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Refused(_))
    }

    /// Returns whether the server caused it: consecutive ones eject the server.
    #[must_use]
    pub fn counts_against_server(&self) -> bool {
        !self.lacks_local_resource()
            && !matches!(
                self,
                Self::BadRequest(_)
                    | Self::Expectation
                    | Self::NotImplemented(_)
                    | Self::RequestBody(_)
                    | Self::NoServer
                    | Self::Prohibited(_)
                    | Self::ConnectionLimit
                    | Self::Cancelled(_)
                    | Self::Stale(_)
                    | Self::Refused(_)
                    | Self::NoExtendedConnect
                    | Self::Upgrade(_)
            )
    }

    /// Returns whether this machine or process is out of file descriptors, ports or memory, or too
    /// many name lookups are queued: no fault of the server.
    #[must_use]
    pub fn lacks_local_resource(&self) -> bool {
        match self {
            Self::Resolve(error) if error.kind() == io::ErrorKind::ResourceBusy => true,
            Self::Resolve(error) | Self::Connect(error) => {
                error.raw_os_error().is_some_and(is_local_exhaustion)
            }
            _ => false,
        }
    }

    /// Returns the response's status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            own if own.lacks_local_resource() => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadRequest(_) | Self::RequestBody(_) => StatusCode::BAD_REQUEST,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::NotImplemented(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Prohibited(_) => StatusCode::FORBIDDEN,
            Self::NoServer | Self::ConnectionLimit | Self::Refused(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::ConnectTimeout | Self::ResponseTimeout | Self::WriteTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::Resolve(_)
            | Self::Connect(_)
            | Self::Tls(_)
            | Self::Terminated(_)
            | Self::Cancelled(_)
            | Self::Stale(_)
            | Self::BadResponse(_)
            | Self::HeadTooLarge
            | Self::NoExtendedConnect
            | Self::Upgrade(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns whether the client's own request or its body is the reason, whatever the server does.
    #[must_use]
    pub const fn is_caused_by_client(&self) -> bool {
        matches!(
            self,
            Self::BadRequest(_)
                | Self::Expectation
                | Self::NotImplemented(_)
                | Self::RequestBody(_)
        )
    }

    /// Returns the error type of RFC 9209 section 2.3.
    #[must_use]
    pub fn error_type(&self) -> &'static str {
        match self {
            own if own.lacks_local_resource() => "proxy_internal_error",
            Self::BadRequest(_)
            | Self::Expectation
            | Self::NotImplemented(_)
            | Self::RequestBody(_) => "http_request_error",
            Self::NoServer => "destination_unavailable",
            Self::ConnectionLimit => "connection_limit_reached",
            Self::Resolve(_) => "dns_error",
            Self::Prohibited(_) => "destination_ip_prohibited",
            Self::Connect(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => "connection_refused",
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    "destination_ip_unroutable"
                }
                _ => "destination_unavailable",
            },
            Self::ConnectTimeout => "connection_timeout",
            Self::Tls(fault) if fault.is_certificate() => "tls_certificate_error",
            Self::Tls(fault) if fault.is_alert() => "tls_alert_received",
            Self::Tls(_) => "tls_protocol_error",
            Self::Refused(_) => "destination_unavailable",
            Self::Terminated(_) | Self::Cancelled(_) | Self::Stale(_) => "connection_terminated",
            Self::ResponseTimeout => "http_response_timeout",
            Self::WriteTimeout => "connection_write_timeout",
            Self::BadResponse(_) => "http_protocol_error",
            Self::HeadTooLarge => "http_response_header_section_size",
            Self::NoExtendedConnect | Self::Upgrade(_) => "http_upgrade_failed",
        }
    }
}

/// Returns whether the server reset the stream with CANCEL, which does not reflect on the server's health.
#[must_use]
pub fn is_cancel(error: &smig::Error) -> bool {
    error.is_remote() && error.code() == Some(smig::ErrorCode::Cancel)
}

/// Returns whether a system error means that this machine or process is out of a resource: file
/// descriptors, ports, socket memory.
fn is_local_exhaustion(errno: i32) -> bool {
    use rustix::io::Errno;
    let local_errors =
        [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
    local_errors.contains(&Errno::from_raw_os_error(errno))
}

/// Formats an error and its sources, in one line.
fn format_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_resource_exhaustion_does_not_count_against_the_server() {
        use rustix::io::Errno;
        let connect =
            |errno: Errno| ProxyError::Connect(io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM]
        {
            assert!(!connect(errno).counts_against_server(), "{errno}");
            assert_eq!(connect(errno).status(), 503, "{errno}");
        }
        let busy = ProxyError::from_lookup(io::ErrorKind::ResourceBusy.into());
        assert!(!busy.counts_against_server());
        assert_eq!(busy.status(), 503);
        assert!(connect(Errno::CONNREFUSED).counts_against_server());
        assert_eq!(connect(Errno::CONNREFUSED).status(), 502);
    }
}
