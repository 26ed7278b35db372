//! The server: listeners, workers, sessions, and the tower service that handles requests.
//!
//! A session lives on one worker. Workers share a registry of sessions, so that a connection that joins a session is passed
//! to the session's worker. In the order of a connection and its requests:
//!
//! - [`builder`]: settings. Then one of three: [`Server`] here (each worker a thread with its own runtime), [`serve`] (one
//!   worker on the caller's runtime), [`connection_server`] (a worker for each connection that the caller accepts).
//! - [`bind`], [`listeners`]: listening sockets and their ids. [`worker`], [`task_tracker`]: the accept
//!   loops, and the tasks to wait for; [`shared`]: state of all workers.
//! - [`accept`]: limits, TLS ([`tls`]), protocol; then [`http1`], or a session: [`session`], with [`identity`],
//!   [`session_registry`], [`session_list`] and [`join`].
//! - [`exchange`], [`heads`], [`informational`], [`slow_uploads`], [`bulk_uploads`], [`date`]: a request and its response.
//!   [`service`]: what is required of the application's service.

mod accept;
mod bind;
mod builder;
mod bulk_uploads;
mod connection_server;
mod date;
mod exchange;
mod heads;
mod http1;
mod identity;
mod informational;
mod join;
mod listeners;
mod serve;
mod service;
mod session;
mod session_list;
mod session_registry;
mod shared;
mod shared_lengths;
mod slow_uploads;
mod task_tracker;
mod tls;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use builder::{AuthorityCheck, RequestExtensions, ServerBuilder};
pub use connection_server::ConnectionServer;
pub use http1::UpgradedIo;
pub use informational::InformationalSender;
pub use listeners::ListenerInfo;
pub use serve::Serve;
pub use tls::{Certificate, ClientCertificates, ServerTls};

use crate::connection::{CleartextTrust, ListenerId};
use crate::error::Error;
use crate::observer::{EventSink, Stats};
use crate::snapshot::{self, Snapshot};
use bind::{ListenSecurity, ListenTarget, ListenerConfig};
use session::Command;
use session_list::SessionList;
use shared::ServerState;
use worker::ListenerChange;

/// How long a stopped worker may take to end. After that it is stuck in a blocking call.
const STUCK_TIMEOUT: Duration = Duration::from_millis(500);

/// A running server. Dropping it stops it at once; [`Server::shutdown`] lets streams finish.
#[derive(Debug)]
pub struct Server {
    open_listeners: listeners::OpenListeners,
    listener_ids: listeners::ListenerIds,
    state: watch::Sender<ServerState>,
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    /// One sender per worker.
    listener_changes: Vec<mpsc::UnboundedSender<ListenerChange>>,
    view: ServerView,
}

/// A handle for a server's statistics and snapshots. Cheap to clone; it does not keep the server running.
#[derive(Clone, Debug)]
pub struct ServerView {
    events: Arc<EventSink>,
    session_lists: Arc<[Arc<SessionList>]>,
}

impl ServerView {
    /// Returns the counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.events.stats()
    }

    /// Returns a snapshot of the HTTP/2 sessions of all workers, the youngest first, which it requests from each
    /// session's task: at most [`MAX_SNAPSHOT_SESSIONS`](crate::MAX_SNAPSHOT_SESSIONS) in all, within a second. There is
    /// no cost without a request. Must be called inside a tokio runtime with time enabled.
    pub async fn sessions(&self) -> Snapshot {
        let mailboxes = session_list::youngest_first(&self.session_lists);
        snapshot::collect(mailboxes, Command::Snapshot).await
    }
}

