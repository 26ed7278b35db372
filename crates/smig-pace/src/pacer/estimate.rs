//! How the estimate of the path's rate follows measurements, while nothing suggests that others fill its queue.

use std::time::Duration;

use smig_proto::Instant;

use super::crowding::FIRST_TEST;
use super::{FAST_ROUNDS, MAX_PACED_BYTES_PER_S, Pacer, PacerState, STARTUP_GAIN, Startup};
use crate::sample::RateSample;
use crate::sharing::{AloneRate, Experience};

/// The estimate follows half of the difference to a measurement, and falls at most to a quarter of itself in a round
/// trip.
pub(super) const ESTIMATE_GAIN: f64 = 0.5;
const MIN_ROUND_RATIO: f64 = 0.25;
/// While it is not known who fills the queue, the estimate falls at most to this part of the highest rate.
const MIN_CROWDED_SHARE: f64 = 0.06;
/// The least in flight, as a share of the bandwidth-delay product, with which what is measured is the path's rate.
const MIN_FILL: f64 = 0.6;

/// Base round trips in which bulk may send what was confirmed before: then its own deliveries are known. A queue that this
/// has filled may last for so many.
const CONFIRMED_RTTS: u32 = 2;
const CONFIRMED_QUEUE_RTTS: u32 = 4;

impl Startup {
    pub(super) fn new(now: Instant, initial: f64, confirmed_rate: f64) -> Self {
        let rate = initial * STARTUP_GAIN;
        let confirmed_rate = (confirmed_rate > rate).then_some(confirmed_rate);
        Self { began_at: now, confirmed_rate, rate, fast_rounds: 0 }
    }

    /// Returns the rate of bulk, after a measurement of the path.
    pub(super) fn pacing_rate(&mut self, now: Instant, base: Duration, delivered_rate: f64) -> f64 {
        if self.is_too_fast() {
            return f64::INFINITY;
        }
        // More may be a burst of acknowledgements.
        let delivered_rate = delivered_rate.min(MAX_PACED_BYTES_PER_S);
        self.rate = self.rate.max(delivered_rate * STARTUP_GAIN);
        let is_new = now < self.began_at + base * CONFIRMED_RTTS;
        self.confirmed_rate.filter(|_| is_new).map_or(self.rate, |rate| rate.max(self.rate))
    }

    pub(super) const fn is_too_fast(&self) -> bool {
        self.fast_rounds >= FAST_ROUNDS
    }

    fn end_round(&mut self, delivered_rate: f64) {
        let is_fast = delivered_rate > MAX_PACED_BYTES_PER_S;
        self.fast_rounds = if is_fast { self.fast_rounds + 1 } else { 0 };
    }

    /// Returns whether a queue may be bulk's own although it is longer than startup alone can make it.
    fn may_fill_queue(&self, now: Instant, base: Duration) -> bool {
        self.confirmed_rate.is_some() && now < self.began_at + base * CONFIRMED_QUEUE_RTTS
    }
}

impl Pacer {
    pub(super) fn update_startup(
        &mut self,
        now: Instant,
        sample: &RateSample,
        queue: Duration,
        is_round_end: bool,
    ) {
        let PacerState::Startup(startup) = &mut self.state else { return };
        if startup.is_too_fast() {
            // Whatever its queue.
            return;
        }
        let base = self.base.value();
        let Some(rate) = self.delivery.rate(base) else { return };
        self.delivered_rate = rate as f64;
        if is_round_end {
            startup.end_round(self.delivered_rate);
        }
        let may_fill_queue = startup.may_fill_queue(now, base);
        if self.delivered_rate > MAX_PACED_BYTES_PER_S {
            return;
        }
        if rate == 0 {
            // Nothing of this bulk has arrived: the smoothed round trip is that of earlier data, perhaps in a queue.
            return;
        }
        let threshold = self.threshold(sample);
        // Windows that double arrive in bursts, which queue for a moment before the path is full.
        let shortest = self.round.min_rtt.map_or(queue, |rtt| rtt.saturating_sub(base));
        let is_full = queue > threshold + base / 16 || (is_round_end && shortest > threshold);
        if !is_full {
            self.path_rate = self.path_rate.max(self.delivered_rate);
            return;
        }
        self.path_rate = self.delivered_rate;
        if queue > threshold + base && !may_fill_queue {
            // More than bulk alone can have queued.
            self.start_sharing(now, sample, queue, FIRST_TEST[0], Experience::default());
            return;
        }
        self.state = PacerState::Bounded;
        self.doubt_startup(sample.retransmitted);
        self.alone = AloneRate::new(now);
        if queue <= threshold + base / 2 {
            self.alone.update(now, self.delivered_rate);
        }
    }

    pub(super) fn update_bounded(
        &mut self,
        now: Instant,
        sample: &RateSample,
        queue: Duration,
        is_round_end: bool,
    ) {
        let base = self.base.value();
        // The last round trip alone shows growth; a longer time is steadier.
        let window = if self.free_rounds > 2 { base } else { (base * 3 / 2).max(base + queue) };
        let Some(rate) = self.delivery.rate(window) else { return };
        self.delivered_rate = rate as f64;
        // What was delivered is possible. Less than the estimate shows nothing without a queue: the application may have
        // sent less.
        self.path_rate += (self.delivered_rate - self.path_rate).max(0.0) * ESTIMATE_GAIN;
        let is_lossy = self.noise.is_lossy();
        if queue > self.threshold(sample) || is_lossy {
            self.free_rounds = 0;
            if self.delivered_rate < self.path_rate && self.fills_path() {
                self.path_rate += (self.delivered_rate - self.path_rate) * ESTIMATE_GAIN;
                self.path_rate = self.path_rate.max(self.round.path_rate * MIN_ROUND_RATIO);
                if self.crowded_rounds >= 2 {
                    // Where others may be the cause: BBR forgets its own estimate if it is held lower.
                    self.path_rate = self.path_rate.max(self.alone.value() * MIN_CROWDED_SHARE);
                }
            }
        } else {
            if is_round_end {
                self.crowded_rounds = self.crowded_rounds.saturating_sub(1);
                self.free_rounds += 1;
            }
        }
        if self.crowded_rounds == 0 && !self.is_suspicious(now) {
            self.alone.update(now, self.path_rate.min(self.delivered_rate));
        }
    }

    /// Returns whether bulk had about a bandwidth-delay product in flight when what was acknowledged last was sent, and
    /// since. If congestion control sends less on its own, as BBR does in PROBE_RTT and loss recovery does, delayed ACKs
    /// look like a queue.
    fn fills_path(&self) -> bool {
        let in_flight = self.round.min_in_flight.min(self.round.last_min_in_flight);
        in_flight as f64 >= self.path_rate * self.base.value().as_secs_f64() * MIN_FILL
    }
}
