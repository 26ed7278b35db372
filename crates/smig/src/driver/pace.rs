//! How fast bulk connections may send, so that they keep the path full and its queue short.
//!
//! Congestion control fills the bottleneck's queue to learn the path's rate. The interactive
//! responses of the same session then wait in that queue. This bounds the rate (SO_MAX_PACING_RATE)
//! of bulk below what congestion control would take: near the measured rate of the path while round
//! trips show a queue, a little above it while they show none. It only ever lowers the rate that
//! congestion control takes. Pure: the driver measures and sets.

use std::time::Duration;

use smig_proto::Instant;

use super::delivered::Delivered;

/// Octets that a new connection sends in its first round trip.
const INITIAL_WINDOW: u64 = 10 * 1448;
/// Paths with a shorter round trip, or faster than this many octets a second, have no queue that a
/// person notices: they are left alone.
pub(super) const LEAST_BASE: Duration = Duration::from_millis(2);
const FAST: u64 = 125_000_000;
/// Steps in a round trip, and the shortest step.
const STEPS: u32 = 8;
const LEAST_STEP: Duration = Duration::from_millis(5);
/// While it starts, the cap in units of the measured rate: somewhat more than twice a round trip.
const GROWTH: (u64, u64) = (5, 2);
/// A queue is a queue from so many packets on: fewer are the grain of acknowledgements.
const GRAIN: u64 = 4;
/// The least delay that counts as a queue.
const LEAST_QUEUE: Duration = Duration::from_millis(3);
/// How far above the measured rate it looks for more, by the number of round trips in which the
/// path took all that it was given: 1/32 and so on.
const PROBES: [u64; 6] = [32, 32, 16, 8, 4, 2];
/// How much the measured rate is distrusted in each round trip that shows no queue.
const DRIFT: u64 = 128;
/// Round trips with a queue that does not shrink, although bulk gives way, until it is tried whose
/// queue that is; and round trips that the trial takes at most.
const CROWDED: u32 = 4;
const TRIAL: u32 = 3;
/// For how long bulk then takes its share like anybody else.
const SHARING: Duration = Duration::from_secs(5);
const MOST_SHARING: Duration = Duration::from_secs(40);

/// What the sockets of a session said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Octets acknowledged on all connections since any fixed moment.
    pub(super) acknowledged: u64,
    /// Octets sent on all connections since the same moment.
    pub(super) sent: u64,
    /// The smoothed round trip of bulk: what counts while it is not known better.
    pub(super) rtt: Duration,
    /// Octets of bulk sent and not acknowledged.
    pub(super) in_flight: u64,
    /// How far single round trips are from that, on average.
    pub(super) deviation: Duration,
    /// The shortest round trip that any of the connections has seen.
    pub(super) base: Duration,
    /// Octets in a packet.
    pub(super) packet: u32,
}

#[derive(Debug)]
pub(super) struct Pace {
    base: Duration,
    delivered: Delivered,
    /// What the path carries, as far as seen.
    capacity: u64,
    /// The present bound; `u64::MAX` is none.
    cap: u64,
    /// What it was at the beginning of this round trip and of the one before, the older one first.
    caps: [u64; 2],
    phase: Phase,
    next: Instant,
    silent: bool,
    /// Since when the path took all that the cap allowed, and how often a round trip long.
    round: Instant,
    tracked: usize,
    crowded: u32,
    last_queue: Duration,
    /// What counted as no queue when the present queue came.
    held_grain: Option<Duration>,
    sharing: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The path's rate is not known.
    Starting,
    /// It is.
    Steady,
    /// Bulk sends half of its rate, to see whether the queue goes: then it was its own.
    Trying { until: Instant, queue: Duration },
    /// Others fill the queue: bulk competes as its congestion control does.
    Sharing { until: Instant, queue: Duration },
}

impl Pace {
    /// A bulk connection begins on a path with this shortest round trip.
    pub(super) fn begin(now: Instant, base: Duration) -> Self {
        let micros = u64::try_from(base.as_micros()).unwrap_or(u64::MAX).max(1);
        let first = (2 * INITIAL_WINDOW).saturating_mul(1_000_000) / micros;
        Self {
            base,
            delivered: Delivered::default(),
            capacity: first / 2,
            cap: first,
            caps: [first; 2],
            phase: Phase::Starting,
            next: now,
            silent: true,
            round: now,
            tracked: 0,
            crowded: 0,
            last_queue: Duration::ZERO,
            held_grain: None,
            sharing: SHARING,
        }
    }

