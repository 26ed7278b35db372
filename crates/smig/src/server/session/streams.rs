//! Requests: from the head to the last event of the stream.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Version};
use smig_proto::policy::MigrationHint;
use smig_proto::{ConnId, EndStream, ErrorCode, RequestHead, StreamError, StreamKey};

use super::{MAX_FREE_WORK, PinnedWork, ServerSession};
use crate::driver::TurnCx;
use crate::error::Error;
use crate::mailbox::Slot;
use crate::migration::Connections;
use crate::observer::ObserverEvent;
use crate::server::builder::{AuthorityCheck, RequestExtensions};
use crate::server::exchange::{
    BodySendState, ContinueExpectation, Exchange, RequestKind, Work, catch_panic,
};
use crate::server::informational::InformationalSender;
use crate::server::service::{HttpService, ResponseBody};
use crate::server::{heads, slow_uploads};
use crate::snapshot::{MigrationCause, RequestLabel, StreamRecord};
use crate::stream::{BodyLength, BodyRecvState, Incoming, SharedStream, content_length};

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    pub(super) fn on_request(
        &mut self,
        turn: &mut TurnCx<'_>,
        conn: ConnId,
        key: StreamKey,
        head: Box<RequestHead>,
        end: EndStream,
    ) {
        let shared = &self.worker.shared;
        let stream_ref = shared.events.stream_ref(turn, &self.session_record, key);
        shared.events.on_event(&ObserverEvent::StreamOpened { stream: stream_ref });
        let label = RequestLabel::of(&head.method, &head.uri, shared.request_label_limit);
        if self.is_misdirected(turn, conn, &head) {
            heads::send_misdirected(turn, key);
            let record = StreamRecord::new(turn.now, label);
            shared.events.on_stream_completed(turn, &self.session_record, key, &record);
            return turn.session.release(key);
        }
        let record = StreamRecord::new(turn.now, label);
        let slot = self.insert_exchange(turn, conn, key, (&head, end), record);
        let body = self.request_body(turn, slot, conn, (&head, end));
        let mut request = heads::build_request(*head, body);
        if self.worker.shared.request_extensions == RequestExtensions::All {
            let informational_sender =
                InformationalSender::stream(Arc::clone(&self.pending_informational), key, slot);
            request.extensions_mut().insert(informational_sender);
            if let Some(info) = turn.conns.info(conn) {
                request.extensions_mut().insert(Arc::clone(info));
            }
            if let Some(stream_ref) = stream_ref {
                request.extensions_mut().insert(stream_ref);
            }
        }
        self.call_service(slot, request);
        self.advance(turn, slot);
    }

    /// Returns whether the request is for a host that its connection does not serve, and this server checks that.
    fn is_misdirected(&self, turn: &TurnCx<'_>, conn: ConnId, head: &RequestHead) -> bool {
        if self.worker.shared.authority_check != AuthorityCheck::Server
            || heads::request_kind(&head.method) == RequestKind::Connect
        {
            return false;
        }
        head.uri.authority().is_some_and(|authority| {
            turn.conns.info(conn).is_some_and(|info| !info.serves(authority))
        })
    }

    /// Starts to keep a stream.
    fn insert_exchange(
        &mut self,
        turn: &mut TurnCx<'_>,
        conn: ConnId,
        key: StreamKey,
        (head, end): (&RequestHead, EndStream),
        record: StreamRecord,
    ) -> Slot {
        let kind = heads::request_kind(&head.method);
        let time_limits = &self.worker.shared.time_limits;
        let (continue_expectation, upload_clock, upload_watch) = match end {
            EndStream::Yes => (ContinueExpectation::NotExpected, None, None),
            EndStream::No => {
                let (version, headers) = (Version::HTTP_2, &head.headers);
                let clock =
                    slow_uploads::upload_clock(time_limits, kind, version, headers, turn.now);
                let watch = self.upload_watch(turn.now, content_length(headers), kind);
                (heads::continue_expectation(headers), clock, watch)
            }
        };
        let work = self.free_work.pop().unwrap_or_else(|| Box::pin(Work::Idle));
        let slot = self.slots.insert(Exchange {
            key,
            conn,
            work,
            shared: None,
            kind,
            continue_expectation,
            recv_state: if end == EndStream::Yes {
                BodyRecvState::Ended
            } else {
                BodyRecvState::Open
            },
            send_state: BodySendState::Open,
            length: BodyLength::Unknown,
            upload_clock,
            upload_watch,
            candidate: None,
            hint: MigrationHint::None,
            record,
        });
        self.stream_slots.insert(key, slot);
        // The stream may be closed before idleness is checked again.
        self.idle_since = None;
        self.has_burst_memory = true;
        self.rules_context.on_open(turn.now);
        self.on_stream_opened(turn, slot);
        slot
    }

    /// Returns the body of a request, and starts to watch its upload.
    fn request_body(
        &mut self,
        turn: &TurnCx<'_>,
        slot: Slot,
        conn: ConnId,
        (head, end): (&RequestHead, EndStream),
    ) -> Incoming {
        if end == EndStream::Yes {
            return Incoming::empty();
        }
        self.schedule_upload_check(turn.now);
        let announced = content_length(&head.headers);
        let notifier = Arc::clone(self.slots.notifier());
        let shared = SharedStream::with_slot(notifier, slot, announced);
        shared.set_connection(conn, 0);
        if let Some((exchange, _)) = self.slots.entry(slot) {
            exchange.shared = Some(Arc::clone(&shared));
        }
        Incoming::stream(shared)
    }

    /// Passes the request to the service, or stores it until the service is ready.
    fn call_service(&mut self, slot: Slot, request: Request<Incoming>) {
        let Self { service, slots, .. } = self;
        let Some((exchange, waker)) = slots.entry(slot) else { return };
        let mut cx = Context::from_waker(waker);
        let readiness = catch_panic(|| service.poll_ready(&mut cx));
        let work = match readiness {
            Ok(Poll::Ready(Ok(()))) => {
                catch_panic(|| service.call(request)).map(|future| Work::Handler { future })
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
    pub(super) fn on_readable(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        if exchange.recv_state == BodyRecvState::Open
            && let Some(shared) = &exchange.shared
            && !shared.is_released()
        {
            exchange.recv_state = crate::stream::deliver(turn.session, exchange.key, shared);
            self.watch_upload(turn, slot);
        }
        self.release_if_complete(turn, slot);
    }

    /// Does what the reader of the request body has requested.
    pub(super) fn apply_handle_requests(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        let Some(shared) = &exchange.shared else { return };
        let requests = shared.take_requests();
        if requests.awaits_body && exchange.continue_expectation == ContinueExpectation::Expected {
            exchange.continue_expectation = ContinueExpectation::NotExpected;
            heads::send_continue(turn, exchange.key);
        }
        if let Some(priority) = requests.priority {
            turn.session.reprioritize(exchange.key, priority);
        }
        if requests.migrate {
            let offers = self.worker.shared.migration.offers;
            let why = MigrationCause::Application;
            crate::migration::migrate(turn, exchange.key, offers, why, &mut exchange.record);
        }
        if let Some(hint) = requests.incoming_bulk_hint {
            self.set_upload_hint(turn, slot, hint);
        }
        self.on_readable(turn, slot);
    }

    pub(super) fn on_reset(&mut self, turn: &mut TurnCx<'_>, slot: Slot, error: StreamError) {
        if let Some((exchange, _)) = self.slots.entry(slot) {
            let events = &self.worker.shared.events;
            let addrs = events.addrs_of_stream(turn, exchange.key);
            let stream = events.stream_ref(turn, &self.session_record, exchange.key);
            events.on_event(&ObserverEvent::StreamReset { addrs, stream });
            if let Some(shared) = &exchange.shared {
                shared.fail(Error::from(error));
            }
        }
        self.release_stream(turn, slot);
    }

    /// Resets a stream that this side cannot complete.
    pub(in crate::server) fn abort(&mut self, turn: &mut TurnCx<'_>, slot: Slot, code: ErrorCode) {
        if let Some((exchange, _)) = self.slots.entry(slot) {
            let events = &self.worker.shared.events;
            let addrs = events.addrs_of_stream(turn, exchange.key);
            let stream = events.stream_ref(turn, &self.session_record, exchange.key);
            turn.session.reset(exchange.key, code);
            events.on_event(&ObserverEvent::StreamReset { addrs, stream });
        }
        self.release_stream(turn, slot);
    }

    /// Releases the stream if nothing more happens on it.
    pub(in crate::server) fn release_if_complete(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        let spreads = self.app_id.is_some()
            && self.worker.shared.migration.connections == Connections::Adaptive;
        // A released stream still sends its queued output, unless its request is incomplete: such a
        // stream is kept until all is sent.
        let is_complete = match (exchange.recv_state, exchange.send_state) {
            (_, BodySendState::Open) => false,
            // While the rules may migrate it, or it may be spread, or if there is an observer or labels are recorded, it is kept
            // until all is sent.
            (BodyRecvState::Ended, BodySendState::Ended) => {
                exchange.candidate.is_none() && !self.worker.shared.tracks_stream_end() && !spreads
            }
            (BodyRecvState::Ended, BodySendState::Sent) => true,
            (BodyRecvState::Open, BodySendState::Ended) => false,
            (BodyRecvState::Open, BodySendState::Sent) => {
                exchange.shared.as_ref().is_none_or(|shared| shared.is_released())
            }
        };
        if is_complete {
            let events = &self.worker.shared.events;
            events.on_stream_completed(turn, &self.session_record, exchange.key, &exchange.record);
            self.release_stream(turn, slot);
        }
    }

    /// Drops all state of a stream, in the engine as well.
    pub(super) fn release_stream(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some(exchange) = self.slots.remove(slot) else { return };
        let Exchange { key, work, shared, candidate, record, .. } = exchange;
        self.stream_slots.remove(key);
        self.bulk_uploads.remove(slot);
        self.session_record.on_closed(key, &record);
        if candidate.is_some() {
            self.candidates.retain(|&other| other != slot);
        }
        if let Some(shared) = &shared {
            shared.fail(Error::new(crate::error::ErrorKind::Canceled));
        }
        turn.session.release(key);
        self.recycle(work);
    }

    /// Drops the application's part of an exchange, and keeps the allocation for the next.
    fn recycle(&mut self, mut work: PinnedWork<S, B>) {
        // A destructor of the application may panic as well.
        if catch_panic(|| work.set(Work::Idle)).is_err() {
            self.worker.shared.events.on_event(&ObserverEvent::Panicked);
            return;
        }
        if self.free_work.len() < MAX_FREE_WORK {
            self.free_work.push(work);
        }
    }
}
