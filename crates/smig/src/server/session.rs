//! The server's half of a session: requests to the service, responses to the engine.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, Version};
use rustc_hash::FxHashMap;
use smig_proto::{
    AppId, ConnId, EndStream, ErrorCode, Event, Instant, RequestHead, StreamError, StreamKey,
};
use tower_service::Service;

use super::builder::AuthorityCheck;
use super::exchange::{BodySendState, Continue, Exchange, RequestKind, Work, guarded};
use super::heads;
use super::informational::{InformationalSender, PendingInformational};
use super::join::JoinHandover;
use super::service::{HttpService, ResponseBody};
use super::session_registry::Registration;
use super::slow_uploads;
use super::worker::Worker;
use crate::driver::{CLOSE_TIMEOUT, Migration, SessionHandler, Slots, TurnCx};
use crate::error::Error;
use crate::mailbox::{Mailbox, Slot};
use crate::migration::RecentStreams;
use crate::observer::ObserverEvent;
use crate::snapshot::{MigrationCause, RequestLabel, SessionRecord, SnapshotSender, StreamRecord};
use crate::stream::{BodyRecvState, Incoming, Length, Shared, content_length};

/// How long a session without streams keeps memory that the next burst of requests would need again.
const SHRINK_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of allocations of ended streams that are kept until then.
const MAX_FREE_WORK: usize = 32;

/// Requests to a session from outside its task.
#[derive(Debug)]
pub(crate) enum Command {
    /// A connection, possibly of another worker, requests to join.
    Join(Box<JoinHandover>),
    /// Finish the running streams, accept no new ones.
    Drain,
    /// Take a snapshot of the session.
    Describe(SnapshotSender),
}

type Place<S, B> = Pin<Box<Work<S, <S as Service<Request<Incoming>>>::Future, B>>>;
type Entry<S, B> = Exchange<S, <S as Service<Request<Incoming>>>::Future, B>;

/// The server's half of one session.
pub(super) struct ServerSession<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    pub(super) worker: Rc<Worker<S>>,
    pub(super) mailbox: Arc<Mailbox<Command>>,
    service: S,
    pub(super) slots: Slots<Entry<S, B>>,
    pub(super) by_key: FxHashMap<StreamKey, Slot>,
    /// Allocations of ended streams, for reuse.
    free_work: Vec<Place<S, B>>,
    pub(super) app: Option<AppId>,
    pub(super) recent: RecentStreams,
    /// Informational responses that handlers send.
    pub(super) informational: Arc<PendingInformational>,
    /// Streams that the rules track.
    pub(super) watched: Vec<Slot>,
    /// The session's number in the worker's list.
    list_number: usize,
    pub(super) session_record: SessionRecord,
    /// Since when no stream is open; `None` while one is.
    idle_since: Option<Instant>,
    /// Whether it holds more memory than an idle session should.
    has_burst_memory: bool,
    state: SessionState,
    /// When to check for slow request bodies.
    pub(super) check_uploads_at: Option<Instant>,
}