    /// Octets a second that bulk may send, all connections together; `u64::MAX` is no bound.
    pub(super) const fn cap(&self) -> u64 {
        self.cap
    }

    /// Octets a second that the path carries, as far as seen.
    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether it is time for a reading.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// When a reading is needed; none is while nothing is sent.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.silent).then_some(self.next)
    }

    /// Bulk has nothing on its way: the time until it has is no measure of the path.
    pub(super) fn on_silence(&mut self, now: Instant) {
        self.plan(now);
        self.silent = true;
        self.delivered.forget();
    }

    fn plan(&mut self, now: Instant) {
        self.next = now + (self.base / STEPS).max(LEAST_STEP);
    }

    /// Takes a reading; the cap may have changed.
    pub(super) fn on_reading(&mut self, now: Instant, reading: Reading) {
        self.plan(now);
        self.silent = false;
        self.base = reading.base.max(LEAST_BASE);
        self.delivered.on_reading(now, reading.acknowledged, reading.sent);
        // The kernel's mean lags behind when few acknowledgements come, and holds what those waited for
        // on their way.
        let window = if self.phase == Phase::Starting { LEAST_STEP } else { self.base / 2 };
        let rtt = self.delivered.round_trip(window);
        let reading = Reading { rtt: rtt.map_or(reading.rtt, |rtt| rtt.max(self.base)), ..reading };
        let new_round = now.saturating_duration_since(self.round) >= reading.rtt;
        if new_round {
            self.round = now;
        }
        match self.phase {
            Phase::Starting => self.start(now, reading),
            Phase::Steady => self.steer(now, reading, new_round),
            Phase::Trying { until, queue } => self.conclude(now, reading, until, queue),
            Phase::Sharing { until, queue } => self.share(now, reading, until, queue),
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
            rate = self.delivered.rate(self.base).unwrap_or(0) / 125,
            capacity = self.capacity / 125,
            cap = self.cap / 125,
            phase = ?self.phase,
            tracked = self.tracked,
            "pace"
        );
    }

    /// How much longer a round trip takes than it must, and how much of that is no queue.
    fn queue(&self, reading: Reading) -> (Duration, Duration) {
        let queue = reading.rtt.saturating_sub(self.base);
        let micros = u64::from(reading.packet) * GRAIN * 1_000_000 / self.capacity.max(1);
        let least = LEAST_QUEUE.max(self.base / 16);
        let noise = match self.phase {
            // It begins as a guess.
            Phase::Starting => Duration::ZERO,
            _ => reading.deviation * 2,
        };
        // Not more than a round trip: a small share of a fast path must not pass for a slow path.
        (queue, (Duration::from_micros(micros) + noise).min(self.base).max(least))
    }

    /// A few packets a round trip: less says nothing about the path.
    fn least(&self, packet: u32) -> u64 {
        u64::from(packet) * GRAIN * 1_000_000 / (self.base.as_micros() as u64).max(1)
    }

    fn start(&mut self, now: Instant, reading: Reading) {
        let Some(rate) = self.delivered.rate(self.base) else { return };
        let first = self.cap.min(self.capacity * 2);
        self.capacity = self.capacity.max(rate);
        let (queue, grain) = self.queue(reading);
        if queue > grain + self.base / 2 {
            // More than this has put there.
            self.try_queue(now, reading);
        } else if queue > grain {
            self.phase = Phase::Steady;
            self.capacity = rate;
            self.cap = rate;
        } else if rate > FAST {
            self.cap = u64::MAX;
        } else {
            self.cap = self.cap.max(first).max(rate * GROWTH.0 / GROWTH.1);
        }
    }

    fn steer(&mut self, now: Instant, reading: Reading, new_round: bool) {
        // Growth shows in the last round trip; the mean of two is steadier.
        let window = if self.tracked > 2 { self.base } else { self.base * 2 };
        let Some(rate) = self.delivered.rate(window) else { return };
        // What is delivered now was sent a round trip ago. It may have been less than was allowed.
        let given = self.delivered.sent(window, reading.rtt).unwrap_or(u64::MAX).min(self.caps[0]);
        let (queue, grain) = self.queue(reading);
        // What the rate falls to while there is a queue must not make the queue look small.
        let grain = self.held_grain.map_or(grain, |held| grain.min(held));
        if queue > grain && !self.fills(reading) {
            // Congestion control holds back by itself, as BBR does to measure round trips: slow
            // acknowledgements look like a queue then.
            self.cap = self.capacity;
            return;
        }
        if queue > grain {
            self.held_grain = Some(grain);
            self.tracked = 0;
            // A path that delivers less than it is given has told its rate. One that delivers it all
            // has not, and the queue may be that of others.
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
            // What is delivered now was sent under the cap of a round trip or two ago.
            let took_all = rate >= self.caps[0] / 8 * 7;
            if self.capacity < rate * 2 {
                self.capacity += self.capacity / DRIFT;
            }
            self.tracked = if took_all { (self.tracked + 1).min(PROBES.len() - 1) } else { 0 };
        }
        let part = PROBES[self.tracked];
        let room = (grain - queue).min(grain / 2);
        self.cap = self.capacity + scale(self.capacity / part, room, grain / 2);
    }

    /// Whether bulk has about as much on its way as the path holds without a queue.
    fn fills(&self, reading: Reading) -> bool {
        reading.in_flight >= scale(self.capacity / 4 * 3, self.base, Duration::from_secs(1))
    }

    /// What is on its way beyond a round trip's worth stands in a queue, or will: that counts what was
    /// sent since the round trip that was measured.
    fn drain(&mut self, reading: Reading, grain: Duration) {
        let micros = reading.in_flight.saturating_mul(1_000_000) / self.capacity.max(1);
        let excess = Duration::from_micros(micros).saturating_sub(self.base + grain / 2);
        let drain = scale(self.capacity, excess, self.base * 2);
        self.cap = self.capacity - drain.min(self.capacity / 2);
    }

    /// A queue that does not shrink although bulk sends less than the path delivers may be fed by
    /// others: nobody gains if bulk alone gives way.
    fn look_for_others(
        &mut self,
        now: Instant,
        reading: Reading,
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
        if self.crowded >= CROWDED {
            self.try_queue(now, reading);
        }
    }

    /// Begins to see whose queue it is.
    fn try_queue(&mut self, now: Instant, reading: Reading) {
        self.capacity = self.delivered.rate(reading.rtt).unwrap_or(self.capacity);
        self.cap = self.capacity / 2;
        let queue = reading.rtt.saturating_sub(self.base);
        self.phase = Phase::Trying { until: now + reading.rtt * TRIAL, queue };
        self.held_grain = None;
        self.crowded = 0;
    }

    /// Until it is time to look again, or the queue becomes so long that bulk must have fed it.
    fn share(&mut self, now: Instant, reading: Reading, until: Instant, before: Duration) {
        self.capacity = self.delivered.rate(reading.rtt).unwrap_or(self.capacity);
        let queue = reading.rtt.saturating_sub(self.base);
        if now >= until || queue > before * 2 + self.base {
            self.try_queue(now, reading);
        }
    }

    /// Half of the rate for some round trips drains what is bulk's own; of a queue that others feed
    /// it takes away bulk's half at most.
    fn conclude(&mut self, now: Instant, reading: Reading, until: Instant, before: Duration) {
        let queue = reading.rtt.saturating_sub(self.base);
        if queue <= LEAST_QUEUE.max(self.base / 4).max(before / 4) {
            self.phase = Phase::Steady;
            self.sharing = SHARING;
            self.cap = self.capacity;
        } else if now >= until {
            let rate = self.delivered.rate(reading.rtt * 3 / 2).unwrap_or(0);
            if rate.abs_diff(self.cap) > self.cap / 4 {
                // More is delivered than is sent: the queue is being drained. Less: it is the path
                // that has become slow.
                self.try_queue(now, reading);
                return;
            }
            self.phase = Phase::Sharing { until: now + self.sharing, queue };
            self.sharing = (self.sharing * 2).min(MOST_SHARING);
            self.cap = u64::MAX;
        }
    }
}

/// The part `of` / `whole` of a rate.
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
