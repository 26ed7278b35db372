//! The follower: sections 5 ("The follower", "Unbound carriers") and 6 ("Offers").

use super::{Choice, DeferredMigrate, EarlyFrame, Endpoint, Fate, Fault, Offer, Unbound};
use crate::frame::{Answer, End, Frame, Request};
use crate::id::{Carrier, Conn, Side};
use crate::omission::Omission;

impl Endpoint {
    /// Returns whether the follower may choose to decline this MIGRATE.
    pub(crate) fn may_decline(&self, conn: Conn, frame: &Frame) -> bool {
        let Frame::Migrate(id, Request::Move { .. }) = frame else { return false };
        let collides = self.side == Side::Server && self.open.is_some();
        Carrier { conn, id: *id } == self.place && !collides && !self.closed.contains(self.place)
    }

    pub(super) fn request_read(&mut self, at: Carrier, request: Request, choice: Choice) {
        if self.closed.contains(at) {
            if !self.omits(Omission::NoAnswerWhenClosed) {
                self.decline(at, request); // SMIG-5.10/always-answer
            }
            return;
        }
        if self.is_destination(at) {
            return self.request_behind_answer(request);
        }
        if at != self.place {
            return self.blame(Fault::IdleId);
        }
        if self.kept.is_some() {
            return self.blame(Fault::BehindBarrier);
        }
        match request {
            Request::Offer => self.offer_read(),
            Request::Move { to, end } => self.move_read(to, end, choice),
        }
    }

    /// The follower moved again before this mover has read its answer (SMIG-5.16/next-move-kept).
    fn request_behind_answer(&mut self, request: Request) {
        if self.side == Side::Server && self.omits(Omission::NextMoveIgnored) {
            return;
        }
        if let Some(open) = &mut self.open {
            open.early.push(EarlyFrame::Request(request));
        }
    }

    fn offer_read(&mut self) {
        if self.open.is_some() {
            return; // its own MIGRATE is the answer: SMIG-6.2/offer-answered
        }
        if self.fate == Fate::Running {
            self.offer = Offer::Open;
        } else {
            self.decline(self.place, Request::Offer);
        }
    }

    fn move_read(&mut self, to: Carrier, end: End, choice: Choice) {
        if self.open.is_some() {
            if self.side == Side::Server && !self.omits(Omission::ServerFollowsInCollision) {
                if !self.omits(Omission::EndLostInCollision) {
                    self.end_read(end); // SMIG-5.4/end-stream
                }
                return self.abandon(to); // SMIG-6.5/server-wins
            }
            self.give_up();
        }
        self.offer = Offer::No; // SMIG-6.3/offer-stays-open: any MIGRATE of the client answers it
        self.end_read(end);
        let view = self.view(to.conn);
        if !view.joined && !view.ended && choice == Choice::Follow {
            self.kept = Some(DeferredMigrate { to, settings: 0 }); // SMIG-5.12/join-pending
            return;
        }
        self.answer(to, choice);
    }

    fn answer(&mut self, to: Carrier, choice: Choice) {
        let view = self.view(to.conn);
        let closed = self.closed.contains(to) && !self.omits(Omission::ClosedCarrierAccepted);
        let excluded = view.goaway_sent.is_some_and(|last| last < to.id);
        // SMIG-5.13/must-decline
        let usable =
            view.joined && !view.ended && !closed && !excluded && to.conn != self.place.conn;
        if usable && choice == Choice::Follow {
            self.accept(to);
        } else {
            let reset = std::mem::take(&mut self.reset_owed);
            let late = self.omits(Omission::CutTakenForWhole);
            if reset && !late {
                self.push(self.place, Frame::Reset); // SMIG-8.3/reset-remembered
            }
            self.decline(self.place, Request::Move { to, end: End::No });
            if reset && late {
                self.push(self.place, Frame::Reset);
            }
        }
    }

