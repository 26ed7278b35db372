//! The flow-control window that this side grants to the peer.

use super::MAX_WINDOW;

/// Bytes of a receive window that the peer has used and that were not yet returned to the window.
#[must_use = "credit is given back to its window, or forfeited with its connection"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Credit(u32);

impl Credit {
    /// Credit of zero bytes, as the start of a sum.
    pub(crate) const NONE: Self = Self(0);

    /// Adds credit of the same window.
    pub(crate) const fn merge(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    /// Splits off the credit of `bytes` bytes.
    pub(crate) const fn split(&mut self, bytes: u32) -> Self {
        let part = if bytes < self.0 { bytes } else { self.0 };
        self.0 -= part;
        Self(part)
    }

    pub(crate) const fn bytes(&self) -> u32 {
        self.0
    }

    /// Drops the credit together with the window that it belongs to.
    pub(crate) const fn forfeit(self) {
        let Self(_) = self;
    }
}

/// Minimum increment of a WINDOW_UPDATE while most of a connection's window is occupied, in bytes.
const MIN_INCREMENT_BYTES: u32 = 256 << 10;
/// Minimum increment when the peer cannot send: without credit, it cannot add to the sum.
/// Increments below half a window are multiples of it: otherwise the peer would use up each of
/// them with a small DATA frame (RFC 1122 section 4.2.3.3). In bytes.
const MIN_BLOCKED_INCREMENT_BYTES: u32 = 1 << 10;

/// Smallest limit of what the peer may have outstanding, in bytes.
const MIN_LIMIT_BYTES: u32 = 8 << 10;
/// A limited window is announced in increments of this part of the limit: the credit that waits here
/// for the next increment is missing at the peer.
const LIMIT_INCREMENTS: u32 = 8;
/// Smallest such increment: a frame of it should fill packets.
const MIN_LIMITED_INCREMENT_BYTES: u32 = 2 << 10;

/// Whether a window is that of a stream or of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Only the stream's data occupies it. Half of it becomes free once the stream is read.
    Stream,
    /// Data of all streams of the connection occupies it; some may never be read.
    Connection,
}

/// A receive window of a target size that changes only by [`Self::grow`] and by SETTINGS.
///
/// Invariant: `value + outstanding credit + returned_bytes == size`.
#[derive(Debug)]
pub(crate) struct RecvWindow {
    scope: Scope,
    /// Bytes that the peer may still send; negative after a reduction by SETTINGS.
    value: i64,
    /// Bytes that the application returned and that are not announced yet.
    returned_bytes: u32,
    size: u32,
    /// Bytes that the peer may have outstanding: no more is announced, although there is credit.
    limit: u32,
}

impl RecvWindow {
    pub(crate) const fn of_stream(size: u32) -> Self {
        Self { scope: Scope::Stream, value: size as i64, returned_bytes: 0, size, limit: u32::MAX }
    }

    pub(crate) const fn of_connection(size: u32) -> Self {
        Self { scope: Scope::Connection, ..Self::of_stream(size) }
    }

    /// Returns the bytes that the peer may still send, which may be negative.
    pub(crate) const fn value(&self) -> i64 {
        self.value
    }

    /// Returns the bytes that arrived and were not returned.
    pub(crate) const fn outstanding(&self) -> u64 {
        let held = self.size as i64 - self.value - self.returned_bytes as i64;
        if held > 0 { held as u64 } else { 0 }
    }

    /// Returns what the peer may send from now on, whatever it counted before. A negative value counts as zero, at both
    /// ends (SMIG-13.8/absolute).
    pub(crate) fn restart(&mut self) -> u32 {
        if let Ok(missing) = u32::try_from(-self.value) {
            self.size = self.size.saturating_add(missing);
            self.value = 0;
        }
        u32::try_from(self.value).unwrap_or(0)
    }

    /// Charges `bytes` bytes that arrived. Returns `None` if they exceed the window.
    pub(crate) fn charge(&mut self, bytes: u32) -> Option<Credit> {
        if i64::from(bytes) > self.value {
            return None;
        }
        self.value -= i64::from(bytes);
        Some(Credit(bytes))
    }

    /// Returns credit to the window, possibly zero bytes: an amount that was too small may be
    /// enough now that the window is smaller. Returns the increment to announce now, if any. It is
    /// half a window, so that updates are few and the peer never waits. If unread data occupies so
    /// much of a connection's window that half of it cannot become free, it is less: streams that
    /// are read must not wait for streams that are not.
    pub(crate) fn give_back(&mut self, credit: Credit) -> Option<u32> {
        self.returned_bytes = self.returned_bytes.saturating_add(credit.bytes());
        credit.forfeit();
        self.announce_if_due()
    }

    /// Limits what the peer may have outstanding to `bytes`, but not below a minimum; `None`: to the
    /// window. What it may already send is not taken back. Returns the increment to announce now,
    /// if any.
    pub(crate) fn set_limit(&mut self, bytes: Option<u32>) -> Option<u32> {
        self.limit = bytes.map_or(u32::MAX, |bytes| bytes.max(MIN_LIMIT_BYTES));
        self.announce_if_due()
    }

