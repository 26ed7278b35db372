//! What bounds bulk: keeps the path full and its queue short.
//!
//! Congestion control fills the bottleneck's queue to find the path's rate. Interactive responses of the same
//! session then wait in that queue. This module bounds bulk below what congestion control would take: bytes in flight
//! (the path's rate times its round-trip time without a queue, and a queue of a few packets, more where the
//! rate varies) and a rate that keeps them there. It can only lower what congestion control sends. No I/O: the driver
//! measures, and keeps the bounds.

use std::time::Duration;

use smig_proto::Instant;

use super::base_rtt::BaseRtt;
use super::bounds::Bounds;
use super::delivery_rate::DeliveryRate;
use super::path_noise::PathNoise;
use super::sample::RateSample;
use super::sharing::{AloneRate, SharedRound, Sharing, Verdict};

/// Bytes that a new connection sends in its first round trip.
const INITIAL_WINDOW_BYTES: u64 = 10 * 1448;
/// Paths with a shorter round trip, or with a higher rate than `MAX_PACED_BYTES_PER_S`, have no queue that a person
/// notices: they are not paced.
pub const MIN_PACED_RTT: Duration = Duration::from_millis(2);
/// A longer round trip is an error of measurement.
const MAX_MIN_RTT: Duration = Duration::from_secs(10);
const MAX_PACED_BYTES_PER_S: f64 = 125e6;
/// Samples per round trip, and the shortest interval between two.
const SAMPLES_PER_RTT: u32 = 8;
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// During startup, the cap in units of the delivery rate: more than a doubling per round trip.
const STARTUP_GAIN: f64 = 2.5;
/// The queue that bulk keeps: packets, time, and a part of the round-trip time.
const TARGET_QUEUE_PACKETS: f64 = 3.0;
const MIN_TARGET_QUEUE: Duration = Duration::from_millis(2);
const TARGET_QUEUE_DIVISOR: u32 = 24;
/// More of it for each unit by which the rate changes from round to round, and at most this part of the round trip.
const VARIATION_GAIN: f64 = 0.6;
const MAX_VARIATION: f64 = 0.2;
/// After a round without a queue the bound exceeds the estimate by 1/32, after each further one by twice as much, up to
/// a half.
const MIN_GROWTH: f64 = 1.0 / 32.0;
const MAX_GROWTH_DOUBLINGS: u32 = 4;
/// The estimate follows half of the difference to a measurement, and falls at most to a quarter of itself in a round
/// trip.
const ESTIMATE_GAIN: f64 = 0.5;
const MIN_ROUND_RATIO: f64 = 0.25;
/// While it is not known who fills the queue, the estimate falls at most to this part of the highest rate.
const MIN_CROWDED_SHARE: f64 = 0.06;
/// The rate moves what is in flight to its bound within a round trip if there is too little, within a quarter of one if
/// there is too much; never by more than these factors of the path's rate.
const FILL_GAIN: f64 = 1.0;
const DRAIN_GAIN: f64 = 4.0;
const MAX_FILL: f64 = 1.5;
const MAX_DRAIN_DIVISOR: f64 = 8.0;
/// In flight, in units of the bandwidth-delay product, while the round-trip time without a queue is measured again.
const PROBE_GAIN: f64 = 0.85;
/// Bulk's part of its rate while losses show that the path has no queue.
const LOSSY_GAIN: f64 = 0.97;
/// In flight, in units of the bandwidth-delay product, with which the path shows its rate.
const MIN_FILL: f64 = 0.6;
/// The lowest bound, in packets: with fewer, the path cannot be measured.
const MIN_IN_FLIGHT_PACKETS: f64 = 4.0;
/// A round ends after this number of round-trip times even if what was sent at its beginning is not acknowledged.
const MAX_ROUND_RTTS: u32 = 3;
/// Number of rounds with a queue, although bulk yields, after which others are taken to fill it. For
/// [`SUSPICION_TIME`] after others have left, one such round is enough.
const CROWDED_ROUNDS: u32 = 8;
const SUSPICION_TIME: Duration = Duration::from_secs(5);
/// Time until the first test of who fills the queue: if it was full at startup, and if it filled later.
const FIRST_TEST: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// Time after which a process that runs on time knows what has arrived: its timer, and its checks.
const CHECK_TIME: Duration = Duration::from_millis(5);
/// Beyond that, the bounds allow for lateness of the process from this on.
const MIN_LATENESS: Duration = Duration::from_millis(10);
/// They allow for no more than this: a process that was stopped for long is not one that is always late.
const MAX_LATENESS: Duration = Duration::from_millis(200);

