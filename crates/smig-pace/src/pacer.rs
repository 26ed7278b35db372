//! Pacing of bulk connections: keeps the path full and its queue short.
//!
//! Congestion control fills the bottleneck's queue to find the path's rate. Interactive responses of the same
//! session then wait in that queue. This module limits the rate of bulk (SO_MAX_PACING_RATE) below what
//! congestion control would take: near the delivery rate while round trips show a queue, slightly above it
//! while they show none. It can only lower the rate of congestion control. No I/O: the driver measures, and
//! sets the limit.

use std::time::Duration;

use smig_proto::Instant;

use super::delivery_rate::DeliveryRate;

/// Bytes that a new connection sends in its first round trip.
const INITIAL_WINDOW_BYTES: u64 = 10 * 1448;
/// Paths with a shorter round trip, or with a higher rate than the second constant, have no queue that a person
/// notices: they are not paced.
pub const MIN_PACED_RTT: Duration = Duration::from_millis(2);
const MAX_PACED_BYTES_PER_S: u64 = 125_000_000;
/// Samples per round trip, and the shortest interval between two.
const SAMPLES_PER_RTT: u32 = 8;
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// During startup, the cap in units of the delivery rate: more than a doubling per round trip.
const STARTUP_GAIN: (u64, u64) = (5, 2);
/// Shortest queue that counts as one, in packets: below that is the granularity of ACKs.
const MIN_QUEUE_PACKETS: u64 = 4;
/// Shortest delay that counts as a queue.
const MIN_QUEUE_DELAY: Duration = Duration::from_millis(3);
/// How far the cap exceeds the capacity, as fractions (1/32 and so on), by the number of consecutive round
/// trips in which the path delivered all that was sent.
const INCREASE_DIVISORS: [u64; 6] = [32, 32, 16, 8, 4, 2];
/// The capacity estimate grows by this fraction (1/128) in each round trip without a queue.
const DRIFT_DIVISOR: u64 = 128;
/// Round trips with a queue that does not shrink, although bulk yields, before a probe of which flows cause it;
/// and the longest probe in round trips.
const MAX_CROWDED_RTTS: u32 = 4;
const MAX_PROBE_RTTS: u32 = 3;
/// How long bulk then competes under congestion control alone: at first, and at most.
const MIN_SHARING_TIME: Duration = Duration::from_secs(5);
const MAX_SHARING_TIME: Duration = Duration::from_secs(40);

/// A measurement of a session's sockets.
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes acknowledged on all connections since any fixed time.
    pub acknowledged: u64,
    /// Bytes sent on all connections since the same time.
    pub sent: u64,
    /// The smoothed round-trip time of bulk, used while there is no sample of a round trip.
    pub rtt: Duration,
    /// Bytes of bulk in flight.
    pub in_flight: u64,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
    /// The minimum round-trip time of all connections.
    pub min_rtt: Duration,
    /// Bytes per packet.
    pub mss: u32,
}

/// The limit of the rate of bulk on one path.
#[derive(Debug)]
pub struct Pacer {
    min_rtt: Duration,
    delivery: DeliveryRate,
    /// Estimate of the path's rate, bytes per second.
    capacity: u64,
    /// The current limit; `u64::MAX` is none.
    cap: u64,
    /// The limit at the beginning of the previous round trip, and of this one.
    round_caps: [u64; 2],
    state: PacerState,
    next_sample: Instant,
    is_idle: bool,
    /// When this round trip began, and in how many consecutive ones the path delivered what the cap allowed.
    round_start: Instant,
    full_rounds: usize,
    crowded_rounds: u32,
    last_queue: Duration,
    /// The delay up to which there was no queue, as of the time when the present queue appeared.
    held_threshold: Option<Duration>,
    sharing_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacerState {
    /// The path's rate is not known.
    Starting,
    /// It is known.
    Steady,
    /// Bulk sends at half of its rate. If the queue drains, bulk itself had caused it.
    Probing { until: Instant, queue: Duration },
    /// Other flows fill the queue: bulk competes under its congestion control.
    Sharing { until: Instant, queue: Duration },
}

impl Pacer {
    /// Starts pacing, for bulk on a path with this minimum round-trip time.
    pub fn new(now: Instant, min_rtt: Duration) -> Self {
        let micros = u64::try_from(min_rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        let initial_cap = (2 * INITIAL_WINDOW_BYTES).saturating_mul(1_000_000) / micros;
        Self {
            min_rtt,
            delivery: DeliveryRate::default(),
            capacity: initial_cap / 2,
            cap: initial_cap,
            round_caps: [initial_cap; 2],
            state: PacerState::Starting,
            next_sample: now,
            is_idle: true,
            round_start: now,
            full_rounds: 0,
            crowded_rounds: 0,
            last_queue: Duration::ZERO,
            held_threshold: None,
            sharing_time: MIN_SHARING_TIME,
        }
    }

    /// Returns bytes per second that all bulk connections together may send; `u64::MAX` is no limit.
    pub const fn cap(&self) -> u64 {
        self.cap
    }

    /// Returns the estimate of the path's rate, bytes per second.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns whether a sample is due.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next_sample
    }

