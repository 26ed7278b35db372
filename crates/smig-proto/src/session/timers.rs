//! Timeouts. One tick per second checks all of them, because none needs a finer resolution. A
//! session in which no timeout can expire has no tick.

use core::time::Duration;
use std::sync::Arc;

use crate::conn::{ConnState, Connection};
use crate::error::{Cause, ErrorCode};
use crate::ids::{ConnId, StreamAddr};
use crate::session::control::end_drain;
use crate::session::{Event, Session};
use crate::stream::{KeyState, StreamKey};
use crate::time::Instant;

const TICK: Duration = Duration::from_secs(1);

impl Session {
    /// Returns when [`Self::handle_timeout`] must be called, if at all.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.tick
    }

    /// Starts the tick, because a timeout has started.
    pub(crate) fn arm(&mut self, now: Instant) {
        if self.tick.is_none() {
            self.tick = Some(now + TICK);
        }
    }

    /// Checks the timeouts after time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.tick.is_none_or(|tick| tick > now) {
            return;
        }
        self.tick = None;
        let ids: Vec<ConnId> = self.conns.iter().map(|conn| conn.id).collect();
        for id in ids {
            self.check_connection(now, id);
        }
        self.check_streams(now);
        if self.can_time_out() {
            self.arm(now);
        }
    }

    fn can_time_out(&self) -> bool {
        self.streams.len() > 0
            || self.conns.iter().any(|conn| {
                matches!(conn.state, ConnState::Preface | ConnState::Settings)
                    || conn.field_block.is_some()
                    || conn.carriers.len() > 0
                    || !conn.pending_answers.is_empty()
                    || !(conn.settings_acked || conn.is_dead())
                    || conn.awaits_join()
                    || (conn.goaway.draining.is_some() && !conn.is_dead())
            })
    }

    fn check_connection(&mut self, now: Instant, id: ConnId) {
        let config = Arc::clone(&self.config);
        let limits = &config.limits;
        let unbound_timeout = config.smig.as_ref().map(|smig| smig.unbound_timeout);
        let Some(conn) = self.conn(id).filter(|conn| !conn.is_dead()) else { return };
        let age = now.saturating_duration_since(conn.created_at);
        if matches!(conn.state, ConnState::Preface | ConnState::Settings)
            && age >= limits.preface_timeout
        {
            return self.fail_connection(now, id, Cause::SlowPreface);
        }
        if !conn.settings_acked && age >= limits.settings_timeout {
            return self.fail_connection(now, id, Cause::SettingsTimeout);
        }
        if self.is_join_late(now, id) {
            return self.fail_connection(now, id, Cause::JoinTimeout);
        }
        let Some(conn) = self.conn_mut(id) else { return };
        if conn
            .goaway
            .draining
            .is_some_and(|since| now.saturating_duration_since(since) >= limits.drain_timeout)
        {
            // Streams that the peer opened before it received the GOAWAY are assumed to have
            // arrived.
            end_drain(conn);
            self.events.push_back(Event::LimitHit { conn: id, limit: "drain PING answer time" });
        }
        let Some(conn) = self.conn(id) else { return };
        let slow = |since| now.saturating_duration_since(since) >= limits.headers_timeout;
        if conn.field_block.as_ref().is_some_and(|assembly| slow(assembly.since)) {
            return self.fail_connection(now, id, Cause::SlowHeaders);
        }
        if let Some(timeout) = unbound_timeout {
            let before = now.as_nanos().saturating_sub(timeout.as_nanos() as u64);
            let before = Instant::from_nanos(before);
            while let Some(carrier) = self.conn(id).and_then(|conn| conn.carriers.expired(before)) {
                self.close_unbound(StreamAddr { conn: id, id: carrier }, Some(ErrorCode::Cancel));
                self.events.push_back(Event::LimitHit { conn: id, limit: "unbound carrier time" });
            }
        }
    }

    /// Client: returns whether the answer to a JOIN is overdue. Until it arrives, the server
    /// processes nothing of the connection (SMIG-4.2/join-first), and moves to it wait
    /// (SMIG-5.12/join-pending).
    fn is_join_late(&mut self, now: Instant, id: ConnId) -> bool {
        let Some(timeout) = self.config.smig.as_ref().map(|smig| smig.join_timeout) else {
            return false;
        };
        let Some(conn) = self.conn_mut(id) else { return false };
        if !conn.awaits_join() {
            conn.join_since = None;
            return false;
        }
        let since = *conn.join_since.get_or_insert(now);
        now.saturating_duration_since(since) >= timeout
    }

    fn check_streams(&mut self, now: Instant) {
        let answer_timeout = self.config.smig.as_ref().map(|smig| smig.answer_timeout);
        let keys: Vec<StreamKey> = self.streams.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(stream) = self.streams.find(key) else { continue };
            let unanswered = stream.binding.open().is_some_and(|open| {
                let waited = now.saturating_duration_since(open.since);
                answer_timeout.is_some_and(|timeout| waited >= timeout)
            });
            let conn = stream.binding.send_addr().conn;
            if unanswered {
                self.events.push_back(Event::LimitHit { conn, limit: "migration answer time" });
                self.fail_by_delay(key, Cause::CarrierTimeout);
            } else if self.is_stalled(now, key) {
                self.events.push_back(Event::LimitHit { conn, limit: "stalled stream" });
                self.fail_by_delay(key, Cause::Stalled);
            } else if self.is_drained_long(key) {
                // Check this last: it stays true at each further tick, and the request to stop has
                // no effect while there is data to send.
                self.ask_to_stop(key);
            }
        }
    }

    /// Counts a tick of an answered request that its client continues to send. Returns whether
    /// there were more than two.
    fn is_drained_long(&mut self, key: StreamKey) -> bool {
        let Some(stream) = self.streams.find_mut(key) else { return false };
        match &mut stream.key_state {
            KeyState::Draining(ticks) => {
                *ticks = ticks.saturating_add(1);
                *ticks > 2
            }
            KeyState::Held | KeyState::Released => false,
        }
    }

    /// Returns whether a stream with data to send has sent too little for too long, because of the
    /// peer.
    fn is_stalled(&mut self, now: Instant, key: StreamKey) -> bool {
        let (timeout, least) = (self.config.limits.stall_timeout, self.config.limits.stall_bytes);
        let Some(stream) = self.streams.find_mut(key) else { return false };
        let moved = stream.send.sent();
        if stream.is_over() || stream.send.queued() == 0 {
            stream.stall.restart(now, moved);
            return false;
        }
        stream.stall.is_stalled(now, moved, least, timeout)
    }

    /// Returns whether anything is outstanding that the peer or a timeout must resolve; for tests
    /// that no state is kept indefinitely.
    #[must_use]
    pub fn has_obligations(&self) -> bool {
        self.open_migrations > 0
            || self.conns.iter().any(|conn: &Connection| {
                conn.carriers.len() > 0
                    || !conn.pending_answers.is_empty()
                    || !conn.deferred_migrates.is_empty()
                    || !conn.departed.is_empty()
            })
    }
}