/// Measures one path, and sets the bounds of bulk on it.
#[derive(Debug)]
pub struct Pacer {
    base: BaseRtt,
    delivery: DeliveryRate,
    noise: PathNoise,
    alone: AloneRate,
    state: PacerState,
    /// Estimate of the path's rate, and the latest measurement, bytes per second.
    capacity: f64,
    rate: f64,
    /// Infinite is no limit.
    cap: f64,
    max_in_flight: f64,
    next_sample: Instant,
    is_idle: bool,
    round: Round,
    /// Consecutive rounds without a queue, and rounds with one although bulk yields.
    free_rounds: u32,
    crowded_rounds: u32,
    /// When others left.
    others_left_at: Option<Instant>,
    /// By how much the process recently ran too late.
    lateness: Duration,
}

#[derive(Debug)]
enum PacerState {
    /// The path's rate is not known.
    Startup,
    /// It is known, and bulk is bounded by it.
    Bounded,
    /// Others fill the queue.
    Sharing(Sharing),
}

/// A round trip, which ends when what was sent at its beginning has left the path.
#[derive(Debug)]
struct Round {
    start: Instant,
    end: u64,
    min_rtt: Option<Duration>,
    /// The least in flight, and that of the round before, in bytes.
    min_in_flight: u64,
    last_min_in_flight: u64,
    /// The bound in flight and the capacity at its beginning.
    max_in_flight: f64,
    capacity: f64,
}

impl Pacer {
    /// Starts pacing, for bulk on a path with this minimum round-trip time.
    pub fn new(now: Instant, min_rtt: Duration) -> Self {
        let min_rtt = min_rtt.clamp(MIN_PACED_RTT, MAX_MIN_RTT);
        let initial = INITIAL_WINDOW_BYTES as f64 / min_rtt.as_secs_f64();
        Self {
            base: BaseRtt::new(now, min_rtt),
            delivery: DeliveryRate::default(),
            noise: PathNoise::default(),
            alone: AloneRate::new(now),
            state: PacerState::Startup,
            capacity: initial,
            rate: 0.0,
            cap: initial * STARTUP_GAIN,
            max_in_flight: f64::INFINITY,
            next_sample: now,
            is_idle: true,
            round: Round {
                start: now,
                end: 0,
                min_rtt: None,
                min_in_flight: u64::MAX,
                last_min_in_flight: u64::MAX,
                max_in_flight: f64::INFINITY,
                capacity: 0.0,
            },
            free_rounds: 0,
            crowded_rounds: 0,
            others_left_at: None,
            lateness: Duration::ZERO,
        }
    }

