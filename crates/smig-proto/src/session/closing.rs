//! The end of streams and connections, and the state that each end leaves.

use bytes::Bytes;

use crate::conn::{Charge, ConnState, Connection, ConnectionRole, IdState, Offence};
use crate::error::{
    Cause, ConnectionError, ErrorCode, Initiator, InputError, Processed, StreamError,
};
use crate::ids::{ConnId, Side, StreamAddr, StreamId};
use crate::invariant::DebugExpect;
use crate::migrate::{EarlyEnd, MigrationState};
use crate::session::control::send_goaway;
use crate::session::{Event, LostReason, Session};
use crate::stream::{
    KeyState, Offer, Opener, RecvState, RequestKind, SendState, Stream, StreamKey,
};
use crate::time::Instant;
use crate::wire;

/// Bytes of an unneeded request that are read before the client is requested to stop sending.
const DRAINED: i64 = 64 << 10;

/// The reason why this side resets a stream.
enum Ending {
    /// The application requested it, or sent something invalid.
    Own(ErrorCode, Option<Cause>),
    /// The peer caused it, and was charged for it.
    Fault(Cause, Charge),
}

impl Session {
    /// Handles an error in the peer's input: fails the stream or the connection that it concerns,
    /// with the error code that the RFC specifies.
    pub(crate) fn on_input_error(&mut self, now: Instant, id: ConnId, fault: InputError) {
        match fault {
            InputError::Connection(cause) => self.fail_connection(now, id, cause),
            InputError::Stream(stream, cause) => {
                let at = StreamAddr { conn: id, id: stream };
                // A frame on a former route of a stream concerns the stream on its current route
                // (SMIG-5.19/behind-barrier).
                let key = self.key_at(id, stream).or_else(|| self.vacated_key(at));
                let (charge, paid) = self.reset_budget.charge(now, Offence::of(cause));
                let answered = paid.is_ok() && self.count_reset(id).is_ok();
                if cause.is_limit() && answered {
                    let limit = cause.describe();
                    self.events.push_back(Event::LimitHit { conn: id, limit });
                }
                match key {
                    // The stream fails with its connection.
                    Some(key) if !answered && self.is_at(key, id) => {}
                    Some(key) => self.reset_locally(key, Ending::Fault(cause, charge)),
                    None if !answered => {}
                    // RST_STREAM is not permitted on an idle stream (RFC 9113 section 6.4), except
                    // on one that may be a carrier (SMIG-5.21/unbound-frames).
                    None if self.is_idle_stream(at) => self.fail_connection(now, id, cause),
                    None => self.close_unbound(at, Some(cause.code())),
                }
                match paid {
                    Err(cause) => self.fail_connection(now, id, cause),
                    Ok(()) if !answered => self.fail_connection(now, id, Cause::TooManyAnswers),
                    Ok(()) => {}
                }
            }
        }
    }

    /// Returns whether the stream's frames are sent on this connection.
    fn is_at(&self, key: StreamKey, id: ConnId) -> bool {
        self.streams.find(key).is_some_and(|stream| stream.binding.send_addr().conn == id)
    }

    fn is_idle_stream(&self, at: StreamAddr) -> bool {
        let unused = matches!(self.id_state(at.conn, at.id), IdState::Idle | IdState::Skipped);
        unused && !self.may_be_carrier(at.conn, at.id)
    }

    /// Counts a response that the peer caused and that is not sent yet (CVE-2019-9512, -9514,
    /// -9515). Nothing is sent to a connection that is gone: a MIGRATE that was received there may
    /// have waited for a JOIN.
    pub(crate) fn count_answer(&mut self, id: ConnId) -> Result<(), InputError> {
        let most = self.config.limits.max_queued_answers;
        let Some(conn) = self.conns.find_mut(id) else { return Ok(()) };
        conn.out.answers += 1;
        if conn.out.answers > most { Err(Cause::TooManyAnswers.into()) } else { Ok(()) }
    }

    /// Counts an RST_STREAM that the peer caused, if the peer is a server. A client was charged for
    /// it, and its budget is the limit: one read may contain many requests above the limit of
    /// concurrent streams although the client breaks no rule (RFC 9113 section 5.1.2).
    pub(crate) fn count_reset(&mut self, id: ConnId) -> Result<(), InputError> {
        match self.side {
            Side::Server => Ok(()),
            Side::Client => self.count_answer(id),
        }
    }

