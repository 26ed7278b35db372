//! Rate limit for the streams that this client resets in a session (CVE-2023-44487).
//!
//! Servers close a connection on which many streams are reset, and thereby fail its other streams. Any open stream
//! may have to be reset, because the application may cancel it. So after many resets, the number of open streams is
//! limited: even if all of them were reset, the server's limit would not be reached.

use std::time::Duration;

use smig_proto::Instant;

/// Resets that the server is assumed to tolerate in a burst. Our servers tolerate 200, nghttp2's 1000.
const MAX_RESETS: u32 = 192;
/// Below this count, as many streams may be open as the server allows. Our servers allow at most 128, so the sum
/// stays within `MAX_RESETS`; a server that allows more streams also tolerates more resets.
const MIN_LIMITING_RESETS: u32 = MAX_RESETS - 128;
/// Time after which one reset is discounted: 20 per second, where servers discount 33.
const LEAK_INTERVAL: Duration = Duration::from_millis(50);

/// Number of recent resets, as a leaky bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResetRate {
    /// When the count reaches zero.
    empty_at: Instant,
}

impl ResetRate {
    /// Counts one reset.
    pub(super) fn add(&mut self, now: Instant) {
        self.empty_at = self.empty_at.max(now) + LEAK_INTERVAL;
    }

    /// Returns whether one more stream may be opened while `open_streams` others are.
    pub(super) fn may_open(&self, now: Instant, open_streams: usize) -> bool {
        let count = self.count(now);
        count < MIN_LIMITING_RESETS || count as usize + open_streams < MAX_RESETS as usize
    }

    /// Returns whether a stream may be reset whose reset could also wait.
    pub(super) fn may_reset(&self, now: Instant) -> bool {
        self.count(now) < MAX_RESETS
    }

    /// Returns when the count next decreases.
    pub(super) fn next_decrease(&self, now: Instant) -> Instant {
        let until_empty = self.empty_at.saturating_duration_since(now);
        let whole_intervals = LEAK_INTERVAL * self.count(now).saturating_sub(1);
        now + until_empty.saturating_sub(whole_intervals)
    }

    fn count(&self, now: Instant) -> u32 {
        let until_empty = self.empty_at.saturating_duration_since(now);
        until_empty.as_millis().div_ceil(LEAK_INTERVAL.as_millis()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn rate_after(count: u32, now: Instant) -> ResetRate {
        let mut rate = ResetRate::default();
        (0..count).for_each(|_| rate.add(now));
        rate
    }

    #[test]
    fn open_streams_and_recent_resets_stay_below_the_limit() {
        let start = at(1_000_000);
        // Few resets: as many streams as the server allows.
        assert!(
            rate_after(63, start).may_open(start, 127)
                && rate_after(63, start).may_open(start, 10_000)
        );
        for (count, open) in [(64, 127), (100, 91), (191, 0)] {
            assert!(rate_after(count, start).may_open(start, open), "{count} {open}");
            assert!(!rate_after(count, start).may_open(start, open + 1), "{count} {open}");
        }
        assert!(
            rate_after(191, start).may_reset(start) && !rate_after(192, start).may_reset(start)
        );
    }

    #[test]
    fn twenty_resets_are_discounted_per_second() {
        let start = at(1_000_000);
        let rate = rate_after(192, start);
        assert!(!rate.may_open(start, 0));
        assert_eq!(rate.next_decrease(start), at(1_000_050));
        assert!(!rate.may_open(at(1_000_049), 0) && rate.may_open(at(1_000_050), 0));
        assert_eq!(rate.next_decrease(at(1_000_060)), at(1_000_100));
        assert!(rate.may_open(at(1_001_000), 19) && !rate.may_open(at(1_001_000), 20));
        // Idle time earns no credit.
        let mut later = rate;
        later.add(at(9_000_000));
        assert_eq!(later.next_decrease(at(9_000_000)), at(9_000_050));
        assert_eq!(later.next_decrease(at(9_000_050)), at(9_000_050));
    }
}
