//! Open streams: from the request's first byte to the end of both bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use smig_proto::{EndStream, ErrorCode, ResponseHead, StreamError, StreamKey};

use super::{ClientSession, ContinuationState, NegotiatedProtocol, SessionState};
use crate::client::bulk::BulkWatch;
use crate::client::request::{AfterResponse, BodySendState, OpenRequest, QueuedRequest};
use crate::driver::{
    Migration, Pacing, PacingDemand, ReceivePacer, ReceivePath, ReceiveWindow, TurnCx,
};
use crate::error::{Error, ErrorKind, Reset};
use crate::mailbox::Slot;
use crate::migration::{self, Candidate};
use crate::observer::ObserverEvent;
use crate::snapshot::{RequestLabel, StreamRecord};
use crate::stream::{
    self, BodyRecvState, Head, RequestBody, SendProgress, UnsentRequest, content_length,
};

impl ClientSession {
    /// Calls the request's callback for a 1xx response.
    pub(super) fn on_informational(&mut self, slot: Slot, head: &ResponseHead) {
        if let Some((request, _)) = self.slots.entry(slot)
            && let Some(on_informational) = &request.on_informational
        {
            on_informational.call(head.status, &head.headers);
        }
    }

    pub(super) fn on_opened(
        &mut self,
        turn: &mut TurnCx<'_>,
        key: StreamKey,
        queued_request: QueuedRequest,
    ) {
        let transfer = queued_request.transfer();
        let QueuedRequest { head, body, length, options, shared, .. } = queued_request;
        let stream = self.context.events.stream_ref(turn, &self.session_record, key);
        self.context.events.on_event(&ObserverEvent::StreamOpened { stream });
        let label = RequestLabel::of(&head.method, &head.uri, self.context.request_label_limit);
        self.rules_context.on_open(turn.now);
        shared.set_session(self.context.number);
        if let Some(view) = turn.session.stream(key) {
            shared.set_connection(view.connection, 0);
        }
        let continuation = ContinuationState::of_request(&self.context, head, &body, options.hint);
        let candidate = Candidate::new(&self.context.migration, transfer, options.hint, turn.now);
        let is_candidate = candidate.is_some();
        let is_receive_paced = self.context.conn_options.receive_pacing == Pacing::On;
        let is_watched = self.context.max_plain_connections > 1 || is_receive_paced;
        let bulk_watch = is_watched.then(|| BulkWatch::new(transfer, options.hint, turn.now));
        // Without a body, the head is all there is to send.
        let send_state = if body.is_empty() { BodySendState::Sent } else { BodySendState::Open };
        let slot = self.slots.insert(OpenRequest {
            key,
            shared: Arc::clone(&shared),
            body,
            length,
            body_polled: false,
            recv_state: BodyRecvState::Open,
            send_state,
            after_response: AfterResponse::KeepSending,
            candidate,
            bulk_watch,
            continuation,
            on_informational: options.on_informational,
            record: StreamRecord::new(turn.now, label),
        });
        self.by_key.insert(key, slot);
        if is_candidate {
            self.candidates.push(slot);
        }
        shared.set_slot(slot);
        shared.on_sent(turn.now);
        if shared.is_released() {
            return self.release_stream(turn, slot);
        }
        self.pump(turn, slot);
    }

