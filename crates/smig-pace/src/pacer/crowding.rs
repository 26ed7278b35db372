//! Whether others fill the queue: when bulk begins to share the path with them, and when it ends.

use std::time::Duration;

use smig_proto::Instant;

use super::estimate::ESTIMATE_GAIN;
use super::limits::TARGET_QUEUE_PACKETS;
use super::{Pacer, PacerState, seconds};
use crate::base_rtt::BaseRtt;
use crate::sample::RateSample;
use crate::sharing::{Experience, SharedRound, Sharing, SharingStart, Verdict};

/// Number of rounds with a queue, although bulk yields, less those without one, after which others are taken to fill it. For
/// [`SUSPICION_TIME`] after others have left, one such round is enough.
const CROWDED_ROUNDS: u32 = 8;
/// A round whose least in flight is at least this part of that of the round before yields no further.
const STEADY_IN_FLIGHT: f64 = 0.9;
const SUSPICION_TIME: Duration = Duration::from_secs(5);
/// Time until the first test of who fills the queue: if it was full at startup, and if it filled later.
pub(super) const FIRST_TEST: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

impl Pacer {
    pub(super) fn update_sharing(
        &mut self,
        now: Instant,
        sample: &RateSample,
        rtt: Duration,
        is_round_end: bool,
    ) {
        if let Some(rate) = self.delivery.rate(rtt) {
            self.delivered_rate = rate as f64;
            self.path_rate += (self.delivered_rate - self.path_rate) * ESTIMATE_GAIN / 2.0;
        }
        if !is_round_end {
            return;
        }
        let measured = self.round.min_measured_rtt;
        let retransmitted = self.round.retransmitted.unwrap_or(sample.retransmitted);
        let round = SharedRound {
            now,
            base: self.base.value(),
            // The smoothed one of the round's end: of a new connection the first is that of the handshake.
            rtt: measured.unwrap_or(sample.rtt).max(sample.min_rtt),
            is_rtt_measured: measured.is_some(),
            threshold: self.threshold(sample),
            rate: self.delivered_rate,
            in_flight: sample.all_in_flight() as f64,
            has_losses: sample.retransmitted > retransmitted,
            mss: sample.mss,
        };
        let PacerState::Sharing(sharing) = &mut self.state else { return };
        match sharing.on_round(&round, &mut self.alone, &mut self.alone_probe) {
            Verdict::Share => {}
            Verdict::Alone { were_others } => {
                self.others_left_at = were_others.then_some(now);
                self.stop_sharing();
            }
            Verdict::LongerPath(rtt) => {
                self.base = BaseRtt::new(now, rtt);
                self.stop_sharing();
            }
        }
    }

    pub(super) fn start_sharing(
        &mut self,
        now: Instant,
        sample: &RateSample,
        queue: Duration,
        first_test: Duration,
        experience: Experience,
    ) {
        let start = SharingStart {
            now,
            queue,
            is_queue_measured: self.round.min_measured_rtt.is_some(),
            rate: self.delivered_rate,
            in_flight: sample.all_in_flight() as f64,
        };
        let sharing = Sharing::new(start, first_test, experience);
        self.state = PacerState::Sharing(Box::new(sharing));
        self.crowded_rounds = 0;
        self.alone_probe.begin_sharing(now);
        self.queue_owner.stop_asking();
    }

    fn stop_sharing(&mut self) {
        self.state = PacerState::Bounded;
        self.path_rate = self.path_rate.max(self.delivered_rate);
        self.free_rounds = 0;
        self.crowded_rounds = 0;
    }

    /// Others were there a short time ago.
    pub(super) fn is_suspicious(&self, now: Instant) -> bool {
        let left_at = self.others_left_at;
        left_at.is_some_and(|at| now.saturating_duration_since(at) < SUSPICION_TIME)
    }

    /// Notes a queue that does not shrink although bulk keeps its bound and its estimate does not fall any more: others
    /// feed it, and nothing is gained if bulk alone yields.
    pub(super) fn note_crowded(
        &mut self,
        now: Instant,
        sample: &RateSample,
        queue: Duration,
        shortest: Duration,
    ) {
        let base = self.base.value();
        let before = self.noise.last_rtt().map_or(Duration::ZERO, |rtt| rtt.saturating_sub(base));
        let rate = self.alone.value().max(self.path_rate).max(1.0);
        let packets = seconds(2.0 * TARGET_QUEUE_PACKETS * f64::from(sample.mss) / rate);
        let is_long =
            shortest > packets.max(base / 8) + self.target_queue(sample.mss).min(base / 4);
        let in_flight = sample.in_flight as f64;
        // What goes beyond the bound, times a long round trip, may be several times the bound: then bulk yields if it has stopped
        // having less in flight.
        let (least, before_least) = (self.round.min_in_flight, self.round.last_min_in_flight);
        let yields = in_flight <= self.max_in_flight.max(self.round.max_in_flight) * 1.2
            || in_flight < self.alone.value() * base.as_secs_f64() * 0.75
            || least as f64 >= before_least as f64 * STEADY_IN_FLIGHT;
        let is_falling = self.path_rate < self.round.path_rate * 0.6;
        let is_shrinking = shortest * 4 <= before * 3;
        if is_long && yields && !is_falling && !is_shrinking {
            self.crowded_rounds += 1;
        }
        let limit = if self.is_suspicious(now) { 1 } else { CROWDED_ROUNDS };
        if self.crowded_rounds >= limit {
            self.start_sharing(now, sample, queue, FIRST_TEST[1], Experience::default());
        }
    }
}
