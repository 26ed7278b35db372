//! A server as a future: one worker on the caller's runtime.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use super::ServerView;
use super::bind::Listener;
use super::listeners::{ListenerInfo, OpenListeners};
use super::service::{HttpService, ResponseBody};
use super::session_list::SessionList;
use super::shared::{ServerShared, ServerState};
use super::worker::{self, Worker, WorkerListeners};
use crate::error::Error;

/// A server that runs where it is awaited, from [`ServerBuilder::serve`](super::ServerBuilder::serve): on the caller's
/// runtime, of either flavor, with I/O and time enabled. Connections wait in the listeners' backlogs until it is polled.
///
/// It completes when it has been [shut down](Self::with_graceful_shutdown), or with an error if a listener cannot be
/// registered with the runtime; otherwise never. Errors of connections are not its errors.
///
/// # Cancel safety
/// Dropping it ends the server at once: listeners and connections are closed, handlers are dropped. What a handler has
/// given to a task of [`tokio::spawn`] goes on there, and so does a connection that it has taken over
/// ([`UpgradedIo`](crate::UpgradedIo)). The tasks that handlers have started by [`tokio::task::spawn_local`] end with the
/// server: they run in a [`LocalSet`] of its own.
///
/// # `Send`
/// All its sessions are on the task that polls it, so nothing need be `Send`, and the future is not. It can be awaited in
/// `#[tokio::main]` and in [`Runtime::block_on`](tokio::runtime::Runtime::block_on), of either flavor, and be spawned by
/// [`tokio::task::spawn_local`] in a [`LocalSet`]; not by [`tokio::spawn`]. For a server in the background, or on several
/// processors, use [`ServerBuilder::start`](super::ServerBuilder::start).
#[must_use = "a server does nothing unless it is polled"]
pub struct Serve {
    worker: Pin<Box<dyn Future<Output = io::Result<()>>>>,
    shutdown: Option<Pin<Box<dyn Future<Output = ()>>>>,
    open_listeners: OpenListeners,
    view: ServerView,
    /// Held, because workers stop when it is dropped.
    state: Arc<watch::Sender<ServerState>>,
}

impl fmt::Debug for Serve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("open_listeners", &self.open_listeners)
            .finish_non_exhaustive()
    }
}

impl Serve {
    pub(super) fn new<S, B>(
        open_listeners: OpenListeners,
        listeners: Vec<Listener>,
        service: S,
        shared: Arc<ServerShared>,
    ) -> Self
    where
        S: HttpService<B>,
        B: ResponseBody,
    {
        let (state, state_receiver) = watch::channel(ServerState::Running);
        let sessions = Arc::new(SessionList::default());
        let session_lists = Arc::from([Arc::clone(&sessions)]);
        let view = ServerView { events: Arc::clone(&shared.events), session_lists };
        let worker = Worker::new(service, shared, sessions, state_receiver);
        // The set of listeners does not change while it runs.
        let (_, changes) = mpsc::unbounded_channel();
        let listeners = WorkerListeners { listeners, changes };
        let worker =
            Box::pin(
                async move { LocalSet::new().run_until(worker::serve(listeners, worker)).await },
            );
        Self { worker, shutdown: None, open_listeners, view, state: Arc::new(state) }
    }

    /// Makes the server shut down when `signal` completes: it accepts no more connections, sends GOAWAY to the clients,
    /// and lets running streams finish; after `limit` the remaining streams are aborted. Then the future completes.
    ///
    /// The last call counts. `signal` is polled with the server, on the same task.
    pub fn with_graceful_shutdown(
        mut self,
        signal: impl Future<Output = ()> + 'static,
        limit: Duration,
    ) -> Self {
        let state = Arc::clone(&self.state);
        self.shutdown = Some(Box::pin(async move {
            signal.await;
            state.send_replace(ServerState::Draining);
            tokio::time::sleep(limit).await;
            state.send_replace(ServerState::Stopped);
        }));
        self
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

    /// Returns a handle for the server's statistics and snapshots, for use while the future runs.
    #[must_use]
    pub fn view(&self) -> ServerView {
        self.view.clone()
    }
}

impl Future for Serve {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(shutdown) = &mut self.shutdown
            && shutdown.as_mut().poll(cx).is_ready()
        {
            self.shutdown = None;
        }
        let polled = self.worker.as_mut().poll(cx);
        polled.map_err(|error| Error::io("cannot serve a listener", error))
    }
}