    pub(crate) fn queue_reset(&mut self, at: StreamAddr, code: ErrorCode) {
        if let Some(conn) = self.conns.live_mut(at.conn) {
            wire::reset(&mut conn.out.frames, at.id, code);
        }
    }

    /// Handles RST_STREAM.
    pub(crate) fn on_reset(
        &mut self,
        now: Instant,
        id: ConnId,
        stream: StreamId,
        code: ErrorCode,
    ) -> Result<(), InputError> {
        let at = StreamAddr { conn: id, id: stream };
        if let Some(key) = self.key_at(id, stream) {
            if self.keep_stop(key, at, code) {
                return Ok(());
            }
            let answered = self.streams.known(key).is_some_and(Stream::is_answered);
            let offence = if answered { Offence::Leftover } else { Offence::Reset };
            let (charge, paid) = self.reset_budget.charge(now, offence);
            paid?;
            self.fail_by_peer(key, at, code, charge);
            return Ok(());
        }
        if self.vacated_key(at).is_some() {
            return Err(InputError::Stream(stream, Cause::StreamClosed));
        }
        match self.id_state(id, stream) {
            IdState::Ignored => {
                self.close_from_peer(at);
                Ok(())
            }
            IdState::Closed => Ok(()),
            IdState::Idle | IdState::Skipped if self.may_be_carrier(id, stream) => {
                self.close_unbound(at, None);
                Ok(())
            }
            IdState::Skipped => Ok(()),
            IdState::Idle => Err(Cause::IdleStream.into()),
        }
    }

    /// Resets a stream because of the peer's error. Returns an error if the peer exceeded its
    /// budget: the connection on which it did so must be closed.
    pub(crate) fn fail_by_fault(
        &mut self,
        now: Instant,
        key: StreamKey,
        cause: Cause,
    ) -> Result<(), InputError> {
        let (charge, paid) = self.reset_budget.charge(now, Offence::Fault);
        self.reset_locally(key, Ending::Fault(cause, charge));
        Ok(paid?)
    }

    /// Resets a stream because a timeout expired that the peer should have met.
    pub(crate) fn fail_by_delay(&mut self, key: StreamKey, cause: Cause) {
        let charge = self.reset_budget.debit(Offence::Delay);
        self.reset_locally(key, Ending::Fault(cause, charge));
    }

    /// Resets a stream because the application sent something invalid.
    pub(crate) fn fail_own(&mut self, key: StreamKey, cause: Cause) {
        self.reset_locally(key, Ending::Own(cause.code(), Some(cause)));
    }

    /// Sends RST_STREAM on the stream's current route, and ends the stream here, unless it has
    /// ended. The peer counts it, whatever the reason.
    fn reset_locally(&mut self, key: StreamKey, ending: Ending) {
        if self.end_untold(key, ending) {
            self.cancelled += 1;
        }
    }

    /// Like [`Self::reset_locally`], but does not count the reset: if the caller closes the connection,
    /// RST_STREAM does not reach the peer. Returns whether the stream was running.
    fn end_untold(&mut self, key: StreamKey, ending: Ending) -> bool {
        let Some(stream) = self.streams.find(key).filter(|stream| !stream.is_over()) else {
            return false;
        };
        let (code, initiator, cause) = match ending {
            Ending::Own(code, cause) => (code, Initiator::User, cause),
            Ending::Fault(cause, Charge { .. }) => (cause.code(), Initiator::Local, Some(cause)),
        };
        let route = stream.binding.send_addr();
        if stream.binding.open().is_some() {
            self.end_migration(key, EarlyEnd::Reset(code));
        } else {
            self.queue_reset(route, code);
        }
        let processed = Processed::Maybe;
        let error = StreamError { code, initiator, cause, connection: route.conn, processed };
        self.finish_failed(key, error, None);
        true
    }

