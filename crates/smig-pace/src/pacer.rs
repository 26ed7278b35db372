//! What bounds bulk: keeps the path full and its queue short.
//!
//! Congestion control fills the bottleneck's queue to find the path's rate. Interactive responses of the same
//! session then wait in that queue. This module bounds bulk below what congestion control would take: bytes in flight
//! (the path's rate times its round-trip time without a queue, and a queue of a few packets, more where the
//! rate varies) and a rate that keeps them there. It can only lower what congestion control sends. No I/O: the driver
//! measures, and keeps the bounds.
//!
//! [`estimate`] follows the path's rate, [`doubt`] and [`crowding`] decide when others share it, [`limits`] sets the bounds.

mod crowding;
mod doubt;
mod estimate;
mod limits;

use std::time::Duration;

use smig_proto::Instant;
use smig_proto::policy::Interference;

use super::base_rtt::BaseRtt;
use super::bounds::Bounds;
use super::delivery_rate::DeliveryRate;
use super::path_noise::PathNoise;
use super::recurring_loss::RecurringLoss;
use super::round_history::RoundHistory;
use super::sample::{RateSample, USUAL_MSS};
use super::sharing::{AloneProbe, AloneRate, Sharing};
use doubt::QueueOwner;

/// Bytes that a new connection sends in its first round trip.
const INITIAL_WINDOW_BYTES: u32 = 10 * USUAL_MSS;
/// Paths with a shorter round trip, or with a higher rate than `MAX_PACED_BYTES_PER_S`, have no queue that a person
/// notices: they are not paced.
pub const MIN_PACED_RTT: Duration = Duration::from_millis(2);
/// A longer round trip is an error of measurement.
const MAX_MIN_RTT: Duration = Duration::from_secs(10);
const MAX_PACED_BYTES_PER_S: f64 = 125e6;
/// So many consecutive rounds above that are no burst of acknowledgements.
const FAST_ROUNDS: u32 = 2;
/// Samples per round trip, and the shortest interval between two. If they are further apart than the last, which matters while
/// the question is whose the queue is, they do not show when a byte was sent.
const SAMPLES_PER_RTT: u32 = 8;
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
const MAX_DOUBT_INTERVAL: Duration = Duration::from_millis(25);
/// During startup, the pacing rate in units of the delivery rate: more than a doubling per round trip.
const STARTUP_GAIN: f64 = 2.5;
/// A round ends after this number of round-trip times even if what was sent at its beginning is not acknowledged.
const MAX_ROUND_RTTS: u32 = 3;
/// Hysteresis: a process is late from the first on, and punctual again below the second.
const MIN_LATENESS: Duration = Duration::from_millis(3);
const MAX_PUNCTUAL_LATENESS: Duration = Duration::from_millis(2);
/// A round counts as late if the process ran at least this late, and at least a quarter of the round trip: other data waits
/// behind what is written ahead.
const LONG_WRITE_AHEAD: Duration = Duration::from_millis(10);
/// With so many late rounds among the last ones, bulk interferes.
const MIN_LATE_ROUNDS: u32 = 12;
const LATENESS_ROUNDS: u32 = 16;
/// The bounds allow for no more lateness than this: a process that was stopped for long is not one that is always late.
const MAX_LATENESS: Duration = Duration::from_millis(200);

/// Measures one path, and sets the bounds of bulk on it.
#[derive(Debug)]
pub struct Pacer {
    base: BaseRtt,
    delivery: DeliveryRate,
    noise: PathNoise,
    loss: RecurringLoss,
    alone: AloneRate,
    alone_probe: AloneProbe,
    state: PacerState,
    /// Estimate of the path's rate, and the latest measurement, bytes per second.
    path_rate: f64,
    delivered_rate: f64,
    /// Infinite is no limit.
    pacing_rate: f64,
    max_in_flight: f64,
    next_sample: Instant,
    is_idle: bool,
    round: Round,
    /// Consecutive rounds without a queue, and rounds with one although bulk yields.
    free_rounds: u32,
    crowded_rounds: u32,
    /// When others left.
    others_left_at: Option<Instant>,
    /// Whose queue it is, as far as bulk knows.
    queue_owner: QueueOwner,
    /// By how much the process recently ran too late, and whether that counts.
    lateness: Duration,
    is_late: bool,
    /// The rounds in which the process ran so late that other data waits long.
    late_rounds: RoundHistory,
}

#[derive(Debug)]
enum PacerState {
    /// The path's rate is not known.
    Startup(Startup),
    /// It is known, and bulk is bounded by it.
    Bounded,
    /// Others fill the queue.
    Sharing(Box<Sharing>),
}

/// What bulk may send before the path's rate is known.
#[derive(Debug)]
struct Startup {
    began_at: Instant,
    /// What a connection had carried before, bytes per second, if it is more than startup begins with.
    confirmed_rate: Option<f64>,
    /// What this bulk has earned by deliveries, bytes per second.
    rate: f64,
    /// Consecutive rounds that were too fast to be paced.
    fast_rounds: u32,
}

