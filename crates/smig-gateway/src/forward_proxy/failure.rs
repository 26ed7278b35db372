//! Why a request to the forward proxy failed, as a response: a status, Proxy-Status (RFC 9209), and
//! a text for humans.

use std::io;

use http::header::{CONTENT_TYPE, HeaderName, PROXY_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

use crate::exchange::Body;

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Why a request was not forwarded, or got no response.
#[derive(Debug)]
pub(super) struct ForwardError {
    status: StatusCode,
    /// The proxy error type of RFC 9209 section 2.3.
    error_type: &'static str,
    detail: String,
}

impl ForwardError {
    fn new(status: StatusCode, error_type: &'static str, detail: impl Into<String>) -> Self {
        Self { status, error_type, detail: detail.into() }
    }

    pub(super) fn bad_request(detail: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "http_request_error", detail)
    }

    /// The request is malformed, or needs a feature that is not supported.
    pub(super) fn invalid_request(failure: &smig_proxy::ProxyError) -> Self {
        Self::new(failure.status(), failure.error_type(), failure.to_string())
    }

    /// The origin is forbidden, cannot be reached, or sent no valid response.
    pub(super) fn exchange_failed(target: &str, failure: &smig_proxy::ProxyError) -> Self {
        let detail = match failure {
            smig_proxy::ProxyError::Prohibited(why) => format!("{target} is not allowed: {why}"),
            _ => format!("no response from {target}: {failure}"),
        };
        let status = match failure {
            // The origin is the only server: do not invite the client to retry soon.
            smig_proxy::ProxyError::Refused(_) => StatusCode::BAD_GATEWAY,
            _ => failure.status(),
        };
        Self::new(status, failure.error_type(), detail)
    }

    pub(super) fn unsupported(detail: &str) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "http_request_error", detail)
    }

    /// A rule on names or ports forbids the destination.
    pub(super) fn request_denied(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "http_request_denied", detail)
    }

    /// The rules forbid all addresses of the host.
    pub(super) fn destination_ip_prohibited(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "destination_ip_prohibited", detail)
    }

    pub(super) fn too_many_tunnels(limit: usize) -> Self {
        let detail = format!("the limit of {limit} concurrent tunnels per user is reached");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached", detail)
    }

    pub(super) fn too_many_origins(limit: usize) -> Self {
        let detail = format!("the limit of {limit} concurrent origins per user is reached");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached", detail)
    }

    /// Same status and error type as the reverse proxy.
    pub(super) fn resolver_busy(host: &str, error: &io::Error) -> Self {
        let detail = format!("cannot resolve {host}: {error}");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "proxy_internal_error", detail)
    }

    pub(super) fn dns_error(host: &str, error: &io::Error) -> Self {
        let detail = format!("cannot resolve {host}: {error}");
        Self::new(StatusCode::BAD_GATEWAY, "dns_error", detail)
    }

    pub(super) fn dns_timeout(host: &str) -> Self {
        let detail = format!("cannot resolve {host} in time");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "dns_timeout", detail)
    }

    pub(super) fn connect_failed(target: &str, error: &io::Error) -> Self {
        let (status, error_type) = match error.kind() {
            io::ErrorKind::ConnectionRefused => (StatusCode::BAD_GATEWAY, "connection_refused"),
            io::ErrorKind::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                (StatusCode::BAD_GATEWAY, "destination_ip_unroutable")
            }
            _ => (StatusCode::BAD_GATEWAY, "destination_unavailable"),
        };
        Self::new(status, error_type, format!("cannot connect to {target}: {error}"))
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::text(format!(
            "{} {}: {}\n",
            self.status.as_u16(),
            self.status.canonical_reason().unwrap_or_default(),
            self.detail
        )));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let proxy_status =
            format!("smig; error={}; details=\"{}\"", self.error_type, escape(&self.detail));
        if let Ok(proxy_status) = HeaderValue::from_str(&proxy_status) {
            headers.insert(PROXY_STATUS, proxy_status);
        }
        response
    }
}

/// Returns a 407 response that requests credentials.
pub(super) fn authentication_required() -> Response<Body> {
    let status = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    let detail = "the proxy requires a token, or a user name and password";
    let mut response = ForwardError::new(status, "http_request_denied", detail).into_response();
    for scheme in ["Bearer realm=\"smig\"", "Basic realm=\"smig\", charset=\"UTF-8\""] {
        response.headers_mut().append(PROXY_AUTHENTICATE, HeaderValue::from_static(scheme));
    }
    response
}

/// Escapes text for a string of a structured field (RFC 9651 section 3.3.3).
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            ' '..='~' => out.push(character),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_becomes_a_response_with_its_reason() {
        let error = io::Error::from(io::ErrorKind::ConnectionRefused);
        let response = ForwardError::connect_failed("a\"b:1", &error).into_response();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        let proxy_status = response.headers()[PROXY_STATUS].to_str().unwrap();
        assert!(
            proxy_status.starts_with(
                "smig; error=connection_refused; details=\"cannot connect to a\\\"b:1"
            )
        );
    }

    #[test]
    fn unknown_users_get_an_authentication_challenge() {
        let response = authentication_required();
        assert_eq!(response.status(), StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        assert_eq!(response.headers().get_all(PROXY_AUTHENTICATE).iter().count(), 2);
    }
}
