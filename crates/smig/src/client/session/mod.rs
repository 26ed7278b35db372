//! The client's half of a session: requests to the engine, responses to the application.
//!
//! This module holds the state, and dispatches events of the engine, commands and wake-ups of
//! streams. A request is first in [`queue`], then in [`streams`]; [`continuing`] may move it to another session;
//! [`closing`] ends the session.

mod closing;
mod continuing;
mod queue;
mod streams;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smig_proto::{Event, Instant, StreamKey};
use tokio::sync::oneshot;

use crate::client::pool::OriginContext;
use crate::client::request::{BodySendState, OpenRequest, QueuedRequest};
use crate::client::reset_rate::ResetRate;
use crate::client::spares::Spares;
use crate::client::unfinished_uploads::UnfinishedUploads;
use crate::driver::{Migration, ReceivePacer, SessionHandler, Slots, TurnCx};
use crate::error::{Error, ErrorKind};
use crate::mailbox::{Mailbox, Slot};
use crate::migration::{self, RulesContext};
use crate::observer::ObserverEvent;
use crate::snapshot::{MigrationCause, SessionRecord, SnapshotSender};
use crate::stream::UploadExtent;
use crate::throttled;
use crate::transport::Transport;

pub(crate) use continuing::{ContinuationState, RangeAnswer};

/// Commands to a session's task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a request.
    Request(Box<QueuedRequest>),
    /// The result of dialing a further connection.
    Dialed(Box<Result<Transport, Error>>),
    /// The result of a range request on another session.
    RangeAnswer(Box<RangeAnswer>),
    /// Return the server's protocol as soon as it is known.
    AwaitProtocol(oneshot::Sender<Result<NegotiatedProtocol, Error>>),
    /// Accept no more requests, and close after the current ones.
    Retire(RetireIf),
    /// Like [`Self::Retire`], unless the session is connected to one of these addresses.
    SetAddresses(Vec<IpAddr>),
    /// Return a snapshot of the session.
    Snapshot(SnapshotSender),
}

/// The condition of [`Command::Retire`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetireIf {
    Always,
    /// Only if the session has no request.
    Idle,
}

/// The protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NegotiatedProtocol {
    /// HTTP/2 with migration.
    Smig,
    /// Plain HTTP/2.
    Http2,
    /// HTTP/1.1.
    Http1,
}

/// Whether the session accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Open,
    /// No new requests; the session closes after the last response.
    Closing,
    /// GOAWAY was sent.
    GoawaySent,
}

/// The client's half of one session.
#[derive(Debug)]
pub(super) struct ClientSession {
    pub(super) context: Arc<OriginContext>,
    mailbox: Arc<Mailbox<Command>>,
    slots: Slots<OpenRequest>,
    by_key: FxHashMap<StreamKey, Slot>,
    queue: VecDeque<Box<QueuedRequest>>,
    pub(super) spares: Spares,
    rules_context: RulesContext,
    candidates: Vec<Slot>,
    unfinished_uploads: UnfinishedUploads<StreamKey>,
    reset_rate: ResetRate,
    /// Number of the engine's resets that `reset_rate` includes.
    counted_resets: u64,
    /// Until then no stream is opened and no unfinished upload is reset: the server's limit of resets may be near.
    throttled_until: Option<Instant>,
    session_record: SessionRecord,
    /// Paces received bulk.
    receive_pacer: Option<ReceivePacer>,
    state: SessionState,
    idle_since: Option<Instant>,
    /// The session is in use: keep spares ready.
    keep_spares: bool,
    /// The server's protocol as far as known, and the callers that wait for it.
    protocol: NegotiatedProtocol,
    protocol_waiters: Vec<oneshot::Sender<Result<NegotiatedProtocol, Error>>>,
}

impl ClientSession {
    pub(super) fn new(
        context: Arc<OriginContext>,
        mailbox: Arc<Mailbox<Command>>,
        spares: Spares,
    ) -> Self {
        Self {
            slots: Slots::new(Arc::clone(mailbox.notifier())),
            context,
            mailbox,
            by_key: FxHashMap::default(),
            queue: VecDeque::new(),
            spares,
            rules_context: RulesContext::default(),
            candidates: Vec::new(),
            unfinished_uploads: UnfinishedUploads::default(),
            reset_rate: ResetRate::default(),
            counted_resets: 0,
            throttled_until: None,
            session_record: SessionRecord::new(crate::clock::now()),
            receive_pacer: None,
            state: SessionState::Open,
            idle_since: None,
            keep_spares: true,
            protocol: NegotiatedProtocol::Http2,
            protocol_waiters: Vec::new(),
        }
    }

