//! What may be in flight beside others while the path's rate is unknown.
//!
//! Others filled the queue to about what it was when bulk came. What is more, bulk adds; but what others have added since is no
//! reason to have less.

use std::time::Duration;

use super::flat_rtt::FlatRtt;
use super::growth::RateGrowth;
use super::{SharedRound, SharingStart};

/// The round trip may become that much longer than it was.
const MAX_QUEUE_GROWTH: u32 = 2;
/// Where it has become longer still, what is in flight may grow by this factor each round, as long as the rate does too: the
/// tests show what the path carries only if they change enough.
const QUEUED_GROWTH: f64 = 1.125;
/// The same where the round trip does not change and nothing is lost: there may be no queue at all, but a path that is longer than it
/// was.
const FLAT_GROWTH: f64 = 2.0;
/// That is so for this many rounds, with so many packets in flight: what fewer add to a round trip passes for jitter.
const MIN_FLAT_ROUNDS: u32 = 2;
const MIN_FLAT_PACKETS: f64 = 24.0;
/// A queue that is measured only after bulk came contains bulk's packets: only this part of it counts, so that it may become longer by a
/// quarter.
const OTHERS_PART: f64 = 0.625;

#[derive(Debug)]
pub(super) struct InFlightLimit {
    /// The queue to which others fill it, and whether that is measured.
    first_queue: Duration,
    is_measured: bool,
    most: f64,
    growth: RateGrowth,
}

impl InFlightLimit {
    pub(super) fn new(start: &SharingStart) -> Self {
        Self {
            first_queue: start.queue,
            is_measured: start.is_queue_measured,
            most: f64::INFINITY,
            growth: RateGrowth::default(),
        }
    }

    /// Returns bytes.
    pub(super) const fn value(&self) -> f64 {
        self.most
    }

    /// Returns whether the queue is much longer than others filled it.
    pub(super) fn is_exceeded(&self, round: &SharedRound) -> bool {
        round.rtt > self.longest_rtt(round)
    }

    fn longest_rtt(&self, round: &SharedRound) -> Duration {
        (round.base + self.first_queue) * MAX_QUEUE_GROWTH
    }

    /// Ends a round in which bulk might have `bound` in flight. What a test lowers shows nothing.
    pub(super) fn on_round(
        &mut self,
        round: &SharedRound,
        is_tested: bool,
        bound: f64,
        flat: &FlatRtt,
    ) {
        if round.rate > 0.0 {
            self.limit(round, is_tested, bound, flat);
        }
        if round.is_rtt_measured && !self.is_measured {
            self.first_queue = self.first_queue.max(round.queue().mul_f64(OTHERS_PART));
            self.is_measured = true;
        }
    }

    fn limit(&mut self, round: &SharedRound, is_tested: bool, bound: f64, flat: &FlatRtt) {
        if !is_tested {
            self.growth.on_round(round);
        }
        let in_flight = round.countable(round.in_flight);
        if !self.is_exceeded(round) && !is_tested {
            self.most = round.rate * self.longest_rtt(round).as_secs_f64();
        } else if self.most == f64::INFINITY {
            self.most = in_flight;
        } else if round.in_flight > bound / 2.0 && !is_tested && self.growth.allows(self.most) {
            // In a queue that others make longer, as many bytes would be an ever smaller share.
            let is_flat = flat.rounds() >= MIN_FLAT_ROUNDS
                && !round.has_losses
                && round.in_flight > MIN_FLAT_PACKETS * f64::from(round.mss);
            self.most *= if is_flat { FLAT_GROWTH } else { QUEUED_GROWTH };
        }
    }
}