/// A round trip, which ends when what was sent at its beginning has left the path.
#[derive(Debug)]
struct Round {
    start: Instant,
    end: u64,
    min_rtt: Option<Duration>,
    /// The same without the kernel's smoothed one, which counts where nothing else is known.
    min_measured_rtt: Option<Duration>,
    /// By how much the process ran too late, at most.
    max_late: Duration,
    /// The least in flight, and that of the round before, in bytes.
    min_in_flight: u64,
    last_min_in_flight: u64,
    /// Packets retransmitted, the bound in flight and the path's rate at its beginning.
    retransmitted: Option<u64>,
    max_in_flight: f64,
    path_rate: f64,
}

impl Pacer {
    /// Starts pacing, for bulk on a path with this minimum round-trip time, on which a connection has a confirmed rate of so
    /// many bytes per second ([`ConnSample::confirmed_rate`](crate::ConnSample::confirmed_rate)): bulk may begin with that.
    pub fn new(now: Instant, min_rtt: Duration, confirmed_rate: f64) -> Self {
        let min_rtt = min_rtt.clamp(MIN_PACED_RTT, MAX_MIN_RTT);
        let initial = f64::from(INITIAL_WINDOW_BYTES) / min_rtt.as_secs_f64();
        Self {
            base: BaseRtt::new(now, min_rtt),
            delivery: DeliveryRate::default(),
            noise: PathNoise::default(),
            loss: RecurringLoss::default(),
            alone: AloneRate::new(now),
            alone_probe: AloneProbe::new(now),
            state: PacerState::Startup(Startup::new(now, initial, confirmed_rate)),
            path_rate: initial,
            delivered_rate: 0.0,
            pacing_rate: confirmed_rate.max(initial * STARTUP_GAIN),
            max_in_flight: f64::INFINITY,
            next_sample: now,
            is_idle: true,
            round: Round {
                start: now,
                end: 0,
                min_rtt: None,
                min_measured_rtt: None,
                max_late: Duration::ZERO,
                min_in_flight: u64::MAX,
                last_min_in_flight: u64::MAX,
                retransmitted: None,
                max_in_flight: f64::INFINITY,
                path_rate: 0.0,
            },
            free_rounds: 0,
            crowded_rounds: 0,
            others_left_at: None,
            queue_owner: QueueOwner::new(now),
            lateness: Duration::ZERO,
            is_late: false,
            late_rounds: RoundHistory::default(),
        }
    }

    /// Adds what is known already of the path's losses.
    pub(crate) const fn with_known_loss(mut self, loss: RecurringLoss) -> Self {
        self.loss = loss;
        self
    }

