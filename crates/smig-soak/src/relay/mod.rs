//! A TCP relay between client and server that injects the planned faults.
//!
//! It delays data and ends connections. Until it ends one, it never drops, adds or reorders a byte.

mod conn;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) use conn::RelayedConn;

/// A direction through the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayDirection {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// A fault of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayFault {
    /// Both directions, and the connections to both ends, are closed by a TCP reset.
    Reset,
    /// The connections to both ends are closed with FIN, at any point of the data.
    Fin,
    /// This direction stalls for a while.
    Stall(Duration),
    /// The given number of bytes is relayed slowly, in small chunks.
    Slow(u64),
}

impl RelayFault {
    #[cfg(test)]
    pub(crate) const fn kills(self) -> bool {
        matches!(self, Self::Reset | Self::Fin)
    }
}

/// A fault after `offset` bytes in one direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedFault {
    /// The connection, in the order in which the client opens them.
    pub(crate) conn: usize,
    pub(crate) direction: RelayDirection,
    pub(crate) offset: u64,
    pub(crate) fault: RelayFault,
}

/// The role of a killed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KilledRole {
    /// The session's first connection.
    Interactive,
    /// A further connection that relayed enough bytes to have carried a migrated stream.
    Bulk,
    /// A further connection that relayed fewer bytes.
    Other,
}

/// A killed connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kill {
    pub(crate) role: KilledRole,
}

/// State shared by the connections of a relay.
#[derive(Debug)]
pub(super) struct RelayState {
    server_addr: SocketAddr,
    faults: Vec<PlannedFault>,
    conns: Mutex<Vec<Arc<RelayedConn>>>,
    kills: Mutex<Vec<Kill>>,
    /// Connections to the server that the relay could not open. Like a kill, each may fail transfers; `kills`
    /// does not count them.
    failed_connects: AtomicU64,
    /// The run is over: no more delays.
    is_run_over: AtomicBool,
}

impl RelayState {
    fn conns(&self) -> Vec<Arc<RelayedConn>> {
        self.conns.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record_kill(&self, kill: Kill) {
        self.kills.lock().unwrap_or_else(PoisonError::into_inner).push(kill);
    }
}

/// A running relay. When dropped, it accepts no new connection; open ones continue.
#[derive(Debug)]
pub(crate) struct Relay {
    addr: SocketAddr,
    state: Arc<RelayState>,
    accept_task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accept_task.abort();
        self.state.is_run_over.store(true, Ordering::Relaxed);
    }
}

impl Relay {
    pub(crate) async fn start(
        server_addr: SocketAddr,
        faults: Vec<PlannedFault>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let state = Arc::new(RelayState {
            server_addr,
            faults,
            conns: Mutex::default(),
            kills: Mutex::default(),
            failed_connects: AtomicU64::new(0),
            is_run_over: AtomicBool::new(false),
        });
        let accept_task = tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { addr, state, accept_task })
    }

    pub(crate) const fn port(&self) -> u16 {
        self.addr.port()
    }

    /// Returns the connections killed so far.
    pub(crate) fn kills(&self) -> Vec<Kill> {
        self.state.kills.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of connections to the server that could not be opened.
    pub(crate) fn failed_connects(&self) -> u64 {
        self.state.failed_connects.load(Ordering::Relaxed)
    }

    /// Returns the state of the connections, for the report of a hang.
    pub(crate) fn describe(&self) -> String {
        let conns: Vec<_> = self.state.conns().iter().map(|conn| conn.to_string()).collect();
        if conns.is_empty() { "no connection was opened".into() } else { conns.join("; ") }
    }

    /// Resets every open connection.
    pub(crate) fn reset_all(&self) {
        for conn in self.state.conns() {
            conn.request_reset();
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<RelayState>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let conn = {
                    let mut conns = state.conns.lock().unwrap_or_else(PoisonError::into_inner);
                    let conn = Arc::new(RelayedConn::new(conns.len(), &conns, &state.faults));
                    conns.push(Arc::clone(&conn));
                    conn
                };
                tokio::spawn(conn::relay(client, conn, Arc::clone(&state)));
            }
            // The client closed before the connection was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::error!(%error, "the relay stopped accepting");
                return;
            }
        }
    }
}
