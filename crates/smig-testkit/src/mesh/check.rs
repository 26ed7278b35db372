//! Invariants of a quiescent mesh, and at the end of a sequence.

use smig_proto::{Processed, StreamView};

use crate::mesh::link::Side;
use crate::mesh::talk::ExchangeModel;
use crate::mesh::world::{AppActivity, World};

impl World {
    /// Ends the sequence: delivers, reads and writes everything. Then every exchange must be complete or
    /// failed at both ends, and no state may be left.
    pub fn finish(&mut self) {
        self.settle(AppActivity::Finishing);
        let answered = |talk: &ExchangeModel| {
            let client = talk.part_at(Side::Client);
            client.is_alive() && !client.is_complete() && talk.part_at(Side::Server).released
        };
        if self.talks.iter().any(answered) {
            self.wait_for_patience();
        }
        self.check_still();
        for at in 0..self.talks.len() {
            for side in Side::BOTH {
                self.check_over(at, side);
            }
        }
        if !self.faults.is_empty() {
            return;
        }
        for at in 0..self.talks.len() {
            self.troubled = true;
            Side::BOTH.iter().for_each(|&side| self.release(at, side));
        }
        self.react();
        self.settle(AppActivity::Finishing);
        if self.mesh.servers.iter().any(|server| server.stream_count() > 0) {
            self.wait_for_patience();
        }
        if self.mesh.client.connections().any(|conn| conn.unbound > 0) {
            // The MIGRATE that would name it was lost with its connection, and its mover had completed
            // (SMIG-8.8/c1-ends-at-mover): only the timeout resets it (SMIG-5.24/unbound-timeout).
            self.seen("unbound carrier left");
            self.sleep(11_000);
            self.react();
            self.settle(AppActivity::Finishing);
        }
        self.check_still();
        for (side, session) in core::mem::take(&mut self.shut) {
            let engine = self.mesh.session_at(side, session);
            let open: Vec<_> = engine.connections().collect();
            if !open.is_empty() {
                self.fault(format!("{side:?} session {session} was ended and keeps {open:?}"));
            }
        }
        self.check_empty(Side::Client, 0);
        for session in 0..self.mesh.servers.len() {
            self.check_empty(Side::Server, session);
        }
    }

    /// Waits for the grace period in which a server reads the rest of a request after its response.
    fn wait_for_patience(&mut self) {
        for _ in 0..4 {
            self.sleep(1100);
            self.react();
            self.settle(AppActivity::Finishing);
        }
    }

    /// Checks that an exchange is complete or failed; in a quiescent mesh it makes no further progress.
    fn check_over(&mut self, at: usize, side: Side) {
        let talk = &self.talks[at];
        let (part, other) = (talk.part_at(side), talk.part_at(side.other()));
        let safe = part.failed.as_ref().is_some_and(|error| error.processed == Processed::No);
        if side == Side::Client && !talk.pushed && safe && other.key.is_some() {
            let text =
                format!("exchange {at}: safe to repeat, says {:?}, and was processed", part.failed);
            return self.fault(text);
        }
        if part.is_alive() && !part.is_complete() {
            let view = part.key.and_then(|key| self.view(side, part.session, key));
            let text = format!(
                "exchange {at} is stuck at {side:?}: {part:?}; other end: {other:?}; engine: {view:?}"
            );
            self.fault(text);
        } else if part.key.is_none() && other.is_alive() && !other.is_complete() {
            self.fault(format!(
                "exchange {at} never reached {side:?}, and {:?} waits",
                side.other()
            ));
        }
    }

    fn view(&self, side: Side, session: usize, key: smig_proto::StreamKey) -> Option<StreamView> {
        self.mesh.session_at(side, session).stream(key)
    }

