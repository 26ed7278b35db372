//! The server: listeners, workers, sessions, and the tower service that answers.
//!
//! Each worker is a thread with its own runtime; a session lives on one of them. Workers share a
//! registry of sessions, so that a connection that joins a session is handed to its owner.

mod accept;
mod answer;
mod builder;
mod date;
mod exchange;
mod http1;
mod identity;
mod join;
mod names;
mod registry;
mod respond;
mod session;
mod tls;
mod uploads;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

pub use builder::{ClearTrust, ServerBuilder};
pub use tls::ServerTls;

pub(crate) use names::CertificateNames;
pub(crate) use respond::content_length;

use crate::error::Error;
use crate::observe::{Counters, Stats};
use worker::Phase;

/// A running server. Dropping it stops it at once; [`Server::shutdown`] lets streams finish.
#[derive(Debug)]
pub struct Server {
    addrs: Vec<SocketAddr>,
    phase: watch::Sender<Phase>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    counters: Arc<Counters>,
}

impl Server {
    /// Describes a server.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// The addresses it listens on, in the order in which they were given, ports filled in.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.stats()
    }

    /// Stops gracefully: nothing new is accepted, clients are told (GOAWAY), running streams
    /// finish; what still runs after `limit` is cut.
    ///
    /// # Errors
    /// A worker that failed.
    pub async fn shutdown(mut self, limit: Duration) -> Result<(), Error> {
        self.phase.send_replace(Phase::Draining);
        let threads = std::mem::take(&mut self.threads);
        let mut joined = tokio::task::spawn_blocking(move || join(threads));
        if let Ok(result) = tokio::time::timeout(limit, &mut joined).await {
            return result.unwrap_or_else(|_| Err(panicked()));
        }
        self.phase.send_replace(Phase::Stopped);
        joined.await.unwrap_or_else(|_| Err(panicked()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Stopped);
    }
}

fn join(threads: Vec<JoinHandle<std::io::Result<()>>>) -> Result<(), Error> {
    for thread in threads {
        match thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Error::io("a worker failed", error)),
            Err(_) => return Err(panicked()),
        }
    }
    Ok(())
}

fn panicked() -> Error {
    Error::io(
        "a worker panicked; this is a bug, please report it",
        std::io::ErrorKind::Other.into(),
    )
}