    /// Returns what bounds all bulk of the session together.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            rate: bounded(self.cap),
            max_in_flight: bounded(self.max_in_flight),
            write_ahead: (self.capacity * self.counted_lateness().as_secs_f64()) as u64,
            path_rate: bounded(self.capacity),
        }
    }

    /// Returns the estimate of the path's rate, bytes per second.
    pub const fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Returns whether a sample is due.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next_sample
    }

    /// Returns when a sample is due; `None` while nothing is sent.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_idle).then_some(self.next_sample)
    }

    /// Records that there is no bulk to send: the time until there is does not measure the path.
    pub fn on_idle(&mut self, now: Instant) {
        self.schedule_sample(now);
        self.is_idle = true;
        self.delivery.clear();
    }

    fn schedule_sample(&mut self, now: Instant) {
        self.next_sample = now + (self.base.value() / SAMPLES_PER_RTT).max(MIN_SAMPLE_INTERVAL);
    }

    /// Takes a sample and updates the bounds.
    pub fn on_sample(&mut self, now: Instant, sample: RateSample) {
        if !self.is_idle {
            let late = now.saturating_duration_since(self.next_sample);
            self.lateness = late.max(self.lateness * 31 / 32).min(MAX_LATENESS);
        }
        self.schedule_sample(now);
        self.is_idle = false;
        self.delivery.on_sample(now, sample.acknowledged, sample.sent, sample.mss);
        self.noise.on_sample(now, &sample, self.capacity);
        let rtt = self.round_trip(&sample);
        let is_sharing = matches!(self.state, PacerState::Sharing(_));
        self.base.update(now, rtt, !is_sharing);
        self.round.min_rtt = Some(self.round.min_rtt.map_or(rtt, |min| min.min(rtt)));
        self.round.min_in_flight = self.round.min_in_flight.min(sample.in_flight);
        let queue = rtt.saturating_sub(self.base.value());
        let elapsed = now.saturating_duration_since(self.round.start);
        let is_round_end = sample.acknowledged >= self.round.end
            || elapsed >= rtt.max(sample.rtt) * MAX_ROUND_RTTS;
        match &mut self.state {
            PacerState::Startup => self.update_startup(now, &sample, queue, is_round_end),
            PacerState::Bounded => self.update_bounded(now, &sample, queue, is_round_end),
            PacerState::Sharing(sharing) => {
                sharing.on_queue(queue);
                self.update_sharing(now, &sample, rtt, is_round_end);
            }
        }
        if is_round_end {
            self.end_round(now, &sample, queue);
        }
        self.set_bounds(now, &sample, queue);
        self.trace(now, &sample, queue);
    }

    fn trace(&self, now: Instant, sample: &RateSample, queue: Duration) {
        tracing::trace!(
            at = now.as_nanos() / 1_000_000,
            acked = sample.acknowledged,
            queue = queue.as_micros() as u64,
            base = self.base.value().as_micros() as u64,
            rate = (self.rate / 125.0) as u64,
            capacity = (self.capacity / 125.0) as u64,
            bounds = ?self.bounds(),
            state = ?self.state,
            "pace"
        );
    }

    /// Returns the latest round-trip time. The kernel's smoothed one lags when ACKs are few, and includes the time that
    /// ACKs were delayed on their way; its minimum is exact.
    fn round_trip(&self, sample: &RateSample) -> Duration {
        let window = match self.state {
            PacerState::Startup => MIN_SAMPLE_INTERVAL,
            PacerState::Bounded | PacerState::Sharing(_) => self.base.value() / 2,
        };
        let rtt = self.delivery.min_round_trip(window).unwrap_or(sample.rtt);
        rtt.max(sample.min_rtt).max(MIN_PACED_RTT)
    }

    /// The queue that bulk keeps, as time: it must not run empty when the rate rises.
    fn target_queue(&self, mss: u32) -> Duration {
        let base = self.base.value();
        // A small share of a fast path must not pass for a slow path.
        let rate = self.capacity.max(self.alone.value() / 2.0).max(1.0);
        let packets = seconds(TARGET_QUEUE_PACKETS * f64::from(mss) / rate);
        let least = packets.max(MIN_TARGET_QUEUE).min(base).max(base / TARGET_QUEUE_DIVISOR);
        let variation = (VARIATION_GAIN * self.noise.rate_change()).min(MAX_VARIATION);
        let packet = seconds(f64::from(mss) / rate);
        least + base.mul_f64(variation) + self.noise.jitter(base, packet).min(base / 2)
    }

    /// The queue above which the delivery rate is the path's rate.
    fn threshold(&self, sample: &RateSample) -> Duration {
        let noise = match self.state {
            // The kernel's deviation starts as a guess.
            PacerState::Startup => Duration::ZERO,
            PacerState::Bounded | PacerState::Sharing(_) => sample.rtt_deviation,
        };
        self.target_queue(sample.mss) * 3 / 2 + noise.min(self.base.value() / 2)
    }

    fn update_startup(
        &mut self,
        now: Instant,
        sample: &RateSample,
        queue: Duration,
        is_round_end: bool,
    ) {
        let base = self.base.value();
        let Some(rate) = self.delivery.rate(base) else { return };
        self.rate = rate as f64;
        let threshold = self.threshold(sample);
        // Windows that double arrive in bursts, which queue for a moment before the path is full.
        let shortest = self.round.min_rtt.map_or(queue, |rtt| rtt.saturating_sub(base));
        let is_full = queue > threshold + base / 16 || (is_round_end && shortest > threshold);
        if !is_full {
            self.capacity = self.capacity.max(self.rate);
            return;
        }
        self.capacity = self.rate;
        if queue > threshold + base {
            // More than bulk alone can have queued.
            self.start_sharing(now, queue, FIRST_TEST[0]);
            return;
        }
        self.state = PacerState::Bounded;
        self.alone = AloneRate::new(now);
        if queue <= threshold + base / 2 {
            self.alone.update(now, self.rate);
        }
    }

    fn update_bounded(
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
        self.rate = rate as f64;
        // What was delivered is possible. Less than the estimate shows nothing without a queue: the application may have
        // sent less.
        self.capacity += (self.rate - self.capacity).max(0.0) * ESTIMATE_GAIN;
        let is_lossy = self.noise.is_lossy();
        if queue > self.threshold(sample) || is_lossy {
            self.free_rounds = 0;
            if self.rate < self.capacity && self.fills_path() {
                self.capacity += (self.rate - self.capacity) * ESTIMATE_GAIN;
                self.capacity = self.capacity.max(self.round.capacity * MIN_ROUND_RATIO);
                if self.crowded_rounds >= 2 {
                    // Where others may be the cause: BBR forgets its own estimate if it is held lower.
                    self.capacity = self.capacity.max(self.alone.value() * MIN_CROWDED_SHARE);
                }
            }
        } else {
            if is_round_end {
                self.crowded_rounds = self.crowded_rounds.saturating_sub(1);
                self.free_rounds += 1;
            }
        }
        if self.crowded_rounds == 0 && !self.is_suspicious(now) {
            self.alone.update(now, self.capacity.min(self.rate));
        }
    }

    /// Returns whether bulk had about a bandwidth-delay product in flight when what was acknowledged last was sent, and
    /// since. If congestion control sends less on its own, as BBR does in PROBE_RTT and loss recovery does, delayed ACKs
    /// look like a queue.
    fn fills_path(&self) -> bool {
        let in_flight = self.round.min_in_flight.min(self.round.last_min_in_flight);
        in_flight as f64 >= self.capacity * self.base.value().as_secs_f64() * MIN_FILL
    }

    fn update_sharing(
        &mut self,
        now: Instant,
        sample: &RateSample,
        rtt: Duration,
        is_round_end: bool,
    ) {
        if let Some(rate) = self.delivery.rate(rtt) {
            self.rate = rate as f64;
            self.capacity += (self.rate - self.capacity) * ESTIMATE_GAIN / 2.0;
        }
        if !is_round_end {
            return;
        }
        let round = SharedRound {
            now,
            base: self.base.value(),
            rtt: self.round.min_rtt.unwrap_or(rtt),
            threshold: self.threshold(sample),
            rate: self.rate,
            in_flight: sample.in_flight as f64,
            mss: sample.mss,
        };
        let PacerState::Sharing(sharing) = &mut self.state else { return };
        match sharing.on_round(&round, &mut self.alone) {
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

    fn start_sharing(&mut self, now: Instant, queue: Duration, first_test: Duration) {
        self.state = PacerState::Sharing(Sharing::new(now, queue, first_test));
        self.crowded_rounds = 0;
    }

    fn stop_sharing(&mut self) {
        self.state = PacerState::Bounded;
        self.capacity = self.capacity.max(self.rate);
        self.free_rounds = 0;
        self.crowded_rounds = 0;
    }

    /// Others were there a short time ago.
    fn is_suspicious(&self, now: Instant) -> bool {
        let left_at = self.others_left_at;
        left_at.is_some_and(|at| now.saturating_duration_since(at) < SUSPICION_TIME)
    }

    fn end_round(&mut self, now: Instant, sample: &RateSample, queue: Duration) {
        if matches!(self.state, PacerState::Bounded) {
            self.note_crowded(now, sample, queue);
        }
        let is_alone = matches!(self.state, PacerState::Bounded);
        let rate = self.delivery.rate(self.base.value()).filter(|_| is_alone);
        self.noise.on_round(sample, self.round.min_rtt, rate.map(|rate| rate as f64));
        if let Some(rtt) = self.round.min_rtt.filter(|_| is_alone) {
            self.noise.on_queue(rtt.saturating_sub(self.base.value()), self.base.value());
        }
        self.round = Round {
            start: now,
            end: sample.sent,
            min_rtt: None,
            min_in_flight: u64::MAX,
            last_min_in_flight: self.round.min_in_flight,
            max_in_flight: self.max_in_flight,
            capacity: self.capacity,
        };
    }

    /// Notes a queue that does not shrink although bulk keeps its bound and its estimate does not fall any more: others
    /// feed it, and nothing is gained if bulk alone yields.
    fn note_crowded(&mut self, now: Instant, sample: &RateSample, queue: Duration) {
        let base = self.base.value();
        let shortest = self.round.min_rtt.map_or(queue, |rtt| rtt.saturating_sub(base));
        let before = self.noise.last_rtt().map_or(Duration::ZERO, |rtt| rtt.saturating_sub(base));
        let rate = self.alone.value().max(self.capacity).max(1.0);
        let packets = seconds(2.0 * TARGET_QUEUE_PACKETS * f64::from(sample.mss) / rate);
        let is_long =
            shortest > packets.max(base / 8) + self.target_queue(sample.mss).min(base / 4);
        let in_flight = sample.in_flight as f64;
        let yields = in_flight <= self.max_in_flight.max(self.round.max_in_flight) * 1.2
            || in_flight < self.alone.value() * base.as_secs_f64() * 0.75;
        let is_falling = self.capacity < self.round.capacity * 0.6;
        let is_shrinking = shortest * 4 <= before * 3;
        if is_long && yields && !is_falling && !is_shrinking {
            self.crowded_rounds += 1;
        }
        let limit = if self.is_suspicious(now) { 1 } else { CROWDED_ROUNDS };
        if self.crowded_rounds >= limit {
            self.start_sharing(now, queue, FIRST_TEST[1]);
        }
    }

    /// Returns the lateness that the bounds allow for: none below [`MIN_LATENESS`].
    fn counted_lateness(&self) -> Duration {
        if self.lateness < MIN_LATENESS { Duration::ZERO } else { self.lateness }
    }

    fn set_bounds(&mut self, now: Instant, sample: &RateSample, queue: Duration) {
        let base = self.base.value();
        match &self.state {
            PacerState::Startup if self.rate > MAX_PACED_BYTES_PER_S => {
                self.cap = f64::INFINITY;
            }
            PacerState::Startup => self.cap = self.cap.max(self.rate * STARTUP_GAIN),
            PacerState::Bounded => self.bound(now, sample, queue),
            PacerState::Sharing(sharing) => {
                (self.cap, self.max_in_flight) = sharing.bounds(now, base, &self.alone);
            }
        }
        let least = MIN_IN_FLIGHT_PACKETS * f64::from(sample.mss);
        self.max_in_flight = self.max_in_flight.max(least);
        self.cap = self.cap.max(least / 2.0 / base.as_secs_f64());
    }

    fn bound(&mut self, now: Instant, sample: &RateSample, queue: Duration) {
        let base = self.base.value().as_secs_f64();
        let growth = self.growth(sample, queue);
        let time = base + self.target_queue(sample.mss).as_secs_f64();
        let aggregation = self.noise.aggregation(sample.mss) / 2.0;
        let mut on_time =
            self.capacity * time * (1.0 + growth) + aggregation.min(self.capacity * base / 4.0);
        if self.base.is_probe_due(now) {
            on_time = on_time.min(self.capacity * base * PROBE_GAIN);
        }
        // The rate steers towards that. The bound is a little above: the owner learns of arrivals late, and what is written
        // ahead is not sent sooner.
        let late = (self.counted_lateness() + CHECK_TIME).as_secs_f64();
        self.max_in_flight = on_time + self.capacity * late;
        let room = on_time - sample.in_flight as f64;
        let gain = if room < 0.0 { DRAIN_GAIN } else { FILL_GAIN };
        let cap = self.capacity * (1.0 + growth) + gain * room / base;
        let cap = cap.clamp(self.capacity / MAX_DRAIN_DIVISOR, self.capacity * MAX_FILL);
        self.cap = if self.noise.is_lossy() { cap.min(self.capacity * LOSSY_GAIN) } else { cap };
    }

    /// The part by which the bound exceeds the estimate, to find out whether the path carries more.
    fn growth(&self, sample: &RateSample, queue: Duration) -> f64 {
        if self.free_rounds == 0 || self.noise.is_lossy() {
            return 0.0;
        }
        let doublings = (self.free_rounds - 1).min(MAX_GROWTH_DOUBLINGS);
        let threshold = self.threshold(sample).as_secs_f64();
        let headroom = (threshold - queue.as_secs_f64()) / (threshold / 2.0);
        MIN_GROWTH * f64::from(1 << doublings) * headroom.clamp(0.0, 1.0)
    }
}

/// Returns whole bytes; `u64::MAX` if there is no limit.
const fn bounded(value: f64) -> u64 {
    if value.is_finite() { value as u64 } else { u64::MAX }
}

/// Returns at most an hour.
fn seconds(value: f64) -> Duration {
    Duration::from_secs_f64(value.clamp(0.0, 3600.0))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