impl Server {
    /// Returns the builder of a server.
    #[must_use]
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the addresses of the listeners, in the order in which they were added, with their actual ports.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        self.open_listeners.addrs()
    }

    /// Returns the listeners, each with its id.
    #[must_use]
    pub fn listeners(&self) -> &[ListenerInfo] {
        self.open_listeners.infos()
    }

    /// Adds a listener with TLS. Its address may already have one: if the new one is opened before the old one is
    /// closed, the configuration of an address changes without a refused connection.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn listen(&mut self, addr: SocketAddr, tls: &ServerTls) -> Result<ListenerInfo, Error> {
        self.open_listener(addr, ListenSecurity::Tls(tls.clone()))
    }

    /// Adds a listener without TLS.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn listen_cleartext(
        &mut self,
        addr: SocketAddr,
        trust: CleartextTrust,
    ) -> Result<ListenerInfo, Error> {
        self.open_listener(addr, ListenSecurity::Cleartext(trust))
    }

    fn open_listener(
        &mut self,
        addr: SocketAddr,
        security: ListenSecurity,
    ) -> Result<ListenerInfo, Error> {
        let config = ListenerConfig {
            id: self.listener_ids.next(),
            target: ListenTarget::Bind(addr),
            security,
        };
        let (listener_info, listeners) = bind::bind(config, self.listener_changes.len())?;
        for (worker, listener) in self.listener_changes.iter().zip(listeners) {
            // A worker that has ended is reported by the shutdown.
            drop(worker.send(ListenerChange::Open(listener)));
        }
        self.open_listeners.add(listener_info);
        Ok(listener_info)
    }

    /// Closes one of the [listeners](Self::listeners). Connections that it has accepted stay open; those that wait in its
    /// backlog are still accepted, up to 1024 by each worker.
    pub fn close(&mut self, id: ListenerId) {
        self.open_listeners.remove(id);
        for worker in &self.listener_changes {
            drop(worker.send(ListenerChange::Close(id)));
        }
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.view.stats()
    }

    /// Returns a snapshot of the HTTP/2 sessions: their connections, their streams, and the rules' decision on
    /// each. Limits and conditions are those of [`ServerView::sessions`].
    ///
    /// ```no_run
    /// # async fn run(server: smig::Server) {
    /// for session in server.sessions().await.sessions {
    ///     for stream in &session.streams {
    ///         let decision = stream.decision.map_or_else(String::new, |decision| decision.to_string());
    ///         println!("{} on connection {} {decision}", stream.key.as_u64(), stream.connection);
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn sessions(&self) -> Snapshot {
        self.view.sessions().await
    }

    /// Returns a handle for the server's statistics and snapshots.
    #[must_use]
    pub fn view(&self) -> ServerView {
        self.view.clone()
    }

    /// Stops gracefully: accepts no more connections, sends GOAWAY to the clients, and lets running streams
    /// finish; after `limit` the remaining streams are aborted. A worker whose handler still blocks its thread
    /// half a second later is abandoned; threads that handlers have blocked elsewhere are not waited for.
    ///
    /// # Errors
    /// A worker failed.
    pub async fn shutdown(mut self, limit: Duration) -> Result<(), Error> {
        self.state.send_replace(ServerState::Draining);
        let threads = std::mem::take(&mut self.threads);
        let (result_sender, mut result_receiver) = oneshot::channel();
        // A separate thread, because a runtime waits for its own blocking threads.
        thread::Builder::new()
            .name("smig-end".to_owned())
            .spawn(move || drop(result_sender.send(join_threads(threads))))
            .map_err(|error| Error::io("cannot start a thread", error))?;
        if let Ok(result) = timeout(limit, &mut result_receiver).await {
            return result.unwrap_or_else(|_| Err(panic_error()));
        }
        self.state.send_replace(ServerState::Stopped);
        let Ok(result) = timeout(STUCK_TIMEOUT, result_receiver).await else {
            tracing::warn!("a worker is stuck in a blocking call and was abandoned");
            return Ok(());
        };
        result.unwrap_or_else(|_| Err(panic_error()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.send_replace(ServerState::Stopped);
    }
}

/// Waits for all threads; returns the first error.
fn join_threads(
    threads: impl IntoIterator<Item = JoinHandle<std::io::Result<()>>>,
) -> Result<(), Error> {
    let mut result = Ok(());
    for thread in threads {
        result = result.and(match thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Error::io("a worker failed", error)),
            Err(_) => Err(panic_error()),
        });
    }
    result
}

fn panic_error() -> Error {
    Error::io(
        "a worker panicked; this is a bug, please report it",
        std::io::ErrorKind::Other.into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_worker_does_not_end_the_wait_for_the_others() {
        let failed = thread::spawn(|| Err(std::io::ErrorKind::Other.into()));
        let mut waited_count = 0;
        let threads = [failed, thread::spawn(|| Ok(()))];
        let result = join_threads(threads.into_iter().inspect(|_| waited_count += 1));
        assert!(result.is_err());
        assert_eq!(waited_count, 2);
    }
}
