//! Rates that a peer may not exceed.

use core::time::Duration;

use crate::error::Cause;
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

    /// Takes what is there of `tokens`.
    const fn owe(&mut self, tokens: u32) {
        self.level = self.level.saturating_sub(tokens as u64 * 1000);
    }
}

/// What a peer does that ends a stream or a move, by what it costs (CVE-2023-44487, CVE-2025-8671).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offence {
    /// It reset a stream, or said by GOAWAY that it ignores one.
    Reset,
    /// It reset a stream behind our whole response (RFC 9113 section 8.1). That is none: no work was
    /// saved or wasted by it. Until the response had left, the stream counted among those that the peer
    /// may have open, and the response took the window that it takes of anybody; had the request ended
    /// first, the stream would be closed here and the same RST_STREAM would say nothing.
    Leftover,
    /// It made this side reset a stream.
    Fault,
    /// It let a stream run into a time limit.
    Delay,
    /// It sent what was refused without touching a stream: a move, a carrier, a head too large, a request above
    /// the limit. That limit counts handlers that run on behind a reset, which the peer cannot know.
    Refused,
}

impl Offence {
    /// The cause of a stream error.
    pub(crate) fn of(cause: Cause) -> Self {
        if cause == Cause::TooManyStreams { Self::Refused } else { Self::Fault }
    }

    const fn price(self) -> u32 {
        match self {
            // As dear as two of its own: it costs the peer one cheap frame.
            Self::Fault => 2,
            Self::Reset | Self::Delay | Self::Refused => 1,
            Self::Leftover => 0,
        }
    }
}

/// The peer was charged for what it did. Only a [`ResetBudget`] makes one, and a stream cannot be
/// ended by a peer's doing, nor a move be declined, without.
#[derive(Debug)]
pub(crate) struct Charge(());

/// What a client may spend on [`Offence`]s. A server has no such budget with us: it opens no streams
/// unasked.
#[derive(Debug)]
pub(crate) struct ResetBudget(Option<TokenBucket>);

impl ResetBudget {
    pub(crate) const fn of_client(bucket: TokenBucket) -> Self {
        Self(Some(bucket))
    }

    pub(crate) const fn of_server() -> Self {
        Self(None)
    }

    /// Charges; an error if the peer has spent all: its connection is to end.
    pub(crate) fn charge(&mut self, now: Instant, offence: Offence) -> (Charge, Result<(), Cause>) {
        let paid = self.0.as_mut().is_none_or(|bucket| bucket.take(now, offence.price()));
        (Charge(()), if paid { Ok(()) } else { Err(Cause::TooManyResets) })
    }

    /// Charges where no connection can be ended for it: what is missing then is missing the next time.
    pub(crate) fn debit(&mut self, offence: Offence) -> Charge {
        if let Some(bucket) = &mut self.0 {
            bucket.owe(offence.price());
        }
        Charge(())
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
    fn offences_are_paid_for_while_there_are_tokens() {
        let mut budget = ResetBudget::of_client(TokenBucket::new(5, 1, at(0)));
        assert_eq!(budget.charge(at(0), Offence::Fault).1, Ok(()));
        budget.debit(Offence::Delay);
        assert_eq!(budget.charge(at(0), Offence::Reset).1, Ok(()));
        assert_eq!(budget.charge(at(0), Offence::Fault).1, Err(Cause::TooManyResets));
        budget.debit(Offence::Fault);
        assert_eq!(budget.charge(at(0), Offence::Leftover).1, Ok(()));
        assert_eq!(budget.charge(at(999), Offence::Refused).1, Err(Cause::TooManyResets));
        assert_eq!(budget.charge(at(1000), Offence::Refused).1, Ok(()));
        let mut unlimited = ResetBudget::of_server();
        assert!((0..1000).all(|_| unlimited.charge(at(0), Offence::Fault).1.is_ok()));
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
