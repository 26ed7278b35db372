//! The follower: sections 5 ("The follower", "Unbound carriers") and 6 ("Offers").

use super::resume::Item;
use super::{
    Choice, DeferredMigrate, EarlyFrame, Endpoint, OfferState, ProtocolError, StreamState,
    UnboundCarrier,
};
use crate::frame::{Answer, EndStream, Frame, MigrateKind};
use crate::id::{Conn, Side, StreamAddr};
use crate::omission::Omission;

impl Endpoint {
    /// Returns whether the follower may choose to decline this MIGRATE.
    pub(crate) fn may_decline(&self, conn: Conn, frame: &Frame) -> bool {
        let Frame::Migrate(id, MigrateKind::Move { .. }) = frame else { return false };
        let collides = self.side == Side::Server && self.open_migration.is_some();
        StreamAddr { conn, id: *id } == self.addr
            && !collides
            && !self.closed_addrs.contains(self.addr)
    }

    pub(super) fn on_migrate(&mut self, at: StreamAddr, migrate: MigrateKind, choice: Choice) {
        if self.closed_addrs.contains(at) {
            if !self.omits(Omission::NoAnswerWhenClosed) {
                self.decline(at, migrate); // SMIG-5.10/always-answer
            }
            return;
        }
        if self.is_destination(at) {
            return self.on_early_migrate(migrate);
        }
        if at != self.addr {
            return self.report_fault(ProtocolError::IdleId);
        }
        if self.deferred_migrate.is_some() {
            return self.report_fault(ProtocolError::AfterBarrier);
        }
        match migrate {
            MigrateKind::Offer => self.on_offer(),
            MigrateKind::Move { to, end } => self.on_move(to, end, choice),
        }
    }

    /// The follower moved again before this mover has read its answer (SMIG-5.16/next-move-kept).
    fn on_early_migrate(&mut self, migrate: MigrateKind) {
        if self.side == Side::Server && self.omits(Omission::NextMigrateIgnored) {
            return;
        }
        if let Some(open) = &mut self.open_migration {
            open.early_frames.push(EarlyFrame::Migrate(migrate));
        }
    }

    fn on_offer(&mut self) {
        if self.open_migration.is_some() {
            return; // its own MIGRATE is the answer: SMIG-6.2/offer-answered
        }
        if self.state == StreamState::Running {
            self.offer = OfferState::Open;
        } else {
            self.decline(self.addr, MigrateKind::Offer);
        }
    }

    fn on_move(&mut self, to: StreamAddr, end: EndStream, choice: Choice) {
        if self.open_migration.is_some() {
            if self.side == Side::Server && !self.omits(Omission::ServerFollowsInCollision) {
                if !self.omits(Omission::EndLostInCollision) {
                    self.on_end(end); // SMIG-5.4/end-stream
                }
                return self.abandon(to); // SMIG-6.5/server-wins
            }
            self.yield_migration();
        }
        self.offer = OfferState::No; // SMIG-6.3/offer-stays-open: any MIGRATE of the client answers it
        self.on_end(end);
        let view = self.view(to.conn);
        if !view.is_joined && !view.has_ended && choice == Choice::Follow {
            self.deferred_migrate = Some(DeferredMigrate { to, window_change: 0 }); // SMIG-5.12/join-pending
            return;
        }
        self.answer(to, choice);
    }

    fn answer(&mut self, to: StreamAddr, choice: Choice) {
        let view = self.view(to.conn);
        let closed = self.closed_addrs.contains(to) && !self.omits(Omission::ClosedCarrierAccepted);
        let excluded = view.goaway_sent.is_some_and(|last| last < to.id);
        // SMIG-5.13/must-decline
        let usable =
            view.is_joined && !view.has_ended && !closed && !excluded && to.conn != self.addr.conn;
        if usable && choice == Choice::Follow {
            self.accept(to);
        } else {
            let owes_reset = std::mem::take(&mut self.reset_owed);
            let resets_late = self.omits(Omission::TruncatedRequestAccepted);
            if owes_reset && !resets_late {
                self.queue_frame(self.addr, Frame::Reset); // SMIG-8.3/reset-remembered
            }
            self.decline(self.addr, MigrateKind::Move { to, end: EndStream::No });
            if owes_reset && resets_late {
                self.queue_frame(self.addr, Frame::Reset);
            }
        }
    }