    /// Sends a snapshot of the session.
    fn send_snapshot(&self, turn: &TurnCx<'_>, sender: SnapshotSender) {
        let find = |key| {
            let request = self.slots.get(*self.by_key.get(&key)?)?;
            Some(&request.record)
        };
        if let Some(session) = turn.snapshot(&self.session_record, find) {
            // The caller may have dropped the receiver.
            drop(sender.send(Box::new(session)));
        }
    }
}

impl SessionHandler for ClientSession {
    type Command = Command;

    fn on_event(&mut self, turn: &mut TurnCx<'_>, event: Event) {
        let slot = |stream| self.by_key.get(&stream).copied();
        match event {
            Event::Response { stream, head, end } => {
                if let Some(slot) = slot(stream) {
                    self.on_response(turn, slot, head, end);
                }
            }
            Event::Informational { stream, head } => {
                if let Some(slot) = slot(stream) {
                    self.on_informational(slot, &head);
                }
            }
            Event::Readable { stream } => {
                if let Some(slot) = slot(stream) {
                    self.on_readable(turn, slot);
                }
            }
            Event::Writable { stream } => {
                if let Some(slot) = slot(stream) {
                    self.pump(turn, slot);
                }
            }
            Event::Finished { stream } => {
                if let Some(slot) = slot(stream)
                    && let Some((request, _)) = self.slots.entry(slot)
                {
                    request.send_state = BodySendState::Sent;
                    self.release_if_complete(turn, slot);
                }
            }
            Event::Failed { stream, error } => match slot(stream) {
                Some(slot) => self.on_reset(turn, slot, error),
                None => turn.session.release(stream),
            },
            // Unexpected: our settings disable push.
            Event::Pushed { stream, .. } => turn.session.release(stream),
            Event::StreamsAvailable => self.open_queued(turn),
            Event::SessionEstablished { .. } => {
                self.context.events.on_event(&ObserverEvent::SessionEstablished);
                self.protocol = NegotiatedProtocol::Smig;
                self.spares.on_established();
            }
            Event::Joined { conn } => {
                tracing::debug!(%conn, "connection joined");
                let addrs = self.context.events.addrs_of(turn, conn);
                self.context.events.on_event(&ObserverEvent::Joined { conn, addrs });
                self.spares.on_joined(turn);
            }
            Event::JoinRefused { conn, reason } => {
                throttled!(info, "refused spare", %conn, ?reason, "spare connection refused");
                let addrs = self.context.events.addrs_of(turn, conn);
                self.context.events.on_event(&ObserverEvent::JoinRefused { addrs });
                self.spares.on_refused(turn, conn, reason);
            }
            Event::MigrationOffered { stream } => self.spares.on_offer(turn, stream),
            Event::Migrated { stream, from, to, mover, recv_offset: received } => {
                tracing::debug!(?stream, %from, %to, ?mover, "stream migrated");
                self.on_migrated(turn, Migration { stream, from, to, mover, received });
            }
            Event::MigrationDeclined { stream } => self.on_migration_declined(turn, stream),
            Event::GoingAway { conn, code, .. } => {
                tracing::debug!(%conn, %code, "the server is going away");
                self.stop_accepting(turn);
            }
            Event::Closed { conn, error } => {
                tracing::debug!(%conn, ?error, "connection ended");
                self.spares.on_closed(turn, error.and_then(|error| error.cause));
            }
            Event::LimitHit { conn, limit } => {
                throttled!(warn, limit, %conn, limit, "limit reached");
                self.context.events.on_event(&ObserverEvent::LimitHit(limit));
            }
            _ => {}
        }
    }