    /// Handles the peer's RST_STREAM that was received at `at` (the table in SMIG section 8), unless
    /// the stream has ended meanwhile.
    pub(crate) fn fail_by_peer(
        &mut self,
        key: StreamKey,
        at: StreamAddr,
        code: ErrorCode,
        Charge { .. }: Charge,
    ) {
        let Some(stream) = self.streams.find(key) else { return };
        if stream.is_over() {
            return;
        }
        let whole =
            stream.recv.state() == RecvState::Ended && stream.request_kind != RequestKind::Tunnel;
        if self.side == Side::Client && code == ErrorCode::NoError && whole {
            self.withdraw_move(key, at);
            return self.stop_request(key, at);
        }
        let processed = if code == ErrorCode::RefusedStream {
            stream.processed_if_refused(at)
        } else {
            Processed::Maybe
        };
        self.end_migration(key, EarlyEnd::ResetByPeer(at, code));
        let (initiator, connection) = (Initiator::Peer, at.conn);
        let error = StreamError { code, initiator, cause: None, connection, processed };
        self.finish_failed(key, error, Some(at));
    }

    /// Client: buffers RST_STREAM(NO_ERROR) on the carrier of an open move of this side. The frame
    /// means that the response is complete, but the end of the response may still be in flight on
    /// the old connection, so the frame waits for the answer (SMIG-5.30/stop-kept). Returns false
    /// for any other frame.
    fn keep_stop(&mut self, key: StreamKey, at: StreamAddr, code: ErrorCode) -> bool {
        if self.side != Side::Client || code != ErrorCode::NoError {
            return false;
        }
        let Some(early) = self.early_of(key, at.conn, at.id) else { return false };
        early.push_stop()
    }

    /// Client: withdraws an open move, because no more of the request is sent. The server declines
    /// it (SMIG-8.20/stop-crosses).
    fn withdraw_move(&mut self, key: StreamKey, at: StreamAddr) {
        self.end_migration(key, EarlyEnd::ResetByPeer(at, ErrorCode::NoError));
        let Some(stream) = self.streams.known_mut(key) else { return };
        // Most requests that are stopped have no open move.
        let Some(open) = stream.binding.revert() else { return };
        self.unmap(open.to);
        self.ignore_from_peer(open.to);
        self.drop_early(open);
        self.events.push_back(Event::MigrationDeclined { stream: key });
    }

    /// Client: stops the request, because the response is complete and the server does not need the
    /// rest. The response must not be discarded (RFC 9113 section 8.1).
    fn stop_request(&mut self, key: StreamKey, at: StreamAddr) {
        self.unschedule(key);
        let Some(stream) = self.streams.known_mut(key) else { return };
        stream.send.abort();
        let waits = core::mem::take(&mut stream.send.wants_room);
        self.ignore_from_peer(at);
        if waits {
            // Wake a writer that waits for send capacity: this direction takes no more data.
            self.events.push_back(Event::Writable { stream: key });
        }
        // Wake a task that waits until the entire request is sent.
        self.events.push_back(Event::Finished { stream: key });
        self.after_direction(key);
    }

    /// Fails a stream whose connection was lost, unless it has ended meanwhile.
    pub(crate) fn fail_with_connection(&mut self, key: StreamKey, lost: ConnId) {
        if self.streams.find(key).is_none_or(Stream::is_over) {
            return;
        }
        self.end_migration(key, EarlyEnd::LostC1);
        let error = StreamError {
            code: self.conns.find(lost).map_or(ErrorCode::Cancel, Connection::end_code),
            initiator: Initiator::Transport,
            cause: Some(Cause::ConnectionLost),
            connection: lost,
            processed: Processed::Maybe,
        };
        self.finish_failed(key, error, None);
    }

    /// Fails the stream at `at`, which the peer's GOAWAY excludes.
    pub(crate) fn fail_excluded(&mut self, key: StreamKey, at: StreamAddr) {
        let Charge { .. } = self.reset_budget.debit(Offence::Reset);
        let Some(stream) = self.streams.find(key).filter(|stream| !stream.is_over()) else {
            return;
        };
        let processed = stream.processed_if_refused(at);
        self.end_migration(key, EarlyEnd::ExcludedS1);
        let error = StreamError {
            code: ErrorCode::RefusedStream,
            initiator: Initiator::Peer,
            cause: Some(Cause::GoingAway),
            connection: at.conn,
            processed,
        };
        self.finish_failed(key, error, None);
    }

