//! Whether more in flight gives more: beside others a larger part of the queue is a larger share, alone it is only a longer queue.

use super::SharedRound;

/// A rate that is higher by this factor has grown.
const MIN_RATE_GROWTH: f64 = 1.05;
/// What is in flight may double without a rate that has grown.
const MAX_UNREWARDED_GROWTH: f64 = 2.0;

/// The highest rate so far, and what was in flight when it was reached.
#[derive(Debug, Default)]
pub(super) struct RateGrowth {
    rate: f64,
    in_flight: f64,
    last_rate: f64,
}

impl RateGrowth {
    /// Notes a round. Of two rounds the lesser rate counts.
    pub(super) fn on_round(&mut self, round: &SharedRound) {
        let rate = round.rate.min(self.last_rate);
        self.last_rate = round.rate;
        if rate > self.rate * MIN_RATE_GROWTH {
            (self.rate, self.in_flight) = (rate, round.countable_in_flight());
        }
    }

    /// Returns whether so much may be in flight: less than twice what was when the rate last grew.
    pub(super) fn allows(&self, in_flight: f64) -> bool {
        in_flight < self.in_flight * MAX_UNREWARDED_GROWTH
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use smig_proto::Instant;

    use super::*;

    fn round(rate: f64, in_flight: f64) -> SharedRound {
        let (base, rtt) = (Duration::from_millis(10), Duration::from_millis(500));
        let (now, threshold) = (Instant::from_nanos(0), base);
        SharedRound { now, base, rtt, threshold, rate, in_flight, mss: 1_000 }
    }

    #[test]
    fn what_is_in_flight_doubles_only_while_the_rate_grows() {
        let mut growth = RateGrowth::default();
        let mut most = 10_000.0;
        // Alone: the rate is the path's, whatever is in flight.
        for _ in 0..100 {
            growth.on_round(&round(16_000.0, most));
            most *= if growth.allows(most) { 1.125 } else { 1.0 };
        }
        assert!((20_000.0..30_000.0).contains(&most), "{most}");
        // Beside others: a part of what is in the queue.
        let (mut growth, mut most) = (RateGrowth::default(), 10_000.0);
        for _ in 0..24 {
            growth.on_round(&round(most, most));
            most *= if growth.allows(most) { 1.125 } else { 1.0 };
        }
        assert!(most > 150_000.0, "{most}");
    }
}