    /// Returns what bounds all bulk of the session together.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            rate: bounded(self.pacing_rate),
            max_outstanding: bounded(self.max_in_flight),
            write_ahead: (self.ahead_rate() * self.counted_lateness().as_secs_f64()) as u64,
            path_rate: bounded(self.path_rate),
        }
    }

    /// Returns the rate at which bulk is written ahead of a late process: at startup the path's is not known yet, and what
    /// is sent must be able to grow.
    fn ahead_rate(&self) -> f64 {
        let is_growing =
            matches!(self.state, PacerState::Startup(_)) && self.pacing_rate.is_finite();
        if is_growing { self.pacing_rate.max(self.path_rate) } else { self.path_rate }
    }

    /// Returns the estimate of the path's rate, bytes per second.
    pub const fn path_rate(&self) -> u64 {
        self.path_rate as u64
    }

    /// Returns whether the path is too fast to be paced: bulk has no bounds on it.
    pub const fn is_path_too_fast(&self) -> bool {
        matches!(&self.state, PacerState::Startup(startup) if startup.is_too_fast())
    }

    /// Returns how bulk affects the other data of its connection while it is paced, by the last round trips.
    pub fn interference(&self) -> Interference {
        if self.loss.is_recurring() {
            Interference::Loss
        } else if self.late_rounds.count(LATENESS_ROUNDS) >= MIN_LATE_ROUNDS {
            // What is written ahead delays all else by a part of the round trip.
            Interference::LateProcess
        } else {
            Interference::Little
        }
    }

    pub(crate) const fn recurring_loss(&self) -> RecurringLoss {
        self.loss
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
        // What happens until there is bulk again is not bulk's.
        (self.round.retransmitted, self.round.max_late) = (None, Duration::ZERO);
    }

    /// Records that the process ran so long after the time at which it was due.
    pub fn on_late(&mut self, late: Duration) {
        self.round.max_late = self.round.max_late.max(late);
        self.lateness = self.lateness.max(late).min(MAX_LATENESS);
        // One limit would be passed each few samples by a process that is about that late: what is written ahead would come and go.
        let least = if self.is_late { MAX_PUNCTUAL_LATENESS } else { MIN_LATENESS };
        self.is_late = self.lateness >= least;
    }

    fn schedule_sample(&mut self, now: Instant) {
        let interval = (self.base.value() / SAMPLES_PER_RTT).max(MIN_SAMPLE_INTERVAL);
        let is_open = self.queue_owner.is_open();
        self.next_sample = now + if is_open { interval.min(MAX_DOUBT_INTERVAL) } else { interval };
    }

    /// Records a sample and updates the bounds.
    pub fn on_sample(&mut self, now: Instant, sample: RateSample) {
        if !self.is_idle {
            self.lateness = self.lateness * 31 / 32;
            self.on_late(now.saturating_duration_since(self.next_sample));
        }
        self.schedule_sample(now);
        self.is_idle = false;
        self.delivery.on_sample(now, sample.acknowledged, sample.sent, sample.mss);
        self.noise.on_sample(now, &sample, self.path_rate);
        let rtt = self.round_trip(&sample);
        let is_sharing = matches!(self.state, PacerState::Sharing(_));
        self.base.update(now, rtt, sample.min_rtt, !is_sharing);
        self.round.min_rtt = Some(self.round.min_rtt.map_or(rtt, |min| min.min(rtt)));
        if let Some((trip, _)) = self.delivery.trip() {
            self.round.min_measured_rtt =
                Some(self.round.min_measured_rtt.map_or(trip, |min| min.min(trip)));
        }
        self.round.min_in_flight = self.round.min_in_flight.min(sample.in_flight);
        let queue = rtt.saturating_sub(self.base.value());
        let elapsed = now.saturating_duration_since(self.round.start);
        let is_round_end = sample.acknowledged >= self.round.end
            || elapsed >= rtt.max(sample.rtt) * MAX_ROUND_RTTS;
        match &mut self.state {
            PacerState::Startup(_) => self.update_startup(now, &sample, queue, is_round_end),
            PacerState::Bounded => {
                self.update_bounded(now, &sample, queue, is_round_end);
                self.update_doubt(now, &sample, queue, is_round_end);
            }
            PacerState::Sharing(sharing) => {
                if !self.alone_probe.is_running() {
                    sharing.on_queue(queue);
                }
                self.update_sharing(now, &sample, rtt, is_round_end);
            }
        }
        if is_round_end {
            self.end_round(now, &sample, queue, is_sharing);
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
            delivered_rate = (self.delivered_rate / 125.0) as u64,
            path_rate = (self.path_rate / 125.0) as u64,
            bounds = ?self.bounds(),
            state = ?self.state,
            "pace"
        );
    }

    /// Returns the latest round-trip time. The kernel's smoothed one lags when ACKs are few, and includes the time that
    /// ACKs were delayed on their way; its minimum is exact.
    fn round_trip(&self, sample: &RateSample) -> Duration {
        let window = match self.state {
            PacerState::Startup(_) => MIN_SAMPLE_INTERVAL,
            PacerState::Bounded | PacerState::Sharing(_) => self.base.value() / 2,
        };
        let rtt = self.delivery.min_round_trip(window);
        let rtt = rtt.or_else(|| self.delivery.min_round_trip(self.base.value()));
        let rtt = rtt.unwrap_or(sample.rtt);
        rtt.max(sample.min_rtt).max(MIN_PACED_RTT)
    }

    /// Notes what makes other data of bulk's connection wait, in a round. Beside others, their queue drops packets of
    /// whatever connection, so nothing is known of the path's own losses.
    fn note_interference(&mut self, sample: &RateSample, was_sharing: bool) {
        if was_sharing || matches!(self.state, PacerState::Sharing(_)) {
            self.loss = RecurringLoss::default();
        } else if let Some(before) = self.round.retransmitted {
            self.loss.on_round(sample.retransmitted.saturating_sub(before));
        }
        let is_late = self.round.max_late >= LONG_WRITE_AHEAD.max(self.base.value() / 4);
        self.late_rounds.push(is_late);
    }

    fn end_round(&mut self, now: Instant, sample: &RateSample, queue: Duration, was_sharing: bool) {
        if matches!(self.state, PacerState::Bounded) {
            let base = self.base.value();
            let shortest = self.round.min_rtt.map_or(queue, |rtt| rtt.saturating_sub(base));
            self.note_standing(now, sample.retransmitted, shortest);
            self.note_crowded(now, sample, queue, shortest);
        }
        self.note_interference(sample, was_sharing);
        let is_alone = matches!(self.state, PacerState::Bounded);
        let rate = self.delivery.rate(self.base.value()).filter(|_| is_alone);
        self.noise.on_round(sample, self.round.min_rtt, rate.map(|rate| rate as f64));
        if let Some(rtt) = self.round.min_rtt.filter(|_| is_alone) {
            self.noise.on_delay(rtt.saturating_sub(self.base.value()), self.base.value());
        }
        self.round = Round {
            start: now,
            end: sample.sent,
            min_rtt: None,
            min_measured_rtt: None,
            max_late: Duration::ZERO,
            min_in_flight: u64::MAX,
            last_min_in_flight: self.round.min_in_flight,
            retransmitted: Some(sample.retransmitted),
            max_in_flight: self.max_in_flight,
            path_rate: self.path_rate,
        };
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
