//! Request pacing for one host.
//!
//! Owns the schedule; time is an argument. The pause starts at the end of a response, so two
//! requests never reach the host closer together than that, however delays vary.

use std::str::FromStr;
use std::time::{Duration, Instant};

/// Maximum pause. A host with a longer Crawl-delay is not crawled; a longer Retry-After is shortened to this.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(600);

/// The maximum request rate per host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    pause: Duration,
}

impl RequestRate {
    /// Returns the pause between a response and the next request.
    #[must_use]
    pub const fn pause(self) -> Duration {
        self.pause
    }
}

impl FromStr for RequestRate {
    type Err = String;

    /// Parses `1/s`, `0.5/s`, `30/min`, `100/h`.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "a rate is like 1/s, 30/min or 100/h".to_owned();
        let (count, unit) = text.split_once('/').ok_or_else(invalid)?;
        let count: f64 = count.trim().parse().map_err(|_| invalid())?;
        let seconds = match unit.trim() {
            "s" => 1.0,
            "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(invalid()),
        };
        let pause = Duration::try_from_secs_f64(seconds / count).map_err(|_| invalid())?;
        if count > 0.0 && pause <= MAX_PAUSE {
            Ok(Self { pause })
        } else {
            Err(format!("the minimum is one request in {} s", MAX_PAUSE.as_secs()))
        }
    }
}

/// The schedule of one host.
#[derive(Debug)]
pub(super) struct HostSchedule {
    pause: Duration,
    ready_at: Option<Instant>,
}

impl HostSchedule {
    pub(super) const fn new(rate: RequestRate) -> Self {
        Self { pause: rate.pause, ready_at: None }
    }

    /// Applies the pause that the host requests; it can only lengthen the configured one.
    pub(super) fn set_min_pause(&mut self, pause: Duration) {
        if pause > self.pause {
            if let Some(ready) = &mut self.ready_at {
                *ready += pause - self.pause;
            }
            self.pause = pause;
        }
    }

    /// Returns when the next request may be sent.
    pub(super) const fn ready_at(&self) -> Option<Instant> {
        self.ready_at
    }

    /// Records the end of a response or the failure of a request.
    pub(super) fn on_response(&mut self, now: Instant) {
        self.delay_until(now + self.pause);
    }

    /// Records that the host requested a back-off.
    pub(super) fn back_off(&mut self, now: Instant, duration: Duration) {
        self.delay_until(now + duration.min(MAX_PAUSE).max(self.pause));
    }

    fn delay_until(&mut self, until: Instant) {
        self.ready_at = Some(self.ready_at.map_or(until, |ready| ready.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, millis) in
            [("1/s", 1000), ("20/s", 50), ("30/min", 2000), ("0.5 / s", 2000), ("100/h", 36_000)]
        {
            assert_eq!(text.parse::<RequestRate>().unwrap().pause().as_millis(), millis, "{text}");
        }
        for text in ["1", "0/s", "-1/s", "x/s", "1/day", "nan/s", "1/h"] {
            assert!(text.parse::<RequestRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_pause_starts_at_the_end_of_a_response() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut schedule = HostSchedule::new("1/s".parse().unwrap());
        assert_eq!(schedule.ready_at(), None);
        schedule.on_response(at(10));
        assert_eq!(schedule.ready_at(), Some(at(11)));
        // That response was its robots.txt, which requests five seconds.
        schedule.set_min_pause(Duration::from_secs(5));
        assert_eq!(schedule.ready_at(), Some(at(15)));
        schedule.set_min_pause(Duration::from_secs(2));
        schedule.on_response(at(15));
        assert_eq!(schedule.ready_at(), Some(at(20)));
        schedule.back_off(at(20), Duration::from_secs(60));
        schedule.on_response(at(20));
        assert_eq!(schedule.ready_at(), Some(at(80)));
        schedule.back_off(at(80), Duration::from_secs(1_000_000));
        assert_eq!(schedule.ready_at(), Some(at(680)));
    }
}
