//! The server answers RESUME and LOST.

use super::{Endpoint, Item, StreamState};
use crate::frame::{Frame, Refusal, ResumePoint};
use crate::id::{Conn, StreamAddr};
use crate::omission::Omission;

impl Endpoint {
    pub(in crate::endpoint) fn on_request(&mut self) {
        let is_refused = self.closed_addrs.contains(StreamAddr::ORIGIN);
        if is_refused && !self.omits(Omission::TombstoneForgotten) {
            return self.queue_frame(StreamAddr::ORIGIN, Frame::Reset); // SMIG-13.9/never-processed
        }
        self.state = StreamState::Running;
    }

    pub(in crate::endpoint) fn on_resume(
        &mut self,
        at: StreamAddr,
        attempt: u8,
        point: ResumePoint,
    ) {
        let is_excluded = self.view(at.conn).goaway_sent.is_some_and(|last| last < at.id);
        if is_excluded {
            return self.abandon(at); // as any request that GOAWAY excludes (RFC 9113 section 6.8)
        }
        if let Some(refusal) = self.refusal(attempt) {
            self.abandon(at);
            return self.queue_frame(at, |id| Frame::Refused(id, refusal));
        }
        self.void_earlier_ids();
        self.addr = at;
        self.note_accepted(at);
        if !self.send_from(point) {
            self.state = StreamState::Failed;
            self.abandon(at);
            return self.queue_frame(at, |id| Frame::Refused(id, Refusal::Gone));
        }
        let answer = self.resume_point();
        self.queue_frame(at, |id| Frame::Resumed(id, answer));
        self.keep(Item::Answer, at.conn);
    }

    /// Returns why a RESUME is refused, if it is.
    fn refusal(&mut self, attempt: u8) -> Option<Refusal> {
        let resumption = self.resumption.as_mut()?;
        let is_older = attempt <= resumption.attempt;
        let is_forgotten =
            resumption.keep.is_empty() || self.omission == Some(Omission::ForgottenWhenSent);
        resumption.attempt = resumption.attempt.max(attempt);
        match self.state {
            StreamState::Idle => {
                self.closed_addrs.insert(StreamAddr::ORIGIN);
                Some(Refusal::NeverProcessed)
            }
            _ if is_older && !self.omits(Omission::OlderAttemptTaken) => {
                Some(Refusal::OlderAttempt)
            }
            StreamState::Failed if self.omits(Omission::ResetTakenForUnknown) => {
                Some(Refusal::NeverProcessed)
            }
            StreamState::Failed | StreamState::Refused => Some(Refusal::WasReset),
            StreamState::Complete if is_forgotten => Some(Refusal::Gone),
            StreamState::Complete | StreamState::Running => None,
        }
    }

    /// The client has given the connection up (SMIG-13.12/lost-last).
    pub(in crate::endpoint) fn on_lost(&mut self, conn: Conn) {
        self.conns[conn.index()].has_ended = true;
        if let Some(resumption) = &mut self.resumption {
            resumption.lost_read[conn.index()] = true;
        }
        self.unbound_carriers.retain(|unbound| unbound.at.conn != conn);
        self.void_unanswered_migration(conn);
        if self.addr.conn == conn {
            self.on_current_connection_ended();
        }
    }

    pub(super) fn server_must_give_up(&self) -> bool {
        self.can_resume() && self.state == StreamState::Running && self.has_no_connection()
    }

    pub(super) fn server_gives_up(&mut self) {
        self.on_current_connection_ended();
    }
}
