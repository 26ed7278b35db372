//! The flow-control window that the peer grants to this side.

use crate::error::Cause;

/// A send window. It can become negative after a SETTINGS change (RFC 9113 section 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendWindow(i64);

impl SendWindow {
    pub(crate) const fn new(size: u32) -> Self {
        Self(size as i64)
    }

    /// Returns the number of bytes that may be sent now.
    pub(crate) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Returns the window's value, which may be negative.
    pub(crate) const fn value(self) -> i64 {
        self.0
    }

    /// Counts `bytes` as sent. The caller must not exceed [`Self::available`].
    pub(crate) const fn consume(&mut self, bytes: usize) {
        self.0 -= bytes as i64;
    }

    /// Adds the increment of a WINDOW_UPDATE, or bytes that count as never sent.
    pub(crate) fn add(&mut self, bytes: u32) -> Result<(), Cause> {
        self.adjust(i64::from(bytes))
    }

    /// Applies the difference between two values of SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) fn adjust(&mut self, delta: i64) -> Result<(), Cause> {
        let value = self.0 + delta;
        if value > i64::from(super::MAX_WINDOW) {
            return Err(Cause::WindowOverflow);
        }
        self.0 = value;
        Ok(())
    }
}
