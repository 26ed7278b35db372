//! A clock on octets that moved, not on frames: a peer that keeps its window shut cannot keep a
//! stream alive with WINDOW_UPDATE or by migrating it.

use core::time::Duration;

use crate::time::Instant;

/// How far something has come, and since when it should have come further.
#[derive(Clone, Copy, Debug)]
pub struct StallClock {
    since: Instant,
    octets: u64,
}

impl StallClock {
    /// Nothing has moved yet.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { since: now, octets: 0 }
    }

    /// Looks at the count of moved octets of a stream that has something to send. True if it moved
    /// fewer than `least` within `timeout`.
    pub fn is_stalled(&mut self, now: Instant, octets: u64, least: u64, timeout: Duration) -> bool {
        // A declined migration takes octets back, which is no progress.
        self.octets = self.octets.min(octets);
        if octets - self.octets >= least {
            (self.since, self.octets) = (now, octets);
            return false;
        }
        now.saturating_duration_since(self.since) >= timeout
    }

    /// There is nothing to move: it cannot be stalled.
    pub const fn rest(&mut self, now: Instant, octets: u64) {
        (self.since, self.octets) = (now, octets);
    }
}
