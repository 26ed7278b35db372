//! One worker: a thread with its own runtime, listeners and sessions.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use smig_proto::{Config, Security, Session};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tower_service::Service;

use super::accept;
use super::builder::AuthorityCheck;
use super::client_quota::ClientQuota;
use super::date::Date;
use super::listening::ListenerId;
use super::session::{Command, ServerSession};
use super::session_list::SessionList;
use super::session_registry::Registry;
use super::tls::ServerTls;
use crate::deadlines::Deadlines;
use crate::driver::{ConnOptions, ConnSet, Driver, Mailbox};
use crate::error::BoxError;
use crate::migration::MigrationConfig;
use crate::observer::{Counters, ObserverEvent};
use crate::seldom;
use crate::stream::Incoming;

/// State that all workers of a server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) registry: Registry,
    pub(super) engine: Arc<Config>,
    pub(super) rules: MigrationConfig,
    pub(super) conn_options: Arc<ConnOptions>,
    pub(super) counters: Arc<Counters>,
    pub(super) open: Arc<AtomicUsize>,
    pub(super) max_connections: usize,
    pub(super) client_quota: Arc<ClientQuota>,
    pub(super) handshake_timeout: Duration,
    pub(super) deadlines: Deadlines,
    pub(super) tenant: Vec<u8>,
    pub(super) authority: AuthorityCheck,
    pub(super) describe_streams: usize,
}

impl Shared {
    /// Reports that a client has hit a limit.
    pub(super) fn on_limit(&self, limit: &'static str, peer: Option<SocketAddr>) {
        self.counters.on_event(&ObserverEvent::LimitHit(limit));
        seldom!(warn, limit, limit, ?peer, "limit reached");
    }

    /// Reports that this machine or process has run out of a resource, which is not caused by one client or server.
    pub(super) fn on_exhausted(&self, what: &'static str, error: &std::io::Error) {
        self.counters.on_event(&ObserverEvent::LimitHit(what));
        seldom!(error, what, %error, "cannot accept connections: {what}");
    }

    /// Returns whether streams must be tracked to their end, for snapshots or an observer.
    pub(super) fn tracks_stream_end(&self) -> bool {
        self.describe_streams > 0 || self.counters.is_observed()
    }
}

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerState {
    Running,
    /// No new connections; running streams may finish.
    Draining,
    Stopped,
}

/// A listening socket of one worker.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: std::net::TcpListener,
    pub(super) spec: Arc<ListenerSpec>,
}

/// A listening address and its protocol.
#[derive(Debug)]
pub(super) struct ListenerSpec {
    pub(super) id: ListenerId,
    pub(super) addr: SocketAddr,
    pub(super) kind: ListenerKind,
}

/// A change to a running worker's listeners.
#[derive(Debug)]
pub(super) enum ListenerChange {
    Open(Listener),
    Close(ListenerId),
}

/// A task that accepts connections.
#[derive(Debug)]
struct Accepting {
    id: ListenerId,
    /// Dropped to end the task.
    close: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// A worker's listeners: the initial ones, and the channel of changes.
#[derive(Debug)]
pub(super) struct WorkerListeners {
    pub(super) listeners: Vec<Listener>,
    pub(super) changes: mpsc::UnboundedReceiver<ListenerChange>,
}

#[derive(Debug)]
pub(super) enum ListenerKind {
    Tls(ServerTls),
    /// Cleartext, and its security.
    Clear(Security),
}

/// One worker's state, shared by its tasks.
#[derive(Debug)]
pub(super) struct Worker<S> {
    pub(super) service: S,
    pub(super) shared: Arc<Shared>,
    pub(super) date: Date,
    sessions: Arc<SessionList>,
    running: Arc<TaskTracker>,
    pub(super) phase: watch::Receiver<ServerState>,
}

impl<S> Worker<S> {
    /// Adds a session to the worker's list. Returns its number there.
    pub(super) fn register(&self, mailbox: &Arc<Mailbox<Command>>) -> usize {
        let number = self.sessions.insert(mailbox);
        if *self.phase.borrow() != ServerState::Running {
            // It starts late: after a handshake, or refused by another session.
            drop(mailbox.send(Command::Drain));
        }
        number
    }