    /// Sends the barrier of this side's direction, and moves (SMIG-5.11/follower-barrier,
    /// SMIG-5.14/moved).
    fn accept(&mut self, to: StreamAddr) {
        let end = self.end_for_migrate();
        self.queue_frame(self.addr, |id| Frame::Answer(id, Answer { to: Some(to), end }));
        self.keep(Item::Answer, self.addr.conn);
        self.closed_addrs.insert(self.addr);
        self.addr = to;
        self.note_accepted(to);
        if let Some(index) = self.unbound_carriers.iter().position(|unbound| unbound.at == to) {
            let unbound = self.unbound_carriers.swap_remove(index);
            if !self.omits(Omission::UnboundCreditDropped) {
                self.send.window += unbound.credit.cast_signed();
            }
            for data in unbound.data {
                self.deliver(data);
            }
        }
        if std::mem::take(&mut self.reset_owed) {
            self.queue_frame(to, Frame::Reset); // SMIG-8.3/reset-remembered
        }
    }

    /// Answers with the zero CID, and abandons the carrier that the MIGRATE named
    /// (SMIG-6.7/decline-drops).
    pub(super) fn decline(&mut self, at: StreamAddr, migrate: MigrateKind) {
        // A reset also closes the direction (SMIG-5.4/end-stream).
        let closed = self.send.has_ended || self.state == StreamState::Failed;
        let ended = closed && !self.omits(Omission::EndLostInCollision);
        self.queue_frame(at, |id| {
            Frame::Answer(id, Answer { to: None, end: EndStream::from_bool(ended) })
        });
        if let MigrateKind::Move { to, .. } = migrate {
            self.abandon(to);
        }
    }

    pub(super) fn abandon(&mut self, to: StreamAddr) {
        self.unbound_carriers.retain(|unbound| unbound.at != to);
        self.closed_addrs.insert(to);
    }

    /// Handles the answer to JOIN: the waiting MIGRATE is answered (SMIG-5.12/join-pending).
    pub(super) fn on_joined(&mut self, conn: Conn) {
        self.conns[conn.index()].is_joined = true;
        if let Some(deferred) = self.deferred_migrate.take_if(|deferred| deferred.to.conn == conn) {
            self.answer_deferred_migrate(&deferred);
        }
    }

    /// Answers a MIGRATE that waited, as if it had just been read.
    pub(super) fn answer_deferred_migrate(&mut self, deferred: &DeferredMigrate) {
        self.answer(deferred.to, Choice::Follow);
        if self.addr != deferred.to {
            self.recv.window += deferred.window_change; // the barrier was declined: SMIG-7.5/undone-barrier
        }
    }

    /// Returns the buffer for frames on an ID that no MIGRATE has named; the first frame creates it
    /// (SMIG-5.21/unbound-frames).
    pub(super) fn find_or_create_unbound(&mut self, at: StreamAddr) -> Option<&mut UnboundCarrier> {
        if at.owner() == self.side {
            self.report_fault(ProtocolError::IdleId);
            return None;
        }
        let index = match self.unbound_carriers.iter().position(|unbound| unbound.at == at) {
            Some(index) => index,
            None => {
                self.unbound_carriers.push(UnboundCarrier { at, data: Vec::new(), credit: 0 });
                self.unbound_carriers.len() - 1
            }
        };
        self.unbound_carriers.get_mut(index)
    }

    pub(crate) fn unbound_carriers(&self) -> impl Iterator<Item = StreamAddr> + '_ {
        self.unbound_carriers.iter().map(|unbound| unbound.at)
    }

    /// Handles `unbound_timeout` (SMIG-5.24/unbound-timeout).
    pub(crate) fn time_out(&mut self, at: StreamAddr) {
        self.abandon(at);
        self.queue_frame(at, Frame::Reset);
    }

    pub(crate) fn can_offer(&self) -> bool {
        self.state == StreamState::Running
            && self.side == Side::Server
            && self.open_migration.is_none()
            && self.offer == OfferState::No
            && !self.view(self.addr.conn).has_ended
    }

    /// Sends an offer, which is not a barrier (SMIG-6.1/offer).
    pub(crate) fn send_offer(&mut self) {
        self.offer = OfferState::Open;
        self.queue_frame(self.addr, |id| Frame::Migrate(id, MigrateKind::Offer));
    }

    pub(crate) fn has_unanswered_offer(&self) -> bool {
        self.side == Side::Client && self.offer == OfferState::Open
    }

    pub(crate) fn decline_offer(&mut self) {
        self.offer = OfferState::No;
        self.decline(self.addr, MigrateKind::Offer);
    }
}
