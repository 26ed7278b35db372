//! A rate limit, for what a peer does and for what this side does to it.

use core::time::Duration;

use crate::time::Instant;

/// A token bucket: bursts of `burst` tokens, and a sustained rate of `per_second`.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    /// Thousandths of a token.
    millitokens: u64,
    burst: u32,
    per_second: u32,
    updated_at: Instant,
}

impl TokenBucket {
    /// A full one, with at most `burst` tokens, that gains `per_second` tokens in each second.
    #[must_use]
    pub const fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        Self { millitokens: burst as u64 * 1000, burst, per_second, updated_at: now }
    }

    /// Takes `tokens`; returns false, and takes none, if there are fewer.
    #[must_use]
    pub fn take(&mut self, now: Instant, tokens: u32) -> bool {
        self.refill(now);
        match self.millitokens.checked_sub(u64::from(tokens) * 1000) {
            Some(rest) => {
                self.millitokens = rest;
                true
            }
            None => false,
        }
    }

    /// Takes up to `tokens`, as far as available.
    pub const fn take_up_to(&mut self, tokens: u32) {
        self.millitokens = self.millitokens.saturating_sub(tokens as u64 * 1000);
    }

    /// Takes all tokens, those that were gained until now included.
    pub fn empty(&mut self, now: Instant) {
        self.refill(now);
        self.millitokens = 0;
    }

    /// Returns the number of whole tokens that can be taken now.
    #[must_use]
    pub fn available(&mut self, now: Instant) -> u32 {
        self.refill(now);
        u32::try_from(self.millitokens / 1000).unwrap_or(u32::MAX)
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.updated_at).as_millis();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        let gained = elapsed.saturating_mul(self.per_second.into());
        if gained > 0 {
            self.millitokens =
                self.millitokens.saturating_add(gained).min(u64::from(self.burst) * 1000);
            // The rest of a millisecond counts later.
            self.updated_at = self.updated_at + Duration::from_millis(elapsed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant_at_ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_bucket_gives_its_burst_then_its_rate() {
        let mut bucket = TokenBucket::new(3, 10, instant_at_ms(0));
        assert!(bucket.take(instant_at_ms(0), 3));
        assert!(!bucket.take(instant_at_ms(50), 1));
        assert!(bucket.take(instant_at_ms(100), 1));
        assert!(!bucket.take(instant_at_ms(100), 1));
        assert!(bucket.take(instant_at_ms(10_000), 3));
        assert!(!bucket.take(instant_at_ms(10_000), 1), "no more than the burst is saved up");
    }

    #[test]
    fn a_bucket_gives_its_rate_to_takes_at_any_interval() {
        let mut bucket = TokenBucket::new(1, 1000, instant_at_ms(0));
        assert!(bucket.take(instant_at_ms(0), 1));
        let instants = (1..=666).map(|n| Instant::from_nanos(n * 1_500_000));
        assert!(instants.clone().all(|now| bucket.take(now, 1)));
        let mut bucket = TokenBucket::new(1000, 1000, instant_at_ms(0));
        assert!(bucket.take(instant_at_ms(0), 1000));
        instants.for_each(|now| assert!(bucket.take(now, 0)));
        assert!(bucket.take(instant_at_ms(999), 999), "a second has passed");
    }

    #[test]
    fn what_is_available_can_be_taken() {
        let mut bucket = TokenBucket::new(3, 10, instant_at_ms(0));
        assert_eq!(bucket.available(instant_at_ms(0)), 3);
        bucket.take_up_to(u32::MAX);
        assert_eq!(bucket.available(instant_at_ms(99)), 0);
        assert_eq!(bucket.available(instant_at_ms(250)), 2);
        assert!(bucket.take(instant_at_ms(250), 2));
    }

    #[test]
    fn an_empty_bucket_gains_nothing_for_the_time_before() {
        let mut bucket = TokenBucket::new(3, 10, instant_at_ms(0));
        bucket.empty(instant_at_ms(1000));
        assert_eq!(bucket.available(instant_at_ms(1050)), 0);
        assert_eq!(bucket.available(instant_at_ms(1100)), 1);
    }
}
