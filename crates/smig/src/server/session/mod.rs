//! The server's half of a session: requests to the service, responses to the engine.
//!
//! This module holds the state, dispatches events of the engine, commands and wake-ups of streams,
//! and ends the session. Requests are in [`streams`], responses in [`mod@response`], over how many connections in [`spread`].

mod response;
mod spread;
mod stream_slots;
mod streams;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use smig_proto::{AppId, Event, Instant, JoinRefusal};
use tower_service::Service;

use self::spread::SpreadStreams;
use self::stream_slots::StreamSlots;
use super::bulk_uploads::BulkUploads;
use super::exchange::{BodySendState, Exchange, Work, catch_panic};
use super::informational::PendingInformational;
use super::join::JoinHandover;
use super::service::{HttpService, ResponseBody};
use super::session_registry::Registration;
use super::worker::Worker;
use crate::driver::{CLOSE_TIMEOUT, Migration, SessionHandler, Slots, TurnCx};
use crate::error::{Error, ErrorKind};
use crate::mailbox::{Mailbox, Slot};
use crate::migration::RulesContext;
use crate::observer::ObserverEvent;
use crate::snapshot::{SessionRecord, SnapshotSender};
use crate::stream::Incoming;

/// How long a session without streams keeps memory that the next burst of requests would need again.
const SHRINK_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of allocations of ended streams that are kept until then.
const MAX_FREE_WORK: usize = 32;

/// Requests to a session from outside its task.
#[derive(Debug)]
pub(crate) enum Command {
    /// A connection, possibly of another worker, requests to join.
    Join(Box<JoinHandover>),
    /// A connection of this session that another one refuses is returned.
    JoinRefused(Box<JoinHandover>, JoinRefusal),
    /// A connection of this session that requested to join another one has joined it, is lost, or is served here again.
    JoinDecided,
    /// Finish the running streams, accept no new ones.
    Drain,
    /// Take a snapshot of the session.
    Snapshot(SnapshotSender),
}

type PinnedWork<S, B> = Pin<Box<Work<S, <S as Service<Request<Incoming>>>::Future, B>>>;
type ServiceExchange<S, B> = Exchange<S, <S as Service<Request<Incoming>>>::Future, B>;

/// The server's half of one session.
pub(super) struct ServerSession<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    pub(super) worker: Rc<Worker<S>>,
    pub(super) mailbox: Arc<Mailbox<Command>>,
    service: S,
    pub(super) slots: Slots<ServiceExchange<S, B>>,
    stream_slots: StreamSlots,
    /// Allocations of ended streams, for reuse.
    free_work: Vec<PinnedWork<S, B>>,
    /// `None` until SMig is established; without it, no stream can migrate.
    pub(super) app_id: Option<AppId>,
    pub(super) rules_context: RulesContext,
    /// Informational responses that handlers send.
    pub(super) pending_informational: Arc<PendingInformational>,
    /// Streams that the rules track.
    pub(super) candidates: Vec<Slot>,
    /// The session's number in the worker's list.
    list_number: usize,
    pub(super) session_record: SessionRecord,
    /// Since when no stream is open; `None` while one is, or until the next turn sets it.
    idle_since: Option<Instant>,
    /// Whether it may hold more memory than an idle session should.
    has_burst_memory: bool,
    state: SessionState,
    /// Connections that other sessions may still return.
    pub(super) undecided_joins: usize,
    /// When to check for slow request bodies.
    pub(super) next_upload_check: Option<Instant>,
    pub(super) bulk_uploads: BulkUploads,
    spread: SpreadStreams,
}