/// Whether the session accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Open,
    /// GOAWAY was sent.
    Ending,
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    pub(super) fn new(worker: Rc<Worker<S>>) -> Self {
        let mailbox = Mailbox::new();
        let list_number = worker.register(&mailbox);
        Self {
            service: worker.service.clone(),
            slots: Slots::new(Arc::clone(mailbox.notifier())),
            informational: PendingInformational::new(Arc::clone(mailbox.notifier())),
            mailbox,
            worker,
            by_key: FxHashMap::default(),
            free_work: Vec::new(),
            app: None,
            recent: RecentStreams::default(),
            watched: Vec::new(),
            list_number,
            session_record: SessionRecord::begin(crate::clock::now()),
            idle_since: None,
            has_burst_memory: false,
            state: SessionState::Open,
            check_uploads_at: None,
        }
    }

    /// Answers a request for a snapshot.
    fn describe(&self, turn: &TurnCx<'_>, sender: SnapshotSender) {
        let find = |key| {
            let exchange = self.slots.get(*self.by_key.get(&key)?)?;
            Some(&exchange.record)
        };
        if let Some(session) = turn.snapshot(&self.session_record, find) {
            // The receiver may have been dropped.
            drop(sender.send(Box::new(session)));
        }
    }

    /// Shuts the session down gracefully: no new streams, running streams may finish.
    fn drain(&mut self, turn: &mut TurnCx<'_>) {
        self.state = SessionState::Ending;
        self.idle_since = None;
        turn.session.shutdown(turn.now);
    }

    /// Frees memory of a session that is idle, and ends it after the idle timeout.
    fn check_idleness(&mut self, turn: &mut TurnCx<'_>) {
        if self.slots.len() > 0 {
            self.idle_since = None;
            return;
        }
        let since = *self.idle_since.get_or_insert(turn.now);
        let idle = turn.now.saturating_duration_since(since);
        if self.has_burst_memory && idle >= SHRINK_AFTER {
            self.has_burst_memory = false;
            self.slots.shrink();
            self.free_work.truncate(1);
            self.free_work.shrink_to_fit();
            self.by_key.shrink_to(4);
        }
        if idle < self.idle_limit() {
            return;
        }
        match self.state {
            SessionState::Open => self.drain(turn),
            SessionState::Ending => {
                turn.conns.close_all(turn.now, turn.session);
                self.idle_since = Some(turn.now);
            }
        }
    }

    fn idle_limit(&self) -> Duration {
        match self.state {
            SessionState::Open => self.worker.shared.deadlines.idle,
            SessionState::Ending => CLOSE_TIMEOUT,
        }
    }

    pub(super) const fn mailbox(&self) -> &Arc<Mailbox<Command>> {
        &self.mailbox
    }

    fn on_request(
        &mut self,
        turn: &mut TurnCx<'_>,
        conn: ConnId,
        key: StreamKey,
        head: Box<RequestHead>,
        end: EndStream,
    ) {
        let shared = &self.worker.shared;
        let place = shared.counters.place(turn, &self.session_record, key);
        shared.counters.on_event(&ObserverEvent::StreamOpened { stream: place });
        let name = RequestLabel::of(&head.method, &head.uri, shared.describe_streams);
        let kind = heads::kind(&head.method);
        let checked = self.worker.shared.authority == AuthorityCheck::Server;
        let served = !checked
            || head.uri.authority().is_none_or(|authority| {
                turn.conns.info(conn).is_none_or(|info| info.serves(authority))
            });
        if !served && kind != RequestKind::Connect {
            return heads::misdirected(turn, key);
        }
        let continues = match end {
            EndStream::Yes => Continue::No,
            EndStream::No => heads::continues(&head.headers),
        };
        let work = self.free_work.pop().unwrap_or_else(|| Box::pin(Work::Idle));
        let deadlines = &self.worker.shared.deadlines;
        let progress = slow_uploads::upload_progress(
            deadlines,
            kind,
            Version::HTTP_2,
            &head.headers,
            turn.now,
        );
        let slot = self.slots.insert(Exchange {
            key,
            conn,
            work,
            shared: None,
            kind,
            continues,
            inbound: if end == EndStream::Yes { BodyRecvState::Ended } else { BodyRecvState::Open },
            outbound: BodySendState::Open,
            length: Length::Unknown,
            upload: progress,
            candidate: None,
            record: StreamRecord::begin(turn.now, name),
        });
        self.by_key.insert(key, slot);
        // The stream may be closed before idleness is checked again.
        self.idle_since = None;
        self.has_burst_memory = true;
        self.recent.on_open(turn.now);
        let body = match end {
            EndStream::Yes => Incoming::empty(),
            EndStream::No => {
                self.expect_upload(turn.now);
                let announced = content_length(&head.headers);
                let notifier = Arc::clone(self.slots.notifier());
                let shared = Shared::placed(notifier, slot, announced);
                shared.on_connection(conn, 0);
                if let Some((exchange, _)) = self.slots.entry(slot) {
                    exchange.shared = Some(Arc::clone(&shared));
                }
                Incoming::stream(shared)
            }
        };
        let mut request = heads::request(*head, body, turn.conns.info(conn));
        let informational = InformationalSender::stream(Arc::clone(&self.informational), key, slot);
        request.extensions_mut().insert(informational);
        if let Some(place) = place {
            request.extensions_mut().insert(place);
        }
        self.begin(slot, request);
        self.advance(turn, slot);
    }

    /// Passes the request to the service, or stores it until the service is ready.
    fn begin(&mut self, slot: Slot, request: Request<Incoming>) {
        let Self { service, slots, .. } = self;
        let Some((exchange, waker)) = slots.entry(slot) else { return };
        let mut cx = Context::from_waker(waker);
        let ready = guarded(|| service.poll_ready(&mut cx));
        let work = match ready {
            Ok(Poll::Ready(Ok(()))) => {
                guarded(|| service.call(request)).map(|future| Work::Handler { future })
            }
            // The clone is polled again, and gets an error itself.
            Ok(Poll::Ready(Err(_)) | Poll::Pending) => {
                Ok(Work::Waiting { service: service.clone(), request: Some(request) })
            }
            Err(panicked) => Err(panicked),
        };
        // After a panic there is no work: the stream is reset when it is polled.
        exchange.work.set(work.unwrap_or(Work::Idle));
    }

    /// Passes received bytes on to the request's body.
    fn on_readable(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        if exchange.inbound == BodyRecvState::Open
            && let Some(shared) = &exchange.shared
            && !shared.is_released()
        {
            exchange.inbound = crate::stream::feed(turn.session, exchange.key, shared);
        }
        self.settle(turn, slot);
    }

    /// Does what the reader of the request body has requested.
    fn on_handle_requests(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        let Some(shared) = &exchange.shared else { return };
        let requested = shared.take_requests();
        if requested.reads && exchange.continues == Continue::Expected {
            exchange.continues = Continue::No;
            heads::send_continue(turn, exchange.key);
        }
        if let Some(priority) = requested.priority {
            turn.session.reprioritize(exchange.key, priority);
        }
        if requested.migrate {
            let offers = self.worker.shared.rules.offers;
            let why = MigrationCause::Asked;
            crate::migration::migrate(turn, exchange.key, offers, why, &mut exchange.record);
        }
        self.on_readable(turn, slot);
    }

    fn on_reset(&mut self, turn: &mut TurnCx<'_>, slot: Slot, error: StreamError) {
        if let Some((exchange, _)) = self.slots.entry(slot) {
            let counters = &self.worker.shared.counters;
            let ends = counters.ends_of_stream(turn, exchange.key);
            let stream = counters.place(turn, &self.session_record, exchange.key);
            counters.on_event(&ObserverEvent::StreamReset { ends, stream });
            if let Some(shared) = &exchange.shared {
                shared.fail(Error::from(error));
            }
        }
        self.forget(turn, slot);
    }

    /// Resets a stream that this side cannot complete.
    pub(super) fn abort(&mut self, turn: &mut TurnCx<'_>, slot: Slot, code: ErrorCode) {
        if let Some((exchange, _)) = self.slots.entry(slot) {
            let counters = &self.worker.shared.counters;
            let ends = counters.ends_of_stream(turn, exchange.key);
            let stream = counters.place(turn, &self.session_record, exchange.key);
            turn.session.reset(exchange.key, code);
            counters.on_event(&ObserverEvent::StreamReset { ends, stream });
        }
        self.forget(turn, slot);
    }

    /// Releases the stream if nothing more happens on it.
    pub(super) fn settle(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        // After a release the engine still sends what is queued, unless the request is unfinished: that waits.
        let over = match (exchange.inbound, exchange.outbound) {
            (_, BodySendState::Open) => false,
            // While the rules may migrate it, or there is an observer, it is kept until all is sent.
            (BodyRecvState::Ended, BodySendState::Ended) => {
                exchange.candidate.is_none() && !self.worker.shared.tracks_stream_end()
            }
            (BodyRecvState::Ended, BodySendState::Sent) => true,
            (BodyRecvState::Open, BodySendState::Ended) => false,
            (BodyRecvState::Open, BodySendState::Sent) => {
                exchange.shared.as_ref().is_none_or(|shared| shared.is_released())
            }
        };
        if over {
            let counters = &self.worker.shared.counters;
            counters.ended(turn, &self.session_record, exchange.key, &exchange.record);
            self.forget(turn, slot);
        }
    }

    /// Drops all state of a stream, in the engine as well.
    fn forget(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some(exchange) = self.slots.remove(slot) else { return };
        self.by_key.remove(&exchange.key);
        self.session_record.close(exchange.key, &exchange.record);
        if exchange.candidate.is_some() {
            self.watched.retain(|&watched| watched != slot);
        }
        if let Some(shared) = &exchange.shared {
            shared.fail(Error::new(crate::error::ErrorKind::Canceled));
        }
        turn.session.release(exchange.key);
        self.recycle(exchange);
    }

    /// Drops the application's part of an exchange, and keeps the allocation for the next.
    fn recycle(&mut self, mut exchange: Entry<S, B>) {
        // A destructor of the application may panic as well.
        if guarded(|| exchange.work.set(Work::Idle)).is_err() {
            self.worker.shared.counters.on_event(&ObserverEvent::Panicked);
            return;
        }
        if self.free_work.len() < MAX_FREE_WORK {
            self.free_work.push(exchange.work);
        }
    }
}