    /// Returns when a sample is due; `None` while nothing is sent.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_idle).then_some(self.next_sample)
    }

    /// Records that no bulk is in flight: the time until it sends again does not measure the path.
    pub fn on_idle(&mut self, now: Instant) {
        self.schedule_sample(now);
        self.is_idle = true;
        self.delivery.clear();
    }

    fn schedule_sample(&mut self, now: Instant) {
        self.next_sample = now + (self.min_rtt / SAMPLES_PER_RTT).max(MIN_SAMPLE_INTERVAL);
    }

    /// Takes a sample and updates the cap.
    pub fn on_sample(&mut self, now: Instant, sample: RateSample) {
        self.schedule_sample(now);
        self.is_idle = false;
        self.min_rtt = sample.min_rtt.max(MIN_PACED_RTT);
        self.delivery.on_sample(now, sample.acknowledged, sample.sent);
        // The kernel's smoothed RTT lags when ACKs are few, and includes the time that ACKs were delayed on
        // their way.
        let window =
            if self.state == PacerState::Starting { MIN_SAMPLE_INTERVAL } else { self.min_rtt / 2 };
        let rtt = self.delivery.min_round_trip(window);
        let sample =
            RateSample { rtt: rtt.map_or(sample.rtt, |rtt| rtt.max(self.min_rtt)), ..sample };
        let new_round = now.saturating_duration_since(self.round_start) >= sample.rtt;
        if new_round {
            self.round_start = now;
        }
        match self.state {
            PacerState::Starting => self.update_starting(now, sample),
            PacerState::Steady => self.update_steady(now, sample, new_round),
            PacerState::Probing { until, queue } => self.update_probing(now, sample, until, queue),
            PacerState::Sharing { until, queue } => self.update_sharing(now, sample, until, queue),
        }
        self.cap = self.cap.max(self.min_cap(sample.mss));
        if new_round {
            self.round_caps = [self.round_caps[1], self.cap];
        }
        tracing::trace!(
            at = now.as_nanos() / 1_000_000,
            acked = sample.acknowledged,
            rtt = sample.rtt.as_micros() as u64,
            dev = sample.rtt_deviation.as_micros() as u64,
            base = sample.min_rtt.as_micros() as u64,
            rate = self.delivery.rate(self.min_rtt).unwrap_or(0) / 125,
            capacity = self.capacity / 125,
            cap = self.cap / 125,
            state = ?self.state,
            full_rounds = self.full_rounds,
            "pace"
        );
    }

    /// Returns the queueing delay, and the delay up to which it counts as no queue.
    fn queueing_delay(&self, sample: RateSample) -> (Duration, Duration) {
        let queue = sample.rtt.saturating_sub(self.min_rtt);
        let micros = u64::from(sample.mss) * MIN_QUEUE_PACKETS * 1_000_000 / self.capacity.max(1);
        let min_threshold = MIN_QUEUE_DELAY.max(self.min_rtt / 16);
        let noise = match self.state {
            // The kernel's deviation starts as a guess.
            PacerState::Starting => Duration::ZERO,
            _ => sample.rtt_deviation * 2,
        };
        // At most a round trip: a small share of a fast path must not pass for a slow path.
        (queue, (Duration::from_micros(micros) + noise).min(self.min_rtt).max(min_threshold))
    }

