//! Consistency checks of a session, for tests. Reads all state and changes nothing.

use crate::conn::{Connection, Membership};
use crate::ids::StreamAddr;
use crate::session::Session;
use crate::stream::{Opener, Stream, StreamKey};

impl Session {
    /// Returns a description of each inconsistency; an inconsistency is a bug in the engine. Checks
    /// all state, so it is meant for tests.
    #[must_use]
    pub fn check_invariants(&self) -> Vec<String> {
        let mut violations = Vec::new();
        self.verify_counts(&mut violations);
        for (key, stream) in self.streams.iter() {
            self.verify_stream(key, stream, &mut violations);
        }
        for conn in self.conns.iter() {
            if !conn.is_dead() {
                self.verify_connection(conn, &mut violations);
            } else if !conn.deferred_migrates.is_empty() {
                violations.push(format!("{} has ended, and MIGRATEs wait for its JOIN", conn.id));
            }
        }
        violations
    }

    fn verify_counts(&self, violations: &mut Vec<String>) {
        let opened_by =
            |opener| self.streams.iter().filter(|(_, stream)| stream.opener == opener).count();
        for (opener, count) in
            [(Opener::Peer, self.open_peer_streams), (Opener::Local, self.open_local_streams)]
        {
            let streams = opened_by(opener);
            if streams != count as usize {
                violations
                    .push(format!("{streams} streams of {opener:?}, but {count} are counted"));
            }
        }
    }

    fn verify_stream(&self, key: StreamKey, stream: &Stream, violations: &mut Vec<String>) {
        if stream.has_failed() || stream.is_complete() {
            return;
        }
        for StreamAddr { conn, id } in stream.binding.addrs() {
            let is_live = self.conns.find(conn).is_some_and(|conn| !conn.is_dead());
            if is_live && self.key_at(conn, id) != Some(key) {
                violations.push(format!("{key:?} is not found at {conn}/{id}"));
            }
        }
        for &at in stream.binding.vacated_addrs() {
            let is_live = self.conns.find(at.conn).is_some_and(|conn| !conn.is_dead());
            if is_live && self.vacated_key(at) != Some(key) {
                violations.push(format!("{key:?} has left {at:?}, where it has no entry"));
            }
        }
        let conn_id = stream.binding.send_addr().conn;
        let is_live = self.conns.find(conn_id).is_some_and(|conn| !conn.is_dead());
        if is_live && stream.has_frames() && stream.binding.scheduled_on() != Some(conn_id) {
            violations.push(format!("{key:?} could send and is not scheduled"));
        }
    }

    fn verify_connection(&self, conn: &Connection, violations: &mut Vec<String>) {
        for (id, key) in conn.keys_in_order() {
            let at = StreamAddr { conn: conn.id, id };
            let is_here = |stream: &Stream| stream.binding.addrs().any(|addr| addr == at);
            if !self.streams.find(key).is_some_and(is_here) {
                violations.push(format!("{}/{id} maps to a stream that is elsewhere", conn.id));
            }
        }
        let has_left =
            |at: StreamAddr, stream: &Stream| stream.binding.vacated_addrs().contains(&at);
        for (id, key) in conn.vacated_keys_in_order() {
            let at = StreamAddr { conn: conn.id, id };
            if !self.streams.find(key).is_some_and(|stream| has_left(at, stream)) {
                violations
                    .push(format!("{}/{id} was left by a stream that was not there", conn.id));
            }
        }
        let entry_count = conn.scheduler.len() + conn.blocked_streams.len();
        let is_here = |stream: &Stream| stream.binding.scheduled_on() == Some(conn.id);
        let scheduled_count = self.streams.iter().filter(|(_, stream)| is_here(stream)).count();
        if entry_count != scheduled_count {
            violations.push(format!(
                "{}: {entry_count} scheduler entries, {scheduled_count} streams",
                conn.id
            ));
        }
        if !conn.deferred_migrates.is_empty()
            && !matches!(conn.membership, Membership::Joining { .. })
        {
            violations.push(format!("{}: MIGRATEs wait for a JOIN that was answered", conn.id));
        }
        let occupied_bytes = self.buffered_bytes(conn);
        if conn.recv_window.outstanding() != occupied_bytes {
            let outstanding_bytes = conn.recv_window.outstanding();
            violations.push(format!(
                "{}: {outstanding_bytes} bytes of window used, {occupied_bytes} buffered",
                conn.id
            ));
        }
    }

    /// Returns the received bytes that occupy the connection's receive window, wherever they are
    /// buffered.
    fn buffered_bytes(&self, conn: &Connection) -> u64 {
        let unbound_bytes: u64 =
            conn.unbound_carriers.iter().map(|early| early.window_bytes()).sum();
        let of_stream = |stream: &Stream| -> u64 {
            let early = stream.binding.open_migration().filter(|open| open.to.conn == conn.id);
            let early = early.map_or(0, |open| open.early_frames.window_bytes());
            early + stream.recv.window_bytes_on(conn.id)
        };
        unbound_bytes + self.streams.iter().map(|(_, stream)| of_stream(stream)).sum::<u64>()
    }
}
