//! What we let the peer send.

use super::MAX_WINDOW;

/// Octets of a receive window that the peer used and that are not given back yet.
#[must_use = "credit is given back to its window, or forfeited with its connection"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Credit(u32);

impl Credit {
    /// The credit of no octets, to join others to.
    pub(crate) const NONE: Self = Self(0);

    /// Joins credit of the same window.
    pub(crate) const fn join(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    /// Splits off what `octets` of the data hold.
    pub(crate) const fn split(&mut self, octets: u32) -> Self {
        let part = if octets < self.0 { octets } else { self.0 };
        self.0 -= part;
        Self(part)
    }

    pub(crate) const fn octets(&self) -> u32 {
        self.0
    }

    /// Ends the credit together with the window that it belonged to.
    pub(crate) const fn forfeit(self) {
        let Self(_) = self;
    }
}

/// A receive window of a constant target size.
///
/// Invariant: `open + outstanding credit + returned == size`, but for a `size` that SETTINGS changed.
#[derive(Debug)]
pub(crate) struct RecvWindow {
    /// What the peer may still send; below zero after a reduction by SETTINGS.
    open: i64,
    /// Given back by the application, not yet announced.
    returned: u32,
    size: u32,
}

impl RecvWindow {
    pub(crate) const fn new(size: u32) -> Self {
        Self { open: size as i64, returned: 0, size }
    }

    /// What the peer may still send by its own account, which may be negative.
    pub(crate) const fn open(&self) -> i64 {
        self.open
    }

    /// Octets that arrived and were not given back.
    pub(crate) const fn outstanding(&self) -> u64 {
        let held = self.size as i64 - self.open - self.returned as i64;
        if held > 0 { held as u64 } else { 0 }
    }

    /// Charges `octets` that arrived; `None` if the peer had no right to send them.
    pub(crate) fn charge(&mut self, octets: u32) -> Option<Credit> {
        if i64::from(octets) > self.open {
            return None;
        }
        self.open -= i64::from(octets);
        Some(Credit(octets))
    }

    /// Takes credit back. The result is the increment that is due to be announced now, if any:
    /// half a window at a time, so that updates stay few and the peer never waits.
    pub(crate) fn give_back(&mut self, credit: Credit) -> Option<u32> {
        self.returned = self.returned.saturating_add(credit.octets());
        credit.forfeit();
        self.due()
    }

    fn due(&mut self) -> Option<u32> {
        if self.returned == 0 || u64::from(self.returned) * 2 < u64::from(self.size) {
            return None;
        }
        Some(self.announce())
    }

    /// Raises the target size; the result is the increment to announce.
    pub(crate) fn grow(&mut self, size: u32) -> Option<u32> {
        let by = size.min(MAX_WINDOW).checked_sub(self.size).filter(|&by| by > 0)?;
        self.size += by;
        self.returned = self.returned.saturating_add(by);
        Some(self.announce())
    }

    /// Applies the difference of two SETTINGS_INITIAL_WINDOW_SIZE of ours, once acknowledged. The
    /// result is the increment that is due: what was too little of a larger window may be enough now.
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
