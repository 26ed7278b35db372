//! Streams that fail: RST_STREAM in both directions, and the effects of each reason.

use crate::conn::{Charge, IdState, Offence};
use crate::error::{Cause, ErrorCode, Initiator, InputError, Processed, StreamError};
use crate::ids::{ConnId, Side, StreamAddr, StreamId};
use crate::migrate::{EndBeforeAnswer, MigrationState};
use crate::session::{Event, Session};
use crate::stream::{ExchangeKind, KeyState, RecvState, SendState, Stream, StreamKey};
use crate::time::Instant;
use crate::wire;

/// The reason why this side resets a stream.
pub(super) enum ResetReason {
    /// The application requested it, or sent something invalid.
    Application(ErrorCode, Option<Cause>),
    /// The peer caused it, and was charged for it.
    PeerError(Cause, Charge),
}

impl Session {
    pub(crate) fn queue_reset(&mut self, at: StreamAddr, code: ErrorCode) {
        if let Some(conn) = self.conns.find_live_mut(at.conn) {
            wire::write_reset(&mut conn.control_queue.frames, at.id, code);
        }
    }

    /// Handles RST_STREAM.
    pub(crate) fn on_reset(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        code: ErrorCode,
    ) -> Result<(), InputError> {
        let at = StreamAddr { conn: conn_id, id: stream_id };
        if let Some(key) = self.key_at(conn_id, stream_id) {
            if self.buffer_stop(key, at, code) {
                return Ok(());
            }
            if code == ErrorCode::RefusedStream && self.on_resume_reset(now, key, at) {
                return Ok(());
            }
            let has_sent_response =
                self.streams.find_known(key).is_some_and(Stream::has_sent_response);
            let offence =
                if has_sent_response { Offence::ResetAfterResponse } else { Offence::Reset };
            let (charge, paid) = self.reset_budget.charge(now, offence);
            paid?;
            self.fail_by_peer_reset(key, at, code, charge);
            return Ok(());
        }
        if let Some(key) = self.vacated_key(at) {
            let stream = self.streams.find_known(key).filter(|s| s.resumption.is_some());
            let Some(now_at) = stream.map(|stream| stream.binding.send_addr()) else {
                return Err(InputError::Stream(stream_id, Cause::StreamClosed));
            };
            // The peer does not know whether this side has the stream here or elsewhere
            // (SMIG-13.11/reset-earlier).
            let (charge, paid) = self.reset_budget.charge(now, Offence::Reset);
            paid?;
            self.fail_by_peer_reset(key, now_at, code, charge);
            return Ok(());
        }
        match self.id_state(conn_id, stream_id) {
            IdState::Ignored => {
                self.stop_ignoring_late_frames(at);
                Ok(())
            }
            IdState::Closed => Ok(()),
            IdState::Idle | IdState::Skipped if self.may_be_carrier(conn_id, stream_id) => {
                self.close_unbound_carrier(at, None);
                Ok(())
            }
            IdState::Skipped => Ok(()),
            IdState::Idle => Err(Cause::IdleStream.into()),
        }
    }

    /// Resets a stream because of the peer's error. Returns an error if the peer exceeded its
    /// budget: the connection on which it did so must be closed.
    pub(crate) fn fail_by_peer_error(
        &mut self,
        now: Instant,
        key: StreamKey,
        cause: Cause,
    ) -> Result<(), InputError> {
        let (charge, paid) = self.reset_budget.charge(now, Offence::CausedReset);
        self.reset_locally(key, ResetReason::PeerError(cause, charge));
        Ok(paid?)
    }

    /// Resets a stream because the peer let a timeout expire.
    pub(crate) fn fail_by_timeout(&mut self, key: StreamKey, cause: Cause) {
        let charge = self.reset_budget.debit(Offence::Timeout);
        self.reset_locally(key, ResetReason::PeerError(cause, charge));
    }

    /// Resets a stream because the application sent something invalid.
    pub(crate) fn fail_by_application(&mut self, key: StreamKey, cause: Cause) {
        self.reset_locally(key, ResetReason::Application(cause.code(), Some(cause)));
    }