/// Whether the session accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Open,
    /// GOAWAY was sent.
    Draining,
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    pub(super) fn new(worker: Rc<Worker<S>>) -> Self {
        let mailbox = Mailbox::new();
        let list_number = worker.register(&mailbox);
        let now = crate::clock::now();
        let spread = SpreadStreams::new(now, worker.shared.engine_config.smig.as_ref());
        Self {
            service: worker.service.clone(),
            slots: Slots::new(Arc::clone(mailbox.notifier())),
            pending_informational: PendingInformational::new(Arc::clone(mailbox.notifier())),
            mailbox,
            worker,
            stream_slots: StreamSlots::default(),
            free_work: Vec::new(),
            app_id: None,
            rules_context: RulesContext::default(),
            candidates: Vec::new(),
            list_number,
            session_record: SessionRecord::new(now),
            idle_since: None,
            has_burst_memory: false,
            state: SessionState::Open,
            undecided_joins: 0,
            next_upload_check: None,
            bulk_uploads: BulkUploads::default(),
            spread,
        }
    }

    /// Answers a request for a snapshot.
    fn send_snapshot(&self, turn: &TurnCx<'_>, sender: SnapshotSender) {
        let find = |key| {
            let exchange = self.slots.get(self.stream_slots.get(key)?)?;
            Some(&exchange.record)
        };
        if let Some(session) = turn.snapshot(&self.session_record, find) {
            // The receiver may have been dropped.
            drop(sender.send(Box::new(session)));
        }
    }

    /// Shuts the session down gracefully: no new streams, running streams may finish.
    fn drain(&mut self, turn: &mut TurnCx<'_>) {
        self.state = SessionState::Draining;
        self.idle_since = None;
        turn.session.shutdown(turn.now);
    }

    /// Frees memory of a session that is idle, and ends it after the idle timeout.
    fn apply_idle_timeout(&mut self, turn: &mut TurnCx<'_>) {
        if self.slots.len() > 0 {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(turn.now);
        let idle_time = turn.now.saturating_duration_since(since);
        if self.has_burst_memory && idle_time >= SHRINK_AFTER {
            self.has_burst_memory = false;
            self.slots.shrink();
            self.free_work.truncate(1);
            self.free_work.shrink_to_fit();
            self.stream_slots.shrink();
        }
        if idle_time < self.idle_timeout() {
            return;
        }
        match self.state {
            SessionState::Open => self.drain(turn),
            SessionState::Draining => {
                turn.conns.close_all(turn.now, turn.session);
                self.idle_since = Some(turn.now);
            }
        }
    }

    fn idle_timeout(&self) -> Duration {
        match self.state {
            SessionState::Open => self.worker.shared.time_limits.idle,
            SessionState::Draining => CLOSE_TIMEOUT,
        }
    }

    pub(super) const fn mailbox(&self) -> &Arc<Mailbox<Command>> {
        &self.mailbox
    }
}

