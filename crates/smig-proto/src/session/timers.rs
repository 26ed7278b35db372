//! Timeouts. One tick per second checks all of them, because none needs a finer resolution. A
//! session in which no timeout can expire has no tick.

use core::time::Duration;
use std::sync::Arc;

use crate::config::Limits;
use crate::conn::{ConnState, Connection};
use crate::error::{Cause, ErrorCode};
use crate::ids::{ConnId, StreamAddr};
use crate::session::control::end_drain;
use crate::session::{Event, Session};
use crate::stream::StreamKey;
use crate::time::Instant;

const TICK_INTERVAL: Duration = Duration::from_secs(1);

impl Session {
    /// Returns when [`Self::handle_timeout`] must be called, if at all.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Starts the tick, because a timeout has started.
    pub(crate) fn arm_tick(&mut self, now: Instant) {
        if self.next_tick.is_none() {
            self.next_tick = Some(now + TICK_INTERVAL);
        }
    }

    /// Checks the timeouts after time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next_tick.is_none_or(|tick| tick > now) {
            return;
        }
        self.next_tick = None;
        let conn_ids: Vec<ConnId> = self.conns.iter().map(|conn| conn.id).collect();
        for conn_id in conn_ids {
            self.check_connection_timeouts(now, conn_id);
        }
        self.check_stream_timeouts(now);
        self.check_resumption_timeouts(now);
        self.give_up_receipts(now);
        self.send_due_receipts();
        if self.can_time_out() {
            self.arm_tick(now);
        }
    }

    fn can_time_out(&self) -> bool {
        self.streams.len() > 0
            || self.has_resumption_timeouts()
            || self.conns.iter().any(|conn| {
                matches!(conn.state, ConnState::Preface | ConnState::Settings)
                    || conn.field_block.is_some()
                    || conn.unbound_carriers.len() > 0
                    || !conn.pending_answers.is_empty()
                    || !(conn.settings_acked || conn.is_dead())
                    || conn.awaits_join()
                    || (conn.goaway.drain_started_at.is_some() && !conn.is_dead())
            })
    }

    fn check_connection_timeouts(&mut self, now: Instant, conn_id: ConnId) {
        let config = Arc::clone(&self.config);
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return };
        if conn.is_dead() {
            return;
        }
        let join_timeout = config.smig.as_ref().map(|smig| smig.join_timeout);
        if let Some(cause) = check_peer_timeouts(now, conn, &config.limits, join_timeout) {
            return self.fail_connection(now, conn_id, cause);
        }
        let late = |since| now.saturating_duration_since(since) >= config.limits.drain_timeout;
        if conn.goaway.drain_started_at.is_some_and(late) {
            // Streams that the peer opened before it received the GOAWAY are assumed to have
            // arrived.
            end_drain(conn);
            self.events
                .push_back(Event::LimitHit { conn: conn_id, limit: "drain PING answer time" });
        }
        if let Some(timeout) = config.smig.as_ref().map(|smig| smig.unbound_timeout) {
            let cutoff_nanos = now.as_nanos().saturating_sub(timeout.as_nanos() as u64);
            let cutoff = Instant::from_nanos(cutoff_nanos);
            while let Some(carrier) =
                self.conns.find(conn_id).and_then(|conn| conn.unbound_carriers.find_expired(cutoff))
            {
                self.close_unbound_carrier(
                    StreamAddr { conn: conn_id, id: carrier },
                    Some(ErrorCode::Cancel),
                );
                self.events
                    .push_back(Event::LimitHit { conn: conn_id, limit: "unbound carrier time" });
            }
        }
    }

    fn check_stream_timeouts(&mut self, now: Instant) {
        let answer_timeout = self.config.smig.as_ref().map(|smig| smig.answer_timeout);
        let (stall_timeout, min_bytes) =
            (self.config.limits.stall_timeout, self.config.limits.stall_bytes);
        let keys: Vec<StreamKey> = self.streams.iter().map(|(key, _)| key).collect();
        for key in keys {
            let Some(stream) = self.streams.find_known_mut(key) else { continue };
            let answer_timed_out = stream.binding.open_migration().is_some_and(|open| {
                let waited = now.saturating_duration_since(open.started_at);
                answer_timeout.is_some_and(|timeout| waited >= timeout)
            });
            let conn_id = stream.binding.send_addr().conn;
            if answer_timed_out {
                self.events
                    .push_back(Event::LimitHit { conn: conn_id, limit: "migration answer time" });
                self.fail_by_timeout(key, Cause::AnswerTimeout);
            } else if stream.check_stalled(now, min_bytes, stall_timeout) {
                self.events.push_back(Event::LimitHit { conn: conn_id, limit: "stalled stream" });
                self.fail_by_timeout(key, Cause::Stalled);
            } else if stream.key_state.count_discard_tick() {
                // Check this last: it stays true at each further tick, and the request to stop has
                // no effect while there is data to send.
                self.ask_to_stop(key);
            }
        }
    }

    /// Returns whether anything is outstanding that the peer or a timeout must resolve; for tests
    /// that no state is kept indefinitely.
    #[must_use]
    pub fn has_obligations(&self) -> bool {
        self.open_migration_count() > 0
            || self.conns.iter().any(|conn: &Connection| {
                conn.unbound_carriers.len() > 0
                    || !conn.pending_answers.is_empty()
                    || !conn.deferred_migrates.is_empty()
                    || !conn.vacated_streams.is_empty()
            })
    }
}

/// Updates `join_awaited_since`. Returns the cause for which a connection must end, if a timeout
/// for the peer's next message has expired.
fn check_peer_timeouts(
    now: Instant,
    conn: &mut Connection,
    limits: &Limits,
    join_timeout: Option<Duration>,
) -> Option<Cause> {
    let expired = |since, timeout| now.saturating_duration_since(since) >= timeout;
    let starting = matches!(conn.state, ConnState::Preface | ConnState::Settings);
    if starting && expired(conn.created_at, limits.preface_timeout) {
        return Some(Cause::SlowPreface);
    }
    if !conn.settings_acked && expired(conn.created_at, limits.settings_timeout) {
        return Some(Cause::SettingsTimeout);
    }
    // Client: until the answer to its JOIN arrives, the server processes nothing of the connection
    // (SMIG-4.2/join-first), and moves to it wait (SMIG-5.12/join-pending, SMIG-4.15/join-timeout).
    conn.join_awaited_since =
        if conn.awaits_join() { conn.join_awaited_since.or(Some(now)) } else { None };
    if let (Some(since), Some(timeout)) = (conn.join_awaited_since, join_timeout)
        && expired(since, timeout)
    {
        return Some(Cause::JoinTimeout);
    }
    let block =
        conn.field_block.as_ref().filter(|block| expired(block.started_at, limits.headers_timeout));
    block.map(|_| Cause::SlowHeaders)
}
