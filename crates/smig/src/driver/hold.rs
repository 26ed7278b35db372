//! When bulk waits for interactive responses on the same path.
//!
//! A response of a few packets must find the bottleneck's queue short. While one is unacknowledged,
//! bulk connections send nothing, so that the queue drains; a budget bounds what that costs them.

use std::time::Duration;

use smig_proto::Instant;

use super::link::Progress;

/// Part of the time that bulk may be held back in the long run: one in `SHARE`.
const SHARE: u32 = 4;
/// Holds that the budget can save up.
const SAVED: u32 = 2;
/// How often a held session looks for the acknowledgement, which makes no event of its own.
const LOOK: Duration = Duration::from_millis(4);

#[derive(Debug)]
pub(super) struct Hold {
    /// The longest hold for one response.
    max: Duration,
    /// Time that may still be spent holding.
    budget: Duration,
    /// When the budget was last computed.
    counted: Instant,
    /// Interactive octets were sent then, and their acknowledgement may be missing.
    sent: Option<Instant>,
    /// Bulk is held; look again then.
    next_look: Option<Instant>,
}

impl Hold {
    pub(super) fn new(max: Duration) -> Self {
        Self {
            max,
            budget: max * SAVED,
            counted: Instant::from_nanos(0),
            sent: None,
            next_look: None,
        }
    }

    /// Interactive connections sent something, or nothing.
    pub(super) fn on_interactive(&mut self, now: Instant, sent: Progress) {
        if sent == Progress::Some {
            self.sent = Some(now);
        }
    }

    /// There is no bulk connection to hold.
    pub(super) fn forget(&mut self) {
        self.sent = None;
        self.next_look = None;
    }

    /// Whether bulk waits, given that it has something to send (`wanted`). `in_flight` tells
    /// whether interactive octets are unacknowledged; it is asked only when it matters.
    pub(super) fn holds(
        &mut self,
        now: Instant,
        wanted: bool,
        in_flight: impl FnOnce() -> bool,
    ) -> bool {
        let passed = now.saturating_duration_since(self.counted);
        self.counted = now;
        let was_held = self.next_look.take().is_some();
        if was_held {
            self.budget = self.budget.saturating_sub(passed);
        } else {
            self.budget = (self.budget + passed / SHARE).min(self.max * SAVED);
        }
        let Some(sent) = self.sent else { return false };
        if !wanted {
            return false;
        }
        let expired = now.saturating_duration_since(sent) >= self.max;
        // A hold that could last only moments is not begun.
        let least = if was_held { Duration::ZERO } else { self.max / 2 };
        if expired || self.budget <= least || !in_flight() {
            self.sent = None;
            return false;
        }
        self.next_look = Some(now + LOOK);
        true
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.next_look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn bulk_waits_until_the_response_is_acknowledged() {
        let mut hold = Hold::new(Duration::from_millis(100));
        assert!(!hold.holds(at(0), true, || true));
        hold.on_interactive(at(10), Progress::Some);
        assert!(hold.holds(at(10), true, || true));
        assert_eq!(hold.deadline(), Some(at(14)));
        assert!(hold.holds(at(14), true, || true));
        assert!(!hold.holds(at(18), true, || false));
        assert!(!hold.holds(at(22), true, || true));
    }

    #[test]
    fn nothing_is_looked_at_when_the_bulk_connection_is_gone() {
        let mut hold = Hold::new(Duration::from_millis(100));
        hold.on_interactive(at(10), Progress::Some);
        assert!(hold.holds(at(10), true, || true));
        hold.forget();
        assert_eq!(hold.deadline(), None);
    }

    #[test]
    fn bulk_is_never_starved() {
        let mut hold = Hold::new(Duration::from_millis(100));
        let mut held = 0;
        for millis in 0..10_000 {
            hold.on_interactive(at(millis), Progress::Some);
            held += u64::from(hold.holds(at(millis), true, || true));
        }
        assert!(held > 0);
        assert!(held < 10_000 / 4 + 300, "held for {held} ms of 10,000");
    }
}
