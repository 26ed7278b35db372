//! Maps the library's errors to exit codes and messages.

use std::time::Duration;

use http::StatusCode;

use crate::exit::{CliError, Exit};

/// An error of an attempt, and whether to retry.
#[derive(Debug)]
pub(super) struct AttemptError {
    pub(super) failure: CliError,
    pub(super) retry_advice: RetryAdvice,
}

/// Whether a retry may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetryAdvice {
    /// A retry fails the same way.
    Never,
    /// A retry may succeed, and is safe only if the request is idempotent.
    IfIdempotent,
    /// The server did not process the request: a retry may succeed and is always safe.
    Safe,
    /// Delay that the server gives in Retry-After.
    After(Duration),
}

impl From<CliError> for AttemptError {
    fn from(failure: CliError) -> Self {
        Self { failure, retry_advice: RetryAdvice::Never }
    }
}

/// Maps the error of a request that got no response.
pub(super) fn from_request_error(error: &smig::Error) -> AttemptError {
    let text = error.to_string();
    let (exit, message) = if error.is_resolve() {
        (Exit::Resolve, text)
    } else if error.is_timeout() {
        (Exit::Timeout, text)
    } else if let Some(fault) = error.tls_error() {
        let exit = if fault.is_certificate() { Exit::Certificate } else { Exit::Tls };
        // The library's advice is for programs; this hint names flags.
        let hint = "trust it, or the authority that signed it, with --cacert FILE; --insecure skips the check";
        let without_advice = text.strip_suffix(fault.advice()).filter(|_| fault.is_untrusted());
        (exit, without_advice.map_or_else(|| text.clone(), |text| format!("{text}{hint}")))
    } else if error.is_connect() {
        (Exit::Connect, text)
    } else if error.is_user() {
        (Exit::Read, text)
    } else if error.code().is_some() && !error.is_transport() {
        (Exit::Http2, text)
    } else if text.contains("invalid HTTP version parsed") {
        let hint = "use https:// if the server expects TLS";
        (Exit::Receive, format!("the server did not answer in cleartext HTTP/1.1; {hint}"))
    } else {
        (Exit::Receive, text)
    };
    let retry = match exit {
        Exit::Certificate | Exit::Tls | Exit::Read => RetryAdvice::Never,
        _ if error.is_retryable() => RetryAdvice::Safe,
        _ => RetryAdvice::IfIdempotent,
    };
    AttemptError { failure: CliError::new(exit, message), retry_advice: retry }
}

/// Error for an incomplete body.
pub(super) fn incomplete_body(received: u64, total: Option<u64>, why: &str) -> AttemptError {
    let of_total = total.map(|total| format!(" of {total}")).unwrap_or_default();
    let message = format!("the body ended after {received}{of_total} bytes: {why}");
    AttemptError {
        failure: CliError::new(Exit::Partial, message),
        retry_advice: RetryAdvice::IfIdempotent,
    }
}

/// Error for a response without a success status.
pub(super) fn from_status(status: StatusCode, headers: &http::HeaderMap) -> AttemptError {
    let header = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let mut message = format!("the server answered {status}");
    if let Some(location) = header(http::header::LOCATION).filter(|_| status.is_redirection()) {
        message = format!("{message}; fetch {location} instead");
    }
    let retry = match status.as_u16() {
        408 | 429 | 500 | 502 | 503 | 504 => match header(http::header::RETRY_AFTER) {
            Some(seconds) => seconds.parse().map_or(RetryAdvice::IfIdempotent, |seconds| {
                RetryAdvice::After(Duration::from_secs(seconds))
            }),
            None => RetryAdvice::IfIdempotent,
        },
        _ => RetryAdvice::Never,
    };
    AttemptError { failure: CliError::new(Exit::HttpStatus, message), retry_advice: retry }
}
