//! Data, credit and the initial window: section 5 ("Order") and section 7.

use super::resume::Item;
use super::{EarlyFrame, Endpoint, ProtocolError, StreamState};
use crate::frame::{Data, EndStream, Frame};
use crate::id::{Conn, Side, StreamAddr};
use crate::omission::Omission;
use crate::scenario::EndAt;

impl Endpoint {
    /// Returns the address on which data may be sent now, if any.
    fn data_addr(&self) -> Option<StreamAddr> {
        let Some(open) = &self.open_migration else {
            let waits = self.can_resume() && (self.is_resuming() || !self.can_reach(self.addr));
            return (!waits).then_some(self.addr);
        };
        // SMIG-5.6/client-holds
        let waits_for_answer =
            self.side == Side::Client && !self.omits(Omission::ClientSendsBeforeAnswer);
        (!waits_for_answer && self.can_reach(open.to)).then_some(open.to)
    }

    /// Returns whether frames on this address can still be processed (SMIG-8.9/c2-ends-early,
    /// SMIG-8.17/goaway-excludes-s2).
    fn can_reach(&self, at: StreamAddr) -> bool {
        let view = self.view(at.conn);
        let excluded =
            at.owner() == self.side && view.goaway_received.is_some_and(|last| last < at.id);
        !view.has_ended && !excluded
    }

    pub(crate) fn can_send(&self) -> bool {
        let has_data = self.send.next_unit < self.send.total_units && self.send.window > 0;
        let has_end = self.send.next_unit == self.send.total_units && !self.send.has_ended;
        self.state == StreamState::Running && (has_data || has_end) && self.data_addr().is_some()
    }

    /// Sends the next unit, or END_STREAM alone.
    pub(crate) fn send_data(&mut self) {
        let Some(at) = self.data_addr() else { return };
        let unit = (self.send.next_unit < self.send.total_units).then_some(self.send.next_unit);
        if unit.is_some() {
            self.send.next_unit += 1;
            self.send.window -= 1;
        }
        let is_last = self.send.next_unit == self.send.total_units;
        let ends = is_last && (unit.is_none() || self.end_at == EndAt::LastUnit);
        self.send.has_ended = ends;
        self.queue_frame(at, |id| Frame::Data(id, Data { unit, end: EndStream::from_bool(ends) }));
        self.keep(unit.map_or(Item::End, Item::Unit), at.conn);
        self.mark_used(at);
        self.finish_if_ended();
    }

    fn credit_addr(&self) -> Option<StreamAddr> {
        match &self.open_migration {
            None if self.can_resume() => {
                (!self.is_adrift() && self.can_reach(self.addr)).then_some(self.addr)
            }
            None => Some(self.addr),
            Some(open) => self.can_reach(open.to).then_some(open.to), // SMIG-7.2/credit-on-s2
        }
    }

    pub(crate) fn can_send_credit(&self) -> bool {
        self.state == StreamState::Running
            && !self.recv.has_ended
            && self.recv.owed_credit > 0
            && self.credit_addr().is_some()
    }

    /// Sends credit for all delivered units.
    pub(crate) fn send_credit(&mut self) {
        let Some(at) = self.credit_addr() else { return };
        let by = std::mem::take(&mut self.recv.owed_credit);
        self.recv.window += by.cast_signed();
        if let Some(open) = self.open_migration.as_mut().filter(|open| open.to == at) {
            open.credit += by;
        }
        self.queue_frame(at, |id| Frame::WindowUpdate(id, by));
        self.mark_used(at);
    }

    fn mark_used(&mut self, at: StreamAddr) {
        if let Some(open) = self.open_migration.as_mut().filter(|open| open.to == at) {
            open.carrier_used = true;
        }
    }

