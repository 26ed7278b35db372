//! Local connections: accepted, counted, given to what their port speaks.

use std::sync::Arc;
use std::time::Duration;

use smig::seldom;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;

use super::spec::PortForward;
use super::{Shared, port, proxy, socks};

/// How long nothing is accepted after the system refused.
const PAUSE: Duration = Duration::from_millis(100);

/// What a local port speaks.
#[derive(Clone, Debug)]
pub(super) enum Entrance {
    Http,
    Socks,
    Port(Arc<PortForward>),
}

/// Becomes true when the agent is to end.
pub(super) type Stop = watch::Receiver<bool>;

/// Waits for the agent's end.
pub(super) async fn stopped(mut stop: Stop) {
    // A sender that is gone means the same.
    let _ = stop.wait_for(|&stop| stop).await;
}

/// Serves a port until the agent ends, then waits for what runs. Dropped, it resets what runs.
pub(super) async fn accept_all(
    listener: TcpListener,
    entrance: Entrance,
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
                    entrance.clone(),
                    Arc::clone(&shared),
                    stop.clone(),
                ));
            }
            Err(error) => {
                seldom!(warn, "local accept", %error, "a local connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    for (tcp, place) in waiting(listener, &shared) {
        running.spawn(serve(tcp, place, entrance.clone(), Arc::clone(&shared), stop.clone()));
    }
    while running.join_next().await.is_some() {}
}

async fn serve(
    tcp: TcpStream,
    place: OwnedSemaphorePermit,
    entrance: Entrance,
    shared: Arc<Shared>,
    stop: Stop,
) {
    let _place = place;
    // Small pieces wait for nobody; the connection may be gone already.
    let _ = tcp.set_nodelay(true);
    match entrance {
        Entrance::Http => proxy::serve(tcp, shared, stop).await,
        Entrance::Socks => socks::serve(tcp, shared).await,
        Entrance::Port(forward) => port::serve(tcp, forward, shared, stop).await,
    }
}

/// What the system has accepted already, as far as there are places: a listener that is closed over its
/// queue resets those who wait there.
fn waiting(listener: TcpListener, shared: &Shared) -> Vec<(TcpStream, OwnedSemaphorePermit)> {
    let mut accepted = Vec::new();
    // The system is asked itself: the runtime may not know yet what waits.
    let Ok(listener) = listener.into_std() else { return accepted };
    while let Ok(place) = Arc::clone(&shared.places).try_acquire_owned()
        && let Ok((tcp, _)) = listener.accept()
    {
        match tcp.set_nonblocking(true).and_then(|()| TcpStream::from_std(tcp)) {
            Ok(tcp) => accepted.push((tcp, place)),
            Err(error) => {
                seldom!(warn, "local accept", %error, "a local connection was not accepted");
            }
        }
    }
    accepted
}

/// The next connection, when there is a place for it.
async fn accept(
    listener: &TcpListener,
    shared: &Shared,
) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let places = Arc::clone(&shared.places);
    let place = places.acquire_owned().await.map_err(std::io::Error::other)?;
    let (tcp, _) = listener.accept().await?;
    Ok((tcp, place))
}