    /// Checks the invariants of a quiescent mesh: the ends agree, and every waiting stream has a reason.
    pub(crate) fn check_still(&mut self) {
        self.audit();
        if !self.faults.is_empty() {
            return;
        }
        for at in 0..self.talks.len() {
            self.check_agreement(at);
            for side in Side::BOTH {
                self.check_waiting(at, side);
            }
        }
        for link in 0..self.mesh.links.len() {
            self.check_connection_windows(link);
        }
    }

    fn check_agreement(&mut self, at: usize) {
        let talk = &self.talks[at];
        let [client, server] = &talk.parts;
        let (Some(client_key), Some(server_key)) = (client.live_key(), server.live_key()) else {
            return;
        };
        let server_session = server.session;
        let (Some(ours), Some(theirs)) = (
            self.view(Side::Client, 0, client_key),
            self.view(Side::Server, server_session, server_key),
        ) else {
            return;
        };
        let up_open = !client.finished || ours.queued > 0;
        let down_open = !server.finished || theirs.queued > 0;
        if !up_open && !down_open {
            return;
        }
        let mut wrong = Vec::new();
        let here = self.mesh.link_of(Side::Client, 0, ours.connection);
        let there = self.mesh.link_of(Side::Server, server_session, theirs.connection);
        if here != there || ours.id != theirs.id {
            wrong.push("place");
        }
        if up_open && ours.send_window != theirs.recv_window {
            wrong.push("window of the upload");
        }
        if down_open && theirs.send_window != ours.recv_window {
            wrong.push("window of the download");
        }
        if !talk.offered && (ours.migrating || theirs.migrating) {
            wrong.push("whether a migration is open");
        }
        if !wrong.is_empty() {
            let wrong = wrong.join(", ");
            self.fault(format!(
                "exchange {at}: ends differ in {wrong}: client {ours:?} server {theirs:?}"
            ));
        }
    }

    /// Checks that an end with unsent data lacks a window.
    fn check_waiting(&mut self, at: usize, side: Side) {
        let part = self.talks[at].part_at(side);
        let Some(key) = part.live_key() else { return };
        let session = part.session;
        let Some(view) = self.view(side, session, key) else { return };
        let engine = self.mesh.session_at(side, session);
        let window = engine.connection(view.connection).map_or(0, |conn| conn.send_window);
        if view.queued > 0 && view.send_window > 0 && window > 0 {
            self.fault(format!(
                "exchange {at}: {side:?} has window and data, but does not send: {view:?}"
            ));
        }
    }

    fn check_connection_windows(&mut self, link: usize) {
        let [client, server] = self.mesh.links[link].ends;
        let (Some(client_conn), Some(server_conn)) = (client.conn, server.conn) else { return };
        let ours = self.mesh.client.connection(client_conn);
        let theirs = self.mesh.servers[server.session].connection(server_conn);
        let (Some(ours), Some(theirs)) = (ours, theirs) else { return };
        if ours.send_window != theirs.recv_window || theirs.send_window != ours.recv_window {
            self.fault(format!("link {link}: ends differ in windows: {ours:?} and {theirs:?}"));
        }
    }

    /// Checks that no state is left after everything was released.
    fn check_empty(&mut self, side: Side, session: usize) {
        let now = self.mesh.now + core::time::Duration::from_secs(2);
        let engine = self.mesh.session(side, session);
        let mut left = Vec::new();
        if engine.stream_count() > 0 {
            left.push(format!("{} streams", engine.stream_count()));
        }
        if engine.has_obligations() {
            left.push("obligations".to_owned());
        }
        let unread: u64 = engine.connections().map(|conn| conn.unread).sum();
        if unread > 0 {
            left.push(format!("{unread} bytes of connection windows"));
        }
        engine.handle_timeout(now);
        if engine.poll_timeout().is_some() {
            left.push("a timer".to_owned());
        }
        if !left.is_empty() {
            let text = format!("{side:?} session {session} keeps {}: {engine:?}", left.join(", "));
            self.fault(text.chars().take(400).collect());
        }
    }
}
