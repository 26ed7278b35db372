//! What the estimate makes of the bounds: the queue that bulk keeps, the bound in flight, and the rate that steers to it.

use std::time::Duration;

use smig_proto::Instant;

use super::{Pacer, PacerState, seconds};
use crate::sample::RateSample;

/// The queue that bulk keeps: packets, time, and a part of the round-trip time.
pub(super) const TARGET_QUEUE_PACKETS: f64 = 3.0;
const MIN_TARGET_QUEUE: Duration = Duration::from_millis(2);
const TARGET_QUEUE_DIVISOR: u32 = 24;
/// More of it for each unit by which the rate changes from round to round, and at most this part of the round trip.
const VARIATION_GAIN: f64 = 0.6;
const MAX_VARIATION: f64 = 0.2;
/// After a round without a queue the bound exceeds the estimate by 1/32, after each further one by twice as much, up to
/// a half.
const MIN_GROWTH: f64 = 1.0 / 32.0;
const MAX_GROWTH_DOUBLINGS: u32 = 4;
/// The rate moves what is in flight to its bound within a round trip if there is too little, within half of one if
/// there is too much; never by more than these factors of the path's rate.
const FILL_GAIN: f64 = 1.0;
const DRAIN_GAIN: f64 = 2.0;
const MAX_FILL: f64 = 1.5;
const MAX_DRAIN_DIVISOR: f64 = 8.0;
/// In flight, in units of the bandwidth-delay product, while the round-trip time without a queue is measured again.
const PROBE_GAIN: f64 = 0.85;
/// Bulk's part of its rate while losses show that the path has no queue.
const LOSSY_GAIN: f64 = 0.97;
/// The lowest bound, in packets: with fewer, the path cannot be measured.
const MIN_IN_FLIGHT_PACKETS: f64 = 4.0;
/// While bulk tests at half of its rate, two packets a round trip are the least with a round trip that includes the queue, up to this
/// one: half a megabit a second.
const MIN_TEST_RTT: Duration = Duration::from_millis(50);
/// Time after which a process that runs on time knows what has arrived: its timer, and its checks.
const CHECK_TIME: Duration = Duration::from_millis(5);

impl Pacer {
    /// The queue that bulk keeps, as time: it must not run empty when the rate rises.
    pub(super) fn target_queue(&self, mss: u32) -> Duration {
        let base = self.base.value();
        // A small share of a fast path must not pass for a slow path.
        let rate = self.path_rate.max(self.alone.value() / 2.0).max(1.0);
        let packets = seconds(TARGET_QUEUE_PACKETS * f64::from(mss) / rate);
        let least = packets.max(MIN_TARGET_QUEUE).min(base).max(base / TARGET_QUEUE_DIVISOR);
        let variation = (VARIATION_GAIN * self.noise.rate_change()).min(MAX_VARIATION);
        let packet = seconds(f64::from(mss) / rate);
        least + base.mul_f64(variation) + self.noise.jitter(base, packet).min(base / 2)
    }

    /// The queue above which the delivery rate is the path's rate.
    pub(super) fn threshold(&self, sample: &RateSample) -> Duration {
        let noise = match self.state {
            // The kernel's deviation starts as a guess.
            PacerState::Startup(_) => Duration::ZERO,
            PacerState::Bounded | PacerState::Sharing(_) => sample.rtt_deviation,
        };
        self.target_queue(sample.mss) * 3 / 2 + noise.min(self.base.value() / 2)
    }

    /// Returns the lateness that the bounds allow for: none of a process that is not late.
    pub(super) fn counted_lateness(&self) -> Duration {
        if self.is_late { self.lateness } else { Duration::ZERO }
    }

    pub(super) fn set_bounds(&mut self, now: Instant, sample: &RateSample, queue: Duration) {
        let base = self.base.value();
        let late = self.counted_lateness();
        match &mut self.state {
            PacerState::Startup(startup) => {
                self.pacing_rate = startup.pacing_rate(now, base, self.delivered_rate);
            }
            PacerState::Bounded => self.bound(now, sample, queue),
            PacerState::Sharing(sharing) => {
                // A late process has that much less of what it knows to be in flight.
                let time = base + late;
                (self.pacing_rate, self.max_in_flight) =
                    sharing.bounds(now, time, &self.alone, &self.alone_probe);
            }
        }
        let least = MIN_IN_FLIGHT_PACKETS * f64::from(sample.mss);
        self.max_in_flight = self.max_in_flight.max(least);
        // A test at half of the rate is none if that is more than a slow path carries.
        let is_testing =
            matches!(&self.state, PacerState::Sharing(sharing) if sharing.is_testing());
        let round_trip = if is_testing { base.max(MIN_TEST_RTT).min(base + queue) } else { base };
        self.pacing_rate = self.pacing_rate.max(least / 2.0 / round_trip.as_secs_f64());
    }

    fn bound(&mut self, now: Instant, sample: &RateSample, queue: Duration) {
        let base = self.base.value().as_secs_f64();
        let growth = self.growth(sample, queue);
        let time = base + self.target_queue(sample.mss).as_secs_f64();
        let aggregation = self.noise.aggregation(sample.mss) / 2.0;
        let mut on_time =
            self.path_rate * time * (1.0 + growth) + aggregation.min(self.path_rate * base / 4.0);
        if self.queue_owner.is_asking() || self.base.is_probe_due(now) {
            on_time = on_time.min(self.path_rate * base * PROBE_GAIN);
        }
        // The rate steers towards that. The bound is a little above: the owner learns of arrivals late, and what is written
        // ahead is not sent sooner.
        let late = (self.counted_lateness() + CHECK_TIME).as_secs_f64();
        self.max_in_flight = on_time + self.path_rate * late;
        let room = on_time - sample.in_flight as f64;
        let gain = if room < 0.0 { DRAIN_GAIN } else { FILL_GAIN };
        let cap = self.path_rate * (1.0 + growth) + gain * room / base;
        let cap = cap.clamp(self.path_rate / MAX_DRAIN_DIVISOR, self.path_rate * MAX_FILL);
        self.pacing_rate =
            if self.noise.is_lossy() { cap.min(self.path_rate * LOSSY_GAIN) } else { cap };
    }

    /// The part by which the bound exceeds the estimate, to find out whether the path carries more: while the queue is
    /// shorter than bulk keeps it, which it is not where the estimate is right.
    fn growth(&self, sample: &RateSample, queue: Duration) -> f64 {
        if self.free_rounds == 0 || self.noise.is_lossy() {
            return 0.0;
        }
        let doublings = (self.free_rounds - 1).min(MAX_GROWTH_DOUBLINGS);
        let target = self.target_queue(sample.mss).as_secs_f64();
        let headroom = (target - queue.as_secs_f64()) / (target / 2.0);
        MIN_GROWTH * f64::from(1 << doublings) * headroom.clamp(0.0, 1.0)
    }
}