    /// Returns the lowest cap: a few packets per round trip. With fewer, the path cannot be measured.
    fn min_cap(&self, mss: u32) -> u64 {
        u64::from(mss) * MIN_QUEUE_PACKETS * 1_000_000 / (self.min_rtt.as_micros() as u64).max(1)
    }

    fn update_starting(&mut self, now: Instant, sample: RateSample) {
        let Some(rate) = self.delivery.rate(self.min_rtt) else { return };
        self.capacity = self.capacity.max(rate);
        let (queue, threshold) = self.queueing_delay(sample);
        if queue > threshold + self.min_rtt / 2 {
            // More than bulk alone can have queued.
            self.start_probe(now, sample);
        } else if queue > threshold {
            self.state = PacerState::Steady;
            self.capacity = rate;
            self.cap = rate;
        } else if rate > MAX_PACED_BYTES_PER_S {
            self.cap = u64::MAX;
        } else {
            self.cap = self.cap.max(rate * STARTUP_GAIN.0 / STARTUP_GAIN.1);
        }
    }

    fn update_steady(&mut self, now: Instant, sample: RateSample, new_round: bool) {
        // The last round trip alone shows growth; the mean of two is steadier.
        let window = if self.full_rounds > 2 { self.min_rtt } else { self.min_rtt * 2 };
        let Some(rate) = self.delivery.rate(window) else { return };
        // What is delivered now was sent a round trip ago. It may have been less than the cap allowed.
        let sent_rate =
            self.delivery.send_rate(window, sample.rtt).unwrap_or(u64::MAX).min(self.round_caps[0]);
        let (queue, threshold) = self.queueing_delay(sample);
        // A rate that falls while there is a queue must not raise the threshold.
        let threshold = self.held_threshold.map_or(threshold, |held| threshold.min(held));
        if queue > threshold && !self.fills_path(sample) {
            // Congestion control sends less on its own, as BBR does in PROBE_RTT: delayed ACKs then look
            // like a queue.
            self.cap = self.capacity;
            return;
        }
        if queue > threshold {
            self.held_threshold = Some(threshold);
            self.full_rounds = 0;
            // A path that delivers less than is sent shows its rate. One that delivers all of it does not, and
            // the queue may be that of other flows.
            if rate < sent_rate / 32 * 31 {
                let fell = rate < self.capacity / 8 * 7;
                self.capacity = if fell { rate } else { mean(self.capacity, rate) };
            }
            self.drain_queue(sample, threshold);
            if new_round {
                self.probe_if_crowded(now, sample, queue, threshold);
            }
            return;
        }
        self.held_threshold = None;
        self.crowded_rounds = 0;
        if rate > self.capacity {
            self.capacity = mean(self.capacity, rate);
        }
        if new_round {
            // What is delivered now was sent under the cap of one or two round trips ago.
            let delivered_all = rate >= self.round_caps[0] / 8 * 7;
            if self.capacity < rate * 2 {
                self.capacity += self.capacity / DRIFT_DIVISOR;
            }
            self.full_rounds = if delivered_all {
                (self.full_rounds + 1).min(INCREASE_DIVISORS.len() - 1)
            } else {
                0
            };
        }
        let divisor = INCREASE_DIVISORS[self.full_rounds];
        let headroom = (threshold - queue).min(threshold / 2);
        self.cap = self.capacity + scale(self.capacity / divisor, headroom, threshold / 2);
    }

    /// Returns whether bulk has about a bandwidth-delay product in flight (three quarters or more).
    fn fills_path(&self, sample: RateSample) -> bool {
        sample.in_flight >= scale(self.capacity / 4 * 3, self.min_rtt, Duration::from_secs(1))
    }

