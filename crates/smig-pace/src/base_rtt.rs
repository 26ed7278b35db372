//! The path's round-trip time without a queue: a minimum that ages, so that a new route is followed.

use std::time::Duration;

use smig_proto::Instant;

/// As BBR's min_rtt filter: a minimum lasts ten seconds, in two halves.
const HALF_WINDOW: Duration = Duration::from_secs(5);

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

    /// Returns whether bulk should drain its queue for a moment: otherwise a minimum that contains the queue would soon
    /// replace the present one.
    pub(crate) fn is_probe_due(&self, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.current_since);
        elapsed + self.previous * PROBE_RTTS >= HALF_WINDOW
            && self.current > self.previous + self.previous / 64
    }

    /// Takes a round-trip time. Old ones are forgotten only if `may_age`.
    pub(crate) fn update(&mut self, now: Instant, rtt: Duration, may_age: bool) {
        self.current = self.current.min(rtt);
        if now.saturating_duration_since(self.current_since) < HALF_WINDOW {
            return;
        }
        if may_age || self.current <= self.previous {
            self.previous = self.current;
        }
        self.current = rtt;
        self.current_since = now;
    }
}