impl<S, B> SessionHandler for ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    type Command = Command;

    fn on_event(&mut self, turn: &mut TurnCx<'_>, event: Event) {
        let counters = &self.worker.shared.counters;
        match event {
            Event::Request { conn, stream, head, end } => {
                self.on_request(turn, conn, stream, head, end);
            }
            Event::Readable { stream } => {
                if let Some(&slot) = self.by_key.get(&stream) {
                    self.on_readable(turn, slot);
                }
            }
            Event::Writable { stream } => {
                if let Some(&slot) = self.by_key.get(&stream) {
                    self.advance(turn, slot);
                }
            }
            Event::Finished { stream } => {
                if let Some(&slot) = self.by_key.get(&stream)
                    && let Some((exchange, _)) = self.slots.entry(slot)
                {
                    exchange.outbound = BodySendState::Sent;
                    self.settle(turn, slot);
                }
            }
            Event::Reset { stream, error } => match self.by_key.get(&stream) {
                Some(&slot) => self.on_reset(turn, slot, error),
                None => turn.session.release(stream),
            },
            Event::SessionEstablished { app, .. } => {
                self.app = Some(app);
                if self.worker.shared.registry.insert(app, &self.mailbox) == Registration::This {
                    counters.on_event(&ObserverEvent::SessionEstablished);
                }
            }
            Event::JoinRequested { conn, cid } => self.on_join_requested(turn, conn, cid),
            Event::Migrated { stream, from, to, mover, received } => {
                tracing::debug!(?stream, %from, %to, ?mover, "stream moved");
                self.on_migrated(turn, Migration { stream, from, to, mover, received });
            }
            Event::MigrationDeclined { stream } => {
                let ends = counters.ends_of_stream(turn, stream);
                let place = counters.place(turn, &self.session_record, stream);
                counters.on_event(&ObserverEvent::MoveDeclined { ends, stream: place });
                let slot = self.by_key.get(&stream);
                let entry = slot.and_then(|&slot| self.slots.entry(slot));
                self.session_record
                    .declined(stream, entry.map(|(exchange, _)| &mut exchange.record));
            }
            Event::Closed { conn, error } => {
                tracing::debug!(%conn, ?error, "connection ended");
            }
            Event::LimitHit { conn, limit } => {
                let peer = turn.conns.info(conn).map(|info| info.peer_addr());
                self.worker.shared.on_limit(limit, peer);
            }
            _ => {}
        }
    }

    fn on_command(&mut self, turn: &mut TurnCx<'_>, command: Command) {
        match command {
            Command::Join(handover) => self.on_join(turn, *handover),
            Command::Drain => self.drain(turn),
            Command::Describe(requested) => self.describe(turn, requested),
        }
    }

    fn on_call(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        if self.slots.take_woken(slot).is_some() {
            self.on_handle_requests(turn, slot);
            self.advance(turn, slot);
        }
    }

    fn on_turn(&mut self, turn: &mut TurnCx<'_>) {
        self.check_idleness(turn);
        self.reset_slow_uploads(turn);
        if !self.watched.is_empty() && self.app.is_some() {
            self.evaluate_candidates(turn);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let lean = if self.has_burst_memory { SHRINK_AFTER } else { Duration::MAX };
        let idle = self.idle_since.map(|since| since + self.idle_limit().min(lean));
        [idle, self.check_uploads_at].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        // A connection that is sent after this is returned to its sender, which keeps it.
        self.slots.len() == 0 && self.mailbox.close_if_empty()
    }

    fn on_end(&mut self) {
        if let Some(app) = self.app {
            self.worker.shared.registry.remove(app, &self.mailbox);
        }
        self.worker.unregister(self.list_number);
        for exchange in self.slots.drain() {
            if let Some(shared) = &exchange.shared {
                shared.fail(Error::new(crate::error::ErrorKind::Connection(None)));
            }
        }
    }
}
