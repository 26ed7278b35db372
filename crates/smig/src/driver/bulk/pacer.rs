//! Pacing of bulk connections: keeps the path full and its queue short.
//!
//! Congestion control fills the bottleneck's queue to find the path's rate. Interactive responses of the same
//! session then wait in that queue. This module limits the rate of bulk (SO_MAX_PACING_RATE) below what
//! congestion control would take: near the delivery rate while round trips show a queue, slightly above it
//! while they show none. It can only lower the rate of congestion control. Pure: the driver measures and
//! sets.

use std::time::Duration;

use smig_proto::Instant;

use super::delivery_rate::DeliveryRate;

/// Bytes that a new connection sends in its first round trip.
const INITIAL_WINDOW: u64 = 10 * 1448;
/// Paths with a shorter round trip, or faster than this many bytes per second, have no queue that a person
/// notices: they are not paced.
pub(in crate::driver) const MIN_PACED_RTT: Duration = Duration::from_millis(2);
const MAX_PACED_RATE: u64 = 125_000_000;
/// Readings per round trip, and the shortest interval between two.
const READINGS_PER_RTT: u32 = 8;
const MIN_READING_INTERVAL: Duration = Duration::from_millis(5);
/// During startup, the cap in units of the delivery rate: more than a doubling per round trip.
const STARTUP_GAIN: (u64, u64) = (5, 2);
/// Packets from which on a queue counts as one: below is the granularity of ACKs.
const MIN_QUEUE_PACKETS: u64 = 4;
/// Shortest delay that counts as a queue.
const MIN_QUEUE_DELAY: Duration = Duration::from_millis(3);
/// How far above the measured rate it probes, by the number of consecutive round trips in which the path
/// delivered all that it was given: 1/32 and so on.
const PROBE_DIVISORS: [u64; 6] = [32, 32, 16, 8, 4, 2];
/// The capacity estimate grows by this fraction (1/128) in each round trip without a queue.
const DRIFT_DIVISOR: u64 = 128;
/// Round trips with a queue that does not shrink, although bulk yields, before a trial of whose queue it is;
/// and the longest trial in round trips.
const MAX_CROWDED_RTTS: u32 = 4;
const MAX_PROBE_RTTS: u32 = 3;
/// How long bulk then competes under congestion control alone: at first, and at most.
const SHARING_TIME: Duration = Duration::from_secs(5);
const MAX_SHARING_TIME: Duration = Duration::from_secs(40);

/// A measurement of a session's sockets.
#[derive(Clone, Copy, Debug)]
pub(in crate::driver) struct RateSample {
    /// Bytes acknowledged on all connections since any fixed moment.
    pub(in crate::driver) acknowledged: u64,
    /// Bytes sent on all connections since the same moment.
    pub(in crate::driver) sent: u64,
    /// The smoothed round-trip time of bulk, used while [`DeliveryRate`] has no sample.
    pub(in crate::driver) rtt: Duration,
    /// Bytes of bulk in flight.
    pub(in crate::driver) in_flight: u64,
    /// Mean deviation of the round-trip time.
    pub(in crate::driver) deviation: Duration,
    /// The minimum round-trip time of all connections.
    pub(in crate::driver) base: Duration,
    /// Bytes per packet.
    pub(in crate::driver) packet: u32,
}

