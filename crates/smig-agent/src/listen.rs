//! Local listeners: accept connections within the limit, and dispatch them by the protocol of their port.

use std::sync::Arc;
use std::time::Duration;

use smig::seldom;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use crate::options::PortForward;
use crate::shared::{Shared, Stop, stopped};
use crate::{http_proxy, port_forward, socks5};

/// Pause after `accept` failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The protocol of a local port.
#[derive(Clone, Debug)]
pub(crate) enum LocalProtocol {
    Http,
    Socks,
    Port(Arc<PortForward>),
}

/// Serves a port until the agent's shutdown, then waits for active connections. Dropping the future resets
/// them.
pub(crate) async fn accept_all(
    listener: TcpListener,
    protocol: LocalProtocol,
    shared: Arc<Shared>,
    stop: Stop,
) {
    let mut running = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stopped(stop.clone()) => break,
            Some(_) = running.join_next(), if !running.is_empty() => continue,
            accepted = accept(&listener, &shared) => accepted,
        };
        match accepted {
            Ok((tcp, place)) => {
                running.spawn(serve(
                    tcp,
                    place,
                    protocol.clone(),
                    Arc::clone(&shared),
                    stop.clone(),
                ));
            }
            Err(error) => {
                seldom!(warn, "local accept", %error, "local connection not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    for (tcp, place) in waiting(listener, &shared) {
        running.spawn(serve(tcp, place, protocol.clone(), Arc::clone(&shared), stop.clone()));
    }
    while running.join_next().await.is_some() {}
}

async fn serve(
    tcp: TcpStream,
    place: OwnedSemaphorePermit,
    protocol: LocalProtocol,
    shared: Arc<Shared>,
    stop: Stop,
) {
    let _place = place;
    // Disable Nagle's algorithm; the connection may be closed already.
    let _ = tcp.set_nodelay(true);
    match protocol {
        LocalProtocol::Http => http_proxy::serve(tcp, shared, stop).await,
        LocalProtocol::Socks => socks5::serve(tcp, shared).await,
        LocalProtocol::Port(forward) => port_forward::serve(tcp, forward, shared, stop).await,
    }
}

/// Accepts the connections in the kernel's queue, as far as the limit allows: closing a listener resets those
/// that are still queued.
fn waiting(listener: TcpListener, shared: &Shared) -> Vec<(TcpStream, OwnedSemaphorePermit)> {
    let mut accepted = Vec::new();
    // Ask the kernel directly: the runtime may not yet have seen that the listener is readable.
    let Ok(listener) = listener.into_std() else { return accepted };
    while let Ok(place) = Arc::clone(&shared.places).try_acquire_owned()
        && let Ok((tcp, _)) = listener.accept()
    {
        match tcp.set_nonblocking(true).and_then(|()| TcpStream::from_std(tcp)) {
            Ok(tcp) => accepted.push((tcp, place)),
            Err(error) => {
                seldom!(warn, "local accept", %error, "local connection not accepted");
            }
        }
    }
    accepted
}

/// Accepts the next connection once the limit allows one more.
async fn accept(
    listener: &TcpListener,
    shared: &Shared,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let places = Arc::clone(&shared.places);
    let place = places.acquire_owned().await.map_err(std::io::Error::other)?;
    let (tcp, _) = listener.accept().await?;
    Ok((tcp, place))
}
