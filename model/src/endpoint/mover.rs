//! The mover: sections 5 ("The mover") and 6 ("Collisions", "Declines").

use super::resume::Item;
use super::{EarlyFrame, Endpoint, OfferState, OpenMigration, ProtocolError, ResetOn, StreamState};
use crate::frame::{Answer, Frame, MigrateKind};
use crate::id::{Conn, Side, StreamAddr};
use crate::omission::Omission;

impl Endpoint {
    pub(crate) fn can_migrate_to(&self, conn: Conn) -> bool {
        let view = self.view(conn);
        let has_goaway = view.goaway_sent.is_some() || view.goaway_received.is_some();
        // SMIG-6.3/offer-stays-open
        let has_open_offer = self.side == Side::Server && self.offer == OfferState::Open;
        self.state == StreamState::Running
            && self.open_migration.is_none()
            && self.deferred_migrate.is_none()
            && (!has_open_offer || self.omits(Omission::OfferWithdrawn))
            && conn != self.addr.conn
            && !self.is_resuming()
            && !(self.can_resume() && self.view(self.addr.conn).has_ended)
            && view.is_joined
            && !view.has_ended
            && !has_goaway // SMIG-5.1/choice-of-c2
    }

    /// Sends MIGRATE, the barrier of this side's direction (SMIG-5.3/mover-barrier).
    pub(crate) fn start_migration(&mut self, conn: Conn) {
        let carrier_id = self.next_id[conn.index()];
        self.next_id[conn.index()] += 2;
        let (from, to) = (self.addr, StreamAddr { conn, id: carrier_id });
        let end = self.end_for_migrate();
        self.queue_frame(from, |id| Frame::Migrate(id, MigrateKind::Move { to, end }));
        self.keep(Item::Migrate, from.conn);
        self.offer = OfferState::No; // the client's MIGRATE answers an offer: SMIG-6.2/offer-answered
        self.open_migration = Some(OpenMigration {
            from,
            to,
            next_at_barrier: self.send.next_unit,
            ended_at_barrier: self.send.has_ended,
            credit: 0,
            window_change: 0,
            carrier_used: false,
            reset: None,
            early_frames: Vec::new(),
        });
        if self.omits(Omission::InitialWindowOfCarrier) {
            self.send.window = self.initial_window;
        }
        self.finish_if_ended();
    }

    pub(super) fn on_answer(&mut self, at: StreamAddr, answer: Answer) {
        if self.closed_addrs.contains(at) {
            return; // SMIG-2.7/stray-answer
        }
        if let Some(open) = self.open_migration.take_if(|open| open.from == at) {
            self.on_end(answer.end);
            match answer.to {
                Some(to) if to == open.to => self.on_accepted(open),
                Some(_) => self.report_fault(ProtocolError::UnexpectedAnswer),
                None => self.on_declined(&open),
            }
        } else if self.side == Side::Server && self.offer == OfferState::Open && answer.to.is_none()
        {
            self.on_end(answer.end);
            self.offer = OfferState::Declined; // SMIG-6.4/offered-once
        } else {
            self.report_fault(ProtocolError::UnexpectedAnswer);
        }
    }

    fn on_accepted(&mut self, open: OpenMigration) {
        self.closed_addrs.insert(open.from);
        self.addr = open.to;
        self.keep_accepted();
        let excluded =
            self.view(open.to.conn).goaway_received.is_some_and(|last| last < open.to.id);
        if excluded {
            self.report_fault(ProtocolError::AcceptedButExcluded); // SMIG-8.16/bound-is-processed
        }
        if open.reset.is_some() {
            self.closed_addrs.insert(open.to);
            return self.decline_early_migrates(&open);
        }
        for early in open.early_frames {
            match early {
                EarlyFrame::Data(data) => self.deliver(data),
                // Its sender forgets it with the connection: SMIG-13.2/adrift.
                EarlyFrame::Migrate(_)
                    if self.can_resume() && self.view(open.to.conn).has_ended => {}
                EarlyFrame::Migrate(migrate) => {
                    self.on_migrate(open.to, migrate, super::Choice::Follow)
                } // SMIG-5.16/next-move-kept
                EarlyFrame::Stop => self.on_stop(open.to),
            }
        }
        self.finish_if_ended();
        if self.state == StreamState::Running && self.view(self.addr.conn).has_ended {
            self.on_bound_to_ended(); // SMIG-8.10/c2-ends-late
        }
    }

    fn on_declined(&mut self, open: &OpenMigration) {
        self.abandon(open.to);
        match open.reset {
            None => {
                self.undo_barrier(open);
                self.close_carrier(open);
            }
            Some(ResetOn::Carrier) => {
                if !self.omits(Omission::ResetForgotten) {
                    self.queue_frame(open.from, Frame::Reset); // SMIG-8.3/reset-remembered
                }
                self.closed_addrs.insert(open.from);
            }
            Some(ResetOn::OldAddr) => self.closed_addrs.insert(open.from),
        }
    }

    /// Ends the client's own move and undoes its barrier (SMIG-6.6/client-yields).
    pub(super) fn yield_migration(&mut self) {
        let Some(open) = self.open_migration.take() else { return };
        self.abandon(open.to);
        self.undo_barrier(&open);
        match open.reset {
            None => self.close_carrier(&open),
            Some(ResetOn::Carrier) => self.reset_owed = true,
            Some(ResetOn::OldAddr) => {}
        }
    }

    /// Undoes everything that was sent on an abandoned carrier: SMIG-6.8/resume,
    /// SMIG-6.9/lost-bytes, SMIG-6.10/lost-credit, SMIG-7.5/undone-barrier.
    fn undo_barrier(&mut self, open: &OpenMigration) {
        if !self.omits(Omission::ResumeAfterDroppedBytes) {
            let dropped = self.send.next_unit - open.next_at_barrier;
            self.send.next_unit = open.next_at_barrier;
            self.keep_undone(open.next_at_barrier);
            self.send.has_ended = open.ended_at_barrier;
            if !self.omits(Omission::DroppedBytesStayCounted) {
                self.send.window += dropped.cast_signed();
            }
        }
        if !self.omits(Omission::CreditNotRepeated) {
            self.recv.window -= open.credit.cast_signed();
            self.recv.owed_credit += open.credit;
        }
        if !self.omits(Omission::SettingsSkipped) {
            self.send.window += open.window_change;
        }
        if self.state == StreamState::Complete && !self.send.has_ended {
            self.state = StreamState::Running; // SMIG-8.5/ended-before-answer: send the bytes again
        }
    }

    /// SMIG-6.11/close-abandoned.
    pub(super) fn close_carrier(&mut self, open: &OpenMigration) {
        if open.carrier_used {
            self.queue_frame(open.to, Frame::Reset);
        }
    }

    /// Declines the follower's next move, which waited for an answer that has no effect any more.
    pub(super) fn decline_early_migrates(&mut self, open: &OpenMigration) {
        for early in &open.early_frames {
            if let EarlyFrame::Migrate(migrate) = early {
                self.decline(open.to, *migrate);
            }
        }
    }
}
