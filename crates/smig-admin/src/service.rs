//! The paths of the admin interface and their handlers.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use smig::Incoming;
use tower_service::Service;

use super::event_stream::{self, EventStreamBody};
use super::metrics::Metrics;
use super::page;
use super::snapshot_cache::SnapshotCache;

type Body = Either<Full<Bytes>, EventStreamBody>;

/// The handler of the admin interface.
#[derive(Clone, Debug)]
pub(crate) struct AdminService {
    snapshots: Arc<SnapshotCache>,
    metrics: Arc<Metrics>,
    /// The page's Content-Security-Policy.
    content_security_policy: HeaderValue,
}

impl AdminService {
    pub(crate) fn new(snapshots: Arc<SnapshotCache>) -> Self {
        let metrics = Arc::new(Metrics::new(&snapshots));
        let policy = HeaderValue::from_str(&page::content_security_policy())
            .unwrap_or(HeaderValue::from_static("default-src 'none'"));
        Self { snapshots, metrics, content_security_policy: policy }
    }

    async fn respond(self, request: Request<()>) -> Response<Body> {
        let mut response = self.route(&request).await;
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn route(&self, request: &Request<()>) -> Response<Body> {
        if !is_local(request) {
            // A foreign page in a local browser, under a name that resolves to this machine.
            return text_response(
                StatusCode::MISDIRECTED_REQUEST,
                "use a loopback address or localhost\n",
            );
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/" => {
                let mut response = full_response("text/html; charset=utf-8", page::PAGE);
                let policy = self.content_security_policy.clone();
                response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
                response
            }
            "/events" if request.method() == Method::HEAD => full_response("text/event-stream", ""),
            "/events" => match event_stream::open(&self.snapshots) {
                Some(events) => typed_response("text/event-stream", Either::Right(events)),
                None => text_response(StatusCode::SERVICE_UNAVAILABLE, "too many event readers\n"),
            },
            "/api/sessions" => match self.snapshots.get().await {
                Ok(snapshot) => full_response("application/json", snapshot.sessions_json),
                Err(error) => {
                    text_response(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
                }
            },
            "/metrics" => match self.metrics.to_text() {
                Ok(metrics) => full_response(
                    "application/openmetrics-text; version=1.0.0; charset=utf-8",
                    metrics,
                ),
                Err(error) => {
                    text_response(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
                }
            },
            "/healthz" => text_response(StatusCode::OK, "alive\n"),
            "/readyz" => match (self.snapshots.target().readiness_check)() {
                Ok(()) => text_response(StatusCode::OK, "ready\n"),
                Err(why) => text_response(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            },
            _ => text_response(
                StatusCode::NOT_FOUND,
                "paths: / /events /api/sessions /metrics /healthz /readyz\n",
            ),
        }
    }
}

impl Service<Request<Incoming>> for AdminService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.respond(request.map(drop)).await) })
    }
}

/// Returns whether the request names this machine by a loopback address or as localhost. Any other name may
/// be an attacker's (DNS rebinding).
fn is_local(request: &Request<()>) -> bool {
    let host = request.uri().authority().map(Authority::as_str);
    let host = host.or_else(|| host_field(request.headers())).unwrap_or_default();
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn host_field(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST)?.to_str().ok()
}

fn full_response(content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    typed_response(content_type, Either::Left(Full::new(body.into())))
}

fn text_response(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = full_response("text/plain; charset=utf-8", body);
    *response.status_mut() = status;
    response
}

fn typed_response(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_host_names_are_accepted() {
        let is_accepted =
            |host: &str| is_local(&Request::get("/").header("host", host).body(()).unwrap());
        for local in ["localhost:9901", "LOCALHOST", "127.0.0.1:1", "[::1]:9901", "127.1.2.3"] {
            assert!(is_accepted(local), "{local}");
        }
        for other in ["evil.example:9901", "localhost.evil.example", "10.0.0.1", "", "::1", "a b"] {
            assert!(!is_accepted(other), "{other}");
        }
        assert!(!is_local(&Request::get("/").body(()).unwrap()));
    }
}
