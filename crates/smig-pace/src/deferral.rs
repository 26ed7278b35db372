//! How long bulk yields to what an interactive connection has just sent.
//!
//! The bytes of a small response occupy the path for some time. For that time bulk sends at the path's rate
//! divided by [`DEFERRED_RATE_DIVISOR`]: the path stays full, and its queue hardly grows. No I/O, no clock.

use std::time::Duration;

use smig_proto::Instant;

/// While bulk defers, it gets the path's rate divided by this.
pub const DEFERRED_RATE_DIVISOR: u64 = 4;

/// How long bulk yields to interactive bytes that occupy the path.
#[derive(Debug)]
pub struct BulkDeferral {
    /// Upper bound on the remaining deferral.
    max_deferral: Duration,
    until: Option<Instant>,
}

impl BulkDeferral {
    /// Creates a deferral that lasts `max` at most; zero disables it.
    pub const fn new(max: Duration) -> Self {
        Self { max_deferral: max, until: None }
    }

    /// Extends the deferral: interactive connections sent `bytes` bytes on a path that carries `rate` bytes per second.
    pub fn on_interactive(&mut self, now: Instant, bytes: u64, rate: u64) {
        if bytes == 0 || rate == 0 {
            return;
        }
        let micros = bytes.saturating_mul(1_000_000) / rate;
        let begin = self.until.map_or(now, |until| until.max(now));
        let until = begin + Duration::from_micros(micros);
        self.until = Some(until.min(now + self.max_deferral));
    }

    /// Returns whether bulk yields now.
    pub fn is_active(&mut self, now: Instant) -> bool {
        self.until = self.until.filter(|&until| until > now);
        self.until.is_some()
    }

    /// Ends the deferral, because there is no bulk connection.
    pub fn cancel(&mut self) {
        self.until = None;
    }

    /// Returns when the deferral ends.
    pub const fn deadline(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_BYTES_PER_S: u64 = 1_000_000;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn bulk_is_deferred_for_the_transmission_time_of_the_response() {
        let mut deferral = BulkDeferral::new(Duration::from_millis(25));
        assert!(!deferral.is_active(at(0)));
        deferral.on_interactive(at(10), 10_000, RATE_BYTES_PER_S);
        assert_eq!(deferral.deadline(), Some(at(20)));
        assert!(deferral.is_active(at(19)));
        assert!(!deferral.is_active(at(20)));
        assert_eq!(deferral.deadline(), None);
    }

    #[test]
    fn two_responses_defer_for_the_sum_of_their_times_up_to_the_maximum() {
        let mut deferral = BulkDeferral::new(Duration::from_millis(25));
        deferral.on_interactive(at(0), 10_000, RATE_BYTES_PER_S);
        deferral.on_interactive(at(5), 10_000, RATE_BYTES_PER_S);
        assert_eq!(deferral.deadline(), Some(at(20)));
        deferral.on_interactive(at(6), 1_000_000, RATE_BYTES_PER_S);
        assert_eq!(deferral.deadline(), Some(at(31)));
        deferral.cancel();
        assert!(!deferral.is_active(at(7)));
    }

    #[test]
    fn bulk_is_not_deferred_without_bytes_without_a_rate_or_when_disabled() {
        let mut deferral = BulkDeferral::new(Duration::from_millis(25));
        deferral.on_interactive(at(0), 0, RATE_BYTES_PER_S);
        deferral.on_interactive(at(0), 10_000, 0);
        assert!(!deferral.is_active(at(0)));
        let mut disabled = BulkDeferral::new(Duration::ZERO);
        disabled.on_interactive(at(0), 10_000, RATE_BYTES_PER_S);
        assert!(!disabled.is_active(at(0)));
    }
}
