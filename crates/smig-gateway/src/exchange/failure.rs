//! The gateway's own response to an exchange that failed: a status, and the reason in `proxy-status` (RFC 9209).

use std::net::SocketAddr;

use bytes::Bytes;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use smig::throttled;
use smig_proxy::{ProxyError, grpc};

use super::body::Body;
use crate::upstream::Upstream;

/// The name of this program in `proxy-status`.
const PROXY_NAME: &str = "smig";

const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Logs the failure, and returns the response for the client.
pub(crate) fn report_failure(
    failure: ProxyError,
    upstream: &Upstream,
    client: SocketAddr,
) -> Response<Body> {
    log_failure(&failure, upstream.name(), client);
    failure_response(&failure)
}

fn log_failure(failure: &ProxyError, upstream: &str, client: SocketAddr) {
    if failure.lacks_local_resource() {
        throttled!(error, "exhausted", %failure, "out of local resources");
    } else if failure.is_caused_by_client() {
        // Clients must neither fill the operator's log nor hide failures of servers in it.
        tracing::debug!(upstream, %client, %failure, "request rejected");
    } else {
        throttled!(warn, "exchange failed", upstream, %client, %failure, "exchange failed");
    }
}

/// Returns the response for the client. Details about the server are only logged.
pub(crate) fn failure_response(failure: &ProxyError) -> Response<Body> {
    let status = failure.status();
    let text = status.canonical_reason().unwrap_or_default();
    let mut response = Response::new(Body::text(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    if matches!(failure, ProxyError::Cancelled(_)) {
        response.extensions_mut().insert(grpc::CancelledByServer);
    }
    let headers = response.headers_mut();
    let why = format!("{PROXY_NAME}; error={}", failure.error_type());
    if let Ok(why) = HeaderValue::try_from(why) {
        headers.insert(PROXY_STATUS, why);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing::{Event, Level, Subscriber};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    use super::*;

    /// Records the level of each message.
    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<Level>>>);

    impl<S: Subscriber> Layer<S> for Levels {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
    }

    #[test]
    fn failures_caused_by_clients_are_not_warnings() {
        let levels = Levels::default();
        let client = "192.0.2.1:1".parse().unwrap();
        tracing::subscriber::with_default(
            tracing_subscriber::registry().with(levels.clone()),
            || {
                for by_client in [
                    ProxyError::BadRequest("x"),
                    ProxyError::Expectation,
                    ProxyError::NotImplemented("x"),
                    ProxyError::RequestBody("x".to_owned()),
                ] {
                    log_failure(&by_client, "app", client);
                }
                log_failure(&ProxyError::ResponseTimeout, "app", client);
            },
        );
        let expected = [Level::DEBUG, Level::DEBUG, Level::DEBUG, Level::DEBUG, Level::WARN];
        assert_eq!(*levels.0.lock().unwrap(), expected);
    }

    #[test]
    fn a_failure_response_has_its_reason_in_proxy_status() {
        let refused = ProxyError::Connect(io::ErrorKind::ConnectionRefused.into());
        let refused = failure_response(&refused);
        assert_eq!(refused.status(), 502);
        assert_eq!(refused.headers()["proxy-status"], "smig; error=connection_refused");
        assert_eq!(failure_response(&ProxyError::ResponseTimeout).status(), 504);
        assert_eq!(failure_response(&ProxyError::ConnectionLimit).status(), 503);
    }
}
