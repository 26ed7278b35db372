//! Invariants of a quiescent mesh, and at the end of a sequence.

use smig_proto::{Processed, StreamView};

use crate::mesh::exchange::ExchangeModel;
use crate::mesh::link::Side;
use crate::mesh::world::{AppActivity, World};

impl World {
    /// Ends the sequence: delivers, reads and writes everything. Then every exchange must be complete or
    /// failed at both ends, and no state may be left.
    pub fn finish(&mut self) {
        self.settle(AppActivity::Finishing);
        let waits_for_grace = |exchange: &ExchangeModel| {
            let client = exchange.side(Side::Client);
            client.is_alive() && !client.is_complete() && exchange.side(Side::Server).released
        };
        if self.exchanges.iter().any(waits_for_grace) {
            self.wait_for_request_grace();
        }
        self.check_quiescent();
        for at in 0..self.exchanges.len() {
            for side in Side::BOTH {
                self.check_finished(at, side);
            }
        }
        if !self.faults.is_empty() {
            return;
        }
        for at in 0..self.exchanges.len() {
            self.failures_expected = true;
            Side::BOTH.iter().for_each(|&side| self.release(at, side));
        }
        self.handle_events();
        self.settle(AppActivity::Finishing);
        if self.mesh.servers.iter().any(|server| server.stream_count() > 0) {
            self.wait_for_request_grace();
        }
        if self.mesh.client.connections().any(|conn| conn.unbound_carriers > 0) {
            // The MIGRATE that would name it was lost with its connection, and its mover had completed
            // (SMIG-8.8/c1-ends-at-mover): only the timeout resets it (SMIG-5.24/unbound-timeout).
            self.add_case("unbound carrier left");
            self.sleep(11_000);
            self.handle_events();
            self.settle(AppActivity::Finishing);
        }
        self.check_quiescent();
        for (side, session) in core::mem::take(&mut self.shut_down_sessions) {
            let engine = self.mesh.session_at(side, session);
            let open: Vec<_> = engine.connections().collect();
            if !open.is_empty() {
                self.report_fault(format!(
                    "{side:?} session {session} was shut down but keeps {open:?}"
                ));
            }
        }
        self.check_empty(Side::Client, 0);
        for session in 0..self.mesh.servers.len() {
            self.check_empty(Side::Server, session);
        }
    }

    /// Waits for the grace period in which a server reads the rest of a request after its response.
    fn wait_for_request_grace(&mut self) {
        for _ in 0..4 {
            self.sleep(1100);
            self.handle_events();
            self.settle(AppActivity::Finishing);
        }
    }

    /// Checks that an exchange is complete or failed; in a quiescent mesh it makes no further progress.
    fn check_finished(&mut self, at: usize, side: Side) {
        let exchange = &self.exchanges[at];
        let (model, other) = (exchange.side(side), exchange.side(side.other()));
        let is_unprocessed =
            model.failed.as_ref().is_some_and(|error| error.processed == Processed::No);
        if side == Side::Client && !exchange.is_push && is_unprocessed && other.key.is_some() {
            let text =
                format!("exchange {at}: reported as not processed, but it was: {:?}", model.failed);
            return self.report_fault(text);
        }
        if model.is_alive() && !model.is_complete() {
            let view = model.key.and_then(|key| self.view(side, model.session, key));
            let text = format!(
                "exchange {at} is stuck at {side:?}: {model:?}; other end: {other:?}; engine: {view:?}"
            );
            self.report_fault(text);
        } else if model.key.is_none() && other.is_alive() && !other.is_complete() {
            self.report_fault(format!(
                "exchange {at} never reached {side:?}, and {:?} waits",
                side.other()
            ));
        }
    }

    fn view(&self, side: Side, session: usize, key: smig_proto::StreamKey) -> Option<StreamView> {
        self.mesh.session_at(side, session).stream(key)
    }

    /// Checks the invariants of a quiescent mesh: the ends agree, and every waiting stream has a reason.
    pub(crate) fn check_quiescent(&mut self) {
        self.check_engines();
        if !self.faults.is_empty() {
            return;
        }
        for at in 0..self.exchanges.len() {
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
        let exchange = &self.exchanges[at];
        let [client, server] = &exchange.sides;
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
        let up_open = !client.end_sent || ours.queued > 0;
        let down_open = !server.end_sent || theirs.queued > 0;
        if !up_open && !down_open {
            return;
        }
        let mut differences = Vec::new();
        let here = self.mesh.link_of(Side::Client, 0, ours.connection);
        let there = self.mesh.link_of(Side::Server, server_session, theirs.connection);
        if here != there || ours.id != theirs.id {
            differences.push("location");
        }
        if up_open && ours.send_window != theirs.recv_window {
            differences.push("window of the upload");
        }
        if down_open && theirs.send_window != ours.recv_window {
            differences.push("window of the download");
        }
        if !exchange.has_open_offer && (ours.migrating || theirs.migrating) {
            differences.push("whether a migration is open");
        }
        if !differences.is_empty() {
            let differences = differences.join(", ");
            self.report_fault(format!(
                "exchange {at}: ends differ in {differences}: client {ours:?} server {theirs:?}"
            ));
        }
    }

    /// Checks that an end with unsent data lacks a window.
    fn check_waiting(&mut self, at: usize, side: Side) {
        let model = self.exchanges[at].side(side);
        let Some(key) = model.live_key() else { return };
        let session = model.session;
        let Some(view) = self.view(side, session, key) else { return };
        let engine = self.mesh.session_at(side, session);
        let window = engine.connection(view.connection).map_or(0, |conn| conn.send_window);
        if view.queued > 0 && view.send_window > 0 && window > 0 {
            self.report_fault(format!(
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
            self.report_fault(format!(
                "link {link}: ends differ in windows: {ours:?} and {theirs:?}"
            ));
        }
    }

    /// Checks that no state is left after everything was released.
    fn check_empty(&mut self, side: Side, session: usize) {
        let now = self.mesh.now + core::time::Duration::from_secs(2);
        let engine = self.mesh.session_mut(side, session);
        let mut leftovers = Vec::new();
        if engine.stream_count() > 0 {
            leftovers.push(format!("{} streams", engine.stream_count()));
        }
        if engine.has_obligations() {
            leftovers.push("obligations".to_owned());
        }
        let unread: u64 = engine.connections().map(|conn| conn.unread).sum();
        if unread > 0 {
            leftovers.push(format!("{unread} bytes of connection windows"));
        }
        engine.handle_timeout(now);
        if engine.poll_timeout().is_some() {
            leftovers.push("a timer".to_owned());
        }
        if !leftovers.is_empty() {
            let text =
                format!("{side:?} session {session} keeps {}: {engine:?}", leftovers.join(", "));
            self.report_fault(text.chars().take(400).collect());
        }
    }
}