    fn announce_if_due(&mut self) -> Option<u32> {
        let increment = if self.limit < self.size {
            self.limited_increment()
        } else if u64::from(self.returned_bytes) * 2 >= u64::from(self.size) {
            self.returned_bytes
        } else if self.scope == Scope::Connection && self.is_partial_announcement_due() {
            if self.returned_bytes < MIN_BLOCKED_INCREMENT_BYTES {
                self.returned_bytes
            } else {
                self.returned_bytes / MIN_BLOCKED_INCREMENT_BYTES * MIN_BLOCKED_INCREMENT_BYTES
            }
        } else {
            0
        };
        (increment > 0).then(|| self.announce(increment))
    }

    /// Returns the increment up to the limit, if it is large enough. The peer is never blocked by it: if
    /// it has used all, and all was read, the increment is the limit.
    fn limited_increment(&self) -> u32 {
        let room = i64::from(self.limit) - self.value;
        let increment = u32::try_from(room).map_or(0, |room| room.min(self.returned_bytes));
        let min_increment = (self.limit / LIMIT_INCREMENTS).max(MIN_LIMITED_INCREMENT_BYTES);
        if increment < min_increment {
            return 0;
        }
        increment / MIN_BLOCKED_INCREMENT_BYTES * MIN_BLOCKED_INCREMENT_BYTES
    }

    /// Returns whether less than half of the window is enough to announce, because the rest is
    /// occupied.
    fn is_partial_announcement_due(&self) -> bool {
        let (returned, quarter) = (i64::from(self.returned_bytes), self.size / 4);
        let is_short = self.value <= returned.min(i64::from(quarter));
        let min_increment =
            if self.value > 0 { MIN_INCREMENT_BYTES } else { MIN_BLOCKED_INCREMENT_BYTES };
        is_short && self.returned_bytes >= quarter.min(min_increment)
    }

    /// Raises the target size. Returns the increment to announce.
    pub(crate) fn grow(&mut self, size: u32) -> Option<u32> {
        let increment = size.min(MAX_WINDOW).checked_sub(self.size).filter(|&by| by > 0)?;
        self.size += increment;
        self.returned_bytes = self.returned_bytes.saturating_add(increment);
        Some(self.announce(self.returned_bytes))
    }

    /// Applies the difference between two values of this side's SETTINGS_INITIAL_WINDOW_SIZE, after
    /// the acknowledgement. Returns the increment to announce: an amount that was too small for a
    /// larger window may be enough now.
    #[must_use]
    pub(crate) fn adjust(&mut self, delta: i64) -> Option<u32> {
        self.value += delta;
        self.size = u32::try_from(i64::from(self.size) + delta).unwrap_or(0);
        self.announce_if_due()
    }