    /// Sends RST_STREAM on the stream's current address, and ends the stream here, unless it has
    /// ended. The peer counts it, whatever the reason.
    pub(super) fn reset_locally(&mut self, key: StreamKey, reason: ResetReason) {
        if self.reset_uncounted(key, reason) {
            self.local_resets += 1;
        }
    }

    /// Like [`Self::reset_locally`], but does not count the reset: if the caller closes the
    /// connection, RST_STREAM does not reach the peer. Returns whether the stream was running.
    pub(super) fn reset_uncounted(&mut self, key: StreamKey, reason: ResetReason) -> bool {
        let Some(stream) = self.streams.find(key).filter(|stream| !stream.has_failed()) else {
            return false;
        };
        let (code, initiator, cause) = match reason {
            ResetReason::Application(code, cause) => (code, Initiator::User, cause),
            ResetReason::PeerError(cause, Charge { .. }) => {
                (cause.code(), Initiator::Local, Some(cause))
            }
        };
        let addr = stream.binding.send_addr();
        let is_adrift = stream.binding.is_adrift();
        let has_open_migration = stream.binding.open_migration().is_some();
        let is_stop = self.side == Side::Server
            && code == ErrorCode::NoError
            && stream.send.state() == SendState::Ended;
        self.reset_earlier(key, code);
        if has_open_migration {
            self.end_migration(key, EndBeforeAnswer::Reset(code));
        } else if !is_adrift {
            self.queue_reset(addr, code);
        }
        if is_stop {
            self.keep_stopped(key);
        }
        let processed = Processed::Maybe;
        let error = StreamError { code, initiator, cause, connection: addr.conn, processed };
        self.finish_failed_stream(key, error, None);
        true
    }

    /// Handles the peer's RST_STREAM that was received at `at` (the table in SMIG section 8),
    /// unless the stream has ended meanwhile.
    pub(crate) fn fail_by_peer_reset(
        &mut self,
        key: StreamKey,
        at: StreamAddr,
        code: ErrorCode,
        Charge { .. }: Charge,
    ) {
        let Some(stream) = self.streams.find(key) else { return };
        if stream.has_failed() {
            return;
        }
        let is_complete_response =
            stream.recv.state() == RecvState::Ended && stream.exchange_kind != ExchangeKind::Tunnel;
        if self.side == Side::Client && code == ErrorCode::NoError && is_complete_response {
            self.withdraw_migration(key, at);
            return self.stop_request(key, at);
        }
        let processed = if code == ErrorCode::RefusedStream {
            stream.processed_if_refused(at)
        } else {
            Processed::Maybe
        };
        self.end_migration(key, EndBeforeAnswer::ResetByPeer(at, code));
        let (initiator, connection) = (Initiator::Peer, at.conn);
        let error = StreamError { code, initiator, cause: None, connection, processed };
        self.finish_failed_stream(key, error, Some(at));
    }

    /// Client: buffers RST_STREAM(NO_ERROR) on the carrier of an open move of this side. The frame
    /// means that the response is complete, but the end of the response may still be in flight on
    /// the old connection, so the frame waits for the answer (SMIG-5.30/stop-kept). Returns false
    /// for any other frame.
    fn buffer_stop(&mut self, key: StreamKey, at: StreamAddr, code: ErrorCode) -> bool {
        if self.side != Side::Client || code != ErrorCode::NoError {
            return false;
        }
        let Some(early) = self.early_frames_at(key, at.conn, at.id) else { return false };
        early.push_stop()
    }

    /// Client: withdraws an open move, because no more of the request is sent. The server declines
    /// it (SMIG-8.20/stop-crosses).
    fn withdraw_migration(&mut self, key: StreamKey, at: StreamAddr) {
        self.end_migration(key, EndBeforeAnswer::ResetByPeer(at, ErrorCode::NoError));
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        // Most requests that are stopped have no open move.
        let Some(open) = stream.binding.revert() else { return };
        self.unmap(open.to);
        self.ignore_late_frames(open.to);
        self.drop_early_frames(*open);
        self.events.push_back(Event::MigrationDeclined { stream: key });
    }