#[derive(Debug)]
pub(in crate::driver) struct Pacer {
    base: Duration,
    delivery: DeliveryRate,
    /// Estimate of the path's rate, bytes per second.
    capacity: u64,
    /// The current limit; `u64::MAX` is none.
    cap: u64,
    /// The limit at the beginning of the previous round trip, and of this one.
    caps: [u64; 2],
    state: PacerState,
    next: Instant,
    silent: bool,
    /// When this round trip began, and in how many consecutive ones the path delivered what the cap allowed.
    round: Instant,
    tracked: usize,
    crowded: u32,
    last_queue: Duration,
    /// The threshold below which delay was no queue when the present queue appeared.
    held_grain: Option<Duration>,
    sharing: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacerState {
    /// The path's rate is not known.
    Starting,
    /// It is known.
    Steady,
    /// Bulk sends at half of its rate, to see whether the queue drains: then it was its own.
    Probing { until: Instant, queue: Duration },
    /// Others fill the queue: bulk competes under its congestion control.
    Sharing { until: Instant, queue: Duration },
}

impl Pacer {
    /// Starts pacing, for bulk on a path with this minimum round-trip time.
    pub(in crate::driver) fn begin(now: Instant, base: Duration) -> Self {
        let micros = u64::try_from(base.as_micros()).unwrap_or(u64::MAX).max(1);
        let first = (2 * INITIAL_WINDOW).saturating_mul(1_000_000) / micros;
        Self {
            base,
            delivery: DeliveryRate::default(),
            capacity: first / 2,
            cap: first,
            caps: [first; 2],
            state: PacerState::Starting,
            next: now,
            silent: true,
            round: now,
            tracked: 0,
            crowded: 0,
            last_queue: Duration::ZERO,
            held_grain: None,
            sharing: SHARING_TIME,
        }
    }

    /// Returns bytes per second that all bulk connections together may send; `u64::MAX` is no limit.
    pub(in crate::driver) const fn cap(&self) -> u64 {
        self.cap
    }

    /// Returns the estimate of the path's rate, bytes per second.
    pub(in crate::driver) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns whether a reading is due.
    pub(in crate::driver) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Returns when a reading is due; `None` while nothing is sent.
    pub(in crate::driver) fn deadline(&self) -> Option<Instant> {
        (!self.silent).then_some(self.next)
    }

    /// Handles that no bulk is in flight: the time until it sends again does not measure the path.
    pub(in crate::driver) fn on_silence(&mut self, now: Instant) {
        self.plan(now);
        self.silent = true;
        self.delivery.forget();
    }

    fn plan(&mut self, now: Instant) {
        self.next = now + (self.base / READINGS_PER_RTT).max(MIN_READING_INTERVAL);
    }

    /// Takes a reading and updates the cap.
    pub(in crate::driver) fn on_reading(&mut self, now: Instant, reading: RateSample) {
        self.plan(now);
        self.silent = false;
        self.base = reading.base.max(MIN_PACED_RTT);
        self.delivery.on_reading(now, reading.acknowledged, reading.sent);
        // The kernel's smoothed RTT lags when ACKs are few, and includes the time that ACKs were delayed on
        // their way.
        let window =
            if self.state == PacerState::Starting { MIN_READING_INTERVAL } else { self.base / 2 };
        let rtt = self.delivery.round_trip(window);
        let reading =
            RateSample { rtt: rtt.map_or(reading.rtt, |rtt| rtt.max(self.base)), ..reading };
        let new_round = now.saturating_duration_since(self.round) >= reading.rtt;
        if new_round {
            self.round = now;
        }
        match self.state {
            PacerState::Starting => self.start(now, reading),
            PacerState::Steady => self.steer(now, reading, new_round),
            PacerState::Probing { until, queue } => self.conclude(now, reading, until, queue),
            PacerState::Sharing { until, queue } => self.share(now, reading, until, queue),
        }
        self.cap = self.cap.max(self.least(reading.packet));
        if new_round {
            self.caps = [self.caps[1], self.cap];
        }
        tracing::trace!(
            at = now.as_nanos() / 1_000_000,
            acked = reading.acknowledged,
            rtt = reading.rtt.as_micros() as u64,
            dev = reading.deviation.as_micros() as u64,
            base = reading.base.as_micros() as u64,
            rate = self.delivery.rate(self.base).unwrap_or(0) / 125,
            capacity = self.capacity / 125,
            cap = self.cap / 125,
            state = ?self.state,
            tracked = self.tracked,
            "pace"
        );
    }

