//! Receipts: how many frames were read on a connection, and how many of those that were sent are known to have been
//! (SMIG-13.4/receipts).

use core::time::Duration;

use super::output::Counted;
use crate::error::Cause;
use crate::ids::FrameNumber;
use crate::time::Instant;

/// A receipt is due after this many bytes of DATA.
const MAX_UNREPORTED_BYTES: u32 = 64 << 10;

/// What both ends of one connection have read and sent, in frames.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    /// Both ends have agreed on receipts here. They stay so when the client leaves the session (SMIG-4.8/new-session).
    pub(crate) is_on: bool,
    /// The peer has closed the connection, and no stream was on it.
    pub(crate) is_closed_in_order: bool,
    read: u64,
    /// The count of the last receipt that was sent.
    reported: u64,
    /// Bytes of DATA that were read since.
    unreported_bytes: u32,
    /// A frame but a receipt was read since.
    is_due: bool,
    /// The last frame before the first one that must not be counted (SMIG-13.6/no-receipts-now).
    held_at: Option<u64>,
    sent: u64,
    /// The last frame that was sent and is not a receipt.
    last_needed: u64,
    /// The count of the last receipt that was read.
    covered: u64,
    /// The first tick at which only receipts were missing for the end of the connection.
    awaited_since: Option<Instant>,
}

impl Receipts {
    /// Counts a frame that was read. `data_bytes` is its length if it is DATA.
    pub(crate) const fn on_read(&mut self, data_bytes: u32, is_receipt: bool) {
        self.read += 1;
        self.unreported_bytes = self.unreported_bytes.saturating_add(data_bytes);
        self.is_due |= !is_receipt;
    }

    /// Excludes the frame that was read last, and all that follow, from receipts.
    pub(crate) fn hold(&mut self) {
        let last = self.read.saturating_sub(1);
        self.held_at.get_or_insert(last);
    }

    /// Counts everything again.
    pub(crate) const fn release(&mut self) {
        self.held_at = None;
    }

    /// Returns whether a receipt must be sent within a second.
    pub(crate) fn is_due(&self) -> bool {
        self.is_on && self.is_due && self.count() > self.reported
    }

    /// Returns whether a receipt must be sent now.
    pub(crate) fn is_due_now(&self) -> bool {
        self.unreported_bytes >= MAX_UNREPORTED_BYTES && self.is_due()
    }

    /// Returns the count for a receipt that is sent now.
    pub(crate) fn report(&mut self) -> u64 {
        self.reported = self.count();
        self.unreported_bytes = 0;
        // What is held must be reported later.
        self.is_due = self.reported < self.read;
        self.reported
    }

    fn count(&self) -> u64 {
        self.held_at.unwrap_or(self.read)
    }

    /// Counts frames that were taken from the engine, none of which is a receipt. Returns the number of the last one.
    pub(crate) const fn on_sent(&mut self, frames: u64) -> FrameNumber {
        self.sent += frames;
        self.last_needed = self.sent;
        FrameNumber(self.sent)
    }

    /// Returns the number of the last frame that was taken from the engine.
    pub(crate) const fn last_sent(&self) -> FrameNumber {
        FrameNumber(self.sent)
    }

    /// Counts control frames that were taken from the engine.
    pub(crate) const fn on_taken(&mut self, counted: Counted) {
        if counted.last_needed > 0 {
            self.last_needed = self.sent + counted.last_needed as u64;
        }
        self.sent += counted.frames as u64;
    }

    /// Handles the peer's receipt. Returns whether it covers more than the last.
    pub(crate) const fn on_receipt(&mut self, count: u64) -> Result<bool, Cause> {
        if count < self.covered || count > self.sent {
            return Err(Cause::BadReceipt);
        }
        let is_news = count > self.covered;
        self.covered = count;
        Ok(is_news)
    }

    /// Waits no more for the peer's receipts: it has had time to send them.
    pub(crate) fn give_up_after(&mut self, now: Instant, timeout: Duration) {
        let since = *self.awaited_since.get_or_insert(now);
        self.is_on &= now.saturating_duration_since(since) < timeout;
    }

    /// Returns whether all that was sent is known to have been read, and all that was read is reported.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_on || self.covered >= self.last_needed && !self.is_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::ControlQueue;

    #[test]
    fn a_receipt_is_due_now_after_64_kib_and_soon_after_any_frame_but_a_receipt() {
        // SMIG-13.4/receipts
        let mut receipts = Receipts { is_on: true, ..Receipts::default() };
        assert!(!receipts.is_due());
        receipts.on_read(0, true);
        assert!(!receipts.is_due(), "receipts for receipts would never end");
        receipts.on_read(40 << 10, false);
        assert!(receipts.is_due() && !receipts.is_due_now());
        receipts.on_read(24 << 10, false);
        assert!(receipts.is_due_now());
        assert_eq!(receipts.report(), 3);
        assert!(!receipts.is_due());
    }

    #[test]
    fn a_count_that_falls_or_exceeds_what_was_sent_is_an_error() {
        // SMIG-13.4/receipts
        let mut receipts = Receipts { is_on: true, ..Receipts::default() };
        assert_eq!(receipts.on_sent(3), FrameNumber(3));
        assert_eq!(receipts.on_receipt(4), Err(Cause::BadReceipt));
        assert_eq!(receipts.on_receipt(2), Ok(true));
        assert_eq!(receipts.on_receipt(2), Ok(false));
        assert_eq!(receipts.on_receipt(1), Err(Cause::BadReceipt));
        assert!(!receipts.is_settled());
        assert_eq!(receipts.on_receipt(3), Ok(true));
        assert!(receipts.is_settled());
        let mut queue = ControlQueue::default();
        queue.push_receipt(|out| out.extend_from_slice(&[0, 0, 1, 0xf9, 0, 0, 0, 0, 0, 7]));
        receipts.on_taken(queue.count_frames());
        assert!(receipts.is_settled(), "a receipt needs none");
        assert_eq!(receipts.on_receipt(4), Ok(true));
    }

    #[test]
    fn held_frames_are_counted_when_they_are_released() {
        // SMIG-13.6/no-receipts-now
        let mut receipts = Receipts { is_on: true, ..Receipts::default() };
        receipts.on_read(0, false);
        receipts.on_read(10, false);
        receipts.hold();
        receipts.on_read(70_000, false);
        receipts.hold();
        assert_eq!(receipts.report(), 1);
        assert!(!receipts.is_due(), "nothing more may be reported");
        receipts.release();
        assert!(receipts.is_due());
        assert_eq!(receipts.report(), 3);
    }
}
