//! The sessions of one origin: looked up or started by the client's handles, each run by one task.
//!
//! There is one, except with a server that does not support SMig while its session carries bulk: nothing can migrate
//! there, so a second one is opened beside it.

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustc_hash::FxHashMap;
use smig_proto::{AppId, Config, Instant, Security, Session};
use tokio::time::timeout;

use super::dial::{self, DialTimeouts};
use super::origin::{Origin, OriginSecurity};
use super::range_continuation::RangeContinuation;
use super::session::{ClientSession, Command, RetireIf};
use super::session_load::SessionLoad;
use super::spares::{CLIENT_IDENTITY, Spares, attach_permit};
use super::tls::LoadedTrust;
use super::{Cleartext, http1};
use crate::connection::ConnectionInfo;
use crate::driver::{ConnOptions, ConnSet, Driver};
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::limits::{ConnectionLimit, ConnectionPermit, QueueLimit};
use crate::mailbox::Mailbox;
use crate::migration::MigrationConfig;
use crate::observer::{EventSink, ObserverEvent};
use crate::resolve::Resolver;
use crate::throttled;
use crate::transport::Transport;
use crate::{clock, entropy};

/// First delay after a session beside bulk could not be opened; doubled each time.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// How long a session that was opened beside bulk stays open without a request.
const BESIDE_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Sessions by origin.
#[derive(Debug, Default)]
pub(super) struct SessionPool(Mutex<FxHashMap<Origin, OriginSessions>>);

/// The sessions with one origin: one, or several beside bulk if the server does not support SMig.
#[derive(Debug, Default)]
struct OriginSessions {
    /// The oldest first.
    sessions: Vec<PooledSession>,
    /// Number of the last session that was opened.
    last_number: u32,
    last_beside: Option<BesideAttempt>,
}

#[derive(Debug)]
struct PooledSession {
    mailbox: Arc<Mailbox<Command>>,
    load: Arc<SessionLoad>,
}

/// The last attempt to open a session beside bulk.
#[derive(Debug)]
struct BesideAttempt {
    load: Arc<SessionLoad>,
    started_at: Instant,
    backoff: Duration,
}

impl OriginSessions {
    /// Selects the session for a request: among those whose server answers, the one with the least bulk, and of several the
    /// oldest. A request does not wait for the handshake of one that is opened beside another.
    fn select(&self) -> Option<&PooledSession> {
        let ready = self.sessions.iter().filter(|session| session.load.is_ready());
        ready.min_by_key(|session| session.load.bulk_streams()).or_else(|| self.sessions.first())
    }

    fn remove_closed(&mut self) {
        self.sessions.retain(|session| !session.mailbox.is_closed());
    }

    /// Returns the backoff of the next attempt to open a session beside bulk; `None` if it must wait. Such a
    /// session closes when it has been idle for `idle_timeout`.
    fn next_backoff(&self, now: Instant, idle_timeout: Duration) -> Option<Duration> {
        match &self.last_beside {
            Some(last) => {
                let age = now.saturating_duration_since(last.started_at);
                // A session that became ready and ended soon is no success: the server may allow one connection only.
                if last.load.is_ready() && age >= idle_timeout {
                    return Some(MIN_BACKOFF);
                }
                (age >= last.backoff).then(|| (last.backoff * 2).min(MAX_BACKOFF))
            }
            None => Some(MIN_BACKOFF),
        }
    }
}

impl SessionPool {
    fn lock(&self) -> MutexGuard<'_, FxHashMap<Origin, OriginSessions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the origin's session for a request, or a new one, which `start` runs.
    pub(super) fn get_or_spawn(
        &self,
        origin: &Origin,
        start: impl FnOnce(&Arc<Mailbox<Command>>, &Arc<SessionLoad>, u32),
    ) -> Arc<Mailbox<Command>> {
        let mut origins = self.lock();
        if let Some(sessions) = origins.get_mut(origin) {
            sessions.remove_closed();
            if let Some(session) = sessions.select() {
                return Arc::clone(&session.mailbox);
            }
        }
        let (mailbox, load) = (Mailbox::new(), Arc::default());
        let sessions = origins.entry(origin.clone()).or_default();
        sessions.last_number += 1;
        start(&mailbox, &load, sessions.last_number);
        sessions.sessions.push(PooledSession { mailbox: Arc::clone(&mailbox), load });
        mailbox
    }

