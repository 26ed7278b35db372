//! Whether more in flight gives more: beside others a larger part of the queue is a larger share, alone it is only a longer queue.

use super::SharedRound;

/// A rate that is higher by this factor has grown.
const MIN_RATE_GROWTH: f64 = 1.05;
/// One that is less than this part of the highest, with as much in flight, is another path's, or one beside others who have taken more.
const MIN_RATE_PART: f64 = 0.5;
/// How often that counts: a link whose rate varies so much would have a longer queue each time.
const MAX_LOSSES: u32 = 2;
/// What is in flight may grow while it is less than so many times that with which the rate last grew.
const MAX_UNREWARDED_GROWTH: f64 = 1.5;

/// The highest rate, and what was in flight when it was reached.
#[derive(Debug, Default)]
pub(super) struct RateGrowth {
    rate: f64,
    in_flight: f64,
    /// Of the two rounds before.
    last_rates: [f64; 2],
    /// How often the rate was lost.
    losses: u32,
}

impl RateGrowth {
    /// Notes a round. A rate has grown if two rounds have it, and is lost if three do not.
    pub(super) fn on_round(&mut self, round: &SharedRound) {
        let [last, before] = self.last_rates;
        self.last_rates = [round.rate, last];
        let in_flight = round.countable(round.in_flight);
        let (least, most) = (round.rate.min(last), round.rate.max(last).max(before));
        let is_lost = self.losses < MAX_LOSSES
            && most < self.rate * MIN_RATE_PART
            && in_flight >= self.in_flight;
        self.losses += u32::from(is_lost);
        if is_lost || least > self.rate * MIN_RATE_GROWTH {
            (self.rate, self.in_flight) = (least, in_flight);
        }
    }

    /// Returns whether what may be in flight may grow beyond this.
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
        SharedRound {
            now,
            base,
            rtt,
            is_rtt_measured: true,
            has_losses: false,
            threshold,
            rate,
            in_flight,
            mss: 1_000,
        }
    }

    #[test]
    fn what_is_in_flight_grows_only_while_the_rate_does() {
        let mut growth = RateGrowth::default();
        let mut most = 10_000.0;
        // Alone: the rate is the path's, whatever is in flight.
        for _ in 0..100 {
            growth.on_round(&round(16_000.0, most));
            most *= if growth.allows(most) { 1.125 } else { 1.0 };
        }
        assert!((15_000.0..20_000.0).contains(&most), "{most}");
        // Beside others: a part of what is in the queue.
        let (mut growth, mut most) = (RateGrowth::default(), 10_000.0);
        for _ in 0..24 {
            growth.on_round(&round(most, most));
            most *= if growth.allows(most) { 1.125 } else { 1.0 };
        }
        assert!(most > 150_000.0, "{most}");
    }

    #[test]
    fn a_rate_of_before_the_path_became_longer_does_not_count() {
        let mut growth = RateGrowth::default();
        for _ in 0..3 {
            growth.on_round(&round(160_000.0, 10_000.0));
        }
        assert!(!growth.allows(20_000.0));
        // As much in flight is less of a rate now.
        for _ in 0..4 {
            growth.on_round(&round(30_000.0, 20_000.0));
        }
        assert!(growth.allows(25_000.0));
        // What has less in flight has a lower rate on any path.
        for _ in 0..4 {
            growth.on_round(&round(10_000.0, 5_000.0));
        }
        assert!(growth.allows(25_000.0));
    }

    #[test]
    fn a_rate_that_falls_and_comes_back_again_and_again_does_not_grow() {
        let mut growth = RateGrowth::default();
        let mut most = 10_000.0;
        // Alone on a link whose rate falls to less than a half and back each eight rounds: without a limit 4.6 MB in the end.
        for number in 0..200 {
            let rate = if number / 8 % 2 == 0 { 100_000.0 } else { 40_000.0 };
            growth.on_round(&round(rate, most));
            most *= if growth.allows(most) { 1.125 } else { 1.0 };
        }
        assert!(most < 160_000.0, "{most}");
    }
}
