//! The client's half of a session: requests to the engine, responses to the application.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use rustc_hash::FxHashMap;
use smig_proto::{
    EndStream, ErrorCode, Event, Instant, OpenError, ResponseHead, StreamError, StreamKey,
};
use tokio::sync::oneshot;

use super::pool::OriginContext;
use super::request::{BodySendState, OpenRequest, QueuedRequest, Rest};
use super::reset_rate::ResetRate;
use super::spares::Spares;
use super::unfinished_uploads::UnfinishedUploads;
use crate::driver::{CLOSE_TIMEOUT, Migration, SessionHandler, Slots, TurnCx};
use crate::error::{Error, ErrorKind, Reset, TimeoutPhase};
use crate::mailbox::{Mailbox, Slot};
use crate::migration::{self, Candidate, RecentStreams};
use crate::observer::ObserverEvent;
use crate::seldom;
use crate::snapshot::{MigrationCause, RequestLabel, SessionRecord, SnapshotSender, StreamRecord};
use crate::stream::{
    self, BodyRecvState, Head, RequestBody, SendProgress, Sends, Unsent, content_length,
};
use crate::transport::Transport;

/// How long spares of an unused session stay open.
const SPARE_IDLE: Duration = Duration::from_secs(30);

/// Commands to a session's task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send a request.
    Request(Box<QueuedRequest>),
    /// The result of dialing a further connection.
    Dialed(Box<Result<Transport, Error>>),
    /// Return the server's protocol as soon as it is known.
    AwaitProtocol(oneshot::Sender<Result<NegotiatedProtocol, Error>>),
    /// Close after the current requests.
    Finish,
    /// Like [`Self::Finish`], but only if the session has no request.
    FinishIfIdle,
    /// Like [`Self::Finish`], unless the session is connected to one of these addresses.
    MoveTo(Vec<IpAddr>),
    /// Return a snapshot of the session.
    Describe(SnapshotSender),
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
    Ended,
}

