//! What the peer lets us send.

use crate::error::Cause;

/// A send window; it may go below zero after a SETTINGS change (RFC 9113 section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) const fn new(size: u32) -> Self {
        Self(size as i64)
    }

    /// Octets that may be sent now.
    pub(crate) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// The window's value, which may be negative.
    pub(crate) const fn value(self) -> i64 {
        self.0
    }

    /// Counts `octets` as sent. The caller took them from [`Self::available`].
    pub(crate) const fn consume(&mut self, octets: usize) {
        self.0 -= octets as i64;
    }

    /// Adds a WINDOW_UPDATE's increment, or octets that count as never sent.
    pub(crate) fn add(&mut self, octets: u32) -> Result<(), Cause> {
        self.adjust(i64::from(octets))
    }

    /// Applies the difference of two SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) fn adjust(&mut self, by: i64) -> Result<(), Cause> {
        let value = self.0 + by;
        if value > i64::from(super::MAX_WINDOW) {
            return Err(Cause::WindowOverflow);
        }
        self.0 = value;
        Ok(())
    }
}