    /// Opens another session with the origin of `context`, at the address `addr`, beside one that carries bulk. Returns
    /// whether one was started: there may be enough, or the last attempt failed a short time ago.
    pub(super) fn spawn_beside(
        &self,
        context: &OriginContext,
        addr: SocketAddr,
        now: Instant,
    ) -> bool {
        let mut origins = self.lock();
        let Some(sessions) = origins.get_mut(&context.origin) else { return false };
        sessions.remove_closed();
        if sessions.sessions.len() >= context.max_plain_connections {
            return false;
        }
        let idle_timeout = context.idle_timeout.min(BESIDE_IDLE_TIMEOUT);
        let Some(backoff) = sessions.next_backoff(now, idle_timeout) else { return false };
        let (mailbox, load) = (Mailbox::new(), Arc::<SessionLoad>::default());
        sessions.last_number += 1;
        let context = OriginContext {
            number: sessions.last_number,
            order: SessionOrder::Beside(addr),
            load: Arc::clone(&load),
            idle_timeout,
            ..context.clone()
        };
        tokio::spawn(run(Arc::new(context), Arc::clone(&mailbox)));
        sessions.last_beside =
            Some(BesideAttempt { load: Arc::clone(&load), started_at: now, backoff });
        sessions.sessions.push(PooledSession { mailbox, load });
        true
    }

    /// Returns the session of the origin, other than that of `mailbox`, that can take bulk without delaying other streams:
    /// of several the one with most bulk already.
    fn find_apart_from(
        &self,
        origin: &Origin,
        mailbox: &Arc<Mailbox<Command>>,
    ) -> Option<Arc<Mailbox<Command>>> {
        let origins = self.lock();
        let others = origins
            .get(origin)?
            .sessions
            .iter()
            .filter(|other| !Arc::ptr_eq(&other.mailbox, mailbox) && other.load.is_apart());
        let found = others.max_by_key(|other| other.load.bulk_streams())?;
        Some(Arc::clone(&found.mailbox))
    }

    /// Returns the shortest of the minimum round-trip times of the origin's connections. That of a connection that was
    /// opened while the path had a queue includes the queue.
    fn min_rtt(&self, origin: &Origin) -> Option<Duration> {
        let origins = self.lock();
        let sessions = &origins.get(origin)?.sessions;
        sessions.iter().filter_map(|session| session.load.min_rtt()).min()
    }

    /// Returns the origin's sessions, the oldest first.
    pub(super) fn get(&self, origin: &Origin) -> Vec<Arc<Mailbox<Command>>> {
        let origins = self.lock();
        let sessions = origins.get(origin).into_iter().flat_map(|found| &found.sessions);
        sessions.map(|session| Arc::clone(&session.mailbox)).collect()
    }

    /// Returns all sessions that accept requests.
    pub(super) fn mailboxes(&self) -> Vec<Arc<Mailbox<Command>>> {
        let origins = self.lock();
        let sessions = origins.values().flat_map(|found| &found.sessions);
        sessions.map(|session| Arc::clone(&session.mailbox)).collect()
    }

    fn remove(&self, origin: &Origin, mailbox: &Arc<Mailbox<Command>>) {
        let mut origins = self.lock();
        if let Some(found) = origins.get_mut(origin) {
            found.sessions.retain(|session| !Arc::ptr_eq(&session.mailbox, mailbox));
            if found.sessions.is_empty() {
                origins.remove(origin);
            }
        }
    }

    /// Sends [`Command::Retire`] to every session.
    pub(super) fn retire_all(&self) {
        let sessions = core::mem::take(&mut *self.lock());
        for session in sessions.into_values().flat_map(|found| found.sessions) {
            // A closed mailbox means that the session is closing already.
            drop(session.mailbox.send(Command::Retire(RetireIf::Always)));
        }
    }
}

/// The origin and the client's settings, as a session's task needs them.
#[derive(Clone, Debug)]
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
    /// Maximum number of sessions with a server that does not support SMig.
    pub(super) max_plain_connections: usize,
    pub(super) range_continuation: RangeContinuation,
    /// The session's number at its origin, from 1.
    pub(super) number: u32,
    pub(super) order: SessionOrder,
    pub(super) load: Arc<SessionLoad>,
    pub(super) connection_limit: Option<ConnectionLimit>,
    pub(super) queue_limit: QueueLimit,
    pub(super) queue_timeout: Option<Duration>,
    pub(super) idle_timeout: Duration,
    pub(super) request_label_limit: usize,
    pub(super) events: Arc<EventSink>,
    pub(super) open_connections: Arc<AtomicUsize>,
    pub(super) pool: Weak<SessionPool>,
}

/// Why a session was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionOrder {
    /// For a request: the origin had no session.
    First,
    /// Beside one that carries bulk, to the address of that one.
    Beside(SocketAddr),
}

impl OriginContext {
    /// Opens another session beside this one, if it is worth it and allowed.
    pub(super) fn spawn_beside(&self, addr: SocketAddr, now: Instant) {
        if let Some(pool) = self.pool.upgrade()
            && pool.spawn_beside(self, addr, now)
        {
            tracing::debug!(origin = %self.origin, "second connection is opened beside bulk");
            self.events.on_event(&ObserverEvent::SecondConnection);
        }
    }

