//! What bounds bulk, as the session uses it.

use std::time::Duration;

use smig_pace::{Pacer, RateSample};
use smig_proto::Instant;

/// A limit on bulk; [`Pacer`] is the one that the driver uses.
pub trait BulkLimit {
    /// Returns whether a sample is due.
    fn is_due(&self, now: Instant) -> bool;
    /// Returns when a sample is due; `None` while nothing is sent.
    fn deadline(&self) -> Option<Instant>;
    /// Takes a sample.
    fn on_sample(&mut self, now: Instant, sample: RateSample);
    /// There is no bulk to send, and none in flight.
    fn on_idle(&mut self, now: Instant);
    /// Returns bytes per second; `u64::MAX` is no limit.
    fn cap(&self) -> u64;
    /// Returns the estimate of the path's rate, bytes per second.
    fn capacity(&self) -> u64;
    /// Returns bytes; `u64::MAX` is no limit.
    fn max_in_flight(&self) -> u64 {
        u64::MAX
    }
    /// Returns bytes that the socket may hold unsent, because the process may not run when they are due.
    fn write_ahead(&self) -> u64 {
        0
    }
}

impl BulkLimit for Pacer {
    fn is_due(&self, now: Instant) -> bool {
        Self::is_due(self, now)
    }

    fn deadline(&self) -> Option<Instant> {
        Self::deadline(self)
    }

    fn on_sample(&mut self, now: Instant, sample: RateSample) {
        Self::on_sample(self, now, sample);
    }

    fn on_idle(&mut self, now: Instant) {
        Self::on_idle(self, now);
    }

    fn cap(&self) -> u64 {
        Self::cap(self)
    }

    fn capacity(&self) -> u64 {
        Self::capacity(self)
    }

    fn max_in_flight(&self) -> u64 {
        Self::max_in_flight(self)
    }

    fn write_ahead(&self) -> u64 {
        Self::write_ahead(self)
    }
}

/// Makes the driver's limit.
#[must_use]
pub fn pacer(now: Instant, min_rtt: Duration) -> Pacer {
    Pacer::new(now, min_rtt)
}