    /// Removes a failed stream from its connections and notifies the application. `reset_at` is the
    /// route on which the peer's RST_STREAM arrived, if any: no frame may follow there.
    fn finish_failed(&mut self, key: StreamKey, error: StreamError, reset_at: Option<StreamAddr>) {
        self.unschedule(key);
        let Some(stream) = self.streams.known_mut(key) else { return };
        let window = stream.recv.window.open();
        stream.over = Some(error.clone());
        stream.send.abort();
        let credits = stream.recv.abort();
        let places: Vec<StreamAddr> = stream.binding.addrs().collect();
        let vacated = stream.binding.take_vacated();
        let migration = stream.binding.end();
        let held = stream.key_state == KeyState::Held;
        self.max_reset_window = self.max_reset_window.max(window);
        if let MigrationState::Open(open) = migration {
            self.drop_early(*open);
        }
        for (conn, credit) in credits {
            self.give_back_to(conn, credit);
        }
        for place in places {
            self.unmap(place);
            if reset_at != Some(place) {
                self.ignore_from_peer(place);
            }
        }
        self.forget_departed(&vacated);
        if held {
            self.events.push_back(Event::Reset { stream: key, error });
        } else {
            self.free(key);
        }
    }

    fn forget_departed(&mut self, places: &[StreamAddr]) {
        for place in places {
            if let Some(conn) = self.conns.find_mut(place.conn) {
                conn.departed.remove(&place.id);
            }
        }
    }

    /// Ends the stream if both directions have ended, unless it has failed meanwhile.
    pub(crate) fn after_direction(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        if stream.is_over() || !stream.is_complete() {
            return;
        }
        let released = stream.key_state != KeyState::Held;
        let route = stream.binding.send_addr();
        let had_body = stream.send.exceeds_head();
        let vacated = stream.binding.take_vacated();
        if matches!(stream.binding.migration(), MigrationState::Offered) {
            stream.binding.set_offer(Offer::None);
        }
        self.unmap(route);
        if had_body && let Some(conn) = self.conns.find_mut(route.conn) {
            // The peer may have responded before the end of the request had arrived.
            conn.relied_on = true;
        }
        self.forget_departed(&vacated);
        if released {
            self.free(key);
        }
    }

    /// Removes the last state of a stream.
    pub(crate) fn free(&mut self, key: StreamKey) {
        self.unschedule(key);
        let removed = self.streams.remove(key);
        let Some(mut stream) = removed.debug_expect("a stream is freed once") else { return };
        for (conn, credit) in stream.recv.abort() {
            self.give_back_to(conn, credit);
        }
        match stream.opener {
            Opener::Peer => self.peer_open = self.peer_open.saturating_sub(1),
            Opener::Local => {
                self.local_open = self.local_open.saturating_sub(1);
                if core::mem::take(&mut self.open_blocked) {
                    self.events.push_back(Event::StreamsAvailable);
                }
            }
        }
    }

    /// Releases the stream's key. The application calls this once for each key, however the stream
    /// ended. An unfinished stream is cancelled.
    pub fn release(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        stream.key_state = KeyState::Released;
        if stream.is_over() || stream.is_complete() {
            if stream.binding.open().is_none() {
                self.free(key);
            }
            return;
        }
        let received = stream.recv.state() == RecvState::Ended;
        let ended = stream.send.state() == SendState::Ended;
        if received && (ended || !stream.send.is_open()) {
            // Queued data is still sent.
            return;
        }
        let ordinary = stream.request_kind != RequestKind::Tunnel;
        if ended && ordinary && self.side == Side::Server {
            // The response is complete; the rest of the request is not needed.
            stream.key_state = KeyState::Draining(0);
            return self.discard_unread(key);
        }
        self.cancel(key, ErrorCode::Cancel);
    }

    /// Drops the data that a released stream has received. If a client continues to send, requests
    /// that it stop.
    pub(crate) fn discard_unread(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.known_mut(key) else { return };
        let credits = stream.recv.discard();
        let window = i64::from(self.config.stream_window);
        let tell = stream.recv.window.open() < window - DRAINED && !stream.is_complete();
        for (conn, credit) in credits {
            self.give_back_to(conn, credit);
        }
        if tell {
            self.ask_to_stop(key);
        }
    }