    fn on_command(&mut self, turn: &mut TurnCx<'_>, command: Command) {
        match command {
            Command::Request(mut queued_request) => {
                queued_request.queue_permit.start_wait(turn.now);
                // A request that another session returned is older than those that came here directly.
                let queued_at = queued_request.queue_permit.queued_at();
                let at =
                    self.queue.partition_point(|other| other.queue_permit.queued_at() <= queued_at);
                self.queue.insert(at, queued_request);
                self.open_queued(turn);
            }
            Command::Dialed(result) => self.spares.on_dialed(turn, *result),
            Command::RangeAnswer(answer) => self.on_range_answer(turn, *answer),
            Command::AwaitProtocol(sender) => self.protocol_waiters.push(sender),
            Command::Retire(condition) => {
                let is_idle = self.slots.len() == 0 && self.queue.is_empty();
                if is_idle || condition == RetireIf::Always {
                    self.stop_accepting(turn);
                }
            }
            Command::SetAddresses(addresses) => {
                if !addresses.contains(&self.spares.addr().ip().to_canonical()) {
                    tracing::info!(origin = %self.context.origin, "the server's addresses changed");
                    self.stop_accepting(turn);
                }
            }
            Command::Snapshot(sender) => self.send_snapshot(turn, sender),
        }
    }

    fn on_wake(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((request, _)) = self.slots.take_woken(slot) else { return };
        let requests = request.shared.take_requests();
        let key = request.key;
        // If the response was complete when it was dropped, the request is still sent to its end.
        if requests.dropped && request.shared.is_abandoned() {
            return self.release_stream(turn, slot);
        }
        if let Some(priority) = requests.priority {
            turn.session.reprioritize(key, priority);
        }
        if requests.migrate {
            let why = MigrationCause::Application;
            migration::migrate(turn, key, migration::Offers::Never, why, &mut request.record);
        }
        if requests.upload == UploadExtent::UntilResponse {
            request.abandon_upload();
        }
        self.on_readable(turn, slot);
        self.pump(turn, slot);
    }

    fn on_turn(&mut self, turn: &mut TurnCx<'_>) {
        if !self.candidates.is_empty() {
            self.evaluate_candidates(turn);
        }
        self.context.load.set_open_streams(self.slots.len() + self.queue.len());
        self.pace_receiving(turn);
        self.count_resets(turn);
        self.reset_unfinished(turn);
        self.resume_throttled(turn);
        self.queue.retain(|outgoing| !outgoing.shared.is_released());
        self.expire_queued(turn.now);
        if self.may_await_settings() {
            self.open_queued(turn);
        }
        if turn.session.has_peer_settings() {
            self.context.load.set_ready();
            for sender in self.protocol_waiters.drain(..) {
                // The caller may have dropped the receiver.
                let _ = sender.send(Ok(self.protocol));
            }
        }
        if turn.conns.is_empty() {
            self.stop_accepting(turn);
        }
        self.apply_idle_timeout(turn);
        if self.state == SessionState::Open && self.keep_spares {
            self.spares.keep_ready(turn, &self.context, &self.mailbox);
        }
    }

    fn is_settled(&self) -> bool {
        // What it counts, paces and queues depends on what was received and sent.
        false
    }

    fn deadline(&self) -> Option<Instant> {
        let idle =
            self.idle_since.zip(self.current_idle_timeout()).map(|(since, limit)| since + limit);
        // Resets of unfinished uploads are throttled as well.
        let resets = self.throttled_until.or_else(|| self.unfinished_uploads.deadline());
        [idle, self.queue_deadline(), resets].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        // Responses that were received completely can still be read.
        self.slots.len() == 0
    }

    fn on_end(&mut self) {
        self.context.remove_session(&self.mailbox);
        // Before anything of the application is dropped: a destructor may panic, and no command may wait for ever.
        let commands = self.mailbox.close();
        for request in self.slots.drain() {
            request.shared.fail(Error::new(ErrorKind::Connection(None)));
        }
        let mailbox_requests = commands.into_iter().filter_map(|command| match command {
            Command::Request(outgoing) => Some(outgoing),
            // The receiver of a dropped `AwaitProtocol` is notified by the drop of its sender.
            Command::Dialed(_)
            | Command::RangeAnswer(_)
            | Command::AwaitProtocol(_)
            | Command::Retire(_)
            | Command::SetAddresses(_)
            | Command::Snapshot(_) => None,
        });
        for queued_request in self.queue.drain(..).chain(mailbox_requests) {
            queued_request
                .return_unsent(Error::new(ErrorKind::Refused("its last connection was closed")));
        }
    }
}