    /// Returns the queueing delay, and the delay up to which it counts as no queue.
    fn queue(&self, reading: RateSample) -> (Duration, Duration) {
        let queue = reading.rtt.saturating_sub(self.base);
        let micros =
            u64::from(reading.packet) * MIN_QUEUE_PACKETS * 1_000_000 / self.capacity.max(1);
        let least = MIN_QUEUE_DELAY.max(self.base / 16);
        let noise = match self.state {
            // The kernel's deviation starts as a guess.
            PacerState::Starting => Duration::ZERO,
            _ => reading.deviation * 2,
        };
        // At most a round trip: a small share of a fast path must not pass for a slow path.
        (queue, (Duration::from_micros(micros) + noise).min(self.base).max(least))
    }

    /// Returns the lowest cap: a few packets per round trip. Fewer say nothing about the path.
    fn least(&self, packet: u32) -> u64 {
        u64::from(packet) * MIN_QUEUE_PACKETS * 1_000_000 / (self.base.as_micros() as u64).max(1)
    }

    fn start(&mut self, now: Instant, reading: RateSample) {
        let Some(rate) = self.delivery.rate(self.base) else { return };
        let first = self.cap.min(self.capacity * 2);
        self.capacity = self.capacity.max(rate);
        let (queue, grain) = self.queue(reading);
        if queue > grain + self.base / 2 {
            // More than bulk itself can have queued.
            self.try_queue(now, reading);
        } else if queue > grain {
            self.state = PacerState::Steady;
            self.capacity = rate;
            self.cap = rate;
        } else if rate > MAX_PACED_RATE {
            self.cap = u64::MAX;
        } else {
            self.cap = self.cap.max(first).max(rate * STARTUP_GAIN.0 / STARTUP_GAIN.1);
        }
    }

    fn steer(&mut self, now: Instant, reading: RateSample, new_round: bool) {
        // The last round trip alone shows growth; the mean of two is steadier.
        let window = if self.tracked > 2 { self.base } else { self.base * 2 };
        let Some(rate) = self.delivery.rate(window) else { return };
        // What is delivered now was sent a round trip ago. It may have been less than the cap allowed.
        let given = self.delivery.sent(window, reading.rtt).unwrap_or(u64::MAX).min(self.caps[0]);
        let (queue, grain) = self.queue(reading);
        // A rate that falls while there is a queue must not raise the threshold.
        let grain = self.held_grain.map_or(grain, |held| grain.min(held));
        if queue > grain && !self.fills(reading) {
            // Congestion control sends less on its own, as BBR does in PROBE_RTT: delayed ACKs then look
            // like a queue.
            self.cap = self.capacity;
            return;
        }
        if queue > grain {
            self.held_grain = Some(grain);
            self.tracked = 0;
            // A path that delivers less than it is given shows its rate. One that delivers all of it does not,
            // and the queue may be that of other flows.
            if rate < given / 32 * 31 {
                let fell = rate < self.capacity / 8 * 7;
                self.capacity = if fell { rate } else { mean(self.capacity, rate) };
            }
            self.drain(reading, grain);
            if new_round {
                self.look_for_others(now, reading, queue, grain);
            }
            return;
        }
        self.held_grain = None;
        self.crowded = 0;
        if rate > self.capacity {
            self.capacity = mean(self.capacity, rate);
        }
        if new_round {
            // What is delivered now was sent under the cap of one or two round trips ago.
            let took_all = rate >= self.caps[0] / 8 * 7;
            if self.capacity < rate * 2 {
                self.capacity += self.capacity / DRIFT_DIVISOR;
            }
            self.tracked =
                if took_all { (self.tracked + 1).min(PROBE_DIVISORS.len() - 1) } else { 0 };
        }
        let part = PROBE_DIVISORS[self.tracked];
        let room = (grain - queue).min(grain / 2);
        self.cap = self.capacity + scale(self.capacity / part, room, grain / 2);
    }

