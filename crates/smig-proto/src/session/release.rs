//! Streams that are complete, or that the application cancels.

use crate::conn::Connection;
use crate::error::ErrorCode;
use crate::ids::Side;
use crate::migrate::MigrationState;
use crate::session::resets::ResetReason;
use crate::session::{Event, Session};
use crate::stream::{ExchangeKind, KeyState, Opener, RecvState, SendState, StreamKey};

/// Bytes of an unneeded request that are read before the client is requested to stop sending.
const MAX_DISCARDED_BYTES: i64 = 64 << 10;

impl Session {
    /// Ends the stream if both directions have ended, unless it has failed meanwhile.
    pub(crate) fn finish_if_complete(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        if stream.has_failed() || !stream.is_complete() || stream.is_resuming() {
            return;
        }
        let is_released = stream.key_state != KeyState::Held;
        let addr = stream.binding.send_addr();
        let had_body = stream.send.has_sent_body();
        let vacated_addrs = stream.binding.take_vacated_addrs();
        stream.binding.end_offer();
        self.unmap(addr);
        if had_body && let Some(conn) = self.conns.find_mut(addr.conn) {
            // The peer may have responded before the end of the request had arrived.
            conn.departed_stream_needs_output = true;
        }
        self.forget_vacated_addrs(&vacated_addrs);
        self.keep_ended(key);
        if is_released {
            self.free(key);
        }
    }

    /// Removes the last state of a stream.
    pub(crate) fn free(&mut self, key: StreamKey) {
        self.unschedule(key);
        // A stream is large: it is taken apart where it is stored.
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let (opener, credits) = (stream.opener, stream.recv.abort());
        self.streams.free(key);
        for (conn, credit) in credits {
            self.return_credit(conn, credit);
        }
        match opener {
            Opener::Peer => self.open_peer_streams = self.open_peer_streams.saturating_sub(1),
            Opener::Local => {
                self.open_local_streams = self.open_local_streams.saturating_sub(1);
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
        if stream.has_failed() || stream.is_complete() {
            if stream.binding.open_migration().is_none() && !stream.is_resuming() {
                self.free(key);
            }
            return;
        }
        let recv_ended = stream.recv.state() == RecvState::Ended;
        let send_ended = stream.send.state() == SendState::Ended;
        if recv_ended && (send_ended || !stream.send.is_open()) {
            // Queued data is still sent.
            return;
        }
        let is_not_tunnel = stream.exchange_kind != ExchangeKind::Tunnel;
        if send_ended && is_not_tunnel && self.side == Side::Server {
            // The response is complete; the rest of the request is not needed.
            stream.key_state = KeyState::Discarding(0);
            return self.discard_unread(key);
        }
        self.cancel(key, ErrorCode::Cancel);
    }

    /// Drops the data that a released stream has received. If a client continues to send, requests
    /// that it stop.
    pub(crate) fn discard_unread(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let credits = stream.recv.discard();
        let window = i64::from(self.config.stream_window);
        let exceeded =
            stream.recv.window.value() < window - MAX_DISCARDED_BYTES && !stream.is_complete();
        for (conn, credit) in credits {
            self.return_credit(conn, credit);
        }
        if exceeded {
            self.ask_to_stop(key);
        }
    }

    /// Server: requests that the client stop sending, because the response is complete (RFC 9113
    /// section 8.1). Waits for the answer to an open move of this side: after a decline the
    /// response must be sent again (SMIG-8.19/stop-after-answer).
    pub(crate) fn ask_to_stop(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        if stream.recv.state() == RecvState::Ended {
            return;
        }
        let has_no_open_migration =
            stream.binding.open_migration().is_none() && !stream.is_resuming();
        if has_no_open_migration && stream.send.state() == SendState::Ended {
            self.reset_locally(key, ResetReason::Application(ErrorCode::NoError, None));
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
        if stream.has_failed() || stream.is_complete() && !stream.is_resuming() {
            // It has no address any more; its former connection may belong to other streams.
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
        let (addr, is_migration_idle) = (
            stream.binding.send_addr(),
            matches!(stream.binding.migration(), MigrationState::Idle)
                && !stream.binding.is_adrift(),
        );
        let has_other_connection =
            self.conns.iter().any(|conn| conn.id != addr.conn && !conn.is_dead());
        let conn = self.conns.find(addr.conn);
        let may_close = conn.is_some_and(Connection::may_end_with_its_stream)
            && !self.has_deferred_migrate_from(addr.conn);
        if self.side == Side::Client && is_migration_idle && has_other_connection && may_close {
            // Closing the connection discards the bytes in flight (SMIG-8.4/cancel-by-close).
            self.reset_uncounted(key, ResetReason::Application(code, None));
            self.mark_dead(addr.conn, None);
            self.events.push_back(Event::AbortTransport { conn: addr.conn });
            return;
        }
        self.reset_locally(key, ResetReason::Application(code, None));
    }
}
