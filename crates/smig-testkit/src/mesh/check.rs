//! Invariants of a quiescent mesh, and at the end of a sequence.

use smig_proto::{Processed, Session, StreamView};

use crate::mesh::exchange::ExchangeModel;
use crate::mesh::link::{CloseCause, Side};
use crate::mesh::world::{AppActivity, World};

impl World {
    /// Ends the sequence: delivers, reads and writes everything. Then every exchange must be complete or
    /// failed at both ends, and no state may be left.
    pub fn finish(&mut self) {
        self.settle_and_resume();
        let waits_for_grace = |exchange: &ExchangeModel| {
            let client = exchange.side(Side::Client);
            client.is_alive() && !client.is_complete() && exchange.side(Side::Server).is_released
        };
        if self.exchanges.iter().any(waits_for_grace) {
            self.wait_for_request_grace();
        }
        self.check_quiescent();
        for number in 0..self.exchanges.len() {
            for side in Side::BOTH {
                self.check_finished(number, side);
            }
        }
        if !self.violations.is_empty() {
            return;
        }
        for number in 0..self.exchanges.len() {
            self.failures_expected = true;
            Side::BOTH.iter().for_each(|&side| self.release(number, side));
        }
        self.handle_events();
        self.settle(AppActivity::Finishing);
        if self.mesh.servers.iter().any(|server| server.stream_count() > 0) {
            self.wait_for_request_grace();
        }
        if self.mesh.client.connections().any(|conn| conn.unbound_carrier_count > 0) {
            // The MIGRATE that would name it was lost with its connection, and its mover had completed
            // (SMIG-8.8/c1-ends-at-mover): only the timeout resets it (SMIG-5.24/unbound-timeout).
            self.add_case("unbound carrier left");
            self.sleep(11_000);
            self.handle_events();
            self.settle(AppActivity::Finishing);
        }
        self.settle_receipts();
        self.check_quiescent();
        for (side, session) in core::mem::take(&mut self.shut_down_sessions) {
            let engine = self.mesh.session_at(side, session);
            let open: Vec<_> = engine.connections().collect();
            if !open.is_empty() {
                self.report_violation(format!(
                    "{side:?} session {session} was shut down but keeps {open:?}"
                ));
            }
        }
        self.check_empty(Side::Client, 0);
        for session in 0..self.mesh.servers.len() {
            self.check_empty(Side::Server, session);
        }
    }

    /// Cuts a connection when this many bytes more have arrived from `from`.
    pub fn cut_after(&mut self, link: usize, from: Side, bytes: usize) {
        self.failures_expected = true;
        self.mesh.links[link].close_cause.get_or_insert(CloseCause::Step);
        self.mesh.cut_after(link, from, bytes);
    }

    /// Returns whether the connection was cut.
    #[must_use]
    pub fn is_cut(&self, link: usize) -> bool {
        self.mesh.is_cut(link)
    }

    /// Panics, with this text, if a check has failed or an exchange is not complete at both ends.
    ///
    /// # Panics
    /// See above.
    pub fn expect_all_complete(&self, text: &str) {
        assert!(self.violations.is_empty(), "{text}: {:?}", self.violations);
        for (number, exchange) in self.exchanges.iter().enumerate() {
            let error = exchange.side(Side::Client).error.as_ref();
            if error.is_some_and(|error| error.processed == Processed::No) {
                // Its request did not arrive, and never will: the application may send it again.
                assert_eq!(exchange.side(Side::Server).key, None, "{text}: exchange {number}");
                continue;
            }
            for side in Side::BOTH {
                let model = exchange.side(side);
                let is_complete = model.is_complete() && model.error.is_none();
                assert!(is_complete, "{text}: exchange {number} at {side:?}: {model:?}");
            }
        }
    }

    /// Lets everything happen. Streams that are adrift get a connection, or time to fail.
    fn settle_and_resume(&mut self) {
        for _ in 0..4 {
            self.settle(AppActivity::Finishing);
            let is_resuming = |world: &Self| {
                let servers = world.mesh.servers.iter().flat_map(Session::streams);
                let mut views = world.mesh.client.streams().chain(servers);
                views.any(|(_, view)| view.is_resuming)
            };
            if !is_resuming(self) || !self.violations.is_empty() {
                return;
            }
            self.add_case("adrift");
            self.connect();
            self.settle(AppActivity::Finishing);
            if is_resuming(self) {
                // A refusal for a limit, or a client that must not open a connection.
                self.add_case("time to resume");
                self.sleep(1000 * (u32::from(self.mesh.setup.linger_s) + 2));
                self.sleep(1000 * (u32::from(self.mesh.setup.linger_s) + 2));
                self.handle_events();
            }
        }
    }