    pub(super) fn on_data(&mut self, at: StreamAddr, data: Data) {
        if self.closed_addrs.contains(at) {
            if self.side == Side::Server && self.omits(Omission::EarlierIdServed) {
                self.deliver(data);
            }
            return; // SMIG-5.27/abandoned-dropped
        }
        if at == self.addr {
            if self.deferred_migrate.is_some() || self.is_asking() {
                self.report_fault(ProtocolError::AfterBarrier);
            }
            return self.deliver(data);
        }
        if self.omits(Omission::EarlyDataDelivered) {
            return self.deliver(data);
        }
        if let Some(open) = self.open_migration.as_mut().filter(|open| open.to == at) {
            open.early_frames.push(EarlyFrame::Data(data)); // SMIG-5.15/kept-in-order
        } else if self.side == Side::Server {
            self.report_fault(ProtocolError::IdleId); // SMIG-5.21/unbound-frames
        } else if let Some(unbound) = self.find_or_create_unbound(at) {
            unbound.data.push(data);
        }
    }

    /// Delivers data to the application. The only function that checks order, duplicates and
    /// windows.
    pub(super) fn deliver(&mut self, data: Data) {
        if self.state == StreamState::Failed {
            return;
        }
        if self.recv.has_ended {
            return self.report_fault(ProtocolError::DataAfterEnd);
        }
        if let Some(unit) = data.unit {
            if unit != self.recv.next_unit {
                return self.report_fault(ProtocolError::OutOfOrder);
            }
            if self.recv.window <= 0 {
                return self.report_fault(ProtocolError::WindowExceeded);
            }
            self.recv.next_unit += 1;
            self.recv.window -= 1;
            self.recv.owed_credit += 1;
        }
        self.on_end(data.end);
    }

    /// Handles END_STREAM on DATA or MIGRATE. On MIGRATE it may repeat an earlier one
    /// (SMIG-5.4/end-stream).
    pub(super) fn on_end(&mut self, end: EndStream) {
        if !end.is_set() || self.recv.has_ended || self.state == StreamState::Failed {
            return;
        }
        if self.recv.next_unit != self.recv.total_units {
            self.report_fault(ProtocolError::EarlyEnd);
        }
        self.recv.has_ended = true;
    }

    /// Returns the END_STREAM flag for the next MIGRATE. An application with no more data ends its
    /// direction there.
    pub(super) fn end_for_migrate(&mut self) -> EndStream {
        if self.state == StreamState::Running && self.send.next_unit == self.send.total_units {
            self.send.has_ended = true;
        }
        EndStream::from_bool(self.send.has_ended)
    }

    pub(super) fn on_credit(&mut self, at: StreamAddr, by: u8) {
        if self.closed_addrs.contains(at) {
            return;
        }
        if at == self.addr && self.deferred_migrate.is_some() {
            return self.report_fault(ProtocolError::AfterBarrier);
        }
        if at == self.addr || self.is_destination(at) {
            self.send.window += by.cast_signed();
        } else if let Some(unbound) = self.find_or_create_unbound(at) {
            unbound.credit += by; // SMIG-7.3/unbound-credit
        }
    }

    pub(crate) fn can_change_settings(&self) -> bool {
        self.state == StreamState::Running
            && self.sent_window_change.is_none()
            && !self.view(Conn(0)).has_ended
    }

    /// Changes SETTINGS_INITIAL_WINDOW_SIZE on the first connection.
    pub(crate) fn change_settings(&mut self, by: i8) {
        self.sent_window_change = Some(by);
        self.push_frame(Conn(0), Frame::Settings(by));
    }

    /// SMIG-7.4/initial-window for the sender of data. SMIG-7.5/undone-barrier: the change is
    /// stored in case the barrier is undone.
    pub(super) fn on_settings(&mut self, conn: Conn, by: i8) {
        self.push_frame(conn, Frame::SettingsAck);
        if self.addr == StreamAddr::ORIGIN {
            match &mut self.open_migration {
                Some(open) => open.window_change += by,
                None => self.send.window += by,
            }
        }
    }

    /// SMIG-7.4/initial-window for the receiver of data.
    pub(super) fn on_settings_ack(&mut self) {
        let Some(by) = self.sent_window_change else { return };
        if self.addr == StreamAddr::ORIGIN {
            match &mut self.deferred_migrate {
                Some(deferred) => deferred.window_change += by,
                None => self.recv.window += by,
            }
        }
    }
}
