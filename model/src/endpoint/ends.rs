//! Resets, lost connections and GOAWAY: section 8.

use super::{EarlyFrame, Endpoint, OpenMigration, ProtocolError, ResetOn, StreamState};
use crate::frame::{EndStream, Frame, MigrateKind};
use crate::id::{Conn, Side, StreamAddr};
use crate::omission::Omission;

impl Endpoint {
    pub(crate) fn can_reset(&self) -> bool {
        self.state == StreamState::Running
    }

    /// Resets the stream for the application.
    pub(crate) fn reset(&mut self) {
        self.state = StreamState::Failed;
        if let Some(open) = &mut self.open_migration {
            open.reset = Some(ResetOn::Carrier); // SMIG-8.2/reset-on-s2
            let to = open.to;
            self.queue_frame(to, Frame::Reset);
        } else {
            self.queue_frame(self.addr, Frame::Reset);
            self.reset_earlier();
            self.closed_addrs.insert(self.addr);
            if let Some(deferred) = self.deferred_migrate.take() {
                self.decline(self.addr, MigrateKind::Move { to: deferred.to, end: EndStream::No });
            }
        }
        self.finish_if_ended();
    }

    /// Returns the connection that this side may close to cancel the stream
    /// (SMIG-8.4/cancel-by-close).
    pub(crate) fn closable_connection(&self) -> Option<Conn> {
        let at = self.open_migration.as_ref().map_or(self.addr, |open| open.to);
        (self.can_reset()
            && self.deferred_migrate.is_none()
            && at.conn != Conn(0)
            && !self.view(at.conn).has_ended)
            .then_some(at.conn)
    }

    /// Cancels the stream by closing the connection on which it is alone.
    pub(crate) fn cancel_by_close(&mut self, conn: Conn) {
        self.state = StreamState::Failed;
        if let Some(open) = &mut self.open_migration {
            open.reset = Some(ResetOn::Carrier);
        }
        self.reset_earlier();
        self.on_connection_ended(conn);
    }

    pub(super) fn on_reset(&mut self, at: StreamAddr) {
        if self.closed_addrs.contains(at) {
            return;
        }
        if self.is_destination(at) {
            self.fail(); // SMIG-5.20/reset-at-once
            if let Some(open) = &mut self.open_migration {
                open.reset.get_or_insert(ResetOn::Carrier);
            }
        } else if at == self.addr {
            if self.deferred_migrate.is_some() {
                return self.report_fault(ProtocolError::AfterBarrier);
            }
            self.fail();
            self.on_s1_reset();
        } else if at.owner() == self.side {
            self.report_fault(ProtocolError::IdleId);
        } else {
            self.abandon(at); // SMIG-5.25/unbound-reset
        }
    }

    /// Returns whether the server may stop the upload: its response is complete, and no answer is
    /// outstanding (SMIG-8.19/stop-after-answer).
    pub(crate) fn can_stop(&self) -> bool {
        let answered = self.open_migration.is_none() || self.omits(Omission::StopBeforeAnswer);
        self.side == Side::Server
            && self.state == StreamState::Running
            && self.send.has_ended
            && !self.recv.has_ended
            && self.deferred_migrate.is_none()
            && answered
    }

    /// Stops the upload: the exchange is complete for the server (RFC 9113 section 8.1).
    pub(crate) fn stop(&mut self) {
        self.state = StreamState::Complete;
        match &mut self.open_migration {
            None => {
                self.queue_frame(self.addr, Frame::Stop);
                self.closed_addrs.insert(self.addr);
            }
            Some(open) => {
                // Recorded like any reset.
                open.reset = Some(ResetOn::Carrier);
                let to = open.to;
                self.queue_frame(to, Frame::Stop);
            }
        }
        self.finish_if_ended();
    }

    pub(super) fn on_stop(&mut self, at: StreamAddr) {
        if self.closed_addrs.contains(at) {
            return;
        }
        if self.is_destination(at) && !self.omits(Omission::StopProcessedAtOnce) {
            if let Some(open) = &mut self.open_migration {
                open.early_frames.push(EarlyFrame::Stop); // SMIG-5.30/stop-kept
            }
            return;
        }
        let keeps_result =
            self.open_migration.is_none() || !self.omits(Omission::CrossingStopFailsStream); // SMIG-8.20/stop-crosses
        if (at == self.addr || self.is_destination(at)) && self.recv.has_ended && keeps_result {
            self.send.has_ended = true;
            self.state = StreamState::Complete;
        }
        self.on_reset(at);
    }