impl<S, B> SessionHandler for ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    type Command = Command;

    fn on_event(&mut self, turn: &mut TurnCx<'_>, event: Event) {
        let events = &self.worker.shared.events;
        match event {
            Event::Request { conn, stream, head, end } => {
                self.on_request(turn, conn, stream, head, end);
            }
            Event::Readable { stream } => {
                if let Some(slot) = self.stream_slots.get(stream) {
                    self.on_readable(turn, slot);
                }
            }
            Event::Writable { stream } => {
                if let Some(slot) = self.stream_slots.get(stream) {
                    self.advance(turn, slot);
                }
            }
            Event::Finished { stream } => {
                if let Some(slot) = self.stream_slots.get(stream)
                    && let Some((exchange, _)) = self.slots.entry(slot)
                {
                    exchange.send_state = BodySendState::Sent;
                    self.release_if_complete(turn, slot);
                }
            }
            Event::Failed { stream, error } => match self.stream_slots.get(stream) {
                Some(slot) => self.on_reset(turn, slot, error),
                None => turn.session.release(stream),
            },
            Event::SessionEstablished { app, .. } => {
                self.app_id = Some(app);
                if self.worker.shared.registry.insert(app, &self.mailbox)
                    == Registration::Registered
                {
                    events.on_event(&ObserverEvent::SessionEstablished);
                }
            }
            Event::JoinRequested { conn, cid } => self.on_join_requested(turn, conn, cid),
            Event::Migrated { stream, from, to, mover, recv_offset: received } => {
                tracing::debug!(?stream, %from, %to, ?mover, "stream migrated");
                self.on_migrated(turn, Migration { stream, from, to, mover, received });
            }
            Event::MigrationDeclined { stream } => {
                let addrs = events.addrs_of_stream(turn, stream);
                let stream_ref = events.stream_ref(turn, &self.session_record, stream);
                events.on_event(&ObserverEvent::MigrationDeclined { addrs, stream: stream_ref });
                let slot = self.stream_slots.get(stream);
                let entry = slot.and_then(|slot| self.slots.entry(slot));
                let mut exchange = entry.map(|(exchange, _)| exchange);
                if let Some(candidate) = exchange.as_mut().and_then(|it| it.candidate.as_mut()) {
                    candidate.on_declined();
                }
                self.spread.on_declined(turn.now, stream);
                self.session_record.on_declined(stream, exchange.map(|it| &mut it.record));
            }
            Event::Closed { conn, error } => {
                tracing::debug!(%conn, ?error, "connection ended");
            }
            Event::LimitHit { conn, limit } => {
                let peer = turn.conns.info(conn).map(|info| info.peer_addr());
                self.worker.shared.on_limit_hit(limit, peer);
            }
            _ => {}
        }
    }

    fn on_command(&mut self, turn: &mut TurnCx<'_>, command: Command) {
        match command {
            Command::Join(handover) => self.on_join(turn, *handover),
            Command::JoinRefused(handover, refusal) => self.adopt_refused(turn, *handover, refusal),
            Command::JoinDecided => self.undecided_joins -= 1,
            Command::Drain => self.drain(turn),
            Command::Snapshot(sender) => self.send_snapshot(turn, sender),
        }
    }

    fn on_wake(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        if self.slots.take_woken(slot).is_some() {
            self.apply_handle_requests(turn, slot);
            self.advance(turn, slot);
        }
    }

    fn on_turn(&mut self, turn: &mut TurnCx<'_>) {
        self.apply_idle_timeout(turn);
        self.reset_slow_uploads(turn);
        self.pace_uploads(turn);
        self.spread_streams(turn);
        if !self.candidates.is_empty() && self.app_id.is_some() && self.spread.allows_rules() {
            self.evaluate_candidates(turn);
        }
    }

    fn is_settled(&self) -> bool {
        // What the rules decide depends on what was sent. Without streams, the idle time has to begin.
        self.candidates.is_empty() && (self.slots.len() > 0 || self.idle_since.is_some())
    }

    fn deadline(&self) -> Option<Instant> {
        let shrink_after = if self.has_burst_memory { SHRINK_AFTER } else { Duration::MAX };
        let idle = self.idle_since.map(|since| since + self.idle_timeout().min(shrink_after));
        [idle, self.next_upload_check, self.spread.deadline()].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        // A connection that is sent after this is returned to its sender, which serves it.
        self.slots.len() == 0 && self.undecided_joins == 0 && self.mailbox.close_if_empty()
    }

    fn on_end(&mut self) {
        // First of all: from now on a connection that requests to join stays with its sender.
        let commands = self.mailbox.close();
        if let Some(app) = self.app_id {
            self.worker.shared.registry.remove(app, &self.mailbox);
        }
        self.worker.unregister(self.list_number);
        for command in commands {
            if let Command::Join(handover) = command {
                handover.return_to_origin(JoinRefusal::UnknownSession);
            }
        }
        for exchange in self.slots.drain() {
            // A handler may have given the body to another task.
            if let Some(shared) = &exchange.shared {
                shared.fail(Error::new(ErrorKind::Connection(None)));
            }
            // A destructor of the application may panic.
            if catch_panic(|| drop(exchange)).is_err() {
                self.worker.shared.events.on_event(&ObserverEvent::Panicked);
            }
        }
    }
}