    /// Sends what the request's body yields.
    pub(super) fn pump(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((request, waker)) = self.slots.entry(slot) else { return };
        if request.send_state != BodySendState::Open {
            return;
        }
        request.body_polled = true;
        let mut cx = Context::from_waker(waker);
        let body = Pin::new(&mut request.body);
        match stream::send_body(turn.session, request.key, body, &mut request.length, &mut cx) {
            SendProgress::Pending => self.watch_bulk(turn, slot),
            SendProgress::Done => {
                request.send_state = BodySendState::Ended;
                request.body = RequestBody::default();
                self.release_if_complete(turn, slot);
            }
            // There is nothing left to send, so no event for it will follow.
            SendProgress::StreamEnded => {
                request.send_state = BodySendState::Sent;
                request.body = RequestBody::default();
                self.release_if_complete(turn, slot);
            }
            SendProgress::Failed(error) => {
                let code = error.downcast_ref().map_or(ErrorCode::Cancel, |Reset(code)| *code);
                if request.recv_state == BodyRecvState::Ended && !is_tunnel(turn, request.key) {
                    // No caller waits for the reset, and it may be one of many: defer it.
                    request.send_state = BodySendState::Failed(code);
                    request.body = RequestBody::default();
                    request.abandon_upload();
                    return self.release_if_complete(turn, slot);
                }
                request.shared.fail(Error::new(ErrorKind::Body(error)));
                turn.session.reset(request.key, code);
                self.release_stream(turn, slot);
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
        let Some((request, _)) = self.slots.entry(slot) else { return };
        let announced = content_length(&head.headers);
        if let Some(watch) = &mut request.bulk_watch {
            watch.on_response(turn.now, announced);
        }
        request.continuation.on_response(&head);
        // Set the head first: a reader on another thread takes an end without a head for a cancelled stream.
        request.shared.put_head(Head::Stream(head), announced);
        if end == EndStream::Yes {
            request.shared.put_end();
            request.recv_state = BodyRecvState::Ended;
        }
        self.release_if_complete(turn, slot);
    }

    pub(super) fn on_readable(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((request, _)) = self.slots.entry(slot) else { return };
        if request.recv_state == BodyRecvState::Open {
            request.recv_state = stream::deliver(turn.session, request.key, &request.shared);
        }
        self.watch_bulk(turn, slot);
        self.continue_if_reached(turn, slot);
        self.release_if_complete(turn, slot);
    }

    pub(super) fn on_reset(&mut self, turn: &mut TurnCx<'_>, slot: Slot, error: StreamError) {
        if let Some((request, _)) = self.slots.entry(slot) {
            let addrs = self.context.events.addrs_of_stream(turn, request.key);
            let stream = self.context.events.stream_ref(turn, &self.session_record, request.key);
            self.context.events.on_event(&ObserverEvent::StreamReset { addrs, stream });
            if error.code == ErrorCode::RefusedStream {
                // The server counts it like a stream that this client reset.
                self.reset_rate.add(turn.now);
            }
            let error = Error::from(error);
            if error.is_retryable() && !request.body_polled {
                let body = core::mem::take(&mut request.body);
                request.shared.return_unsent(UnsentRequest { body, permit: None }, error);
            } else {
                request.shared.fail(error);
            }
        }
        self.release_stream(turn, slot);
    }

    /// Removes the stream if nothing more happens on it.
    pub(super) fn release_if_complete(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some((request, _)) = self.slots.entry(slot) else { return };
        if request.is_complete() {
            self.context.events.on_stream_completed(
                turn,
                &self.session_record,
                request.key,
                &request.record,
            );
            self.release_stream(turn, slot);
        } else if request.has_abandoned_upload() && !is_tunnel(turn, request.key) {
            request.after_response = AfterResponse::ResetScheduled;
            self.unfinished_uploads.add(turn.now, request.key);
        }
    }

    /// Resets streams whose responses are complete and whose requests were abandoned.
    pub(super) fn reset_unfinished(&mut self, turn: &mut TurnCx<'_>) {
        loop {
            let due = self.unfinished_uploads.deadline().is_some_and(|at| at <= turn.now);
            if due && !self.reset_rate.may_reset(turn.now) {
                return self.throttle(turn.now);
            }
            let Self { unfinished_uploads: unfinished, by_key, .. } = self;
            let Some(key) = unfinished.pop(turn.now, |key| by_key.contains_key(&key)) else {
                return;
            };
            let Some(&slot) = by_key.get(&key) else { continue };
            if let Some((request, _)) = self.slots.entry(slot) {
                self.context.events.on_stream_completed(
                    turn,
                    &self.session_record,
                    key,
                    &request.record,
                );
                turn.session.reset(key, request.reset_code());
            }
            self.release_stream(turn, slot);
            self.count_resets(turn);
        }
    }

    /// Removes a stream; one that is not complete is cancelled.
    pub(super) fn release_stream(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        let Some(request) = self.slots.remove(slot) else { return };
        self.by_key.remove(&request.key);
        self.session_record.on_closed(request.key, &request.record);
        if request.candidate.is_some() {
            self.candidates.retain(|&other| other != slot);
        }
        turn.session.release(request.key);
    }

    pub(super) fn on_migrated(&mut self, turn: &TurnCx<'_>, migration: Migration) {
        let Migration { stream, to, received, .. } = migration;
        let entry = self.by_key.get(&stream).and_then(|&slot| self.slots.entry(slot));
        let mut request = entry.map(|(call, _)| call);
        let record = request.as_mut().map(|request| &mut request.record);
        self.context.events.on_migrated(turn, &mut self.session_record, record, migration);
        let Some(request) = request else { return };
        request.shared.set_connection(to, received);
        if let Some(candidate) = &mut request.candidate {
            candidate.on_migrated();
        }
    }

    pub(super) fn on_migration_declined(&mut self, turn: &TurnCx<'_>, key: StreamKey) {
        let events = &self.context.events;
        let addrs = events.addrs_of_stream(turn, key);
        let stream = events.stream_ref(turn, &self.session_record, key);
        events.on_event(&ObserverEvent::MigrationDeclined { addrs, stream });
        let entry = self.by_key.get(&key).and_then(|&slot| self.slots.entry(slot));
        let mut request = entry.map(|(request, _)| request);
        if let Some(candidate) = request.as_mut().and_then(|it| it.candidate.as_mut()) {
            candidate.on_declined();
        }
        self.session_record.on_declined(key, request.map(|it| &mut it.record));
    }

    /// Evaluates whether the stream is bulk. If it is, and others share its connection, a second connection is opened,
    /// and the response may continue there; what is received may be paced.
    fn watch_bulk(&mut self, turn: &mut TurnCx<'_>, slot: Slot) {
        if self.protocol != NegotiatedProtocol::Http2 || self.state != SessionState::Open {
            return;
        }
        let open_streams = self.slots.len();
        let Some((request, _)) = self.slots.entry(slot) else { return };
        let Some(watch) = &mut request.bulk_watch else { return };
        let Some(view) = turn.session.stream(request.key) else { return };
        let (context, policy) = (&self.context, &self.context.migration.policy);
        let transferred = (view.sent_bytes + view.received_bytes, view.priority);
        let Some(progress) = watch.evaluate(turn.now, transferred, policy, &context.load) else {
            return;
        };
        let rules_context = &self.rules_context;
        let is_wanted = watch.must_leave()
            || (progress.is_worth_connection()
                && rules_context.count_other_streams(turn.now, open_streams)
                    >= policy.min_concurrent);
        let is_receive_paced = context.conn_options.receive_pacing == Pacing::On;
        let may_start_pacing = is_receive_paced && self.receive_pacer.is_none();
        if may_start_pacing && (is_wanted || context.has_siblings()) {
            self.receive_pacer = Some(ReceivePacer::default());
        }
        if is_wanted {
            context.spawn_beside(self.spares.addr(), turn.now);
            self.consider_continuation(turn, slot, progress);
        }
    }

    /// Sets the receive window of the connection, from when [`Self::watch_bulk`] has started the pacer until the
    /// connection carries no bulk.
    pub(super) fn pace_receiving(&mut self, turn: &mut TurnCx<'_>) {
        let Some(pacer) = &mut self.receive_pacer else { return };
        let Some(conn) = turn.session.connections().next() else { return };
        let window = if self.context.load.bulk_streams() == 0 {
            self.receive_pacer = None;
            Some(ReceiveWindow::Unlimited)
        } else {
            let path = || {
                let sample = turn.conns.sample(conn.id);
                let min_rtt = self.context.update_min_rtt(sample.min_rtt);
                // The kernel shrinks its window as data arrives.
                ReceivePath { min_rtt, out_of_order: sample.out_of_order, granted: 0 }
            };
            pacer.on_progress(turn.now, conn.data_bytes_received, PacingDemand::Shared, path)
        };
        match window {
            Some(ReceiveWindow::Bytes(bytes)) => turn.conns.limit_receive_window(conn.id, bytes),
            Some(ReceiveWindow::Unlimited) => turn.conns.limit_receive_window(conn.id, u64::MAX),
            None => {}
        }
    }

    /// Applies the migration rules to each candidate.
    pub(super) fn evaluate_candidates(&mut self, turn: &mut TurnCx<'_>) {
        let Self { context, slots, candidates, rules_context, session_record, .. } = self;
        let open_candidates =
            candidates.iter().filter_map(|&slot| slots.get(slot)?.candidate.as_ref());
        let unmigrated_count = migration::count_unmigrated(slots.len(), open_candidates);
        for &slot in &*candidates {
            let Some((request, _)) = slots.entry(slot) else { continue };
            let Some(candidate) = &mut request.candidate else { continue };
            let (rules, record) = (&context.migration, &mut request.record);
            if let Some(decision) = candidate.evaluate(
                turn,
                rules,
                rules_context,
                request.key,
                unmigrated_count,
                record,
            ) {
                let stream = context.events.stream_ref(turn, session_record, request.key);
                context.events.on_event(&ObserverEvent::PolicyDecided { stream, decision });
            }
        }
    }
}

/// Returns whether the stream is a tunnel, whose two directions end independently.
fn is_tunnel(turn: &TurnCx<'_>, key: StreamKey) -> bool {
    turn.session.stream(key).is_some_and(|view| view.is_tunnel)
}