    /// Sends the barrier of this end's direction, and moves (SMIG-5.11/follower-barrier,
    /// SMIG-5.14/moved).
    fn accept(&mut self, to: Carrier) {
        let end = self.end_for_migrate();
        self.push(self.place, |id| Frame::Answer(id, Answer { to: Some(to), end }));
        self.closed.insert(self.place);
        self.place = to;
        if let Some(index) = self.unbound.iter().position(|unbound| unbound.at == to) {
            let unbound = self.unbound.swap_remove(index);
            if !self.omits(Omission::UnboundCreditDropped) {
                self.send.window += unbound.credit.cast_signed();
            }
            for data in unbound.data {
                self.hand_on(data);
            }
        }
        if std::mem::take(&mut self.reset_owed) {
            self.push(to, Frame::Reset); // SMIG-8.3/reset-remembered
        }
    }

    /// Answers with the zero CID, and abandons the carrier that the request named
    /// (SMIG-6.7/decline-drops).
    pub(super) fn decline(&mut self, at: Carrier, request: Request) {
        // A reset also closes the direction (SMIG-5.4/end-stream).
        let closed = self.send.ended || self.fate == Fate::Failed;
        let ended = closed && !self.omits(Omission::EndLostInCollision);
        self.push(at, |id| Frame::Answer(id, Answer { to: None, end: End::when(ended) }));
        if let Request::Move { to, .. } = request {
            self.abandon(to);
        }
    }

    pub(super) fn abandon(&mut self, to: Carrier) {
        self.unbound.retain(|unbound| unbound.at != to);
        self.closed.insert(to);
    }

    /// Handles the answer to JOIN: the waiting MIGRATE is answered (SMIG-5.12/join-pending).
    pub(super) fn joined(&mut self, conn: Conn) {
        self.conns[conn.index()].joined = true;
        if let Some(kept) = self.kept.take_if(|kept| kept.to.conn == conn) {
            self.answer_kept(&kept);
        }
    }

    /// Answers a MIGRATE that waited, as if it had just been read.
    pub(super) fn answer_kept(&mut self, kept: &DeferredMigrate) {
        self.answer(kept.to, Choice::Follow);
        if self.place != kept.to {
            self.recv.window += kept.settings; // the barrier was declined: SMIG-7.5/undone-barrier
        }
    }

    /// Returns the buffer for frames on an ID that no MIGRATE has named (SMIG-5.21/unbound-frames).
    pub(super) fn unbound_at(&mut self, at: Carrier) -> Option<&mut Unbound> {
        if at.owner() == self.side {
            self.blame(Fault::IdleId);
            return None;
        }
        let index = match self.unbound.iter().position(|unbound| unbound.at == at) {
            Some(index) => index,
            None => {
                self.unbound.push(Unbound { at, data: Vec::new(), credit: 0 });
                self.unbound.len() - 1
            }
        };
        self.unbound.get_mut(index)
    }

    pub(crate) fn unbound_carriers(&self) -> impl Iterator<Item = Carrier> + '_ {
        self.unbound.iter().map(|unbound| unbound.at)
    }

    /// Handles `unbound_timeout` (SMIG-5.24/unbound-timeout).
    pub(crate) fn time_out(&mut self, at: Carrier) {
        self.abandon(at);
        self.push(at, Frame::Reset);
    }

    pub(crate) fn can_offer(&self) -> bool {
        self.fate == Fate::Running
            && self.side == Side::Server
            && self.open.is_none()
            && self.offer == Offer::No
            && !self.view(self.place.conn).ended
    }

    /// Sends an offer, which is not a barrier (SMIG-6.1/offer).
    pub(crate) fn make_offer(&mut self) {
        self.offer = Offer::Open;
        self.push(self.place, |id| Frame::Migrate(id, Request::Offer));
    }

    pub(crate) fn owes_offer(&self) -> bool {
        self.side == Side::Client && self.offer == Offer::Open
    }

    pub(crate) fn decline_offer(&mut self) {
        self.offer = Offer::No;
        self.decline(self.place, Request::Offer);
    }
}
