//! The mover: sections 5 ("The mover") and 6 ("Collisions", "Declines").

use super::{EarlyFrame, Endpoint, Fate, Fault, Offer, OpenMove, ResetOn};
use crate::frame::{Answer, Frame, Request};
use crate::id::{Carrier, Conn, Side};
use crate::omission::Omission;

impl Endpoint {
    pub(crate) fn can_move_to(&self, conn: Conn) -> bool {
        let view = self.view(conn);
        let goaway = view.goaway_sent.is_some() || view.goaway_read.is_some();
        // SMIG-6.3/offer-stays-open
        let offered = self.side == Side::Server && self.offer == Offer::Open;
        self.fate == Fate::Running
            && self.open.is_none()
            && self.kept.is_none()
            && (!offered || self.omits(Omission::OfferWithdrawn))
            && conn != self.place.conn
            && view.joined
            && !view.ended
            && !goaway // SMIG-5.1/choice-of-c2
    }

    /// Sends MIGRATE, the barrier of this end's direction (SMIG-5.3/mover-barrier).
    pub(crate) fn start_move(&mut self, conn: Conn) {
        let id = self.next_id[conn.index()];
        self.next_id[conn.index()] += 2;
        let (from, to) = (self.place, Carrier { conn, id });
        let end = self.end_for_migrate();
        self.push(from, |id| Frame::Migrate(id, Request::Move { to, end }));
        self.offer = Offer::No; // the client's MIGRATE answers an offer: SMIG-6.2/offer-answered
        self.open = Some(OpenMove {
            from,
            to,
            next_at_barrier: self.send.next,
            ended_at_barrier: self.send.ended,
            credit: 0,
            settings: 0,
            used: false,
            reset: None,
            early: Vec::new(),
        });
        if self.omits(Omission::InitialWindowOfCarrier) {
            self.send.window = self.initial_window;
        }
        self.settle();
    }

    pub(super) fn answer_read(&mut self, at: Carrier, answer: Answer) {
        if self.closed.contains(at) {
            return; // SMIG-2.7/stray-answer
        }
        if let Some(open) = self.open.take_if(|open| open.from == at) {
            self.end_read(answer.end);
            match answer.to {
                Some(to) if to == open.to => self.accepted(open),
                Some(_) => self.blame(Fault::UnexpectedAnswer),
                None => self.declined(&open),
            }
        } else if self.side == Side::Server && self.offer == Offer::Open && answer.to.is_none() {
            self.end_read(answer.end);
            self.offer = Offer::Refused; // SMIG-6.4/offered-once
        } else {
            self.blame(Fault::UnexpectedAnswer);
        }
    }

    fn accepted(&mut self, open: OpenMove) {
        self.closed.insert(open.from);
        self.place = open.to;
        let excluded = self.view(open.to.conn).goaway_read.is_some_and(|last| last < open.to.id);
        if excluded {
            self.blame(Fault::AcceptedButExcluded); // SMIG-8.16/bound-is-processed
        }
        if open.reset.is_some() {
            self.closed.insert(open.to);
            return self.refuse(&open);
        }
        for early in open.early {
            match early {
                EarlyFrame::Data(data) => self.hand_on(data),
                EarlyFrame::Request(request) => {
                    self.request_read(open.to, request, super::Choice::Follow)
                } // SMIG-5.16/next-move-kept
                EarlyFrame::Stop => self.stop_read(open.to),
            }
        }
        self.settle();
        if self.fate == Fate::Running && self.view(self.place.conn).ended {
            self.fate = Fate::Failed; // SMIG-8.10/c2-ends-late
        }
    }

    fn declined(&mut self, open: &OpenMove) {
        self.abandon(open.to);
        match open.reset {
            None => {
                self.undo_barrier(open);
                self.close_carrier(open);
            }
            Some(ResetOn::Carrier) => {
                if !self.omits(Omission::ResetForgotten) {
                    self.push(open.from, Frame::Reset); // SMIG-8.3/reset-remembered
                }
                self.closed.insert(open.from);
            }
            Some(ResetOn::Origin) => self.closed.insert(open.from),
        }
    }

    /// Ends the client's own move and undoes its barrier (SMIG-6.6/client-yields).
    pub(super) fn give_up(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.abandon(open.to);
        self.undo_barrier(&open);
        match open.reset {
            None => self.close_carrier(&open),
            Some(ResetOn::Carrier) => self.reset_owed = true,
            Some(ResetOn::Origin) => {}
        }
    }

    /// Undoes everything that was sent on an abandoned carrier: SMIG-6.8/resume,
    /// SMIG-6.9/lost-bytes, SMIG-6.10/lost-credit, SMIG-7.5/undone-barrier.
    fn undo_barrier(&mut self, open: &OpenMove) {
        if !self.omits(Omission::ResumeElsewhere) {
            let dropped = self.send.next - open.next_at_barrier;
            self.send.next = open.next_at_barrier;
            self.send.ended = open.ended_at_barrier;
            if !self.omits(Omission::DroppedBytesCount) {
                self.send.window += dropped.cast_signed();
            }
        }
        if !self.omits(Omission::CreditNotRepeated) {
            self.recv.window -= open.credit.cast_signed();
            self.recv.owed += open.credit;
        }
        if !self.omits(Omission::SettingsSkipped) {
            self.send.window += open.settings;
        }
        if self.fate == Fate::Complete && !self.send.ended {
            self.fate = Fate::Running; // SMIG-8.5/ended-before-answer: send the bytes again
        }
    }

    /// SMIG-6.11/close-abandoned.
    pub(super) fn close_carrier(&mut self, open: &OpenMove) {
        if open.used {
            self.push(open.to, Frame::Reset);
        }
    }

    /// Declines the follower's next move, which waited for an answer that no longer matters.
    pub(super) fn refuse(&mut self, open: &OpenMove) {
        for early in &open.early {
            if let EarlyFrame::Request(request) = early {
                self.decline(open.to, *request);
            }
        }
    }
}