    /// Returns whether bulk has about a bandwidth-delay product in flight (three quarters or more).
    fn fills(&self, reading: RateSample) -> bool {
        reading.in_flight >= scale(self.capacity / 4 * 3, self.base, Duration::from_secs(1))
    }

    /// Lowers the cap by what is in flight beyond the bandwidth-delay product: it stands in a queue, or will.
    /// Unlike the measured delay, this includes what was sent since.
    fn drain(&mut self, reading: RateSample, grain: Duration) {
        let micros = reading.in_flight.saturating_mul(1_000_000) / self.capacity.max(1);
        let excess = Duration::from_micros(micros).saturating_sub(self.base + grain / 2);
        let drain = scale(self.capacity, excess, self.base * 2);
        self.cap = self.capacity - drain.min(self.capacity / 2);
    }

    /// Starts a trial if a queue does not shrink although bulk sends less than the path delivers: others may feed
    /// it, and nothing is gained if bulk alone yields.
    fn look_for_others(
        &mut self,
        now: Instant,
        reading: RateSample,
        queue: Duration,
        grain: Duration,
    ) {
        let part = self.capacity.saturating_sub(self.cap).saturating_mul(1000);
        let part = u32::try_from(part / self.capacity.max(1)).unwrap_or(0);
        let shrinks = queue + self.base * part / 3000 < self.last_queue;
        self.last_queue = queue;
        if queue < grain + self.base / 8 {
            self.crowded = 0;
        } else if shrinks {
            self.crowded = self.crowded.saturating_sub(2);
        } else {
            self.crowded += 1;
        }
        if self.crowded >= MAX_CROWDED_RTTS {
            self.try_queue(now, reading);
        }
    }

    /// Starts a trial of whose queue it is.
    fn try_queue(&mut self, now: Instant, reading: RateSample) {
        self.capacity = self.delivery.rate(reading.rtt).unwrap_or(self.capacity);
        self.cap = self.capacity / 2;
        let queue = reading.rtt.saturating_sub(self.base);
        self.state = PacerState::Probing { until: now + reading.rtt * MAX_PROBE_RTTS, queue };
        self.held_grain = None;
        self.crowded = 0;
    }

    /// Competes until the next trial is due, or until the queue becomes so long that bulk must have fed it.
    fn share(&mut self, now: Instant, reading: RateSample, until: Instant, before: Duration) {
        self.capacity = self.delivery.rate(reading.rtt).unwrap_or(self.capacity);
        let queue = reading.rtt.saturating_sub(self.base);
        if now >= until || queue > before * 2 + self.base {
            self.try_queue(now, reading);
        }
    }

    /// Concludes a trial. Half of the rate for some round trips drains a queue that is bulk's own; of a queue that
    /// others feed it drains bulk's half at most.
    fn conclude(&mut self, now: Instant, reading: RateSample, until: Instant, before: Duration) {
        let queue = reading.rtt.saturating_sub(self.base);
        if queue <= MIN_QUEUE_DELAY.max(self.base / 4).max(before / 4) {
            self.state = PacerState::Steady;
            self.sharing = SHARING_TIME;
            self.cap = self.capacity;
        } else if now >= until {
            let rate = self.delivery.rate(reading.rtt * 3 / 2).unwrap_or(0);
            if rate.abs_diff(self.cap) > self.cap / 4 {
                // More is delivered than is sent: the queue is draining. Less: the path itself has become slower.
                self.try_queue(now, reading);
                return;
            }
            self.state = PacerState::Sharing { until: now + self.sharing, queue };
            self.sharing = (self.sharing * 2).min(MAX_SHARING_TIME);
            self.cap = u64::MAX;
        }
    }
}

/// Returns the part `of` / `whole` of a rate.
fn scale(rate: u64, of: Duration, whole: Duration) -> u64 {
    let part = u128::from(rate) * of.as_nanos() / whole.as_nanos().max(1);
    u64::try_from(part).unwrap_or(u64::MAX)
}

fn mean(a: u64, b: u64) -> u64 {
    a / 2 + b / 2
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