    /// Lets receipts cover what was sent, and time pass in which connections that have ended are remembered.
    fn settle_receipts(&mut self) {
        if self.mesh.setup.linger_s == 0 {
            return;
        }
        // What is remembered after a connection is remembered for `linger` once more.
        let linger = 1000 * (u32::from(self.mesh.setup.linger_s) + 1);
        for millis in [1100, 1100, 1100, linger, linger] {
            self.sleep(millis);
            self.sleep(millis);
            self.handle_events();
            self.settle(AppActivity::Finishing);
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
    fn check_finished(&mut self, number: usize, side: Side) {
        let exchange = &self.exchanges[number];
        let (model, peer) = (exchange.side(side), exchange.side(side.other()));
        let is_unprocessed =
            model.error.as_ref().is_some_and(|error| error.processed == Processed::No);
        if side == Side::Client && !exchange.is_push && is_unprocessed && peer.key.is_some() {
            let text = format!(
                "exchange {number}: reported as not processed, but it was: {:?}",
                model.error
            );
            return self.report_violation(text);
        }
        if model.is_alive() && !model.is_complete() {
            let view = model.key.and_then(|key| self.view(side, model.session, key));
            let text = format!(
                "exchange {number} is stuck at {side:?}: {model:?}; other end: {peer:?}; engine: {view:?}"
            );
            self.report_violation(text);
        } else if model.key.is_none() && peer.is_alive() && !peer.is_complete() {
            self.report_violation(format!(
                "exchange {number} never reached {side:?}, and {:?} waits",
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
        if !self.violations.is_empty() {
            return;
        }
        for number in 0..self.exchanges.len() {
            self.check_agreement(number);
            for side in Side::BOTH {
                self.check_waiting(number, side);
            }
        }
        for link in 0..self.mesh.links.len() {
            self.check_connection_windows(link);
        }
    }

    fn check_agreement(&mut self, number: usize) {
        let exchange = &self.exchanges[number];
        let [client, server] = &exchange.sides;
        let (Some(client_key), Some(server_key)) = (client.live_key(), server.live_key()) else {
            return;
        };
        let server_session = server.session;
        let (Some(client_view), Some(server_view)) = (
            self.view(Side::Client, 0, client_key),
            self.view(Side::Server, server_session, server_key),
        ) else {
            return;
        };
        let is_upload_open = !client.end_sent || client_view.queued_bytes > 0;
        let is_download_open = !server.end_sent || server_view.queued_bytes > 0;
        if !is_upload_open && !is_download_open
            || client_view.is_resuming
            || server_view.is_resuming
        {
            return;
        }
        let mut differences = Vec::new();
        let client_link = self.mesh.link_of(Side::Client, 0, client_view.connection);
        let server_link = self.mesh.link_of(Side::Server, server_session, server_view.connection);
        if client_link != server_link || client_view.id != server_view.id {
            differences.push("location");
        }
        if is_upload_open && client_view.send_window != server_view.recv_window {
            differences.push("window of the upload");
        }
        if is_download_open && server_view.send_window != client_view.recv_window {
            differences.push("window of the download");
        }
        if !exchange.has_open_offer && (client_view.is_migrating || server_view.is_migrating) {
            differences.push("whether a migration is open");
        }
        if !differences.is_empty() {
            let differences = differences.join(", ");
            self.report_violation(format!(
                "exchange {number}: ends differ in {differences}: client {client_view:?} server {server_view:?}"
            ));
        }
    }

    /// Checks that an end with unsent data lacks a window.
    fn check_waiting(&mut self, number: usize, side: Side) {
        let model = self.exchanges[number].side(side);
        let Some(key) = model.live_key() else { return };
        let session = model.session;
        let Some(view) = self.view(side, session, key) else { return };
        let engine = self.mesh.session_at(side, session);
        let window = engine.connection(view.connection).map_or(0, |conn| conn.send_window);
        if view.queued_bytes > 0 && view.send_window > 0 && window > 0 && !view.is_resuming {
            self.report_violation(format!(
                "exchange {number}: {side:?} has window and data, but does not send: {view:?}"
            ));
        }
    }

    fn check_connection_windows(&mut self, link: usize) {
        let [client, server] = self.mesh.links[link].ends;
        let (Some(client_conn), Some(server_conn)) = (client.conn, server.conn) else { return };
        let client_view = self.mesh.client.connection(client_conn);
        let server_view = self.mesh.servers[server.session].connection(server_conn);
        let (Some(client_view), Some(server_view)) = (client_view, server_view) else { return };
        if client_view.send_window != server_view.recv_window
            || server_view.send_window != client_view.recv_window
        {
            self.report_violation(format!(
                "link {link}: ends differ in windows: {client_view:?} and {server_view:?}"
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
        let unread: u64 = engine.connections().map(|conn| conn.unread_bytes).sum();
        if unread > 0 {
            leftovers.push(format!("{unread} bytes of connection windows"));
        }
        engine.handle_timeout(now);
        if engine.poll_timeout().is_some() {
            leftovers.push("a timer".to_owned());
        }
        if !leftovers.is_empty() {
            let mut text = format!("{engine:?}");
            let resumption = text.rfind("Resumption {").unwrap_or(0);
            let text = text.split_off(resumption).chars().take(900).collect::<String>();
            self.report_violation(format!(
                "{side:?} session {session} keeps {}: {text}",
                leftovers.join(", ")
            ));
        }
    }
}
