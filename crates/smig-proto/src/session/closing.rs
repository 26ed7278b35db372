//! Errors in the peer's input, and the end of connections.

use crate::conn::{ConnState, Connection, IdState, Offence};
use crate::error::{Cause, ConnectionError, ErrorCode, Initiator, InputError};
use crate::ids::{ConnId, Side, StreamAddr, StreamId};
use crate::session::control::send_goaway;
use crate::session::resets::ResetReason;
use crate::session::{Event, LostReason, Session};
use crate::stream::StreamKey;
use crate::time::Instant;
use crate::wire;

impl Session {
    /// Handles an error in the peer's input: fails the stream or the connection that it concerns,
    /// with the error code that the RFC specifies.
    pub(crate) fn on_input_error(&mut self, now: Instant, conn_id: ConnId, error: InputError) {
        match error {
            InputError::Connection(cause) => self.fail_connection(now, conn_id, cause),
            InputError::Stream(stream, cause) => {
                let at = StreamAddr { conn: conn_id, id: stream };
                // A frame on a former address of a stream concerns the stream on its current
                // address (SMIG-5.19/behind-barrier).
                let key = self.key_at(conn_id, stream).or_else(|| self.vacated_key(at));
                let (charge, charge_result) =
                    self.reset_budget.charge(now, Offence::from_cause(cause));
                let may_reply = charge_result.is_ok() && self.count_reset(conn_id).is_ok();
                if cause.is_limit() && may_reply {
                    let limit = cause.describe();
                    self.events.push_back(Event::LimitHit { conn: conn_id, limit });
                }
                match key {
                    // The stream fails with its connection.
                    Some(key) if !may_reply && self.is_sent_on(key, conn_id) => {}
                    Some(key) => self.reset_locally(key, ResetReason::PeerError(cause, charge)),
                    None if !may_reply => {}
                    // RST_STREAM is not permitted on an idle stream (RFC 9113 section 6.4), except
                    // on one that may be a carrier (SMIG-5.21/unbound-frames).
                    None if self.is_idle_stream(at) => self.fail_connection(now, conn_id, cause),
                    None => self.close_unbound_carrier(at, Some(cause.code())),
                }
                match charge_result {
                    Err(cause) => self.fail_connection(now, conn_id, cause),
                    Ok(()) if !may_reply => {
                        self.fail_connection(now, conn_id, Cause::TooManyReplies)
                    }
                    Ok(()) => {}
                }
            }
        }
    }

    /// Returns whether the stream's frames are sent on this connection.
    fn is_sent_on(&self, key: StreamKey, conn_id: ConnId) -> bool {
        self.streams.find(key).is_some_and(|stream| stream.binding.send_addr().conn == conn_id)
    }

    fn is_idle_stream(&self, at: StreamAddr) -> bool {
        let unused = matches!(self.id_state(at.conn, at.id), IdState::Idle | IdState::Skipped);
        unused && !self.may_be_carrier(at.conn, at.id)
    }

    /// Counts a control frame in reply to the peer that is not sent yet (CVE-2019-9512, -9514,
    /// -9515). Does nothing if the connection was removed: a MIGRATE that was received there may
    /// have waited for a JOIN.
    pub(crate) fn count_reply(&mut self, conn_id: ConnId) -> Result<(), InputError> {
        let max = self.config.limits.max_queued_control_frames;
        let Some(conn) = self.conns.find_mut(conn_id) else { return Ok(()) };
        conn.control_queue.replies += 1;
        if conn.control_queue.replies > max { Err(Cause::TooManyReplies.into()) } else { Ok(()) }
    }

    /// Counts an RST_STREAM that the peer caused, if the peer is a server. A client was charged for
    /// it, and its budget is the limit: one read may contain many requests above the limit of
    /// concurrent streams although the client breaks no rule (RFC 9113 section 5.1.2).
    pub(crate) fn count_reset(&mut self, conn_id: ConnId) -> Result<(), InputError> {
        match self.side {
            Side::Server => Ok(()),
            Side::Client => self.count_reply(conn_id),
        }
    }

    /// Responds to a request whose head is too large with 431, which shows the user the reason.
    pub(crate) fn refuse_large_request(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        cause: Cause,
    ) -> Result<(), InputError> {
        self.reset_budget.charge(now, Offence::Refused).1?;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let max = conn.peer_max_frame_size();
        let (encoder, out) = (&mut conn.encoder, &mut conn.control_queue.frames);
        wire::write_headers(out, stream_id, wire::EndStream::Yes, max, |out| {
            encoder.begin(out);
            encoder.status(431, out);
        });
        self.events.push_back(Event::LimitHit { conn: conn_id, limit: cause.describe() });
        let at = StreamAddr { conn: conn_id, id: stream_id };
        self.queue_reset(at, ErrorCode::NoError);
        self.ignore_late_frames(at);
        Ok(())
    }

