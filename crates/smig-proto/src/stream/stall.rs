//! Detects stalled transfers by transferred bytes instead of frames: a peer that keeps its window
//! closed cannot keep a stream open by WINDOW_UPDATE or by migrating it.

use core::time::Duration;

use crate::time::Instant;

/// Progress of a transfer: the byte count at the last sufficient progress, and its time.
#[derive(Clone, Copy, Debug)]
pub struct StallClock {
    last_progress_at: Instant,
    bytes_at_last_progress: u64,
}

impl StallClock {
    /// Creates a clock for a transfer that starts at `now`.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { last_progress_at: now, bytes_at_last_progress: 0 }
    }

    /// Updates the clock of a stream that has data to send. Returns true if fewer than
    /// `min_bytes` were transferred within `timeout`.
    pub fn check_stalled(
        &mut self,
        now: Instant,
        bytes: u64,
        min_bytes: u64,
        timeout: Duration,
    ) -> bool {
        // A declined migration decreases the count, which is not progress.
        self.bytes_at_last_progress = self.bytes_at_last_progress.min(bytes);
        if bytes - self.bytes_at_last_progress >= min_bytes {
            (self.last_progress_at, self.bytes_at_last_progress) = (now, bytes);
            return false;
        }
        now.saturating_duration_since(self.last_progress_at) >= timeout
    }

    /// Excludes a time in which nothing could be transferred.
    pub fn exclude(&mut self, pause: Duration) {
        self.last_progress_at = self.last_progress_at + pause;
    }

    /// Restarts the clock, while there is nothing to transfer.
    pub const fn restart(&mut self, now: Instant, bytes: u64) {
        (self.last_progress_at, self.bytes_at_last_progress) = (now, bytes);
    }
}
