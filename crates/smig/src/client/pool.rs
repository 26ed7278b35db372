//! The session of one origin: looked up or started by the client's handles, run by one task.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustc_hash::FxHashMap;
use smig_proto::{AppId, Config, Security, Session};
use tokio::time::timeout;

use super::dial::{self, DialTimeouts};
use super::origin::{Origin, OriginSecurity};
use super::session::{ClientSession, Command, RetireIf};
use super::spares::{CLIENT_IDENTITY, Spares, attach_permit};
use super::tls::LoadedTrust;
use super::{Cleartext, http1};
use crate::connection::ConnectionInfo;
use crate::driver::{ConnOptions, ConnSet, Driver};
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::limits::{ConnectionLimit, ConnectionPermit};
use crate::mailbox::Mailbox;
use crate::migration::MigrationConfig;
use crate::observer::Counters;
use crate::resolve::Resolver;
use crate::transport::Transport;
use crate::{clock, entropy};

/// Sessions by origin.
#[derive(Debug, Default)]
pub(super) struct SessionPool(Mutex<FxHashMap<Origin, Arc<Mailbox<Command>>>>);

impl SessionPool {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Origin, Arc<Mailbox<Command>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the origin's session, or a new one, which `start` runs.
    pub(super) fn get_or_spawn(
        &self,
        origin: &Origin,
        start: impl FnOnce(&Arc<Mailbox<Command>>),
    ) -> Arc<Mailbox<Command>> {
        let mut sessions = self.lock();
        if let Some(mailbox) = sessions.get(origin)
            && !mailbox.is_closed()
        {
            return Arc::clone(mailbox);
        }
        let mailbox = Mailbox::new();
        start(&mailbox);
        sessions.insert(origin.clone(), Arc::clone(&mailbox));
        mailbox
    }

    /// Returns the origin's session, if there is one.
    pub(super) fn get(&self, origin: &Origin) -> Option<Arc<Mailbox<Command>>> {
        self.lock().get(origin).cloned()
    }

    /// Returns all sessions that accept requests.
    pub(super) fn mailboxes(&self) -> Vec<Arc<Mailbox<Command>>> {
        self.lock().values().map(Arc::clone).collect()
    }

    fn remove(&self, origin: &Origin, mailbox: &Arc<Mailbox<Command>>) {
        let mut sessions = self.lock();
        if sessions.get(origin).is_some_and(|current| Arc::ptr_eq(current, mailbox)) {
            sessions.remove(origin);
        }
    }

    /// Sends [`Command::Retire`] to every session.
    pub(super) fn retire_all(&self) {
        let sessions = core::mem::take(&mut *self.lock());
        for mailbox in sessions.into_values() {
            // A closed mailbox means that the session is closing already.
            drop(mailbox.send(Command::Retire(RetireIf::Always)));
        }
    }
}

/// The origin and the client's settings, as a session's task needs them.
#[derive(Debug)]
pub(super) struct OriginContext {
    pub(super) origin: Origin,
    pub(super) trust: LoadedTrust,
    pub(super) resolver: Resolver,
    pub(super) dial_timeouts: DialTimeouts,
    pub(super) engine_config: Arc<Config>,
    pub(super) conn_options: Arc<ConnOptions>,
    pub(super) migration: MigrationConfig,
    pub(super) cleartext: Cleartext,
    pub(super) target_spares: usize,
    pub(super) max_session_connections: usize,
    pub(super) connection_limit: Option<ConnectionLimit>,
    pub(super) queue_timeout: Option<Duration>,
    pub(super) idle_timeout: Duration,
    pub(super) request_label_limit: usize,
    pub(super) counters: Arc<Counters>,
    pub(super) open_connections: Arc<AtomicUsize>,
    pub(super) pool: Weak<SessionPool>,
}

impl OriginContext {
    /// Removes the session from the map, so that new requests start a new one.
    pub(super) fn remove_session(&self, mailbox: &Arc<Mailbox<Command>>) {
        if let Some(sessions) = self.pool.upgrade() {
            sessions.remove(&self.origin, mailbox);
        }
    }

    /// Waits for a permit for a connection that a request needs. `None` if connections are not
    /// limited.
    pub(super) async fn acquire_permit(&self) -> Result<Option<ConnectionPermit>, Error> {
        let Some(limit) = &self.connection_limit else { return Ok(None) };
        let Some(after) = self.queue_timeout else { return Ok(Some(limit.acquire().await)) };
        let timeout_error =
            |_| Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Queue, after });
        timeout(after, limit.acquire()).await.map(Some).map_err(timeout_error)
    }

    /// Acquires a permit for a spare, if one is available. `Ok(None)` if connections are not
    /// limited.
    pub(super) fn try_acquire_permit(
        &self,
    ) -> Result<Option<ConnectionPermit>, ConnectionLimitReached> {
        let Some(limit) = &self.connection_limit else { return Ok(None) };
        limit.try_acquire().map(Some).ok_or(ConnectionLimitReached)
    }

    /// The security level assumed for cleartext connections.
    const fn cleartext_security(&self) -> Security {
        match self.cleartext {
            Cleartext::Http1 => Security::Ineligible,
            Cleartext::PriorKnowledge(trust) => trust.security(),
        }
    }

    fn speaks_http2(&self, transport: &Transport) -> bool {
        match self.origin.security() {
            OriginSecurity::Tls => transport.alpn() == Some(b"h2"),
            OriginSecurity::Cleartext => matches!(self.cleartext, Cleartext::PriorKnowledge(_)),
        }
    }
}

/// The limit of open connections is reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimitReached;

/// Runs a session's task: connects, then serves requests until the session closes.
pub(super) async fn run(context: Arc<OriginContext>, mailbox: Arc<Mailbox<Command>>) {
    let transport = match connect(&context).await {
        Ok(transport) => transport,
        Err(error) => return fail_queued(&context, &mailbox, &error),
    };
    if !context.speaks_http2(&transport) {
        return http1::run(context, mailbox, transport).await;
    }
    let now = clock::now();
    let mut session =
        Session::client(Arc::clone(&context.engine_config), AppId::new(entropy::app_id()), now);
    let spares = Spares::new(transport.peer(), context.cleartext_security(), context.target_spares);
    let mut conns = ConnSet::new(Arc::clone(&context.conn_options));
    let info = ConnectionInfo::new(&transport, context.cleartext_security(), None);
    conns.add(&mut session, now, transport, info, CLIENT_IDENTITY);
    let handler = ClientSession::new(context, Arc::clone(&mailbox), spares);
    Driver::new(session, conns, handler, mailbox).await;
}

/// Waits for a connection's permit, then connects. Counts the connection.
pub(super) async fn connect(context: &OriginContext) -> Result<Transport, Error> {
    let connection_permit = context.acquire_permit().await?;
    Ok(attach_permit(context, dial::dial(context).await?, connection_permit))
}

/// Fails all queued commands: the connection could not be established.
fn fail_queued(context: &OriginContext, mailbox: &Arc<Mailbox<Command>>, error: &Error) {
    context.remove_session(mailbox);
    for command in mailbox.close() {
        match command {
            Command::Request(queued_request) => queued_request.shared.fail(error.duplicate()),
            // The caller may have dropped the receiver.
            Command::AwaitProtocol(sender) => drop(sender.send(Err(error.duplicate()))),
            Command::Dialed(_)
            | Command::Retire(_)
            | Command::SetAddresses(_)
            | Command::Snapshot(_) => {}
        }
    }
}
