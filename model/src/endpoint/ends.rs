//! Resets, lost connections and GOAWAY: section 8.

use super::{EarlyFrame, Endpoint, Fate, Fault, OpenMove, ResetOn};
use crate::frame::{End, Frame, Request};
use crate::id::{Carrier, Conn, Side};
use crate::omission::Omission;

impl Endpoint {
    pub(crate) fn can_reset(&self) -> bool {
        self.fate == Fate::Running
    }

    /// Resets the stream for the application.
    pub(crate) fn reset(&mut self) {
        self.fate = Fate::Failed;
        if let Some(open) = &mut self.open {
            open.reset = Some(ResetOn::Carrier); // SMIG-8.2/reset-on-s2
            let to = open.to;
            self.push(to, Frame::Reset);
        } else {
            self.push(self.place, Frame::Reset);
            self.closed.insert(self.place);
            if let Some(kept) = self.kept.take() {
                self.decline(self.place, Request::Move { to: kept.to, end: End::No });
            }
        }
        self.settle();
    }

    /// Returns the connection that this end may close to cancel the stream
    /// (SMIG-8.4/cancel-by-close).
    pub(crate) fn closable(&self) -> Option<Conn> {
        let at = self.open.as_ref().map_or(self.place, |open| open.to);
        (self.can_reset() && self.kept.is_none() && at.conn != Conn(0) && !self.view(at.conn).ended)
            .then_some(at.conn)
    }

    /// Cancels the stream by closing the connection on which it is alone.
    pub(crate) fn cancel_by_close(&mut self, conn: Conn) {
        self.fate = Fate::Failed;
        if let Some(open) = &mut self.open {
            open.reset = Some(ResetOn::Carrier);
        }
        self.connection_ended(conn);
    }

    pub(super) fn reset_read(&mut self, at: Carrier) {
        if self.closed.contains(at) {
            return;
        }
        if self.is_destination(at) {
            self.fail(); // SMIG-5.20/reset-at-once
            if let Some(open) = &mut self.open {
                open.reset.get_or_insert(ResetOn::Carrier);
            }
        } else if at == self.place {
            if self.kept.is_some() {
                return self.blame(Fault::BehindBarrier);
            }
            self.fail();
            self.origin_reset();
        } else if at.owner() == self.side {
            self.blame(Fault::IdleId);
        } else {
            self.abandon(at); // SMIG-5.25/unbound-reset
        }
    }

    /// Returns whether the server may stop the upload: its response is complete, and no answer is
    /// outstanding (SMIG-8.19/stop-after-answer).
    pub(crate) fn can_stop(&self) -> bool {
        let answered = self.open.is_none() || self.omits(Omission::StopBeforeAnswer);
        self.side == Side::Server
            && self.fate == Fate::Running
            && self.send.ended
            && !self.recv.ended
            && self.kept.is_none()
            && answered
    }

    /// Stops the upload: the exchange is complete for the server (RFC 9113 section 8.1).
    pub(crate) fn stop(&mut self) {
        self.fate = Fate::Complete;
        match &mut self.open {
            None => {
                self.push(self.place, Frame::Stop);
                self.closed.insert(self.place);
            }
            Some(open) => {
                // Recorded like any reset.
                open.reset = Some(ResetOn::Carrier);
                let to = open.to;
                self.push(to, Frame::Stop);
            }
        }
        self.settle();
    }

    pub(super) fn stop_read(&mut self, at: Carrier) {
        if self.closed.contains(at) {
            return;
        }
        if self.is_destination(at) && !self.omits(Omission::StopTakenAtOnce) {
            if let Some(open) = &mut self.open {
                open.early.push(EarlyFrame::Stop); // SMIG-5.30/stop-kept
            }
            return;
        }
        let kept = self.open.is_none() || !self.omits(Omission::StopFailsTheMove); // SMIG-8.20/stop-crosses
        if (at == self.place || self.is_destination(at)) && self.recv.ended && kept {
            self.send.ended = true;
            self.fate = Fate::Complete;
        }
        self.reset_read(at);
    }

    /// Handles RST_STREAM on S1, which may have crossed a MIGRATE (SMIG-8.1/reset-crosses).
    fn origin_reset(&mut self) {
        match self.open.take() {
            None => self.closed.insert(self.place),
            Some(mut open) => {
                if open.reset.is_none() {
                    self.close_carrier(&open);
                }
                open.reset.get_or_insert(ResetOn::Origin);
                self.open = Some(open);
            }
        }
    }

    fn fail(&mut self) {
        if self.fate == Fate::Running {
            self.fate = Fate::Failed;
        }
    }

    /// Handles the end of a connection, after everything that arrived on it was read.
    pub(crate) fn connection_ended(&mut self, conn: Conn) {
        self.conns[conn.index()].ended = true;
        self.unbound.retain(|unbound| unbound.at.conn != conn); // SMIG-8.11/ids-go-along
        if self.place.conn == conn {
            match self.open.take() {
                Some(open) => self.ended_before_answer(open),
                None => self.place_ended(),
            }
        } else if let Some(kept) = self.kept.take_if(|kept| kept.to.conn == conn) {
            self.answer_kept(&kept);
        }
        self.settle();
    }

    /// The stream's connection ended: SMIG-8.6/c1-ends-unanswered, SMIG-8.10/c2-ends-late.
    fn place_ended(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.abandon(kept.to);
        }
        self.fail();
        self.closed.insert(self.place);
    }

    /// C1 ended, so the answer will not arrive (SMIG-8.8/c1-ends-at-mover).
    fn ended_before_answer(&mut self, open: OpenMove) {
        self.closed.insert(open.from);
        if self.omits(Omission::AnswerTakenAsGiven) && open.reset.is_none() && self.recv.ended {
            self.place = open.to;
            return;
        }
        if self.fate == Fate::Running {
            self.fail();
            self.push(open.to, Frame::Reset);
        }
        self.closed.insert(open.to);
        self.refuse(&open);
    }

    pub(crate) fn can_go_away(&self, conn: Conn) -> bool {
        let view = self.view(conn);
        self.fate == Fate::Running && !view.ended && view.goaway_sent.is_none()
    }

    /// Sends GOAWAY with the lowest last stream ID that SMIG-8.16/bound-is-processed permits.
    pub(crate) fn go_away(&mut self, conn: Conn) {
        let bound = self.place.conn == conn && self.place.owner() != self.side;
        let processed = if bound { self.place.id } else { 0 };
        let request = u8::from(conn == Conn(0) && self.side == Side::Server);
        let last =
            if self.omits(Omission::GoAwayBelowBound) { request } else { processed.max(request) };
        self.conns[conn.index()].goaway_sent = Some(last);
        self.outbox.push((conn, Frame::GoAway { last }));
    }

    pub(super) fn goaway_read(&mut self, conn: Conn, last: u8) {
        self.conns[conn.index()].goaway_read = Some(last);
        let ours = self.place.conn == conn && self.place.owner() == self.side;
        if ours && self.place.id > last {
            self.blame(Fault::AcceptedButExcluded);
        }
    }
}
