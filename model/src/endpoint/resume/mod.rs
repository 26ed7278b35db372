//! Resumption, `spec/resumption.md`: a stream goes on after the end of its connection.
//!
//! - `client`: when a stream is adrift, RESUME, its answer, LOST
//! - `server`: RESUME, LOST
//! - `keep`: what may have to be sent again, and receipts for it

mod client;
mod keep;
mod server;

pub(super) use keep::Item;
use keep::Keep;

use super::{ConnView, EarlyFrame, Endpoint, OfferState, ProtocolError, StreamState};
use crate::frame::{EndStream, Frame, MigrateKind, ResumePoint};
use crate::id::{Conn, MAX_CONNS, Side, StreamAddr};
use crate::omission::Omission;
use crate::scenario::Scenario;

/// How the client stands to the stream's present ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Both ends know it.
    Bound,
    /// The stream has to be resumed.
    Adrift,
    /// RESUME was sent on it, and is not answered.
    Asked,
}

/// What an endpoint knows besides, if resumption is on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Resumption {
    /// Always `Bound` at the server.
    phase: Phase,
    /// Other IDs on which the server may have the client's stream, until it answers RESUME.
    earlier: Vec<StreamAddr>,
    /// The last attempt that was sent or read.
    attempt: u8,
    keep: Keep,
    sent_frames: [u8; MAX_CONNS],
    read_frames: [u8; MAX_CONNS],
    /// The counts of the last receipts.
    receipts: [u8; MAX_CONNS],
    /// On which connection the client has sent LOST, by the connection that was lost.
    lost_told_on: [Option<Conn>; MAX_CONNS],
    /// Of which connections the server has read LOST.
    lost_read: [bool; MAX_CONNS],
}

impl Resumption {
    /// Counts what is in flight at the start.
    pub(super) fn new(side: Side, scenario: &Scenario) -> Self {
        let mut sent_frames = [0; MAX_CONNS];
        match side {
            Side::Client => sent_frames[0] = u8::from(scenario.is_request_in_flight),
            Side::Server => sent_frames[1] = u8::from(scenario.has_joining_conn),
        }
        Self {
            phase: Phase::Bound,
            earlier: Vec::new(),
            attempt: 0,
            keep: Keep::default(),
            sent_frames,
            read_frames: [0; MAX_CONNS],
            receipts: [0; MAX_CONNS],
            lost_told_on: [None; MAX_CONNS],
            lost_read: [false; MAX_CONNS],
        }
    }
}

impl Endpoint {
    pub(super) fn can_resume(&self) -> bool {
        self.resumption.is_some()
    }

    /// Returns whether RESUME is not answered: data waits, and nothing that was kept is let go.
    pub(super) fn is_resuming(&self) -> bool {
        self.resumption.as_ref().is_some_and(|resumption| resumption.phase != Phase::Bound)
    }

    /// Returns whether RESUME was sent on the present ID, and is not answered.
    pub(super) fn is_asking(&self) -> bool {
        self.resumption.as_ref().is_some_and(|resumption| resumption.phase == Phase::Asked)
            && self.has_unfinished()
    }

    /// Returns whether the stream runs, or its peer may not have read all that it has to.
    pub(crate) fn has_unfinished(&self) -> bool {
        let is_kept =
            self.resumption.as_ref().is_some_and(|resumption| !resumption.keep.is_empty());
        self.state == StreamState::Running || self.state == StreamState::Complete && is_kept
    }

    /// Forgets this side's MIGRATE, whose answer was lost: RESUME will say where the stream stands
    /// (SMIG-13.2/adrift). Returns whether there was one.
    pub(super) fn void_unanswered_migration(&mut self, conn: Conn) -> bool {
        let Some(open) = self.open_migration.take_if(|open| open.from.conn == conn) else {
            return false;
        };
        self.abandon(open.from);
        self.leave(open.to);
        self.decline_early_migrates(&open);
        true
    }

    pub(super) fn count_sent(&mut self, conn: Conn) {
        if let Some(resumption) = &mut self.resumption {
            resumption.sent_frames[conn.index()] += 1;
        }
    }

    pub(super) fn count_read(&mut self, conn: Conn) {
        if let Some(resumption) = &mut self.resumption {
            resumption.read_frames[conn.index()] += 1;
        }
    }

    /// Records that the frame which was queued last has to arrive.
    pub(super) fn keep(&mut self, item: Item, conn: Conn) {
        if let Some(resumption) = &mut self.resumption {
            let frame = resumption.sent_frames[conn.index()] - 1;
            resumption.keep.record(item, conn, frame);
        }
    }

    pub(super) fn keep_accepted(&mut self) {
        if let Some(resumption) = &mut self.resumption {
            resumption.keep.on_accepted();
        }
    }