    /// Returns whether the origin has other sessions, which exist only beside bulk.
    pub(super) fn has_siblings(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.get(&self.origin).len() > 1)
    }

    /// Records the minimum round-trip time of the session's connection; returns the shortest of the origin's connections.
    pub(super) fn update_min_rtt(&self, min_rtt: Duration) -> Duration {
        self.load.set_min_rtt(min_rtt);
        let shortest = self.pool.upgrade().and_then(|pool| pool.min_rtt(&self.origin));
        shortest.unwrap_or(min_rtt).min(min_rtt)
    }

    /// Returns another session that can take bulk of the session of `mailbox`.
    pub(super) fn find_apart_from(
        &self,
        mailbox: &Arc<Mailbox<Command>>,
    ) -> Option<Arc<Mailbox<Command>>> {
        self.pool.upgrade()?.find_apart_from(&self.origin, mailbox)
    }

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

    /// Acquires a permit for a connection that no request needs, if one is available. `Ok(None)` if connections are not
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

/// Ends a session with its task, which may be dropped at any point: then too, no request may find it, nor wait for it.
struct SessionGuard {
    context: Arc<OriginContext>,
    mailbox: Arc<Mailbox<Command>>,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.context.remove_session(&self.mailbox);
        for command in self.mailbox.close() {
            if let Command::Request(queued_request) = command {
                queued_request.return_unsent(Error::new(ErrorKind::Refused("its session ended")));
            }
        }
    }
}

/// Runs a session's task: connects, then serves requests until the session closes.
pub(super) async fn run(context: Arc<OriginContext>, mailbox: Arc<Mailbox<Command>>) {
    let _guard = SessionGuard { context: Arc::clone(&context), mailbox: Arc::clone(&mailbox) };
    let transport = match context.order {
        SessionOrder::First => connect(&context).await,
        SessionOrder::Beside(addr) => connect_beside(&context, addr).await,
    };
    let transport = match transport {
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

/// Connects to the address of an existing session, if a permit for the connection is available. Fails if the server does
/// not negotiate HTTP/2, as it did before.
async fn connect_beside(context: &OriginContext, addr: SocketAddr) -> Result<Transport, Error> {
    let failed = |error: Error| {
        throttled!(info, "no second connection", %error, "second connection failed");
        // Requests that were queued here are for another session.
        Error::new(ErrorKind::Retired)
    };
    let refused = |why| failed(Error::new(ErrorKind::Refused(why)));
    let permit = context
        .try_acquire_permit()
        .map_err(|ConnectionLimitReached| refused("no connection is allowed for it"))?;
    let transport = dial::dial_addr(addr, context).await.map_err(failed)?;
    if !context.speaks_http2(&transport) {
        return Err(refused("the server negotiated another protocol"));
    }
    Ok(attach_permit(context, transport, permit))
}

/// Fails all queued commands: the connection could not be established.
fn fail_queued(context: &OriginContext, mailbox: &Arc<Mailbox<Command>>, error: &Error) {
    context.remove_session(mailbox);
    for command in mailbox.close() {
        match command {
            Command::Request(queued_request) if error.is_retired() => {
                queued_request.return_unsent(error.duplicate());
            }
            Command::Request(queued_request) => queued_request.shared.fail(error.duplicate()),
            // The caller may have dropped the receiver.
            Command::AwaitProtocol(sender) => drop(sender.send(Err(error.duplicate()))),
            Command::Dialed(_)
            | Command::RangeAnswer(_)
            | Command::Retire(_)
            | Command::SetAddresses(_)
            | Command::Snapshot(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn sessions_after_attempt(load: &Arc<SessionLoad>, started_at: Instant) -> OriginSessions {
        let load = Arc::clone(load);
        let attempt = BesideAttempt { load, started_at, backoff: MIN_BACKOFF };
        OriginSessions { last_beside: Some(attempt), ..OriginSessions::default() }
    }

    #[test]
    fn a_second_connection_that_ended_soon_is_not_reopened_at_once() {
        let load = Arc::new(SessionLoad::default());
        load.set_ready();
        let sessions = sessions_after_attempt(&load, at(100));
        assert_eq!(
            sessions.next_backoff(at(100), BESIDE_IDLE_TIMEOUT),
            None,
            "it was ready, and has ended"
        );
        assert_eq!(sessions.next_backoff(at(101), BESIDE_IDLE_TIMEOUT), Some(MIN_BACKOFF * 2));
        let later = at(100) + BESIDE_IDLE_TIMEOUT;
        assert_eq!(
            sessions.next_backoff(later, BESIDE_IDLE_TIMEOUT),
            Some(MIN_BACKOFF),
            "it was of use"
        );
        assert_eq!(
            OriginSessions::default().next_backoff(at(0), BESIDE_IDLE_TIMEOUT),
            Some(MIN_BACKOFF)
        );
    }
}
