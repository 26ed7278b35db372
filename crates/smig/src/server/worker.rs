//! One worker: its listeners and sessions, on one thread.
//!
//! Started on a thread with its own runtime, or run by the application on a runtime that exists.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use smig_proto::Session;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::accept;
use super::bind::Listener;
use super::date::DateCache;
use super::service::{HttpService, ResponseBody};
use super::session::{Command, ServerSession};
use super::session_list::SessionList;
use super::shared::{ServerShared, ServerState};
use super::shared_lengths::SharedLengths;
use super::task_tracker::{TaskToken, TaskTracker};
use crate::connection::ListenerId;
use crate::driver::{ConnSet, Driver};
use crate::mailbox::Mailbox;

/// A change to a running worker's listeners.
#[derive(Debug)]
pub(super) enum ListenerChange {
    Open(Listener),
    Close(ListenerId),
}

/// A task that accepts connections.
#[derive(Debug)]
struct AcceptTask {
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

/// One worker's state, shared by its tasks.
#[derive(Debug)]
pub(super) struct Worker<S> {
    pub(super) service: S,
    pub(super) shared: Arc<ServerShared>,
    pub(super) date: DateCache,
    pub(super) shared_lengths: SharedLengths,
    sessions: Arc<SessionList>,
    tasks: Arc<TaskTracker>,
    pub(super) state: watch::Receiver<ServerState>,
}

impl<S> Worker<S> {
    pub(super) fn new(
        service: S,
        shared: Arc<ServerShared>,
        sessions: Arc<SessionList>,
        state: watch::Receiver<ServerState>,
    ) -> Rc<Self> {
        let (date, shared_lengths) = (DateCache::default(), SharedLengths::default());
        let tasks = Arc::default();
        Rc::new(Self { service, shared, date, shared_lengths, sessions, tasks, state })
    }

    /// Returns a token that keeps the worker from ending.
    pub(super) fn task_token(&self) -> TaskToken {
        TaskToken::new(&self.tasks)
    }

    /// Waits until no task and no connection is left, or the server is stopped.
    pub(super) async fn wait_for_tasks(&self) {
        let mut state = self.state.clone();
        tokio::select! {
            _ = state.wait_for(|state| *state == ServerState::Stopped) => {}
            () = self.tasks.wait() => {}
        }
    }

    /// Adds a session to the worker's list. Returns its number there.
    pub(super) fn register(&self, mailbox: &Arc<Mailbox<Command>>) -> usize {
        let number = self.sessions.insert(mailbox);
        if *self.state.borrow() != ServerState::Running {
            // It starts late: after a handshake, or with a connection that another session refused.
            drop(mailbox.send(Command::Drain));
        }
        number
    }

    pub(super) fn unregister(&self, number: usize) {
        self.sessions.remove(number);
    }
}

/// Spawns a session's task on this thread. `add_first_conn` adds its first connection.
pub(super) fn spawn_session<S, B>(
    worker: &Rc<Worker<S>>,
    mut session: Session,
    add_first_conn: impl FnOnce(&mut Session, &mut ConnSet),
) where
    S: HttpService<B>,
    B: ResponseBody,
{
    let mut conns = ConnSet::new(Arc::clone(&worker.shared.conn_options));
    add_first_conn(&mut session, &mut conns);
    let handler = ServerSession::new(Rc::clone(worker));
    let mailbox = Arc::clone(handler.mailbox());
    let driver = Driver::new(session, conns, handler, mailbox);
    let token = worker.task_token();
    tokio::task::spawn_local(async move {
        let _token = token;
        driver.await;
    });
}

/// Body of a worker's thread.
pub(super) fn run<S, B>(
    listeners: WorkerListeners,
    service: S,
    (shared, sessions): (Arc<ServerShared>, Arc<SessionList>),
    state: watch::Receiver<ServerState>,
) -> io::Result<()>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let worker = Worker::new(service, shared, sessions, state);
    let result = local.block_on(&runtime, serve(listeners, worker));
    // This drops every task, and with it every connection.
    drop(local);
    // Blocking tasks that handlers have started in the runtime may hang: they are not waited for.
    runtime.shutdown_background();
    result
}

/// Serves the listeners until the server drains, then the connections until they have ended or the server is stopped.
/// Must run in a [`LocalSet`](tokio::task::LocalSet).
pub(super) async fn serve<S, B>(
    mut listeners: WorkerListeners,
    worker: Rc<Worker<S>>,
) -> io::Result<()>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    let open = |listener: Listener| {
        let id = listener.spec.id;
        let socket = TcpListener::from_std(listener.socket)?;
        let (close, close_receiver) = oneshot::channel();
        let task = accept::accept_all(socket, listener.spec, Rc::clone(&worker), close_receiver);
        let task = tokio::task::spawn_local(task);
        Ok::<_, io::Error>(AcceptTask { id, close, task })
    };
    let mut tasks = listeners.listeners.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut state = worker.state.clone();
    loop {
        tokio::select! {
            changed = state.wait_for(|state| *state != ServerState::Running) => match changed {
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
    for AcceptTask { close, task, .. } in tasks {
        drop(close);
        // A task that panicked accepts nothing either.
        drop(task.await);
    }
    worker.sessions.drain();
    worker.wait_for_tasks().await;
    Ok(())
}
