//! Rates that a peer may not exceed.

use core::time::Duration;

use crate::time::Instant;

/// A token bucket: `burst` at once, `per_second` sustained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    /// Thousandths of a token.
    level: u64,
    burst: u32,
    per_second: u32,
    last: Instant,
}

impl TokenBucket {
    pub(crate) const fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        Self { level: burst as u64 * 1000, burst, per_second, last: now }
    }

    /// Takes `tokens`; false if they are not there.
    #[must_use]
    pub(crate) fn take(&mut self, now: Instant, tokens: u32) -> bool {
        let elapsed = now.saturating_duration_since(self.last).as_millis();
        let gained =
            u64::try_from(elapsed).unwrap_or(u64::MAX).saturating_mul(self.per_second.into());
        if gained > 0 {
            self.level = self.level.saturating_add(gained).min(u64::from(self.burst) * 1000);
            self.last = now;
        }
        match self.level.checked_sub(u64::from(tokens) * 1000) {
            Some(rest) => {
                self.level = rest;
                true
            }
            None => false,
        }
    }
}

/// Counts events in windows of ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    since: Instant,
    count: u32,
}

impl Counter {
    const WINDOW: Duration = Duration::from_secs(10);

    /// Counts one; true if that makes more than `most` in this window.
    #[must_use]
    pub(crate) fn exceeds(&mut self, now: Instant, most: u32) -> bool {
        if now.saturating_duration_since(self.since) >= Self::WINDOW {
            *self = Self { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count > most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let mut bucket = TokenBucket::new(3, 10, at(0));
        assert!(bucket.take(at(0), 3));
        assert!(!bucket.take(at(50), 1));
        assert!(bucket.take(at(100), 1));
        assert!(!bucket.take(at(100), 1));
        assert!(bucket.take(at(10_000), 3));
        assert!(!bucket.take(at(10_000), 1), "no more than the burst is saved up");
    }

    #[test]
    fn a_counter_forgets_after_ten_seconds() {
        let mut counter = Counter::default();
        assert!(!counter.exceeds(at(1), 2));
        assert!(!counter.exceeds(at(2), 2));
        assert!(counter.exceeds(at(3), 2));
        assert!(!counter.exceeds(at(10_001), 2));
    }
}