    /// Lowers the cap by what is in flight beyond the bandwidth-delay product: it is queued, or will be.
    /// Unlike the measured delay, this includes what was sent since.
    fn drain_queue(&mut self, sample: RateSample, threshold: Duration) {
        let micros = sample.in_flight.saturating_mul(1_000_000) / self.capacity.max(1);
        let excess = Duration::from_micros(micros).saturating_sub(self.min_rtt + threshold / 2);
        let drain = scale(self.capacity, excess, self.min_rtt * 2);
        self.cap = self.capacity - drain.min(self.capacity / 2);
    }

    /// Starts a probe if a queue does not shrink although bulk sends less than the path delivers: other flows may
    /// feed it, and nothing is gained if bulk alone yields.
    fn probe_if_crowded(
        &mut self,
        now: Instant,
        sample: RateSample,
        queue: Duration,
        threshold: Duration,
    ) {
        let reduction = self.capacity.saturating_sub(self.cap).saturating_mul(1000);
        let reduction_permille = u32::try_from(reduction / self.capacity.max(1)).unwrap_or(0);
        let is_shrinking = queue + self.min_rtt * reduction_permille / 3000 < self.last_queue;
        self.last_queue = queue;
        if queue < threshold + self.min_rtt / 8 {
            self.crowded_rounds = 0;
        } else if is_shrinking {
            self.crowded_rounds = self.crowded_rounds.saturating_sub(2);
        } else {
            self.crowded_rounds += 1;
        }
        if self.crowded_rounds >= MAX_CROWDED_RTTS {
            self.start_probe(now, sample);
        }
    }

    /// Starts a probe of which flows cause the queue.
    fn start_probe(&mut self, now: Instant, sample: RateSample) {
        self.capacity = self.delivery.rate(sample.rtt).unwrap_or(self.capacity);
        self.cap = self.capacity / 2;
        let queue = sample.rtt.saturating_sub(self.min_rtt);
        self.state = PacerState::Probing { until: now + sample.rtt * MAX_PROBE_RTTS, queue };
        self.held_threshold = None;
        self.crowded_rounds = 0;
    }

    /// Competes until the next probe is due, or until the queue becomes so long that bulk must have fed it.
    fn update_sharing(
        &mut self,
        now: Instant,
        sample: RateSample,
        until: Instant,
        queue_before: Duration,
    ) {
        self.capacity = self.delivery.rate(sample.rtt).unwrap_or(self.capacity);
        let queue = sample.rtt.saturating_sub(self.min_rtt);
        if now >= until || queue > queue_before * 2 + self.min_rtt {
            self.start_probe(now, sample);
        }
    }

    /// Evaluates a probe. Half of the rate for some round trips drains a queue that bulk alone feeds; where other
    /// flows feed it too, it drains at most bulk's half.
    fn update_probing(
        &mut self,
        now: Instant,
        sample: RateSample,
        until: Instant,
        queue_before: Duration,
    ) {
        let queue = sample.rtt.saturating_sub(self.min_rtt);
        if queue <= MIN_QUEUE_DELAY.max(self.min_rtt / 4).max(queue_before / 4) {
            self.state = PacerState::Steady;
            self.sharing_time = MIN_SHARING_TIME;
            self.cap = self.capacity;
        } else if now >= until {
            let rate = self.delivery.rate(sample.rtt * 3 / 2).unwrap_or(0);
            if rate.abs_diff(self.cap) > self.cap / 4 {
                // More is delivered than is sent: the queue is draining. Less: the path itself has become slower.
                self.start_probe(now, sample);
                return;
            }
            self.state = PacerState::Sharing { until: now + self.sharing_time, queue };
            self.sharing_time = (self.sharing_time * 2).min(MAX_SHARING_TIME);
            self.cap = u64::MAX;
        }
    }
}

/// Returns the share `part` / `whole` of a rate.
fn scale(rate: u64, part: Duration, whole: Duration) -> u64 {
    let part = u128::from(rate) * part.as_nanos() / whole.as_nanos().max(1);
    u64::try_from(part).unwrap_or(u64::MAX)
}

fn mean(a: u64, b: u64) -> u64 {
    a / 2 + b / 2
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
