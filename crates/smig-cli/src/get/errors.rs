//! From the library's errors to exit codes and words.

use std::time::Duration;

use http::StatusCode;

use crate::exit::{Exit, Failure};

/// Why a try failed, and whether another may help.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) again: Again,
}

/// Whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// It fails the same way.
    Never,
    /// It may work; only if the request may be repeated.
    IfRepeatable,
    /// The server did not act on it: it may work and is always safe.
    Safe,
    /// The server says when.
    After(Duration),
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, again: Again::Never }
    }
}

/// A request that got no response.
pub(super) fn request(error: &smig::Error) -> Failed {
    let text = error.to_string();
    // Only the text is left of what TLS said, once several requests wait for one connection.
    let is_certificate = error.is_tls() && text.contains("certificate:");
    let (exit, message) = if error.is_resolve() {
        (Exit::Resolve, text)
    } else if error.is_timeout() {
        (Exit::Timeout, text)
    } else if is_certificate {
        let hint = "--cacert FILE names the authority that signed it; --insecure accepts it unseen";
        (Exit::Certificate, format!("{}; {hint}", without_hint(&text)))
    } else if error.is_tls() {
        let hint = "does the server speak TLS on this port?";
        (Exit::Tls, format!("{}; {hint}", without_hint(&text)))
    } else if error.is_connect() {
        (Exit::Connect, text)
    } else if error.is_user() {
        (Exit::Read, text)
    } else if error.code().is_some() && !error.is_transport() {
        (Exit::Http2, text)
    } else if text.contains("invalid HTTP version parsed") {
        let hint = "if the server speaks TLS there, the URL begins with https://";
        (Exit::Receive, format!("the server does not speak HTTP/1.1 in cleartext; {hint}"))
    } else {
        (Exit::Receive, text)
    };
    let again = match exit {
        Exit::Certificate | Exit::Tls | Exit::Read => Again::Never,
        _ if error.is_retryable() => Again::Safe,
        _ => Again::IfRepeatable,
    };
    Failed { failure: Failure::new(exit, message), again }
}

/// The library's advice is for programs; ours names flags.
fn without_hint(text: &str) -> &str {
    text.rsplit_once("; if the certificate").map_or(text, |(text, _)| text)
}

/// A body that ended before its end.
pub(super) fn partial(came: u64, total: Option<u64>, why: &str) -> Failed {
    let of = total.map(|total| format!(" of {total}")).unwrap_or_default();
    let message = format!("the body ended after {came}{of} bytes: {why}");
    Failed { failure: Failure::new(Exit::Partial, message), again: Again::IfRepeatable }
}

/// A response that is no success.
pub(super) fn status(status: StatusCode, headers: &http::HeaderMap) -> Failed {
    let header = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let mut message = format!("the server answered {status}");
    if let Some(place) = header(http::header::LOCATION).filter(|_| status.is_redirection()) {
        message = format!("{message}: it is at {place}; fetch that");
    }
    let again = match status.as_u16() {
        408 | 429 | 500 | 502 | 503 | 504 => match header(http::header::RETRY_AFTER) {
            Some(seconds) => seconds
                .parse()
                .map_or(Again::IfRepeatable, |seconds| Again::After(Duration::from_secs(seconds))),
            None => Again::IfRepeatable,
        },
        _ => Again::Never,
    };
    Failed { failure: Failure::new(Exit::HttpStatus, message), again }
}
