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
        let mut wrong = Vec::new();
        self.verify_counts(&mut wrong);
        for (key, stream) in self.streams.iter() {
            self.verify_stream(key, stream, &mut wrong);
        }
        for conn in self.conns.iter() {
            if !conn.is_dead() {
                self.verify_connection(conn, &mut wrong);
            } else if !conn.deferred_migrates.is_empty() {
                wrong.push(format!("{} has ended, and moves wait for its JOIN", conn.id));
            }
        }
        wrong
    }

    fn verify_counts(&self, wrong: &mut Vec<String>) {
        let opened_by =
            |opener| self.streams.iter().filter(|(_, stream)| stream.opener == opener).count();
        for (opener, count) in [(Opener::Peer, self.peer_open), (Opener::Local, self.local_open)] {
            let streams = opened_by(opener);
            if streams != count as usize {
                wrong.push(format!("{count} streams of {opener:?}, not {streams}"));
            }
        }
    }

    fn verify_stream(&self, key: StreamKey, stream: &Stream, wrong: &mut Vec<String>) {
        if stream.is_over() || stream.is_complete() {
            return;
        }
        for StreamAddr { conn, id } in stream.binding.addrs() {
            let lives = self.conns.find(conn).is_some_and(|conn| !conn.is_dead());
            if lives && self.key_at(conn, id) != Some(key) {
                wrong.push(format!("{key:?} is not found at {conn}/{id}"));
            }
        }
        for &at in stream.binding.vacated() {
            let lives = self.conns.find(at.conn).is_some_and(|conn| !conn.is_dead());
            if lives && self.vacated_key(at) != Some(key) {
                wrong.push(format!("{key:?} has left {at:?}, which does not know it"));
            }
        }
        let conn = stream.binding.send_addr().conn;
        let lives = self.conns.find(conn).is_some_and(|conn| !conn.is_dead());
        if lives && stream.has_frames() && stream.binding.scheduled() != Some(conn) {
            wrong.push(format!("{key:?} could send and is not scheduled"));
        }
    }

    fn verify_connection(&self, conn: &Connection, wrong: &mut Vec<String>) {
        for (id, key) in conn.keys_in_order() {
            let at = StreamAddr { conn: conn.id, id };
            let here = |stream: &Stream| stream.binding.addrs().any(|addr| addr == at);
            if !self.streams.find(key).is_some_and(here) {
                wrong.push(format!("{}/{id} leads to a stream that is elsewhere", conn.id));
            }
        }
        let left = |at: StreamAddr, stream: &Stream| stream.binding.vacated().contains(&at);
        for (id, key) in conn.vacated_in_order() {
            let at = StreamAddr { conn: conn.id, id };
            if !self.streams.find(key).is_some_and(|stream| left(at, stream)) {
                wrong.push(format!("{}/{id} was left by a stream that never was there", conn.id));
            }
        }
        let places = conn.scheduler.len() + conn.blocked.len();
        let here = |stream: &Stream| stream.binding.scheduled() == Some(conn.id);
        let scheduled = self.streams.iter().filter(|(_, stream)| here(stream)).count();
        if places != scheduled {
            wrong
                .push(format!("{}: {places} places in the schedule, {scheduled} streams", conn.id));
        }
        if !conn.deferred_migrates.is_empty()
            && !matches!(conn.membership, Membership::Joining { .. })
        {
            wrong.push(format!("{}: moves wait for a JOIN that is over", conn.id));
        }
        let held = self.held_of(conn);
        if conn.recv_window.outstanding() != held {
            let missing = conn.recv_window.outstanding();
            wrong.push(format!("{}: {missing} bytes of window used, {held} held", conn.id));
        }
    }

    /// Returns the received bytes that occupy the connection's receive window, wherever they are
    /// buffered.
    fn held_of(&self, conn: &Connection) -> u64 {
        let unbound: u64 = conn.carriers.iter().map(|early| early.held()).sum();
        let of_stream = |stream: &Stream| -> u64 {
            let early = stream.binding.open().filter(|open| open.to.conn == conn.id);
            let early = early.map_or(0, |open| open.early.held());
            early + stream.recv.held_of(conn.id)
        };
        unbound + self.streams.iter().map(|(_, stream)| of_stream(stream)).sum::<u64>()
    }
}