    /// Fails the entire connection: sends GOAWAY, and fails its streams. Does nothing if the
    /// connection has ended meanwhile, or was removed.
    pub(crate) fn fail_connection(&mut self, now: Instant, conn_id: ConnId, cause: Cause) {
        let Some(conn) = self.conns.find_mut(conn_id) else { return };
        if conn.is_dead() {
            return;
        }
        if cause.is_limit() {
            self.events.push_back(Event::LimitHit { conn: conn_id, limit: cause.describe() });
        }
        let error = ConnectionError {
            code: cause.code(),
            initiator: Initiator::Local,
            cause: Some(cause),
            detail: String::new(),
        };
        self.send_final_goaway(conn_id, cause.code(), cause.to_string().as_bytes());
        self.end_connection(now, conn_id, Some(error.clone()));
        self.events.push_back(Event::Closed { conn: conn_id, error: Some(error) });
    }

    fn send_final_goaway(&mut self, conn_id: ConnId, code: ErrorCode, debug: &[u8]) {
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return };
        // The connection ends, so no credit is returned to it.
        conn.unbound_carriers.forfeit();
        let last_id = conn.peer_ids.highest_used();
        send_goaway(conn, last_id, code, debug);
    }

    /// Closes a connection immediately, with GOAWAY.
    pub fn close(&mut self, now: Instant, conn_id: ConnId, code: ErrorCode, reason: &str) {
        if self.conns.find(conn_id).is_none_or(Connection::is_dead) {
            return;
        }
        self.send_final_goaway(conn_id, code, reason.as_bytes());
        self.end_connection(now, conn_id, None);
        self.events.push_back(Event::Closed { conn: conn_id, error: None });
    }

    /// Handles the loss of the transport. Afterwards the connection is unknown.
    pub fn handle_lost(&mut self, now: Instant, conn_id: ConnId, reason: LostReason) {
        let Some(conn) = self.conns.find_mut(conn_id) else { return };
        let was_dead = conn.is_dead();
        let is_orderly = conn.streams.is_empty() && reason == LostReason::Closed;
        if let Some(receipts) = &mut conn.receipts {
            receipts.is_closed_in_order = is_orderly;
        }
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
            self.end_connection(now, conn_id, Some(error.clone()));
            let error = (!is_orderly).then_some(error);
            self.events.push_back(Event::Closed { conn: conn_id, error });
        }
        self.conns.remove(conn_id);
        if self.resumption.is_some() {
            self.arm_tick(now);
        }
        if !self.conns.iter().any(Connection::is_member) && !self.may_continue() {
            // The key is forgotten with the last connection (SMIG-3.7/session-key).
            self.leave_session();
        }
    }

    /// Ends the connection. Streams that run on it fail or continue elsewhere; moves that waited
    /// for its JOIN are declined (SMIG-5.12/join-pending).
    pub(super) fn end_connection(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        error: Option<ConnectionError>,
    ) {
        self.mark_dead(conn_id, error);
        self.process_deferred_migrates(now, conn_id);
    }

    pub(super) fn mark_dead(&mut self, conn_id: ConnId, error: Option<ConnectionError>) {
        self.note_connection_end(conn_id);
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return };
        conn.state = ConnState::Dead;
        if let Some(error) = error {
            conn.end_code = error.code;
        }
        conn.unbound_carriers.forfeit();
        conn.field_block = None;
        conn.vacated_streams.clear();
        conn.pending_answers.clear();
        let keys = conn.keys_in_order();
        for (_, key) in keys {
            self.on_stream_connection_lost(key, conn_id);
        }
        self.after_connection_end(conn_id);
    }

    /// Returns whether the driver must flush and close this connection: it was closed, or it is
    /// drained.
    #[must_use]
    pub fn should_close(&self, conn_id: ConnId) -> bool {
        let Some(conn) = self.conns.find(conn_id) else { return true };
        if conn.is_dead() {
            return true;
        }
        self.is_finished(conn) && self.is_settled(conn)
    }

    /// Returns whether a connection may be closed as soon as both ends know that all was read.
    pub(super) fn is_finished(&self, conn: &Connection) -> bool {
        let drained = conn.goaway.sent_last_id.is_some() && conn.goaway.drain_started_at.is_none();
        let going_away = conn.goaway.received_last_id.is_some() && self.side == Side::Client;
        (drained || going_away)
            && conn.is_unused()
            && conn.pending_answers.is_empty()
            && !self.has_deferred_migrate_from(conn.id)
            && conn.control_queue.frames.is_empty()
    }

    /// Returns whether a MIGRATE that was received on this connection waits for a JOIN and is
    /// unanswered (SMIG-8.12/no-close-unanswered).
    pub(super) fn has_deferred_migrate_from(&self, conn_id: ConnId) -> bool {
        let mut waiting = self.conns.iter().flat_map(|conn| &conn.deferred_migrates);
        waiting.any(|waiting| waiting.from.conn == conn_id)
    }
}
