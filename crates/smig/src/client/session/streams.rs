//! Open streams: from the request's first byte to the end of both bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use smig_proto::{EndStream, ErrorCode, ResponseHead, StreamError, StreamKey};

use super::ClientSession;
use crate::client::request::{BodySendState, OpenRequest, QueuedRequest, Rest};
use crate::driver::{Migration, TurnCx};
use crate::error::{Error, ErrorKind, Reset};
use crate::mailbox::Slot;
use crate::migration::Candidate;
use crate::observer::ObserverEvent;
use crate::snapshot::{RequestLabel, StreamRecord};
use crate::stream::{
    self, BodyRecvState, Head, RequestBody, SendProgress, UnsentRequest, content_length,
};

impl ClientSession {
    /// Calls the request's callback for a 1xx response.
    pub(super) fn on_informational(&mut self, slot: Slot, head: &ResponseHead) {
        if let Some((call, _)) = self.slots.entry(slot)
            && let Some(on_informational) = &call.on_informational
        {
            on_informational.call(head.status, &head.headers);
        }
    }

    pub(super) fn opened(
        &mut self,
        turn: &mut TurnCx<'_>,
        key: StreamKey,
        outgoing: QueuedRequest,
    ) {
        let transfer = outgoing.transfer();
        let QueuedRequest { head, body, length, options, shared, .. } = outgoing;
        let stream = self.context.counters.stream_ref(turn, &self.session_record, key);
        self.context.counters.on_event(&ObserverEvent::StreamOpened { stream });
        let label = RequestLabel::of(&head.method, &head.uri, self.context.describe_streams);
        self.recent.on_open(turn.now);
        if let Some(view) = turn.session.stream(key) {
            shared.set_connection(view.connection, 0);
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
            record: StreamRecord::new(turn.now, label),
        });
        self.by_key.insert(key, slot);
        if is_watched {
            self.watched.push(slot);
        }
        shared.set_slot(slot);
        shared.on_sent(turn.now);
        if shared.is_released() {
            return self.forget(turn, slot);
        }
        self.pump(turn, slot);
    }

    /// Sends what the request's body yields.
    pub(super) fn pump(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((call, waker)) = self.slots.entry(slot) else { return };
        if call.outbound != BodySendState::Open {
            return;
        }
        call.touched = true;
        let mut cx = Context::from_waker(waker);
        let body = Pin::new(&mut call.body);
        match stream::send_body(turn.session, call.key, body, &mut call.length, &mut cx) {
            SendProgress::Pending => {}
            SendProgress::Done => {
                call.outbound = BodySendState::Ended;
                call.body = RequestBody::default();
                self.settle(turn, slot);
            }
            // There is nothing left to send, so no event for it will follow.
            SendProgress::StreamEnded => {
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

    pub(super) fn on_response(
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

    pub(super) fn on_readable(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((call, _)) = self.slots.entry(slot) else { return };
        if call.inbound == BodyRecvState::Open {
            call.inbound = stream::deliver(turn.session, call.key, &call.shared);
        }
        self.settle(turn, slot);
    }

    pub(super) fn on_reset(&mut self, turn: &mut TurnCx<'_>, slot: Slot, error: StreamError) {
        if let Some((call, _)) = self.slots.entry(slot) {
            let addrs = self.context.counters.addrs_of_stream(turn, call.key);
            let stream = self.context.counters.stream_ref(turn, &self.session_record, call.key);
            self.context.counters.on_event(&ObserverEvent::StreamReset { addrs, stream });
            if error.code == ErrorCode::RefusedStream {
                // The server counts it like a stream that this client reset.
                self.resets.add(turn.now);
            }
            let error = Error::from(error);
            if error.is_retryable() && !call.touched {
                let body = core::mem::take(&mut call.body);
                call.shared.return_unsent(UnsentRequest { body, permit: None }, error);
            } else {
                call.shared.fail(error);
            }
        }
        self.forget(turn, slot);
    }

    /// Removes the stream if nothing more happens on it.
    pub(super) fn settle(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((call, _)) = self.slots.entry(slot) else { return };
        if call.is_over() {
            self.context.counters.on_stream_ended(
                turn,
                &self.session_record,
                call.key,
                &call.record,
            );
            self.forget(turn, slot);
        } else if call.is_unfinished() && !is_tunnel(turn, call.key) {
            call.rest = Rest::Left;
            self.unfinished.add(turn.now, call.key);
        }
    }

    /// Resets streams whose responses are complete and whose requests were abandoned.
    pub(super) fn reset_unfinished(&mut self, turn: &mut TurnCx<'_>) {
        loop {
            let due = self.unfinished.deadline().is_some_and(|at| at <= turn.now);
            if due && !self.resets.may_reset(turn.now) {
                return self.hold_back(turn.now);
            }
            let Self { unfinished, by_key, .. } = self;
            let Some(key) = unfinished.pop(turn.now, |key| by_key.contains_key(&key)) else {
                return;
            };
            let Some(&slot) = by_key.get(&key) else { continue };
            if let Some((call, _)) = self.slots.entry(slot) {
                self.context.counters.on_stream_ended(
                    turn,
                    &self.session_record,
                    key,
                    &call.record,
                );
                turn.session.reset(key, call.code());
            }
            self.forget(turn, slot);
            self.count_resets(turn);
        }
    }

    /// Removes a stream; one that is not complete is cancelled.
    pub(super) fn forget(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some(call) = self.slots.remove(slot) else { return };
        self.by_key.remove(&call.key);
        self.session_record.on_closed(call.key, &call.record);
        if call.candidate.is_some() {
            self.watched.retain(|&watched| watched != slot);
        }
        turn.session.release(call.key);
    }

    pub(super) fn on_migrated(&mut self, turn: &TurnCx<'_>, migration: Migration) {
        let Migration { stream, to, received, .. } = migration;
        let entry = self.by_key.get(&stream).and_then(|&slot| self.slots.entry(slot));
        let mut call = entry.map(|(call, _)| call);
        let record = call.as_mut().map(|call| &mut call.record);
        self.context.counters.on_migrated(turn, &mut self.session_record, record, migration);
        let Some(call) = call else { return };
        call.shared.set_connection(to, received);
        if let Some(candidate) = &mut call.candidate {
            candidate.on_migrated();
        }
    }

    pub(super) fn on_migration_declined(&mut self, turn: &TurnCx<'_>, key: StreamKey) {
        let counters = &self.context.counters;
        let addrs = counters.addrs_of_stream(turn, key);
        let stream = counters.stream_ref(turn, &self.session_record, key);
        counters.on_event(&ObserverEvent::MigrationDeclined { addrs, stream });
        let entry = self.by_key.get(&key).and_then(|&slot| self.slots.entry(slot));
        self.session_record.on_declined(key, entry.map(|(call, _)| &mut call.record));
    }

    /// Applies the migration rules to each watched stream.
    pub(super) fn evaluate_candidates(&mut self, turn: &mut TurnCx<'_>) {
        let Self { context, slots, watched, recent, session_record, .. } = self;
        let open = slots.len();
        for &slot in &*watched {
            let Some((call, _)) = slots.entry(slot) else { continue };
            let Some(candidate) = &mut call.candidate else { continue };
            let (rules, record) = (&context.rules, &mut call.record);
            if let Some(decision) = candidate.evaluate(turn, rules, recent, call.key, open, record)
            {
                let stream = context.counters.stream_ref(turn, session_record, call.key);
                context.counters.on_event(&ObserverEvent::PolicyDecided { stream, decision });
            }
        }
    }
}

/// Returns whether the stream is a tunnel, whose two directions end independently.
fn is_tunnel(turn: &TurnCx<'_>, key: StreamKey) -> bool {
    turn.session.stream(key).is_some_and(|view| view.tunnel)
}
