//! The path's round-trip time without a queue: a minimum that ages, so that a new route is followed.

use std::time::Duration;

use smig_proto::Instant;

/// As BBR's min_rtt filter: a minimum lasts ten seconds, in two halves. On very long paths it lasts sixteen round trips, since
/// a probe takes some.
const HALF_WINDOW: Duration = Duration::from_secs(5);
const HALF_WINDOW_RTTS: u32 = 8;

/// Round trips before a half of the window ends in which bulk drains its queue, so that the next minimum has none of it.
const PROBE_RTTS: u32 = 3;

/// The minimum of the last five to ten seconds.
#[derive(Debug)]
pub(crate) struct BaseRtt {
    previous: Duration,
    current: Duration,
    current_since: Instant,
}

impl BaseRtt {
    pub(crate) const fn new(now: Instant, rtt: Duration) -> Self {
        Self { previous: rtt, current: rtt, current_since: now }
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

    /// Takes a round-trip time. Old ones are forgotten only if `may_age`.
    pub(crate) fn update(&mut self, now: Instant, rtt: Duration, may_age: bool) {
        self.current = self.current.min(rtt);
        if now.saturating_duration_since(self.current_since) < self.half_window() {
            return;
        }
        if may_age || self.current <= self.previous {
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
    fn a_long_path_is_not_drained_all_the_time() {
        for millis in [50, 600, 1700, 5000] {
            let rtt = Duration::from_millis(millis);
            let at = |number: u32| Instant::from_nanos(0) + rtt * number;
            let mut base = BaseRtt::new(at(0), rtt);
            let mut drained = 0;
            for number in 1..=800 {
                let is_probe_due = base.is_probe_due(at(number));
                drained += u32::from(is_probe_due);
                base.update(at(number), if is_probe_due { rtt } else { rtt * 2 }, true);
            }
            assert!(drained < 800 / 6, "{rtt:?}: {drained} of 800 round trips");
            assert_eq!(base.value(), rtt);
        }
    }
}
