//! One exchange with an upstream.
//!
//! `request` is a request that was checked; `plain` sends it, or `switch` if it switches protocols. `attempts` counts the
//! servers that were tried, `body` is the response's, `answer` the gateway's own response to a failure.

mod answer;
mod attempts;
mod await_response;
mod body;
mod informational;
mod plain;
mod request;
mod switch;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use smig::Incoming;
use smig_proxy::tunnel::Tunnels;

pub use body::Body;

pub(crate) use answer::answer;
#[cfg(test)]
pub(crate) use answer::response;
pub(crate) use request::{ValidRequest, admit, admit_forwarded};

use crate::upstream::Upstream;

/// Sends a request to one of the upstream's servers and returns the response. Must run on a worker of a
/// [`smig::Server`] (or another [`tokio::task::LocalSet`]): connections to servers belong to the thread.
///
/// Failures are responses as well: the status gives the kind, `proxy-status` (RFC 9209) the reason. A request is
/// retried where that is safe: the server certainly did not process it, or its method is idempotent, and nothing of
/// its body was sent. Tunnels that result are counted in `tunnels`.
pub async fn exchange(
    request: Request<Incoming>,
    upstream: &Arc<Upstream>,
    client: SocketAddr,
    tunnels: &Tunnels,
) -> Response<Body> {
    match admit(request, None) {
        Ok(admitted) => admitted.send(upstream, client, tunnels).await,
        Err(failure) => answer(failure, upstream, client),
    }
}
