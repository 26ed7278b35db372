//! The server's outgoing direction: from the first poll of the handler to the last byte of the body.

use std::task::Context;

use http::{HeaderValue, Response};
use smig_proto::policy::{MigrationHint, Transfer};
use smig_proto::{BulkHint, EndStream, ErrorCode, SharedHead};

use super::ServerSession;
use crate::driver::{Migration, TurnCx};
use crate::error::Reset;
use crate::mailbox::Slot;
use crate::migration::{self, Candidate};
use crate::observer::ObserverEvent;
use crate::server::exchange::{
    BodySendState, HandlerError, HandlerPoll, RequestKind, Work, WorkProjection, catch_panic,
};
use crate::server::heads::{self, BodyPlan};
use crate::server::service::{HttpService, ResponseBody};
use crate::stream::{BodyLength, SendProgress, send_body};
use crate::throttled;

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Polls the stream's work, as far as it can proceed now.
    pub(super) fn advance(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, waker)) = self.slots.entry(slot) else { return };
        let mut cx = Context::from_waker(waker);
        match &*exchange.work {
            Work::Idle if exchange.send_state == BodySendState::Open => {
                self.on_failure(turn, slot, HandlerError::Panicked);
            }
            Work::Idle => {}
            Work::Waiting { .. } | Work::Handler { .. } => {
                let handler_poll = exchange.poll_handler(&mut cx);
                self.pending_informational.send(turn);
                match handler_poll {
                    HandlerPoll::Pending => {}
                    HandlerPoll::Failed(failure) => self.on_failure(turn, slot, failure),
                    HandlerPoll::Response(response) => self.on_response(turn, slot, response),
                }
            }
            Work::Body { .. } => self.pump(turn, slot),
        }
    }

    fn on_failure(&mut self, turn: &mut TurnCx<'_>, slot: Slot, failure: HandlerError) {
        match failure {
            HandlerError::Panicked => {
                throttled!(error, "panic", "handler panicked, stream reset");
                self.worker.shared.events.on_event(&ObserverEvent::Panicked);
            }
            HandlerError::Error(error) => {
                throttled!(warn, "handler", %error, "handler failed, stream reset");
            }
        }
        self.abort(turn, slot, ErrorCode::InternalError);
    }

    /// Sends the response's head and starts its body.
    fn on_response(&mut self, turn: &mut TurnCx<'_>, slot: Slot, response: Response<B>) {
        let Self { worker, slots, .. } = self;
        let Some((exchange, _)) = slots.entry(slot) else { return };
        let (mut parts, body) = response.into_parts();
        let hint = parts.extensions.remove::<MigrationHint>().unwrap_or_default();
        let bulk_hint = parts.extensions.remove::<BulkHint>().unwrap_or_else(|| hint.into());
        let date = worker.date.value(turn.now);
        if let Some(shared) = worker.shared.shared_headers(&body) {
            let lengths = &worker.shared_lengths;
            if let Some(head) = heads::shared_head(&parts, shared, lengths, &body, exchange.kind) {
                return self.send_shared(
                    turn,
                    slot,
                    (head, body),
                    date.as_ref(),
                    (hint, bulk_hint),
                );
            }
            heads::add_shared_fields(shared, &mut parts.headers);
        }
        let prepared = heads::prepare_response(parts, &body, exchange.kind, date);
        let (end, length) = match prepared.body {
            BodyPlan::Forbidden | BodyPlan::Empty => (EndStream::Yes, BodyLength::Unknown),
            BodyPlan::Send(length) => (EndStream::No, length),
            BodyPlan::Tunnel => (EndStream::No, BodyLength::Unknown),
            BodyPlan::Missing => {
                let error = "the body is empty, but content-length is not 0";
                return self.on_failure(turn, slot, HandlerError::Error(error.into()));
            }
        };
        let (head, date) = (&prepared.head, prepared.date.as_ref());
        if let Err(error) = turn.session.send_dated_response(exchange.key, head, date, end) {
            return self.on_failure(turn, slot, HandlerError::Error(Box::new(error)));
        }
        if end == EndStream::Yes {
            exchange.send_state = BodySendState::Ended;
            if catch_panic(|| exchange.work.set(Work::Idle)).is_err() {
                worker.shared.events.on_event(&ObserverEvent::Panicked);
            }
            return self.release_if_complete(turn, slot);
        }
        self.start_body(turn, slot, (body, length), (hint, bulk_hint));
    }

    /// Sends a response's head whose fields other responses have, too, and starts its body.
    fn send_shared(
        &mut self,
        turn: &mut TurnCx<'_>,
        slot: Slot,
        (head, body): (SharedHead, B),
        date: Option<&HeaderValue>,
        hints: (MigrationHint, BulkHint),
    ) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        let sent = turn.session.send_shared_response(exchange.key, &head, date, EndStream::No);
        if let Err(error) = sent {
            return self.on_failure(turn, slot, HandlerError::Error(Box::new(error)));
        }
        let length = head.content_length.map_or(BodyLength::Unknown, BodyLength::Remaining);
        self.start_body(turn, slot, (body, length), hints);
    }

    fn start_body(
        &mut self,
        turn: &mut TurnCx<'_>,
        slot: Slot,
        (body, length): (B, BodyLength),
        (hint, bulk_hint): (MigrationHint, BulkHint),
    ) {
        let Some((exchange, _)) = self.slots.entry(slot) else { return };
        if bulk_hint != BulkHint::None {
            turn.session.set_bulk_hint(exchange.key, bulk_hint);
        }
        (exchange.length, exchange.hint) = (length, hint);
        exchange.work.set(Work::Body { body });
        self.track_candidate(turn, slot, hint);
        self.pump(turn, slot);
    }

    /// Sends what the body yields.
    fn pump(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((exchange, waker)) = self.slots.entry(slot) else { return };
        let WorkProjection::Body { body } = exchange.work.as_mut().project() else { return };
        let mut cx = Context::from_waker(waker);
        let length = &mut exchange.length;
        match send_body(turn.session, exchange.key, body, length, &mut cx) {
            SendProgress::Pending => {}
            SendProgress::Done => {
                exchange.send_state = BodySendState::Ended;
                if catch_panic(|| exchange.work.set(Work::Idle)).is_err() {
                    self.worker.shared.events.on_event(&ObserverEvent::Panicked);
                }
                self.release_if_complete(turn, slot);
            }
            // An `Event::Failed` follows.
            SendProgress::StreamEnded => exchange.send_state = BodySendState::Ended,
            SendProgress::Failed(error) => {
                let code = match error.downcast_ref() {
                    Some(Reset(code)) => *code,
                    None => {
                        throttled!(warn, "response body", %error, "body failed, stream reset");
                        ErrorCode::InternalError
                    }
                };
                self.abort(turn, slot, code);
            }
        }
    }

    /// Lets the rules track a response that may be large.
    fn track_candidate(&mut self, turn: &TurnCx<'_>, slot: Slot, hint: MigrationHint) {
        let Self { worker, slots, candidates, .. } = self;
        let Some((exchange, _)) = slots.entry(slot) else { return };
        let transfer = match (exchange.kind, exchange.length) {
            (RequestKind::Connect, _) => Transfer::Tunnel,
            (_, BodyLength::Remaining(bytes)) => Transfer::Sized(bytes),
            (_, BodyLength::Unknown) => Transfer::Unsized,
        };
        exchange.candidate = Candidate::new(&worker.shared.migration, transfer, hint, turn.now);
        if exchange.candidate.is_some() {
            candidates.push(slot);
        }
    }

    /// Evaluates the rules for each candidate.
    pub(super) fn evaluate_candidates(&mut self, turn: &mut TurnCx<'_>) {
        let Self { worker, slots, candidates, rules_context, session_record, .. } = self;
        let events = &worker.shared.events;
        let open_candidates =
            candidates.iter().filter_map(|&slot| slots.get(slot)?.candidate.as_ref());
        let unmigrated_count = migration::count_unmigrated(slots.len(), open_candidates);
        for &slot in &*candidates {
            let Some((exchange, _)) = slots.entry(slot) else { continue };
            let Some(candidate) = &mut exchange.candidate else { continue };
            let (rules, record) = (&worker.shared.migration, &mut exchange.record);
            if let Some(decision) = candidate.evaluate(
                turn,
                rules,
                rules_context,
                exchange.key,
                unmigrated_count,
                record,
            ) {
                let stream = events.stream_ref(turn, session_record, exchange.key);
                events.on_event(&ObserverEvent::PolicyDecided { stream, decision });
            }
        }
    }

    /// Records that a stream has migrated.
    pub(super) fn on_migrated(&mut self, turn: &TurnCx<'_>, migration: Migration) {
        let Migration { stream, to, received, .. } = migration;
        let entry = self.stream_slots.get(stream).and_then(|slot| self.slots.entry(slot));
        let mut exchange = entry.map(|(exchange, _)| exchange);
        let record = exchange.as_mut().map(|exchange| &mut exchange.record);
        self.worker.shared.events.on_migrated(turn, &mut self.session_record, record, migration);
        let Some(exchange) = exchange else { return };
        exchange.conn = to;
        if let Some(candidate) = &mut exchange.candidate {
            candidate.on_migrated();
        }
        if let Some(shared) = &exchange.shared {
            shared.set_connection(to, received);
        }
    }
}
