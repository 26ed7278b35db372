//! The service of a gateway: decides what answers a request (an upstream, the forward proxy, or a response of its own),
//! by the active configuration, which a reload replaces.

mod active_config;
mod decision;
mod forwarded;
mod report;
mod routes;
mod span_body;

use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use http::{Method, Request, Response};
use smig::Incoming;
use smig_admin::AdminObserver;
use smig_admin::access_log::{LoggedBody, log_response};
use smig_proxy::grpc;
use tower_service::Service;

pub(crate) use active_config::{ActiveConfig, LiveResources};

use active_config::Action;
use decision::{Responder, decide};
use span_body::extend_span;

use crate::exchange::Body;

/// Answers requests with the active configuration. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct GatewayService {
    config: Arc<RwLock<Arc<ActiveConfig>>>,
    /// Observes requests for the admin page and for traces, if configured.
    observer: Option<Arc<AdminObserver>>,
    /// Values of the last request; each connection has its own clone.
    field_cache: forwarded::FieldCache,
}

impl GatewayService {
    pub(crate) fn new(config: ActiveConfig, observer: Option<Arc<AdminObserver>>) -> Self {
        Self {
            config: Arc::new(RwLock::new(Arc::new(config))),
            observer,
            field_cache: forwarded::FieldCache::default(),
        }
    }

    /// Replaces the configuration, from the next request on.
    pub(crate) fn replace_config(&self, config: ActiveConfig) {
        let config = Arc::new(config);
        // Drop the old one outside the lock.
        let _old = {
            let mut current = self.config.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, config)
        };
    }

    pub(crate) fn observer(&self) -> Option<&AdminObserver> {
        self.observer.as_deref()
    }

    pub(crate) fn config(&self) -> Arc<ActiveConfig> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service<Request<Incoming>> for GatewayService {
    type Response = Response<LoggedBody<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let config = self.config();
        let mut entry = config.log.start_entry(&request);
        // gRPC calls are POST; for CONNECT, status 200 would mean that the tunnel is open.
        let is_grpc = *request.method() == Method::POST && grpc::is_grpc(request.headers());
        let spans = self.observer.as_deref().map(AdminObserver::spans);
        let decision = decide(&config, spans, &mut self.field_cache, request);
        // Now: a request that is cancelled meanwhile has its line too.
        if let Some(entry) = &mut entry
            && let Some(route) = decision.route_index.and_then(|index| config.route(index))
            && let Action::Upstream { name, .. } = &route.action
        {
            entry.set_upstream(name);
        }
        Box::pin(async move {
            let mut response = match decision.responder {
                Responder::Direct(response) => *response,
                Responder::Forward(answering) => answering.await,
                Responder::Upstream { request, upstream, client } => {
                    request.send(&upstream, client, &config.tunnels).await
                }
            };
            if let Some(span) = decision.span {
                span.set_status(response.status());
                response = extend_span(response, span);
            }
            if let Some(route) = decision.route_index.and_then(|index| config.route(index)) {
                route.response_rules.apply(response.headers_mut());
                if route.migration_hint != smig::MigrationHint::None {
                    response.extensions_mut().insert(route.migration_hint);
                }
                if route.bulk_hint != smig::BulkHint::None {
                    response.extensions_mut().insert(route.bulk_hint);
                }
            }
            let response = if is_grpc { translate_for_grpc(response) } else { response };
            Ok(log_response(response, entry))
        })
    }
}

/// Translates a response of the gateway's own for a gRPC client. Responses of servers stay unchanged.
fn translate_for_grpc(mut response: Response<Body>) -> Response<Body> {
    let Some(text) = response.body().generated_text() else { return response };
    let mut message = String::from_utf8_lossy(text).trim_end().to_owned();
    let proxy_status = response.headers().get("proxy-status").and_then(|value| value.to_str().ok());
    if let Some(proxy_error_type) =
        proxy_status.and_then(|kind| kind.split("; ").find_map(|part| part.strip_prefix("error=")))
    {
        let _ = write!(message, " ({proxy_error_type})");
    }
    if grpc::translate(&mut response, &message) {
        *response.body_mut() = Body::empty();
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::failure_response;
    use smig_proxy::ProxyError;

    #[test]
    fn a_grpc_call_that_the_server_cancelled_has_status_cancelled() {
        let grpc_status = |failure: ProxyError| {
            let response = translate_for_grpc(failure_response(&failure));
            assert_eq!(response.status(), 200);
            response.headers()["grpc-status"].clone()
        };
        assert_eq!(grpc_status(ProxyError::Cancelled(String::new())), "1");
        assert_eq!(grpc_status(ProxyError::Terminated(String::new())), "14");
    }
}
