//! One exchange with an upstream.
//!
//! `request` validates a request; `ordinary` sends it, or `switch` if it switches protocols.
//! `attempts` counts retries, `body` is the response's, `failure` the gateway's own response to a
//! failure.

mod attempts;
mod await_response;
mod body;
mod failure;
mod informational;
mod ordinary;
mod request;
mod switch;
mod websocket_key;

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use smig::Incoming;
use smig_proxy::tunnel::TunnelRegistry;

pub use body::Body;

#[cfg(test)]
pub(crate) use failure::failure_response;
pub(crate) use failure::report_failure;
pub(crate) use request::{ValidRequest, validate, validate_for_forward_proxy};

use crate::upstream::Upstream;

/// Sends a request to one of the upstream's servers and returns the response. Must run on a worker of a
/// [`smig::Server`] (or another [`tokio::task::LocalSet`]): connections to servers belong to the thread.
///
/// Failures are responses as well: the status gives the kind, `proxy-status` (RFC 9209) the reason.
/// A request is retried where that is safe: the server certainly did not process it, or its method
/// is idempotent, and nothing of its body was sent. Tunnels are counted in `tunnels`.
pub async fn exchange(
    request: Request<Incoming>,
    upstream: &Arc<Upstream>,
    client: SocketAddr,
    tunnels: &TunnelRegistry,
) -> Response<Body> {
    match validate(request, None) {
        Ok(request) => request.send(upstream, client, tunnels).await,
        Err(failure) => report_failure(failure, upstream, client),
    }
}
