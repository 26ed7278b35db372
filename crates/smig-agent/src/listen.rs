//! Local listeners: accept connections within the limit, and dispatch them by the protocol of their port.

use std::sync::Arc;
use std::time::Duration;

use smig::throttled;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use crate::options::PortForward;
use crate::shared::{SharedState, ShutdownReceiver, wait_for_shutdown};
use crate::{http_proxy, port_forward, socks5};

/// Pause after `accept` failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The protocol of a local port.
#[derive(Clone, Debug)]
pub(crate) enum LocalProtocol {
    Http,
    Socks,
    PortForward(Arc<PortForward>),
}

/// Serves a port until the agent's shutdown, then waits for active connections. Dropping the future closes
/// them: those with a response or tunnel in progress are reset.
pub(crate) async fn accept_all(
    listener: TcpListener,
    protocol: LocalProtocol,
    shared: Arc<SharedState>,
    shutdown: ShutdownReceiver,
) {
    let mut connections = JoinSet::new();
    let serve_connection =
        |tcp, permit| serve(tcp, permit, protocol.clone(), Arc::clone(&shared), shutdown.clone());
    loop {
        let accept_result = tokio::select! {
            () = wait_for_shutdown(shutdown.clone()) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept(&listener, &shared) => accepted,
        };
        match accept_result {
            Ok((tcp, permit)) => {
                connections.spawn(serve_connection(tcp, permit));
            }
            Err(error) => {
                throttled!(warn, "local accept", %error, "local connection not accepted");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    for (tcp, permit) in accept_queued(listener, &shared) {
        connections.spawn(serve_connection(tcp, permit));
    }
    while connections.join_next().await.is_some() {}
}

async fn serve(
    tcp: TcpStream,
    permit: OwnedSemaphorePermit,
    protocol: LocalProtocol,
    shared: Arc<SharedState>,
    shutdown: ShutdownReceiver,
) {
    let _permit = permit;
    // Disable Nagle's algorithm; the connection may be closed already.
    let _ = tcp.set_nodelay(true);
    match protocol {
        LocalProtocol::Http => http_proxy::serve(tcp, shared, shutdown).await,
        LocalProtocol::Socks => socks5::serve(tcp, shared).await,
        LocalProtocol::PortForward(forward) => {
            port_forward::serve(tcp, forward, shared, shutdown).await
        }
    }
}

/// Accepts the connections in the kernel's queue, as far as the limit allows: closing a listener resets those
/// that are still queued.
fn accept_queued(
    listener: TcpListener,
    shared: &SharedState,
) -> Vec<(TcpStream, OwnedSemaphorePermit)> {
    let mut accepted_connections = Vec::new();
    // Call accept(2) directly: the runtime may not yet have noticed that the listener is readable.
    let Ok(listener) = listener.into_std() else { return accepted_connections };
    while let Ok(permit) = Arc::clone(&shared.connection_permits).try_acquire_owned()
        && let Ok((tcp, _)) = listener.accept()
    {
        match tcp.set_nonblocking(true).and_then(|()| TcpStream::from_std(tcp)) {
            Ok(tcp) => accepted_connections.push((tcp, permit)),
            Err(error) => {
                throttled!(warn, "local accept", %error, "local connection not accepted");
            }
        }
    }
    accepted_connections
}

/// Accepts the next connection once the limit allows one more.
async fn accept(
    listener: &TcpListener,
    shared: &SharedState,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permits = Arc::clone(&shared.connection_permits);
    let permit = permits.acquire_owned().await.map_err(std::io::Error::other)?;
    let (tcp, _) = listener.accept().await?;
    Ok((tcp, permit))
}
