//! State that all local ports of an agent share: the uplink, limits, counters, and the shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use smig_admin::spans::RequestSpan;
use smig_admin::telemetry::Tracer;
use smig_proxy::tunnel::{
    ResetOnClose, Socket, Stream, TunnelEndpoint, TunnelKind, TunnelRegistry,
};
use tokio::sync::{Semaphore, watch};

use crate::uplink::Uplink;

/// The shared state.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) uplink: Arc<Uplink>,
    /// The address of the SOCKS proxy, for the PAC file.
    pub(crate) socks_addr: Option<SocketAddr>,
    pub(crate) tunnel_idle_timeout: Option<Duration>,
    pub(crate) tunnels: TunnelRegistry,
    /// The tracer that exports spans to a collector.
    pub(crate) tracer: Option<Tracer>,
    pub(crate) connection_permits: Arc<Semaphore>,
}

impl SharedState {
    /// Relays a tunnel to its end.
    pub(crate) async fn relay_tunnel<T>(
        &self,
        kind: TunnelKind,
        socket: Socket<T>,
        stream: Stream,
        span: RequestSpan,
    ) where
        T: ResetOnClose,
        Socket<T>: TunnelEndpoint,
    {
        let info = stream.incoming().stream_info();
        let tunnel = self.tunnels.begin(kind, info.clone());
        let outcome = tunnel.run(socket, stream, self.tunnel_idle_timeout).await;
        span.record_end(Some(outcome.bytes_to_remote), outcome.bytes_to_client, info.as_ref());
        if let Err(error) = outcome.end {
            span.set_error("reset");
            let (to_remote, to_client) = (outcome.bytes_to_remote, outcome.bytes_to_client);
            tracing::debug!(%error, to_remote, to_client, "tunnel failed");
            if error.is_transport() {
                self.uplink.request_check();
            }
        }
    }
}

/// Becomes true at the agent's shutdown.
pub(crate) type ShutdownReceiver = watch::Receiver<bool>;

/// Waits for the agent's shutdown.
pub(crate) async fn wait_for_shutdown(mut shutdown: ShutdownReceiver) {
    // A dropped sender means the same.
    let _ = shutdown.wait_for(|&stop| stop).await;
}
