//! The client resumes.

use super::{Endpoint, Keep, Phase, StreamState};
use crate::frame::{Frame, Refusal, ResumePoint};
use crate::id::{Conn, Side, StreamAddr};
use crate::omission::Omission;

impl Endpoint {
    /// Returns whether the stream is adrift, so that the client has to resume it or to give it up.
    pub(crate) fn is_adrift(&self) -> bool {
        self.has_unfinished()
            && self.resumption.as_ref().is_some_and(|resumption| resumption.phase == Phase::Adrift)
    }

    /// Returns whether the client may resume the stream on this connection (SMIG-13.1/who-resumes).
    pub(crate) fn can_resume_on(&self, conn: Conn) -> bool {
        let view = self.view(conn);
        let is_elsewhere =
            self.is_adrift() || !self.is_resuming() && self.can_resume() && self.addr.conn != conn;
        self.side == Side::Client
            && self.has_unfinished()
            && is_elsewhere
            && view.is_usable()
            && view.goaway_sent.is_none()
            && view.goaway_received.is_none()
    }

    pub(crate) fn resume(&mut self, conn: Conn) {
        self.void_earlier_ids();
        let to = StreamAddr { conn, id: self.next_id[conn.index()] };
        self.next_id[conn.index()] += 2;
        self.addr = to;
        let point = self.resume_point();
        let Some(resumption) = &mut self.resumption else { return };
        resumption.attempt += 1;
        resumption.phase = Phase::Asked;
        let attempt = resumption.attempt;
        self.queue_frame(to, |id| Frame::Resume { id, attempt, point });
    }

    pub(in crate::endpoint) fn on_resumed(&mut self, at: StreamAddr, point: ResumePoint) {
        if self.closed_addrs.contains(at) {
            return; // of an earlier attempt, or reset
        }
        if let Some(resumption) = &mut self.resumption {
            resumption.phase = Phase::Bound;
            resumption.earlier.clear();
        }
        if !self.send_from(point) {
            self.reset();
        }
    }

    pub(in crate::endpoint) fn on_refused(&mut self, at: StreamAddr, refusal: Refusal) {
        if self.closed_addrs.contains(at) {
            return;
        }
        self.closed_addrs.insert(at);
        // One that is complete at the client has only lacked that the server says so.
        if self.state != StreamState::Complete {
            self.state = match refusal {
                Refusal::NeverProcessed => StreamState::Refused,
                Refusal::Gone | Refusal::WasReset | Refusal::OlderAttempt => StreamState::Failed,
            };
        }
        if let Some(resumption) = &mut self.resumption {
            resumption.phase = Phase::Bound;
            resumption.earlier.clear();
            resumption.keep = Keep::default();
        }
    }

    /// Handles the end of a connection at the client: SMIG-13.2/adrift.
    pub(in crate::endpoint) fn on_client_connection_ended(&mut self, conn: Conn) {
        let was_moving = self.void_unanswered_migration(conn);
        let was_current = was_moving || self.open_migration.is_none() && self.addr.conn == conn;
        if was_current && let Some(deferred) = self.deferred_migrate.take() {
            self.abandon(deferred.to);
        }
        let ended = self.ended_conns();
        let is_unfinished = self.has_unfinished();
        let addr = self.addr;
        let Some(resumption) = &mut self.resumption else { return };
        let lacks_answer = resumption.keep.lacks_answer_on(ended)
            && self.omission != Some(Omission::LostAnswerUnnoticed);
        let phase = resumption.phase;
        if is_unfinished {
            if was_current || phase == Phase::Bound && lacks_answer {
                resumption.phase = Phase::Adrift;
            }
        } else if phase == Phase::Asked && addr.conn == conn {
            resumption.phase = Phase::Bound;
            self.reset_earlier();
        }
        self.forget_lost_told_on(conn);
    }

    /// Resets the stream on each ID on which the server may have it (SMIG-13.11/reset-earlier).
    pub(in crate::endpoint) fn reset_earlier(&mut self) {
        if self.omits(Omission::ResetEarlierForgotten) {
            return;
        }
        let Some(resumption) = &mut self.resumption else { return };
        for at in std::mem::take(&mut resumption.earlier) {
            self.queue_frame(at, Frame::Reset);
        }
    }

    /// The answer has bound the stream to a connection that has ended meanwhile.
    pub(in crate::endpoint) fn on_bound_to_ended(&mut self) {
        match &mut self.resumption {
            Some(resumption) if self.side == Side::Client => resumption.phase = Phase::Adrift,
            // LOST has overtaken the answer: SMIG-13.12/lost-last.
            Some(resumption) if resumption.lost_read[self.addr.conn.index()] => {
                self.on_current_connection_ended();
            }
            Some(_) => {}
            None => self.state = StreamState::Failed,
        }
    }

    /// Returns whether a GOAWAY excludes the ID of the RESUME.
    pub(in crate::endpoint) fn is_resume_excluded(&self, conn: Conn, last: u8) -> bool {
        self.is_asking() && self.addr.conn == conn && self.addr.id > last
    }

    pub(in crate::endpoint) fn on_resume_excluded(&mut self) {
        if let Some(resumption) = &mut self.resumption {
            resumption.phase = Phase::Adrift;
        }
    }

    /// LOST that was sent on a connection which has ended may not have arrived.
    fn forget_lost_told_on(&mut self, conn: Conn) {
        if let Some(resumption) = &mut self.resumption {
            for told_on in &mut resumption.lost_told_on {
                *told_on = told_on.filter(|on| *on != conn);
            }
        }
    }

    /// Returns the connection of which the server has to be told next that it has ended, unless the stream has to be resumed
    /// first, or may turn out to be bound there (SMIG-13.12/lost-last).
    pub(crate) fn lost_to_tell(&self) -> Option<Conn> {
        let resumption = self.resumption.as_ref()?;
        if self.side == Side::Server || self.omits(Omission::CancelNotTold) || self.is_adrift() {
            return None;
        }
        if self.is_asking() && !self.omits(Omission::LostOvertakes) {
            return None;
        }
        let may_bind = |lost: Conn| {
            self.has_unfinished()
                && self.open_migration.as_ref().is_some_and(|open| open.to.conn == lost)
        };
        Conn::every().find(|lost| {
            let is_told = resumption.lost_told_on[lost.index()].is_some();
            self.view(*lost).has_ended && !is_told && !may_bind(*lost)
        })
    }

    /// Returns whether the client may send LOST on this connection.
    pub(crate) fn can_tell_on(&self, conn: Conn) -> bool {
        self.view(conn).is_usable()
    }

    pub(crate) fn tell_lost(&mut self, lost: Conn, on: Conn) {
        if let Some(resumption) = &mut self.resumption {
            resumption.lost_told_on[lost.index()] = Some(on);
        }
        self.push_frame(on, Frame::Lost(lost));
    }

    /// Returns whether no connection is left on which the client could resume.
    pub(crate) fn must_give_up(&self) -> bool {
        match self.side {
            Side::Client => self.is_adrift() && !Conn::every().any(|conn| self.can_resume_on(conn)),
            Side::Server => self.server_must_give_up(),
        }
    }

    /// `linger` has passed without a connection (SMIG-13.13/linger).
    pub(crate) fn give_up(&mut self) {
        match self.side {
            Side::Client => {
                self.state = StreamState::Failed;
                self.void_earlier_ids();
            }
            Side::Server => self.server_gives_up(),
        }
    }
}