    /// Client: stops the request, because the response is complete and the server does not need the
    /// rest. The response must not be discarded (RFC 9113 section 8.1).
    fn stop_request(&mut self, key: StreamKey, at: StreamAddr) {
        self.unschedule(key);
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        stream.send.abort();
        let is_news = stream.send.report_end();
        let is_awaited = core::mem::take(&mut stream.send.awaits_capacity);
        self.ignore_late_frames(at);
        if is_awaited {
            // Wake a writer that waits for send capacity: this direction takes no more data.
            self.events.push_back(Event::Writable { stream: key });
        }
        // Wake a task that waits until the entire request is sent.
        if is_news {
            self.events.push_back(Event::Finished { stream: key });
        }
        self.finish_if_complete(key);
    }

    /// Fails a stream whose connection was lost, unless it has ended meanwhile.
    pub(crate) fn fail_with_connection(&mut self, key: StreamKey, lost_conn: ConnId) {
        if self.streams.find(key).is_none_or(Stream::has_failed) {
            return;
        }
        self.end_migration(key, EndBeforeAnswer::LostC1);
        let error = StreamError {
            code: self.conns.find(lost_conn).map_or(ErrorCode::Cancel, |conn| conn.end_code),
            initiator: Initiator::Transport,
            cause: Some(Cause::ConnectionLost),
            connection: lost_conn,
            processed: Processed::Maybe,
        };
        self.finish_failed_stream(key, error, None);
    }

    /// Fails the stream at `at`, which the peer's GOAWAY excludes.
    pub(crate) fn fail_excluded_stream(&mut self, key: StreamKey, at: StreamAddr) {
        let Charge { .. } = self.reset_budget.debit(Offence::Reset);
        let Some(stream) = self.streams.find(key).filter(|stream| !stream.has_failed()) else {
            return;
        };
        let processed = stream.processed_if_refused(at);
        self.end_migration(key, EndBeforeAnswer::ExcludedS1);
        let error = StreamError {
            code: ErrorCode::RefusedStream,
            initiator: Initiator::Peer,
            cause: Some(Cause::GoingAway),
            connection: at.conn,
            processed,
        };
        self.finish_failed_stream(key, error, None);
    }

    /// Removes a failed stream from its connections and notifies the application. `reset_addr` is
    /// where the peer's RST_STREAM arrived, if it did: no frame may follow there.
    pub(super) fn finish_failed_stream(
        &mut self,
        key: StreamKey,
        error: StreamError,
        reset_addr: Option<StreamAddr>,
    ) {
        self.unschedule(key);
        self.remember_reset(key, error.code);
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let window = stream.recv.window.value();
        stream.error = Some(error.clone());
        stream.send.abort();
        let credits = stream.recv.abort();
        let addrs: Vec<StreamAddr> = stream.binding.addrs().collect();
        let vacated_addrs = stream.binding.take_vacated_addrs();
        let migration = stream.binding.end();
        let is_held = stream.key_state == KeyState::Held;
        self.max_reset_window = self.max_reset_window.max(window);
        if let MigrationState::Open(open) = migration {
            self.drop_early_frames(*open);
        }
        for (conn, credit) in credits {
            self.return_credit(conn, credit);
        }
        for at in addrs {
            self.unmap(at);
            if reset_addr != Some(at) {
                self.ignore_late_frames(at);
            }
        }
        self.forget_vacated_addrs(&vacated_addrs);
        self.count_dropped_again();
        if is_held {
            self.events.push_back(Event::Failed { stream: key, error });
        } else {
            self.free(key);
        }
    }

    pub(super) fn forget_vacated_addrs(&mut self, addrs: &[StreamAddr]) {
        for at in addrs {
            if let Some(conn) = self.conns.find_mut(at.conn) {
                conn.vacated_streams.remove(&at.id);
            }
        }
    }
}
