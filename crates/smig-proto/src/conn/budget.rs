//! Rate limits for the peer.

use core::time::Duration;

use crate::error::Cause;
use crate::time::Instant;
use crate::token_bucket::TokenBucket;

/// An action of the peer that ends a stream or is refused, by cost (CVE-2023-44487, CVE-2025-8671).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offence {
    /// It reset a stream, or excluded one by GOAWAY.
    Reset,
    /// It reset a stream after this side had sent the complete response (RFC 9113 section 8.1).
    /// Costs nothing, because the reset neither saved nor wasted work: until the response was sent,
    /// the stream counted against the limit of concurrent streams, and the response was subject to
    /// flow control like any other. If the request had ended first, the stream would be closed
    /// here, and the same RST_STREAM would have no effect.
    ResetAfterResponse,
    /// It caused this side to reset a stream.
    CausedReset,
    /// It let a timeout of a stream expire.
    Timeout,
    /// It sent something that was refused without affecting a stream: a migration, a carrier, an
    /// oversized head, or a request above the limit. That limit includes handlers that still run
    /// after a reset, which the peer cannot know.
    Refused,
}

impl Offence {
    /// Returns the offence for the cause of a stream error.
    pub(crate) fn from_cause(cause: Cause) -> Self {
        if cause == Cause::TooManyStreams { Self::Refused } else { Self::CausedReset }
    }

    const fn cost(self) -> u32 {
        match self {
            // Twice the cost of the peer's own reset: the peer sends only one cheap frame.
            Self::CausedReset => 2,
            Self::Reset | Self::Timeout | Self::Refused => 1,
            Self::ResetAfterResponse => 0,
        }
    }
}

/// Proof that the peer was charged. Only a [`ResetBudget`] creates it. Ending a stream because of
/// the peer, or declining a migration, requires it.
#[derive(Debug)]
pub(crate) struct Charge(());

/// A client's budget for [`Offence`]s. A server is not limited: it opens no streams unsolicited.
#[derive(Debug)]
pub(crate) struct ResetBudget(Option<TokenBucket>);

impl ResetBudget {
    pub(crate) const fn of_client(bucket: TokenBucket) -> Self {
        Self(Some(bucket))
    }

    pub(crate) const fn of_server() -> Self {
        Self(None)
    }

    /// Charges the peer. Returns an error if the budget is exhausted: the connection must be
    /// closed.
    pub(crate) fn charge(&mut self, now: Instant, offence: Offence) -> (Charge, Result<(), Cause>) {
        let paid = self.0.as_mut().is_none_or(|bucket| bucket.take(now, offence.cost()));
        (Charge(()), if paid { Ok(()) } else { Err(Cause::TooManyResets) })
    }

    /// Charges the peer where no connection can be closed for it: takes the cost,
    /// or what is left if that is less, so a later [`Self::charge`] may fail.
    pub(crate) fn debit(&mut self, offence: Offence) -> Charge {
        if let Some(bucket) = &mut self.0 {
            bucket.take_up_to(offence.cost());
        }
        Charge(())
    }
}

/// Counts events in intervals of ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counter {
    started_at: Instant,
    count: u32,
}

impl Counter {
    const INTERVAL: Duration = Duration::from_secs(10);

    /// Counts an event; returns true if the interval has more than `max`.
    #[must_use]
    pub(crate) fn increment_exceeds(&mut self, now: Instant, max: u32) -> bool {
        if now.saturating_duration_since(self.started_at) >= Self::INTERVAL {
            *self = Self { started_at: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count > max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant_at_ms(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn offences_are_paid_for_while_there_are_tokens() {
        let mut budget = ResetBudget::of_client(TokenBucket::new(5, 1, instant_at_ms(0)));
        assert_eq!(budget.charge(instant_at_ms(0), Offence::CausedReset).1, Ok(()));
        budget.debit(Offence::Timeout);
        assert_eq!(budget.charge(instant_at_ms(0), Offence::Reset).1, Ok(()));
        assert_eq!(
            budget.charge(instant_at_ms(0), Offence::CausedReset).1,
            Err(Cause::TooManyResets)
        );
        budget.debit(Offence::CausedReset);
        assert_eq!(budget.charge(instant_at_ms(0), Offence::ResetAfterResponse).1, Ok(()));
        assert_eq!(
            budget.charge(instant_at_ms(999), Offence::Refused).1,
            Err(Cause::TooManyResets)
        );
        assert_eq!(budget.charge(instant_at_ms(1000), Offence::Refused).1, Ok(()));
        let mut unlimited = ResetBudget::of_server();
        assert!(
            (0..1000).all(|_| unlimited.charge(instant_at_ms(0), Offence::CausedReset).1.is_ok())
        );
    }

    #[test]
    fn a_counter_forgets_after_ten_seconds() {
        let mut counter = Counter::default();
        assert!(!counter.increment_exceeds(instant_at_ms(1), 2));
        assert!(!counter.increment_exceeds(instant_at_ms(2), 2));
        assert!(counter.increment_exceeds(instant_at_ms(3), 2));
        assert!(!counter.increment_exceeds(instant_at_ms(10_001), 2));
    }
}