/// The client's half of one session.
#[derive(Debug)]
pub(super) struct ClientSession {
    pub(super) context: Arc<OriginContext>,
    mailbox: Arc<Mailbox<Command>>,
    slots: Slots<OpenRequest>,
    by_key: FxHashMap<StreamKey, Slot>,
    queue: VecDeque<Box<QueuedRequest>>,
    /// Whether requests in the queue wait for the server's SETTINGS.
    awaits_settings: bool,
    pub(super) spares: Spares,
    recent: RecentStreams,
    watched: Vec<Slot>,
    unfinished: UnfinishedUploads<StreamKey>,
    resets: ResetRate,
    /// Number of the engine's resets that `resets` includes.
    resets_counted: u64,
    /// Until then no stream is opened and no unfinished upload is reset: the server's limit of resets may be near.
    held_until: Option<Instant>,
    session_record: SessionRecord,
    state: SessionState,
    idle_since: Option<Instant>,
    /// The session is in use: keep spares ready.
    spares_wanted: bool,
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
            awaits_settings: false,
            spares,
            recent: RecentStreams::default(),
            watched: Vec::new(),
            unfinished: UnfinishedUploads::default(),
            resets: ResetRate::default(),
            resets_counted: 0,
            held_until: None,
            session_record: SessionRecord::begin(crate::clock::now()),
            state: SessionState::Open,
            idle_since: None,
            spares_wanted: true,
            protocol: NegotiatedProtocol::Http2,
            protocol_waiters: Vec::new(),
        }
    }

    /// Sends queued requests while the server allows more streams and would tolerate a reset of all of them. An
    /// extended CONNECT that awaits SETTINGS stays in its place, and others overtake it.
    fn open_queued(&mut self, turn: &mut TurnCx<'_>) {
        let mut at = 0;
        loop {
            self.count_resets(turn);
            let Some(outgoing) = self.queue.get(at) else { break };
            if outgoing.shared.is_released() {
                self.queue.remove(at);
                continue;
            }
            if !self.resets.may_open(turn.now, self.slots.len()) {
                self.hold(turn.now);
                break;
            }
            let end = if outgoing.body.is_empty() { EndStream::Yes } else { EndStream::No };
            match turn.session.open(turn.now, None, &outgoing.head, end) {
                Err(OpenError::Blocked) => break,
                Err(OpenError::AwaitsSettings) => at += 1,
                result => {
                    let Some(outgoing) = self.queue.remove(at) else { break };
                    self.leave_queue(turn, *outgoing, result);
                }
            }
        }
        self.awaits_settings = at > 0;
    }

    /// Handles the end of a request's wait: it has a stream, or it cannot have one.
    fn leave_queue(
        &mut self,
        turn: &mut TurnCx<'_>,
        request: QueuedRequest,
        result: Result<StreamKey, OpenError>,
    ) {
        match result {
            Ok(key) => self.opened(turn, key, request),
            Err(OpenError::NoConnection) => {
                request.give_back(Error::new(ErrorKind::Refused("no connection accepts it")));
            }
            Err(error) => request.shared.fail(Error::new(ErrorKind::Request(error.to_string()))),
        }
    }

    /// Returns when the queue timeout of the oldest request expires.
    fn queue_deadline(&self) -> Option<Instant> {
        Some(self.queue.front()?.place.queued_at()? + self.context.queue_timeout?)
    }

    /// Fails the requests whose queue timeout has expired; the oldest is at the front.
    fn give_up_waiting(&mut self, now: Instant) {
        let Some(after) = self.context.queue_timeout else { return };
        while self.queue_deadline().is_some_and(|at| at <= now)
            && let Some(outgoing) = self.queue.pop_front()
        {
            let error = Error::new(ErrorKind::Timeout { phase: TimeoutPhase::Queue, after });
            // Release its slot for other requests.
            outgoing.shared.give_back(Unsent { body: outgoing.body, place: None }, error);
        }
    }

    /// Calls the request's callback for a 1xx response.
    fn on_informational(&mut self, slot: Slot, head: &ResponseHead) {
        if let Some((call, _)) = self.slots.entry(slot)
            && let Some(on_informational) = &call.on_informational
        {
            on_informational.call(head.status, &head.headers);
        }
    }

    fn opened(&mut self, turn: &mut TurnCx<'_>, key: StreamKey, outgoing: QueuedRequest) {
        let transfer = outgoing.transfer();
        let QueuedRequest { head, body, length, options, shared, .. } = outgoing;
        let stream = self.context.counters.place(turn, &self.session_record, key);
        self.context.counters.on_event(&ObserverEvent::StreamOpened { stream });
        let name = RequestLabel::of(&head.method, &head.uri, self.context.describe_streams);
        self.recent.on_open(turn.now);
        if let Some(view) = turn.session.stream(key) {
            shared.on_connection(view.connection, 0);
        }
        let candidate = Candidate::new(&self.context.rules, transfer, options.hint, turn.now);
        let is_watched = candidate.is_some();
        // Without a body, the head is all there is to send.
        let outbound = if body.is_empty() { BodySendState::Sent } else { BodySendState::Open };
        let slot = self.slots.insert(OpenRequest {
            key,
            shared: Arc::clone(&shared),
            body,
            length,
            touched: false,
            inbound: BodyRecvState::Open,
            outbound,
            rest: Rest::Wanted,
            candidate,
            on_informational: options.on_informational,
            record: StreamRecord::begin(turn.now, name),
        });
        self.by_key.insert(key, slot);
        if is_watched {
            self.watched.push(slot);
        }
        shared.place(slot);
        shared.on_sent(turn.now);
        if shared.is_released() {
            return self.forget(turn, slot);
        }
        self.pump(turn, slot);
    }

    /// Sends what the request's body yields.
    fn pump(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((call, waker)) = self.slots.entry(slot) else { return };
        if call.outbound != BodySendState::Open {
            return;
        }
        call.touched = true;
        let mut cx = Context::from_waker(waker);
        let body = Pin::new(&mut call.body);
        match stream::pump(turn.session, call.key, body, &mut call.length, &mut cx) {
            SendProgress::Pending => {}
            SendProgress::Done => {
                call.outbound = BodySendState::Ended;
                call.body = RequestBody::default();
                self.settle(turn, slot);
            }
            // There is nothing left to send, so no event for it will follow.
            SendProgress::Over => {
                call.outbound = BodySendState::Sent;
                call.body = RequestBody::default();
                self.settle(turn, slot);
            }
            SendProgress::Failed(error) => {
                let code = error.downcast_ref().map_or(ErrorCode::Cancel, |Reset(code)| *code);
                if call.inbound == BodyRecvState::Ended && !is_tunnel(turn, call.key) {
                    // No caller waits for the reset, and it may be one of many: defer it.
                    call.outbound = BodySendState::Broken(code);
                    call.body = RequestBody::default();
                    call.give_up();
                    return self.settle(turn, slot);
                }
                call.shared.fail(Error::new(ErrorKind::Body(error)));
                turn.session.reset(call.key, code);
                self.forget(turn, slot);
            }
        }
    }

    fn on_response(
        &mut self,
        turn: &mut TurnCx<'_>,
        slot: Slot,
        head: ResponseHead,
        end: EndStream,
    ) {
        let Some((call, _)) = self.slots.entry(slot) else { return };
        let announced = content_length(&head.headers);
        // Set the head first: a reader on another thread takes an end without a head for a cancelled stream.
        call.shared.put_head(Head::Stream(head), announced);
        if end == EndStream::Yes {
            call.shared.put_end();
            call.inbound = BodyRecvState::Ended;
        }
        self.settle(turn, slot);
    }

    fn on_readable(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((call, _)) = self.slots.entry(slot) else { return };
        if call.inbound == BodyRecvState::Open {
            call.inbound = stream::feed(turn.session, call.key, &call.shared);
        }
        self.settle(turn, slot);
    }

    fn on_reset(&mut self, turn: &mut TurnCx<'_>, slot: Slot, error: StreamError) {
        if let Some((call, _)) = self.slots.entry(slot) {
            let ends = self.context.counters.ends_of_stream(turn, call.key);
            let stream = self.context.counters.place(turn, &self.session_record, call.key);
            self.context.counters.on_event(&ObserverEvent::StreamReset { ends, stream });
            if error.code == ErrorCode::RefusedStream {
                // The server counts it like a stream that this client reset.
                self.resets.add(turn.now);
            }
            let error = Error::from(error);
            if error.is_retryable() && !call.touched {
                let body = core::mem::take(&mut call.body);
                call.shared.give_back(Unsent { body, place: None }, error);
            } else {
                call.shared.fail(error);
            }
        }
        self.forget(turn, slot);
    }

    /// Removes the stream if nothing more happens on it.
    fn settle(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((call, _)) = self.slots.entry(slot) else { return };
        if call.is_over() {
            self.context.counters.ended(turn, &self.session_record, call.key, &call.record);
            self.forget(turn, slot);
        } else if call.is_unfinished() && !is_tunnel(turn, call.key) {
            call.rest = Rest::Left;
            self.unfinished.add(turn.now, call.key);
        }
    }

    /// Resets streams whose responses are complete and whose requests were abandoned.
    fn reset_unfinished(&mut self, turn: &mut TurnCx<'_>) {
        loop {
            let due = self.unfinished.deadline().is_some_and(|at| at <= turn.now);
            if due && !self.resets.may_reset(turn.now) {
                return self.hold(turn.now);
            }
            let Self { unfinished, by_key, .. } = self;
            let Some(key) = unfinished.pop(turn.now, |key| by_key.contains_key(&key)) else {
                return;
            };
            let Some(&slot) = by_key.get(&key) else { continue };
            if let Some((call, _)) = self.slots.entry(slot) {
                self.context.counters.ended(turn, &self.session_record, key, &call.record);
                turn.session.reset(key, call.code());
            }
            self.forget(turn, slot);
            self.count_resets(turn);
        }
    }

    fn count_resets(&mut self, turn: &TurnCx<'_>) {
        let all = turn.session.cancelled();
        while self.resets_counted < all {
            self.resets_counted += 1;
            self.resets.add(turn.now);
        }
    }

    fn hold(&mut self, now: Instant) {
        self.held_until = Some(self.resets.next(now));
    }

    /// Resumes held requests and uploads when the server has discounted some of the resets. Until then, if
    /// another session can be opened, the queued requests are returned for it.
    fn resume_held(&mut self, turn: &mut TurnCx<'_>) {
        if self.held_until.is_some_and(|at| at <= turn.now) {
            self.held_until = None;
            self.open_queued(turn);
        }
        let waits = self.held_until.is_some() && !self.queue.is_empty();
        if !waits || self.state != SessionState::Open || self.context.spare_place().is_err() {
            return;
        }
        tracing::debug!("many streams were reset, the session accepts no more requests");
        self.stop_accepting(turn);
        // The session does not need its spares any more, and further sessions may follow soon.
        self.spares_wanted = false;
        self.spares.close_idle(turn);
        for outgoing in self.queue.drain(..) {
            outgoing.give_back(Error::new(ErrorKind::Retired));
        }
        self.end_if_idle(turn);
    }

    /// Removes a stream; one that is not complete is cancelled.
    fn forget(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some(call) = self.slots.remove(slot) else { return };
        self.by_key.remove(&call.key);
        self.session_record.close(call.key, &call.record);
        if call.candidate.is_some() {
            self.watched.retain(|&watched| watched != slot);
        }
        turn.session.release(call.key);
    }

    fn on_migrated(&mut self, turn: &TurnCx<'_>, migration: Migration) {
        let Migration { stream, to, received, .. } = migration;
        let entry = self.by_key.get(&stream).and_then(|&slot| self.slots.entry(slot));
        let mut call = entry.map(|(call, _)| call);
        let record = call.as_mut().map(|call| &mut call.record);
        self.context.counters.moved(turn, &mut self.session_record, record, migration);
        let Some(call) = call else { return };
        call.shared.on_connection(to, received);
        if let Some(candidate) = &mut call.candidate {
            candidate.on_moved();
        }
    }

    fn on_migration_declined(&mut self, turn: &TurnCx<'_>, key: StreamKey) {
        let counters = &self.context.counters;
        let ends = counters.ends_of_stream(turn, key);
        let stream = counters.place(turn, &self.session_record, key);
        counters.on_event(&ObserverEvent::MoveDeclined { ends, stream });
        let entry = self.by_key.get(&key).and_then(|&slot| self.slots.entry(slot));
        self.session_record.declined(key, entry.map(|(call, _)| &mut call.record));
    }

    /// Applies the migration rules to each watched stream.
    fn evaluate_candidates(&mut self, turn: &mut TurnCx<'_>) {
        let Self { context, slots, watched, recent, session_record, .. } = self;
        let open = slots.len();
        for &slot in &*watched {
            let Some((call, _)) = slots.entry(slot) else { continue };
            let Some(candidate) = &mut call.candidate else { continue };
            let (rules, record) = (&context.rules, &mut call.record);
            if let Some(verdict) = candidate.evaluate(turn, rules, recent, call.key, open, record) {
                let stream = context.counters.place(turn, session_record, call.key);
                context.counters.on_event(&ObserverEvent::PolicyDecided { stream, verdict });
            }
        }
    }

    /// Sends a snapshot of the session.
    fn describe(&self, turn: &TurnCx<'_>, sender: SnapshotSender) {
        let find = |key| {
            let call = self.slots.get(*self.by_key.get(&key)?)?;
            Some(&call.record)
        };
        if let Some(session) = turn.snapshot(&self.session_record, find) {
            // The caller may have dropped the receiver.
            drop(sender.send(Box::new(session)));
        }
    }

    /// Stops accepting requests.
    fn stop_accepting(&mut self, turn: &mut TurnCx<'_>) {
        if self.state != SessionState::Open {
            return;
        }
        self.state = SessionState::Closing;
        self.context.forget(&self.mailbox);
        for command in self.mailbox.close() {
            self.on_command(turn, command);
        }
        self.spares.finish(turn);
        self.open_queued(turn);
        self.end_if_idle(turn);
    }

    fn end_if_idle(&mut self, turn: &mut TurnCx<'_>) {
        if self.state == SessionState::Closing && self.slots.len() == 0 && self.queue.is_empty() {
            self.state = SessionState::Ended;
            self.idle_since = Some(turn.now);
            turn.session.shutdown(turn.now);
        }
    }

    /// Closes the session when its idle timeout expires.
    fn check_idleness(&mut self, turn: &mut TurnCx<'_>) {
        if self.slots.len() > 0 || !self.queue.is_empty() {
            self.idle_since = None;
            self.spares_wanted = true;
            return;
        }
        let since = *self.idle_since.get_or_insert(turn.now);
        let idle = turn.now.saturating_duration_since(since);
        if self.state == SessionState::Open && idle >= self.context.idle_timeout {
            self.stop_accepting(turn);
        } else if self.spares_wanted && idle >= SPARE_IDLE {
            self.spares_wanted = false;
            self.spares.close_idle(turn);
            self.slots.shrink();
        } else if self.state == SessionState::Ended && idle >= CLOSE_TIMEOUT {
            turn.conns.close_all(turn.now, turn.session);
            self.idle_since = Some(turn.now);
        }
        self.end_if_idle(turn);
    }

    fn idle_deadline(&self) -> Option<Duration> {
        match self.state {
            SessionState::Open if self.spares_wanted => {
                Some(self.context.idle_timeout.min(SPARE_IDLE))
            }
            SessionState::Open => Some(self.context.idle_timeout),
            SessionState::Closing => None,
            SessionState::Ended => Some(CLOSE_TIMEOUT),
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
                    && let Some((call, _)) = self.slots.entry(slot)
                {
                    call.outbound = BodySendState::Sent;
                    self.settle(turn, slot);
                }
            }
            Event::Reset { stream, error } => match slot(stream) {
                Some(slot) => self.on_reset(turn, slot, error),
                None => turn.session.release(stream),
            },
            // Unexpected: our settings disable push.
            Event::Pushed { stream, .. } => turn.session.release(stream),
            Event::StreamsAvailable => self.open_queued(turn),
            Event::SessionEstablished { .. } => {
                self.context.counters.on_event(&ObserverEvent::SessionEstablished);
                self.protocol = NegotiatedProtocol::Smig;
                self.spares.on_established();
            }
            Event::Joined { conn } => {
                tracing::debug!(%conn, "connection joined");
                let ends = self.context.counters.ends_of(turn, conn);
                self.context.counters.on_event(&ObserverEvent::Joined { conn, ends });
                self.spares.on_joined(turn);
            }
            Event::JoinRefused { conn, reason } => {
                seldom!(info, "refused spare", %conn, ?reason, "spare connection refused");
                let ends = self.context.counters.ends_of(turn, conn);
                self.context.counters.on_event(&ObserverEvent::JoinRefused { ends });
                self.spares.on_refused(turn, conn, reason);
            }
            Event::MigrationOffered { stream } => self.spares.on_offer(turn, stream),
            Event::Migrated { stream, from, to, mover, received } => {
                tracing::debug!(?stream, %from, %to, ?mover, "stream moved");
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
                seldom!(warn, limit, %conn, limit, "limit reached");
                self.context.counters.on_event(&ObserverEvent::LimitHit(limit));
            }
            _ => {}
        }
    }

    fn on_command(&mut self, turn: &mut TurnCx<'_>, command: Command) {
        match command {
            Command::Request(mut outgoing) => {
                outgoing.place.begin(turn.now);
                // A request that another session returned is older than those that came here directly.
                let queued_at = outgoing.place.queued_at();
                let at = self.queue.partition_point(|other| other.place.queued_at() <= queued_at);
                self.queue.insert(at, outgoing);
                self.open_queued(turn);
            }
            Command::Dialed(result) => self.spares.on_dialed(turn, *result),
            Command::AwaitProtocol(sender) => self.protocol_waiters.push(sender),
            Command::Finish => self.stop_accepting(turn),
            Command::FinishIfIdle => {
                if self.slots.len() == 0 && self.queue.is_empty() {
                    self.stop_accepting(turn);
                }
            }
            Command::MoveTo(addresses) => {
                if !addresses.contains(&self.spares.addr().ip().to_canonical()) {
                    tracing::info!(origin = %self.context.origin, "the server's addresses changed");
                    self.stop_accepting(turn);
                }
            }
            Command::Describe(sender) => self.describe(turn, sender),
        }
    }

    fn on_call(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((call, _)) = self.slots.take_woken(slot) else { return };
        let requests = call.shared.take_requests();
        let key = call.key;
        // The application has read the complete response and dropped it: continue to send the request.
        if requests.gone && call.shared.is_abandoned() {
            return self.forget(turn, slot);
        }
        if let Some(priority) = requests.priority {
            turn.session.reprioritize(key, priority);
        }
        if requests.migrate {
            let why = MigrationCause::Asked;
            migration::migrate(turn, key, migration::Offers::Never, why, &mut call.record);
        }
        if requests.sends == Sends::UntilAnswered {
            call.give_up();
        }
        self.on_readable(turn, slot);
        self.pump(turn, slot);
    }

    fn on_turn(&mut self, turn: &mut TurnCx<'_>) {
        if !self.watched.is_empty() {
            self.evaluate_candidates(turn);
        }
        self.count_resets(turn);
        self.reset_unfinished(turn);
        self.resume_held(turn);
        self.queue.retain(|outgoing| !outgoing.shared.is_released());
        self.give_up_waiting(turn.now);
        if self.awaits_settings {
            self.open_queued(turn);
        }
        if turn.session.has_peer_settings() {
            for sender in self.protocol_waiters.drain(..) {
                // The caller may have dropped the receiver.
                let _ = sender.send(Ok(self.protocol));
            }
        }
        if turn.conns.is_empty() {
            self.stop_accepting(turn);
        }
        self.check_idleness(turn);
        if self.state == SessionState::Open && self.spares_wanted {
            self.spares.keep(turn, &self.context, &self.mailbox);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let idle = self.idle_since.zip(self.idle_deadline()).map(|(since, limit)| since + limit);
        // Unfinished uploads may be held as well.
        let resets = self.held_until.or_else(|| self.unfinished.deadline());
        [idle, self.queue_deadline(), resets].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        // Responses that were received completely can still be read.
        self.slots.len() == 0
    }

    fn on_end(&mut self) {
        self.context.forget(&self.mailbox);
        for call in self.slots.drain() {
            call.shared.fail(Error::new(ErrorKind::Connection(None)));
        }
        let left = self.mailbox.close().into_iter().filter_map(|command| match command {
            Command::Request(outgoing) => Some(outgoing),
            // The receiver of a dropped `AwaitProtocol` is notified by the drop of its sender.
            Command::Dialed(_)
            | Command::AwaitProtocol(_)
            | Command::Finish
            | Command::FinishIfIdle
            | Command::MoveTo(_)
            | Command::Describe(_) => None,
        });
        for outgoing in self.queue.drain(..).chain(left) {
            outgoing.give_back(Error::new(ErrorKind::Refused("its last connection was closed")));
        }
    }
}

/// Returns whether the stream is a tunnel, whose two directions end independently.
fn is_tunnel(turn: &TurnCx<'_>, key: StreamKey) -> bool {
    turn.session.stream(key).is_some_and(|view| view.tunnel)
}