    /// Reports a fault if this unit is kept no more: it is to be sent again.
    pub(super) fn keep_undone(&mut self, unit: u8) {
        let Some(resumption) = &mut self.resumption else { return };
        resumption.keep.undo_move();
        if unit < resumption.keep.first_unit {
            self.report_fault(ProtocolError::NotKept);
        }
    }

    /// Returns whether a receipt would say something new (SMIG-13.4/receipts).
    pub(crate) fn can_send_receipt(&self, conn: Conn) -> bool {
        let Some(resumption) = &self.resumption else { return false };
        let index = conn.index();
        // SMIG-13.6/no-receipts-now: what comes on earlier IDs is dropped until the answer.
        let is_held = resumption.phase != Phase::Bound
            && self.has_unfinished()
            && !self.omits(Omission::ReceiptWhileResuming);
        !is_held
            && !self.view(conn).has_ended
            && resumption.read_frames[index] > resumption.receipts[index]
    }

    pub(crate) fn send_receipt(&mut self, conn: Conn) {
        let Some(resumption) = &mut self.resumption else { return };
        let count = resumption.read_frames[conn.index()];
        resumption.receipts[conn.index()] = count;
        self.push_frame(conn, Frame::Receipt(count));
    }

    pub(super) fn on_receipt(&mut self, conn: Conn, count: u8) {
        let omission = self.omission;
        let Some(resumption) = &mut self.resumption else { return };
        // SMIG-13.10/kept-until-answer
        if resumption.phase == Phase::Bound || omission == Some(Omission::KeptFreedWhileResuming) {
            resumption.keep.on_receipt(conn, count, omission);
        }
    }

    /// Returns the point from which the peer has to send, and gives all credit (SMIG-13.8/absolute).
    fn resume_point(&mut self) -> ResumePoint {
        let owed = std::mem::take(&mut self.recv.owed_credit);
        // An account below zero counts as zero from now on, at both ends.
        self.recv.window = (self.recv.window + owed.cast_signed()).max(0);
        ResumePoint {
            next_unit: self.recv.next_unit,
            window: self.recv.window,
            whole: EndStream::from_bool(self.recv.has_ended),
        }
    }

    /// Sends from the peer's point on. Returns whether what the peer lacks is still kept.
    fn send_from(&mut self, point: ResumePoint) -> bool {
        let omission = self.omission;
        let Some(resumption) = &mut self.resumption else { return false };
        if point.next_unit < resumption.keep.first_unit {
            return false;
        }
        resumption.keep.restart(point.next_unit, omission);
        self.send.next_unit = point.next_unit;
        self.send.has_ended = point.whole.is_set();
        if self.state == StreamState::Complete && !self.send.has_ended {
            self.state = StreamState::Running; // what was lost is sent again
        }
        if self.omits(Omission::OldCreditKept) {
            self.send.window += point.window;
        } else {
            self.send.window = point.window;
        }
        true
    }

    /// Ends everything that concerns the stream's earlier IDs (SMIG-13.7/earlier-void).
    fn void_earlier_ids(&mut self) {
        let left = self.addr;
        self.leave(left);
        if let Some(open) = self.open_migration.take() {
            self.leave(open.from);
            self.leave(open.to);
            self.decline_early_migrates(&open);
            if self.side == Side::Server {
                self.close_carrier(&open); // SMIG-6.11/close-abandoned
            }
            if self.omits(Omission::EarlyUsedAfterResume) {
                for early in &open.early_frames {
                    if let EarlyFrame::Data(data) = early {
                        self.deliver(*data);
                    }
                }
            }
        }
        if let Some(deferred) = self.deferred_migrate.take() {
            self.decline(left, MigrateKind::Move { to: deferred.to, end: EndStream::No });
        }
        self.offer = OfferState::No;
        self.reset_owed = false;
    }

    /// Notes an ID of the peer's that carries the stream: no GOAWAY may exclude it.
    pub(super) fn note_accepted(&mut self, at: StreamAddr) {
        if self.can_resume() && at.owner() != self.side {
            let accepted = &mut self.accepted_ids[at.conn.index()];
            *accepted = (*accepted).max(at.id);
        }
    }

    /// Abandons an ID on which the peer may still have the stream.
    fn leave(&mut self, at: StreamAddr) {
        self.abandon(at);
        let lives = !self.view(at.conn).has_ended;
        if let (Side::Client, true, Some(resumption)) = (self.side, lives, &mut self.resumption)
            && !resumption.earlier.contains(&at)
        {
            resumption.earlier.push(at);
        }
    }

    fn ended_conns(&self) -> [bool; MAX_CONNS] {
        self.conns.each_ref().map(|view| view.has_ended)
    }

    /// Returns whether no connection is left that this side could use.
    fn has_no_connection(&self) -> bool {
        !self.conns.iter().any(ConnView::is_usable)
    }
}
