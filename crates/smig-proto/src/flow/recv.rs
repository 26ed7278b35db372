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
    pub(crate) const fn join(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    /// Splits off the credit of `octets` bytes.
    pub(crate) const fn split(&mut self, octets: u32) -> Self {
        let part = if octets < self.0 { octets } else { self.0 };
        self.0 -= part;
        Self(part)
    }

    pub(crate) const fn octets(&self) -> u32 {
        self.0
    }

    /// Drops the credit together with the window that it belongs to.
    pub(crate) const fn forfeit(self) {
        let Self(_) = self;
    }
}

/// Minimum increment of a WINDOW_UPDATE while most of the window is occupied, in bytes.
const WORTHWHILE: u32 = 256 << 10;
/// Minimum increment when the peer cannot send: it could not send anything that would increase the
/// sum. In bytes.
const LEAST: u32 = 1 << 10;

/// A receive window with a constant target size.
///
/// Invariant: `open + outstanding credit + returned == size`, except while SETTINGS changes `size`.
#[derive(Debug)]
pub(crate) struct RecvWindow {
    /// Bytes that the peer may still send; negative after a reduction by SETTINGS.
    open: i64,
    /// Bytes that the application returned and that are not announced yet.
    returned: u32,
    size: u32,
}

impl RecvWindow {
    pub(crate) const fn new(size: u32) -> Self {
        Self { open: size as i64, returned: 0, size }
    }

    /// Returns the bytes that the peer may still send, which may be negative.
    pub(crate) const fn open(&self) -> i64 {
        self.open
    }

    /// Returns the bytes that arrived and were not returned.
    pub(crate) const fn outstanding(&self) -> u64 {
        let held = self.size as i64 - self.open - self.returned as i64;
        if held > 0 { held as u64 } else { 0 }
    }

    /// Charges `octets` bytes that arrived. Returns `None` if they exceed the window.
    pub(crate) fn charge(&mut self, octets: u32) -> Option<Credit> {
        if i64::from(octets) > self.open {
            return None;
        }
        self.open -= i64::from(octets);
        Some(Credit(octets))
    }

    /// Returns credit to the window, possibly zero bytes: an amount that was too small may be
    /// enough now that the window is smaller. Returns the increment to announce now, if any. It is
    /// half a window, so that updates are few and the peer never waits. If unread data occupies so
    /// much that half a window cannot become free, it is less: streams that are read must not wait
    /// for streams that are not.
    pub(crate) fn give_back(&mut self, credit: Credit) -> Option<u32> {
        self.returned = self.returned.saturating_add(credit.octets());
        credit.forfeit();
        self.due()
    }

    fn due(&mut self) -> Option<u32> {
        let is_half = u64::from(self.returned) * 2 >= u64::from(self.size);
        let (returned, quarter) = (i64::from(self.returned), self.size / 4);
        let is_short = self.open <= returned.min(i64::from(quarter));
        let least = if self.open > 0 { WORTHWHILE } else { LEAST };
        let is_worthwhile = self.returned >= quarter.min(least);
        let is_due = self.returned > 0 && (is_half || (is_short && is_worthwhile));
        is_due.then(|| self.announce())
    }

    /// Raises the target size. Returns the increment to announce.
    pub(crate) fn grow(&mut self, size: u32) -> Option<u32> {
        let by = size.min(MAX_WINDOW).checked_sub(self.size).filter(|&by| by > 0)?;
        self.size += by;
        self.returned = self.returned.saturating_add(by);
        Some(self.announce())
    }

    /// Applies the difference between two values of this side's SETTINGS_INITIAL_WINDOW_SIZE, after
    /// the acknowledgement. Returns the increment to announce: an amount that was too small for a
    /// larger window may be enough now.
    #[must_use]
    pub(crate) fn adjust(&mut self, by: i64) -> Option<u32> {
        self.open += by;
        self.size = u32::try_from(i64::from(self.size) + by).unwrap_or(0);
        self.due()
    }

    fn announce(&mut self) -> u32 {
        let increment = core::mem::take(&mut self.returned);
        self.open += i64::from(increment);
        increment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives `octets` bytes that the application does not read.
    fn hold(window: &mut RecvWindow, octets: u32) -> Option<u32> {
        window.charge(octets).expect("it may come").forfeit();
        window.give_back(Credit::NONE)
    }

    /// Receives `octets` bytes that the application reads.
    fn pass(window: &mut RecvWindow, octets: u32) -> Option<u32> {
        let credit = window.charge(octets).expect("it may come");
        window.give_back(credit)
    }

    #[test]
    fn half_of_a_window_is_announced_at_a_time() {
        let mut window = RecvWindow::new(100);
        assert_eq!((pass(&mut window, 49), pass(&mut window, 1)), (None, Some(50)));
        assert_eq!((window.open(), window.outstanding()), (100, 0));
    }

    #[test]
    fn who_is_read_does_not_wait_for_who_is_not() {
        // The read bytes arrive after the unread ones, or before.
        let mut window = RecvWindow::new(100);
        assert_eq!((hold(&mut window, 51), pass(&mut window, 49)), (None, Some(49)));
        let mut window = RecvWindow::new(100);
        assert_eq!((pass(&mut window, 49), hold(&mut window, 51)), (None, Some(49)));
        assert_eq!((window.open(), window.outstanding()), (49, 51));
    }

    #[test]
    fn a_peer_that_can_send_nothing_is_not_kept_waiting_for_more() {
        let mut window = RecvWindow::new(4 << 20);
        assert_eq!(hold(&mut window, (4 << 20) - (200 << 10)), None);
        for _ in 0..3 {
            for _ in 1..200 {
                assert_eq!(pass(&mut window, 1 << 10), None);
            }
            assert_eq!(pass(&mut window, 1 << 10), Some(200 << 10));
        }
    }

    #[test]
    fn a_window_of_which_little_is_left_is_not_announced_in_small_change() {
        for size in [65_536, 16 << 20] {
            let least = (size / 4).min(WORTHWHILE);
            let mut window = RecvWindow::new(size);
            assert_eq!(hold(&mut window, size - least), None);
            for _ in 0..10 {
                assert_eq!(pass(&mut window, least - 1), None);
                assert_eq!(pass(&mut window, 1), Some(least));
            }
        }
        // If half of the free part is larger, the increment is that half: the other half is open
        // meanwhile.
        let mut window = RecvWindow::new(16 << 20);
        hold(&mut window, 12 << 20);
        let due: Vec<u32> = (0..16).filter_map(|_| pass(&mut window, 1 << 20)).collect();
        assert_eq!(due, [2 << 20; 8]);
    }
}