    /// Server: requests that the client stop sending, because the response is complete (RFC 9113
    /// section 8.1). Waits for the answer to an open move of this side: after a decline the
    /// response must be sent again (SMIG-8.19/stop-after-answer).
    pub(crate) fn ask_to_stop(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.known_mut(key) else { return };
        if stream.recv.state() == RecvState::Ended {
            return;
        }
        let settled = stream.binding.open().is_none();
        if settled && stream.send.state() == SendState::Ended {
            self.reset_locally(key, Ending::Own(ErrorCode::NoError, None));
        } else {
            stream.stop_due = true;
        }
    }

    /// Requests that the client stop sending, if that was deferred.
    pub(crate) fn stop_if_due(&mut self, key: StreamKey) {
        if self.streams.find(key).is_some_and(|stream| stream.stop_due && !stream.is_complete()) {
            self.ask_to_stop(key);
        }
    }

    /// Resets a stream for the application, unless it is complete or has failed. A server's
    /// NO_ERROR after the end of its response requests that the client stop sending: it is sent
    /// once the entire response was sent and no decline can require it to be sent again.
    pub fn reset(&mut self, key: StreamKey, code: ErrorCode) {
        let Some(stream) = self.streams.find(key) else { return };
        let finished = !stream.send.is_open();
        if self.side == Side::Server && code == ErrorCode::NoError && finished {
            return self.ask_to_stop(key);
        }
        self.cancel(key, code);
    }

    fn cancel(&mut self, key: StreamKey, code: ErrorCode) {
        let Some(stream) = self.streams.find(key) else { return };
        if stream.is_over() || stream.is_complete() {
            // It has no route any more; its former connection may belong to other streams.
            return;
        }
        let code = match (code, self.side, stream.send.state()) {
            // REFUSED_STREAM asserts that nothing was processed (RFC 9113 section 8.7), which a
            // sent response head contradicts.
            (ErrorCode::RefusedStream, Side::Server, SendState::Body | SendState::Ended) => {
                ErrorCode::Cancel
            }
            (code, ..) => code,
        };
        let (route, settled) = (
            stream.binding.send_addr(),
            matches!(stream.binding.migration(), MigrationState::Idle),
        );
        let elsewhere = self.conns.iter().any(|conn| conn.id != route.conn && !conn.is_dead());
        let alone = self.conns.find(route.conn).is_some_and(|conn| {
            conn.role == ConnectionRole::Bulk
                && conn.streams.len() == 1
                && conn.carriers.len() == 0
                && conn.pending_answers.is_empty()
                && conn.deferred_migrates.is_empty()
                && !conn.relied_on
        });
        let alone = alone && !self.keeps_moves_from(route.conn);
        if self.side == Side::Client && settled && elsewhere && alone {
            // Closing the connection discards the bytes in flight (SMIG-8.4/cancel-by-close).
            self.end_untold(key, Ending::Own(code, None));
            self.cut_off(route.conn, None);
            self.events.push_back(Event::AbortTransport { conn: route.conn });
            return;
        }
        self.reset_locally(key, Ending::Own(code, None));
    }

    /// Fails the entire connection: sends GOAWAY, and fails everything that runs on it. Does nothing
    /// if the connection has ended meanwhile, or is gone.
    pub(crate) fn fail_connection(&mut self, now: Instant, id: ConnId, cause: Cause) {
        let Some(conn) = self.conns.find_mut(id) else { return };
        if conn.is_dead() {
            return;
        }
        if cause.is_limit() {
            self.events.push_back(Event::LimitHit { conn: id, limit: cause.describe() });
        }
        let error = ConnectionError {
            code: cause.code(),
            initiator: Initiator::Local,
            cause: Some(cause),
            detail: String::new(),
        };
        self.send_final_goaway(id, cause.code(), cause.to_string().as_bytes());
        self.mark_closed(now, id, Some(error.clone()));
        self.events.push_back(Event::Closed { conn: id, error: Some(error) });
    }

    fn send_final_goaway(&mut self, id: ConnId, code: ErrorCode, debug: &[u8]) {
        let Some(conn) = self.conns.known_mut(id) else { return };
        // The connection ends, so no credit is returned to it.
        conn.carriers.forfeit();
        let last = conn.peer_ids.highest();
        send_goaway(conn, last, code, debug);
    }