    /// Handles RST_STREAM on S1, which may have crossed a MIGRATE (SMIG-8.1/reset-crosses).
    fn on_s1_reset(&mut self) {
        match self.open_migration.take() {
            None => self.closed_addrs.insert(self.addr),
            Some(mut open) => {
                if open.reset.is_none() {
                    self.close_carrier(&open);
                }
                open.reset.get_or_insert(ResetOn::OldAddr);
                self.open_migration = Some(open);
            }
        }
    }

    fn fail(&mut self) {
        if self.state == StreamState::Running {
            self.state = StreamState::Failed;
        }
    }

    /// Handles the end of a connection, after everything that arrived on it was read.
    pub(crate) fn on_connection_ended(&mut self, conn: Conn) {
        self.conns[conn.index()].has_ended = true;
        self.unbound_carriers.retain(|unbound| unbound.at.conn != conn); // SMIG-8.11/ids-go-along
        if self.can_resume() {
            match self.side {
                Side::Client => self.on_client_connection_ended(conn),
                Side::Server => _ = self.void_unanswered_migration(conn),
            }
        } else if self.addr.conn == conn {
            match self.open_migration.take() {
                Some(open) => self.on_ended_before_answer(open),
                None => self.on_current_connection_ended(),
            }
        }
        if let Some(deferred) = self.deferred_migrate.take_if(|kept| kept.to.conn == conn) {
            self.answer_deferred_migrate(&deferred);
        }
        self.finish_if_ended();
    }

    /// The stream's connection ended: SMIG-8.6/c1-ends-unanswered, SMIG-8.10/c2-ends-late.
    pub(super) fn on_current_connection_ended(&mut self) {
        if let Some(deferred) = self.deferred_migrate.take() {
            self.abandon(deferred.to);
        }
        self.fail();
        self.closed_addrs.insert(self.addr);
    }

    /// C1 ended, so the answer will not arrive (SMIG-8.8/c1-ends-at-mover).
    fn on_ended_before_answer(&mut self, open: OpenMigration) {
        self.closed_addrs.insert(open.from);
        if self.omits(Omission::AcceptanceAssumed) && open.reset.is_none() && self.recv.has_ended {
            self.addr = open.to;
            return;
        }
        if self.state == StreamState::Running {
            self.fail();
            self.queue_frame(open.to, Frame::Reset);
        }
        self.closed_addrs.insert(open.to);
        self.decline_early_migrates(&open);
    }

    pub(crate) fn can_send_goaway(&self, conn: Conn) -> bool {
        let view = self.view(conn);
        self.state == StreamState::Running && !view.has_ended && view.goaway_sent.is_none()
    }

    /// Sends GOAWAY with the lowest last stream ID that SMIG-8.16/bound-is-processed permits.
    pub(crate) fn send_goaway(&mut self, conn: Conn) {
        let bound = self.addr.conn == conn && self.addr.owner() != self.side;
        // Also one that a RESUME has left since: SMIG-8.16/bound-is-processed.
        let processed = self.accepted_ids[conn.index()].max(if bound { self.addr.id } else { 0 });
        let request_id = u8::from(conn == Conn(0) && self.side == Side::Server);
        let last = if self.omits(Omission::GoAwayExcludesBound) {
            request_id
        } else {
            processed.max(request_id)
        };
        self.conns[conn.index()].goaway_sent = Some(last);
        self.push_frame(conn, Frame::GoAway { last });
    }

    pub(super) fn on_goaway(&mut self, conn: Conn, last: u8) {
        self.conns[conn.index()].goaway_received = Some(last);
        let is_own_id = self.addr.conn == conn && self.addr.owner() == self.side;
        if self.is_resume_excluded(conn, last) {
            return self.on_resume_excluded();
        }
        if is_own_id && self.addr.id > last && self.state == StreamState::Running {
            self.report_fault(ProtocolError::AcceptedButExcluded);
        }
    }
}
