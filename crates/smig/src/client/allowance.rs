//! How many streams of a connection may be reset, before its server takes it for an attack (CVE-2023-44487).

use std::time::Duration;

use smig_proto::Instant;

/// One in this time: 20 a second, where servers allow 33.
const INTERVAL: Duration = Duration::from_millis(50);

/// `BURST` at once, then one in each interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance<const BURST: u32> {
    next: Instant,
}

impl<const BURST: u32> Allowance<BURST> {
    /// When there is one: now, if that has passed.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// One was used, whether there was one or not.
    pub(super) fn pay(&mut self, now: Instant) {
        let saved = INTERVAL * (BURST - 1);
        let earliest = now.saturating_duration_since(Instant::default()).saturating_sub(saved);
        self.next = self.next.max(Instant::default() + earliest) + INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_so_many_a_second() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut allowance = Allowance::<64>::default();
        let start = at(1_000_000);
        for _ in 0..63 {
            allowance.pay(start);
        }
        assert!(allowance.next() <= start);
        allowance.pay(start);
        assert_eq!(allowance.next(), at(1_000_050));
        for _ in 0..1_000 {
            allowance.pay(at(2_000_000));
            assert!(allowance.next() > at(1_000_050));
        }
        // What was used beyond it has to be saved up again.
        assert_eq!(allowance.next(), at(2_000_050 + (1_000 - 64) * 50));
    }
}