    pub(super) fn unregister(&self, number: usize) {
        self.sessions.remove(number);
    }

    fn drain(&self) {
        for mailbox in self.sessions.all() {
            // A closed mailbox belongs to a session that is ending already.
            drop(mailbox.send(Command::Drain));
        }
    }
}

/// Count of what a worker waits for before it ends.
#[derive(Debug, Default)]
struct TaskTracker {
    count: AtomicUsize,
    quiet: Notify,
}

impl TaskTracker {
    /// Waits until the count is zero.
    async fn end(&self) {
        loop {
            let quiet = self.quiet.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            quiet.await;
        }
    }
}

/// Counts a task of the worker, or a connection that a handler has taken over, until it is dropped.
#[derive(Debug)]
pub(super) struct TaskToken(Arc<TaskTracker>);

impl TaskToken {
    pub(super) fn new<S>(worker: &Worker<S>) -> Self {
        worker.running.count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&worker.running))
    }
}

impl Drop for TaskToken {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.quiet.notify_waiters();
        }
    }
}

/// Spawns a session's task on this thread. `fill` adds its first connection.
pub(super) fn spawn_session<S, B>(
    worker: &Rc<Worker<S>>,
    mut session: Session,
    fill: impl FnOnce(&mut Session, &mut ConnSet),
) where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let mut conn_options = ConnSet::new(Arc::clone(&worker.shared.conn_options));
    fill(&mut session, &mut conn_options);
    let app = ServerSession::new(Rc::clone(worker));
    let mailbox = Arc::clone(app.mailbox());
    let driver = Driver::new(session, conn_options, app, mailbox);
    let active = TaskToken::new(worker);
    tokio::task::spawn_local(async move {
        let _active = active;
        driver.await;
    });
}

/// Body of a worker's thread.
pub(super) fn run<S, B>(
    listeners: WorkerListeners,
    service: S,
    (shared, sessions): (Arc<Shared>, Arc<SessionList>),
    phase: watch::Receiver<ServerState>,
) -> std::io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let worker = Rc::new(Worker {
        service,
        shared,
        date: Date::default(),
        sessions,
        running: Arc::default(),
        phase,
    });
    let ended = local.block_on(&runtime, serve(listeners, Rc::clone(&worker)));
    // This drops every task, and with it every connection.
    drop(local);
    // Blocking threads of the runtime (name resolution, disk) may hang: they are not waited for.
    runtime.shutdown_background();
    ended
}

async fn serve<S, B>(mut listeners: WorkerListeners, worker: Rc<Worker<S>>) -> std::io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: 'static,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let open = |listener: Listener| {
        let id = listener.spec.id;
        let socket = TcpListener::from_std(listener.socket)?;
        let (close, closing) = oneshot::channel();
        let task = accept::accept_all(socket, listener.spec, Rc::clone(&worker), closing);
        let task = tokio::task::spawn_local(task);
        Ok::<_, std::io::Error>(Accepting { id, close, task })
    };
    let mut tasks = listeners.listeners.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut phase = worker.phase.clone();
    loop {
        tokio::select! {
            changed = phase.wait_for(|phase| *phase != ServerState::Running) => match changed {
                Ok(_) => break,
                // A dropped sender means the same as Stopped.
                Err(_) => return Ok(()),
            },
            Some(change) = listeners.changes.recv() => match change {
                ListenerChange::Open(listener) => match open(listener) {
                    Ok(task) => tasks.push(task),
                    Err(error) => tracing::error!(%error, "cannot serve a listener"),
                },
                // Dropping the sender ends the task.
                ListenerChange::Close(id) => tasks.retain(|accepting| accepting.id != id),
            },
        }
    }
    for Accepting { close, task, .. } in tasks {
        drop(close);
        // A task that panicked accepts nothing either.
        drop(task.await);
    }
    worker.drain();
    tokio::select! {
        _ = phase.wait_for(|phase| *phase == ServerState::Stopped) => {}
        () = worker.running.end() => {}
    }
    Ok(())
}
