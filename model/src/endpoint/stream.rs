//! Data, credit and the initial window: section 5 ("Order") and section 7.

use super::{EarlyFrame, Endpoint, ProtocolError, StreamState};
use crate::frame::{Data, EndStream, Frame};
use crate::id::{Conn, Side, StreamAddr};
use crate::omission::Omission;
use crate::scenario::EndAt;

impl Endpoint {
    /// Returns the carrier on which data may be sent now, if any.
    fn data_addr(&self) -> Option<StreamAddr> {
        let Some(open) = &self.open else { return Some(self.addr) };
        // SMIG-5.6/client-holds
        let waits_for_answer =
            self.side == Side::Client && !self.omits(Omission::ClientSendsBeforeAnswer);
        (!waits_for_answer && self.can_reach(open.to)).then_some(open.to)
    }

    /// Returns whether frames on this carrier can still be processed (SMIG-8.9/c2-ends-early,
    /// SMIG-8.17/goaway-excludes-s2).
    fn can_reach(&self, at: StreamAddr) -> bool {
        let view = self.view(at.conn);
        let excluded =
            at.owner() == self.side && view.goaway_received.is_some_and(|last| last < at.id);
        !view.ended && !excluded
    }

    pub(crate) fn can_send(&self) -> bool {
        let has_data = self.send.next < self.send.total && self.send.window > 0;
        let has_end = self.send.next == self.send.total && !self.send.ended;
        self.state == StreamState::Running && (has_data || has_end) && self.data_addr().is_some()
    }

    /// Sends the next unit, or END_STREAM alone.
    pub(crate) fn send(&mut self) {
        let Some(at) = self.data_addr() else { return };
        let unit = (self.send.next < self.send.total).then_some(self.send.next);
        if unit.is_some() {
            self.send.next += 1;
            self.send.window -= 1;
        }
        let last = self.send.next == self.send.total;
        let ends = last && (unit.is_none() || self.end_at == EndAt::LastUnit);
        self.send.ended = ends;
        self.queue_frame(at, |id| Frame::Data(id, Data { unit, end: EndStream::from_bool(ends) }));
        self.mark_used(at);
        self.finish_if_ended();
    }

    fn credit_addr(&self) -> Option<StreamAddr> {
        match &self.open {
            None => Some(self.addr),
            Some(open) => self.can_reach(open.to).then_some(open.to), // SMIG-7.2/credit-on-s2
        }
    }

    pub(crate) fn can_credit(&self) -> bool {
        self.state == StreamState::Running
            && !self.recv.ended
            && self.recv.owed > 0
            && self.credit_addr().is_some()
    }

    /// Sends credit for all delivered units.
    pub(crate) fn credit(&mut self) {
        let Some(at) = self.credit_addr() else { return };
        let by = std::mem::take(&mut self.recv.owed);
        self.recv.window += by.cast_signed();
        if let Some(open) = self.open.as_mut().filter(|open| open.to == at) {
            open.credit += by;
        }
        self.queue_frame(at, |id| Frame::WindowUpdate(id, by));
        self.mark_used(at);
    }

    fn mark_used(&mut self, at: StreamAddr) {
        if let Some(open) = self.open.as_mut().filter(|open| open.to == at) {
            open.used = true;
        }
    }

    pub(super) fn on_data(&mut self, at: StreamAddr, data: Data) {
        if self.closed.contains(at) {
            return; // SMIG-5.27/abandoned-dropped
        }
        if at == self.addr {
            if self.deferred.is_some() {
                self.report_fault(ProtocolError::AfterBarrier);
            }
            return self.deliver(data);
        }
        if self.omits(Omission::EarlyDataDelivered) {
            return self.deliver(data);
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.to == at) {
            open.early.push(EarlyFrame::Data(data)); // SMIG-5.15/kept-in-order
        } else if self.side == Side::Server {
            self.report_fault(ProtocolError::IdleId); // SMIG-5.21/unbound-frames
        } else if let Some(unbound) = self.unbound_at(at) {
            unbound.data.push(data);
        }
    }

    /// Delivers data to the application. The only function that checks order, duplicates and
    /// windows.
    pub(super) fn deliver(&mut self, data: Data) {
        if self.state == StreamState::Failed {
            return;
        }
        if self.recv.ended {
            return self.report_fault(ProtocolError::DataAfterEnd);
        }
        if let Some(unit) = data.unit {
            if unit != self.recv.next {
                return self.report_fault(ProtocolError::OutOfOrder);
            }
            if self.recv.window <= 0 {
                return self.report_fault(ProtocolError::WindowExceeded);
            }
            self.recv.next += 1;
            self.recv.window -= 1;
            self.recv.owed += 1;
        }
        self.on_end(data.end);
    }

    /// Handles END_STREAM on DATA or MIGRATE. On MIGRATE it may repeat an earlier one
    /// (SMIG-5.4/end-stream).
    pub(super) fn on_end(&mut self, end: EndStream) {
        if !end.is_set() || self.recv.ended || self.state == StreamState::Failed {
            return;
        }
        if self.recv.next != self.recv.total {
            self.report_fault(ProtocolError::EarlyEnd);
        }
        self.recv.ended = true;
    }

    /// Returns the END_STREAM flag for the next MIGRATE. An application with no more data ends its
    /// direction there.
    pub(super) fn end_for_migrate(&mut self) -> EndStream {
        if self.state == StreamState::Running && self.send.next == self.send.total {
            self.send.ended = true;
        }
        EndStream::from_bool(self.send.ended)
    }

    pub(super) fn on_credit(&mut self, at: StreamAddr, by: u8) {
        if self.closed.contains(at) {
            return;
        }
        if at == self.addr && self.deferred.is_some() {
            return self.report_fault(ProtocolError::AfterBarrier);
        }
        if at == self.addr || self.is_destination(at) {
            self.send.window += by.cast_signed();
        } else if let Some(unbound) = self.unbound_at(at) {
            unbound.credit += by; // SMIG-7.3/unbound-credit
        }
    }

    pub(crate) fn can_change_settings(&self) -> bool {
        self.state == StreamState::Running
            && self.settings_sent.is_none()
            && !self.view(Conn(0)).ended
    }

    /// Changes SETTINGS_INITIAL_WINDOW_SIZE on the first connection.
    pub(crate) fn change_settings(&mut self, by: i8) {
        self.settings_sent = Some(by);
        self.outbox.push((Conn(0), Frame::Settings(by)));
    }

    /// SMIG-7.4/initial-window for the sender of data. SMIG-7.5/undone-barrier: the change is
    /// stored in case the barrier is undone.
    pub(super) fn on_settings(&mut self, conn: Conn, by: i8) {
        self.outbox.push((conn, Frame::SettingsAck));
        if self.addr == StreamAddr::ORIGIN {
            match &mut self.open {
                Some(open) => open.window_change += by,
                None => self.send.window += by,
            }
        }
    }

    /// SMIG-7.4/initial-window for the receiver of data.
    pub(super) fn on_settings_ack(&mut self) {
        let Some(by) = self.settings_sent else { return };
        if self.addr == StreamAddr::ORIGIN {
            match &mut self.deferred {
                Some(deferred) => deferred.window_change += by,
                None => self.recv.window += by,
            }
        }
    }
}