    /// Closes a connection immediately, with GOAWAY.
    pub fn close(&mut self, now: Instant, id: ConnId, code: ErrorCode, reason: &str) {
        if self.conns.find(id).is_none_or(Connection::is_dead) {
            return;
        }
        self.send_final_goaway(id, code, &Bytes::copy_from_slice(reason.as_bytes()));
        self.mark_closed(now, id, None);
        self.events.push_back(Event::Closed { conn: id, error: None });
    }

    /// Handles the loss of the transport. Afterwards the connection is unknown.
    pub fn handle_lost(&mut self, now: Instant, id: ConnId, reason: LostReason) {
        let Some(conn) = self.conns.find(id) else { return };
        let was_dead = conn.is_dead();
        let orderly = conn.streams.is_empty() && reason == LostReason::Closed;
        if !was_dead {
            let error = ConnectionError {
                code: ErrorCode::Cancel,
                initiator: Initiator::Transport,
                cause: Some(Cause::ConnectionLost),
                detail: match reason {
                    LostReason::Closed => "closed by the peer".to_owned(),
                    LostReason::Failed(why) => why,
                },
            };
            self.mark_closed(now, id, Some(error.clone()));
            let error = (!orderly).then_some(error);
            self.events.push_back(Event::Closed { conn: id, error });
        }
        self.conns.remove(id);
        if !self.conns.iter().any(Connection::is_member) {
            // The key is forgotten with the last connection (SMIG-3.7/session-key).
            self.key = None;
        }
    }

    /// Ends the connection. Streams that run on it fail or continue elsewhere; moves that waited
    /// for its JOIN are declined (SMIG-5.12/join-pending).
    fn mark_closed(&mut self, now: Instant, id: ConnId, error: Option<ConnectionError>) {
        self.cut_off(id, error);
        self.release_waiting_moves(now, id);
    }

    fn cut_off(&mut self, id: ConnId, error: Option<ConnectionError>) {
        let Some(conn) = self.conns.known_mut(id) else { return };
        conn.state = ConnState::Dead;
        conn.error = error;
        conn.carriers.forfeit();
        conn.field_block = None;
        conn.departed.clear();
        conn.pending_answers.clear();
        let keys = conn.keys_in_order();
        for (_, key) in keys {
            self.on_stream_connection_lost(key, id);
        }
    }

    /// Returns whether the driver must flush and close this connection: it was closed, or it is
    /// drained.
    #[must_use]
    pub fn should_close(&self, id: ConnId) -> bool {
        let Some(conn) = self.conns.find(id) else { return true };
        if conn.is_dead() {
            return true;
        }
        let drained = conn.goaway.sent.is_some() && conn.goaway.draining.is_none();
        let told_off = conn.goaway.received.is_some() && self.side == Side::Client;
        (drained || told_off)
            && conn.streams.is_empty()
            && conn.carriers.len() == 0
            && conn.pending_answers.is_empty()
            && !self.keeps_moves_from(id)
            && conn.out.frames.is_empty()
    }

    /// Returns whether a MIGRATE that was received there waits for a JOIN and is unanswered
    /// (SMIG-8.12/no-close-unanswered).
    fn keeps_moves_from(&self, id: ConnId) -> bool {
        let mut waiting = self.conns.iter().flat_map(|conn| &conn.deferred_migrates);
        waiting.any(|waiting| waiting.from.conn == id)
    }

    /// Responds to a request whose head is too large with 431, which shows the user the reason.
    pub(crate) fn refuse_large_request(
        &mut self,
        now: Instant,
        id: ConnId,
        stream: StreamId,
    ) -> Result<(), InputError> {
        self.reset_budget.charge(now, Offence::Refused).1?;
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        let max = conn.max_frame();
        let (encoder, out) = (&mut conn.encoder, &mut conn.out.frames);
        wire::headers(out, stream, wire::EndStream::Yes, max, |out| {
            encoder.begin(out);
            encoder.status(431, out);
        });
        self.events.push_back(Event::LimitHit { conn: id, limit: "header section size" });
        let at = StreamAddr { conn: id, id: stream };
        self.queue_reset(at, ErrorCode::NoError);
        self.ignore_from_peer(at);
        Ok(())
    }
}