    /// Opens the window by a part of what was returned.
    fn announce(&mut self, increment: u32) -> u32 {
        self.returned_bytes -= increment;
        self.value += i64::from(increment);
        increment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives `bytes` bytes that the application does not read.
    fn receive_unread(window: &mut RecvWindow, bytes: u32) -> Option<u32> {
        window.charge(bytes).expect("within the window").forfeit();
        window.give_back(Credit::NONE)
    }

    /// Receives `bytes` bytes that the application reads.
    fn receive_and_read(window: &mut RecvWindow, bytes: u32) -> Option<u32> {
        let credit = window.charge(bytes).expect("within the window");
        window.give_back(credit)
    }

    #[test]
    fn half_of_a_window_is_announced_at_a_time() {
        let mut window = RecvWindow::of_connection(100);
        assert_eq!(
            (receive_and_read(&mut window, 49), receive_and_read(&mut window, 1)),
            (None, Some(50))
        );
        assert_eq!((window.value(), window.outstanding()), (100, 0));
    }

    #[test]
    fn streams_that_are_read_do_not_wait_for_unread_ones() {
        // The read bytes arrive after the unread ones, or before.
        let mut window = RecvWindow::of_connection(100);
        assert_eq!(
            (receive_unread(&mut window, 51), receive_and_read(&mut window, 49)),
            (None, Some(49))
        );
        let mut window = RecvWindow::of_connection(100);
        assert_eq!(
            (receive_and_read(&mut window, 49), receive_unread(&mut window, 51)),
            (None, Some(49))
        );
        assert_eq!((window.value(), window.outstanding()), (49, 51));
    }

    #[test]
    fn a_peer_that_can_send_nothing_gets_less_than_a_quarter_window() {
        let mut window = RecvWindow::of_connection(4 << 20);
        assert_eq!(receive_unread(&mut window, (4 << 20) - (200 << 10)), None);
        for _ in 0..3 {
            for _ in 1..200 {
                assert_eq!(receive_and_read(&mut window, 1 << 10), None);
            }
            assert_eq!(receive_and_read(&mut window, 1 << 10), Some(200 << 10));
        }
    }

    #[test]
    fn a_stream_window_is_announced_only_by_half() {
        let mut window = RecvWindow::of_stream(1 << 20);
        let mut credit = window.charge(1 << 20).expect("within the window");
        for _ in 0..2 {
            for _ in 1..32 {
                assert_eq!(window.give_back(credit.split(16 << 10)), None);
            }
            assert_eq!(window.give_back(credit.split(16 << 10)), Some(512 << 10));
        }
        credit.forfeit();
    }

    /// Receives what a peer that always has something to send may send, `frame` bytes at a time, and
    /// reads it. Returns the increments.
    fn receive_all(window: &mut RecvWindow, frame: u32, frames: u32) -> Vec<u32> {
        let receive = |_| {
            let bytes = frame.min(u32::try_from(window.value()).unwrap_or(0));
            receive_and_read(window, bytes)
        };
        (0..frames).filter_map(receive).collect()
    }

    #[test]
    fn a_limit_holds_back_credit_until_the_peer_has_used_up_the_rest() {
        let mut window = RecvWindow::of_stream(1 << 20);
        assert_eq!(window.set_limit(Some(64 << 10)), None);
        // What was granted is used up without an update; then the peer has the limit, in 8 parts.
        assert_eq!(receive_all(&mut window, 4 << 10, (1 << 18 >> 10) - 16), []);
        assert_eq!(window.value(), 64 << 10);
        assert_eq!(receive_all(&mut window, 1 << 10, 16), [8 << 10; 2]);
        assert_eq!(window.value(), 64 << 10);
        // A higher limit is announced at once, no limit by the rule without one.
        assert_eq!(window.set_limit(Some(96 << 10)), Some(32 << 10));
        assert_eq!(window.set_limit(None), Some((1 << 20) - (96 << 10)));
        assert_eq!((window.value(), window.outstanding()), (1 << 20, 0));
    }

    #[test]
    fn a_limit_leaves_no_peer_without_credit() {
        for (limit, frame) in
            [(0, 1), (1, 700), (8 << 10, 16 << 10), (100_001, 16_384), (u32::MAX, 999)]
        {
            let mut window = RecvWindow::of_stream(1 << 20);
            assert_eq!(window.set_limit(Some(limit)), None);
            let mut received = 0;
            while received < 2 << 20 {
                let bytes = frame.min(u32::try_from(window.value()).unwrap());
                assert!(bytes > 0, "{limit}: no credit after {received} bytes");
                receive_and_read(&mut window, bytes);
                received += bytes;
                let max = limit.max(MIN_LIMIT_BYTES);
                assert!(received < 1 << 20 || window.value() <= max.into(), "{limit}");
            }
        }
    }

    #[test]
    fn a_limited_window_holds_no_more_unread_data_than_another() {
        let mut window = RecvWindow::of_stream(100_000);
        let increment = window.set_limit(Some(10_000));
        assert_eq!(increment, None);
        assert_eq!(receive_unread(&mut window, 100_000), None);
        assert_eq!((window.value(), window.outstanding()), (0, 100_000));
        assert_eq!(window.set_limit(Some(20_000)), None, "it is not read");
        assert_eq!(window.set_limit(None), None);
    }

    #[test]
    fn no_increment_ends_with_a_small_frame() {
        // A peer that is blocked sends each increment as frames of 16,384 bytes and a remainder.
        let mut window = RecvWindow::of_connection(4 << 20);
        assert_eq!(receive_unread(&mut window, (4 << 20) - (64 << 10)), None);
        let mut unread = window.charge(64 << 10).expect("within the window");
        for (bytes, increment) in [(16_384 + 432, 16_384), (1_000, 1_024), (1_639, 1_024)] {
            assert_eq!(window.give_back(unread.split(bytes)), Some(increment), "{bytes}");
            unread.merge(window.charge(increment).expect("within the window"));
        }
        assert_eq!((window.value(), window.returned_bytes), (0, 1_023));
        unread.forfeit();
    }

    #[test]
    fn a_mostly_occupied_window_is_not_announced_in_small_increments() {
        for size in [65_536, 16 << 20] {
            let min_increment = (size / 4).min(MIN_INCREMENT_BYTES);
            let mut window = RecvWindow::of_connection(size);
            assert_eq!(receive_unread(&mut window, size - min_increment), None);
            for _ in 0..10 {
                assert_eq!(receive_and_read(&mut window, min_increment - 1), None);
                assert_eq!(receive_and_read(&mut window, 1), Some(min_increment));
            }
        }
        // If half of the free part is larger, the increment is that half: the other half is open
        // meanwhile.
        let mut window = RecvWindow::of_connection(16 << 20);
        receive_unread(&mut window, 12 << 20);
        let increments: Vec<u32> =
            (0..16).filter_map(|_| receive_and_read(&mut window, 1 << 20)).collect();
        assert_eq!(increments, [2 << 20; 8]);
    }
}
