//! The path's round-trip time without a queue: a minimum that ages, so that a new route is followed.

use std::time::Duration;

use smig_proto::Instant;

/// As BBR's min_rtt filter: a minimum lasts ten seconds, in two halves. On very long paths it lasts sixteen round trips, since
/// a probe takes some.
const HALF_WINDOW: Duration = Duration::from_secs(5);
const HALF_WINDOW_RTTS: u32 = 8;

/// Round trips before a half of the window ends in which bulk drains its queue, so that the next minimum has none of it.
const PROBE_RTTS: u32 = 3;

/// A minimum this many times longer than the path is known to be is probably others' queue: whether it is, sharing finds out.
const MAX_AGED_RTTS: u32 = 3;

/// The minimum of the last five to ten seconds.
#[derive(Debug)]
pub(crate) struct BaseRtt {
    /// What the path was known to take when this began.
    known: Duration,
    previous: Duration,
    current: Duration,
    current_since: Instant,
}

impl BaseRtt {
    pub(crate) const fn new(now: Instant, rtt: Duration) -> Self {
        Self { known: rtt, previous: rtt, current: rtt, current_since: now }
    }

    pub(crate) fn value(&self) -> Duration {
        self.previous.min(self.current)
    }

    fn half_window(&self) -> Duration {
        HALF_WINDOW.max(self.value() * HALF_WINDOW_RTTS)
    }

    /// Returns whether bulk should drain its queue for a moment: otherwise a minimum that contains the queue would soon
    /// replace the present one.
    pub(crate) fn is_probe_due(&self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.current_since);
        elapsed + self.previous * PROBE_RTTS >= self.half_window()
            && self.current > self.previous + self.previous / 64
    }

    /// Takes a round-trip time, of a path whose kernel knows this minimum. Old ones are forgotten only if `may_age`, and if the
    /// path has not become much longer than it was known to be.
    pub(crate) fn update(&mut self, now: Instant, rtt: Duration, min_rtt: Duration, may_age: bool) {
        self.current = self.current.min(rtt);
        if now.saturating_duration_since(self.current_since) < self.half_window() {
            return;
        }
        let longest = self.known.max(min_rtt) * MAX_AGED_RTTS;
        if (may_age && self.current < longest) || self.current <= self.previous {
            self.previous = self.current;
        }
        self.current = rtt;
        self.current_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ages_into_a_longer_path_but_not_into_a_queue_of_seconds() {
        let millis = Duration::from_millis;
        let after_a_minute = |mut base: BaseRtt, rtt| {
            for second in 1..60 {
                base.update(Instant::from_nanos(second * 1_000_000_000), rtt, millis(20), true);
            }
            base.value()
        };
        let base = |rtt| BaseRtt::new(Instant::from_nanos(0), millis(rtt));
        assert_eq!(after_a_minute(base(20), millis(55)), millis(55));
        assert_eq!(after_a_minute(base(20), millis(900)), millis(20));
        // Sharing has found the path to take 80 ms, whatever the kernel still knows: it may become longer from there.
        assert_eq!(after_a_minute(base(80), millis(90)), millis(90));
    }

    #[test]
    fn a_long_path_is_not_drained_all_the_time() {
        for millis in [50, 600, 1700, 5000] {
            let rtt = Duration::from_millis(millis);
            let at = |number: u32| Instant::from_nanos(0) + rtt * number;
            let mut base = BaseRtt::new(at(0), rtt);
            let mut drained = 0;
            for number in 1..=800 {
                let is_probe_due = base.is_probe_due(at(number));
                drained += u32::from(is_probe_due);
                base.update(at(number), if is_probe_due { rtt } else { rtt * 2 }, rtt, true);
            }
            assert!(drained < 800 / 6, "{rtt:?}: {drained} of 800 round trips");
            assert_eq!(base.value(), rtt);
        }
    }
}
