//! Serialisation of packets onto the wire behind a queue.
//!
//! Exact to the nanosecond: the rounding error of a departure time is carried
//! over to the next, so that a busy wire has exactly its rate.

use std::time::Duration;

use super::trace::OPPORTUNITY_BYTES;
use super::{Rate, RateStep, RateSteps, SpecError, Time, Trace};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The transmitter of one direction, by kind of rate.
#[derive(Debug)]
pub(super) enum Transmitter {
    Constant(ConstantRate),
    Steps(SteppedRate),
    Trace(TraceCursor),
}

impl Transmitter {
    pub(super) const fn constant(rate: Rate) -> Self {
        Self::Constant(ConstantRate {
            bits_per_second: rate.as_bits_per_second(),
            remainder: Remainder::NONE,
        })
    }

    pub(super) fn steps(steps: RateSteps) -> Self {
        let origin = Time::ZERO;
        let RateSteps { steps, period: repeat } = steps;
        Self::Steps(SteppedRate { steps, period: repeat, origin, remainder: Remainder::NONE })
    }

    pub(super) const fn trace(trace: Trace) -> Self {
        let (origin, current) = (Time::ZERO, (Time::ZERO, 0));
        Self::Trace(TraceCursor { trace, origin, round: 0, index: 0, last_opportunity: current })
    }

    /// Sets the origin of steps and traces.
    pub(super) const fn start_at(&mut self, origin: Time) {
        match self {
            Self::Constant(_) => {}
            Self::Steps(steps) => steps.origin = origin,
            Self::Trace(cursor) => {
                cursor.origin = origin;
                (cursor.round, cursor.index) = (0, 0);
                cursor.last_opportunity = (origin, 0);
            }
        }
    }

    /// Returns the earliest time, not before `at`, at which a first bit can leave.
    #[inline]
    pub(super) fn earliest_start(&mut self, at: Time) -> Time {
        match self {
            Self::Constant(_) | Self::Steps(_) => at,
            Self::Trace(cursor) => cursor.earliest_start(at),
        }
    }

    /// Sends `bytes` from `start`, a time that `earliest_start` returned. Returns when the last
    /// bit leaves.
    #[inline]
    pub(super) fn transmit(&mut self, start: Time, bytes: u64) -> Time {
        match self {
            Self::Constant(constant) => constant.transmit(start, bytes),
            Self::Steps(steps) => steps.transmit(start, bytes),
            Self::Trace(cursor) => cursor.transmit(start, bytes),
        }
    }

    /// Returns the bytes sent in this time if there is always a packet to send.
    pub(super) fn capacity_bytes(&self, from: Time, to: Time) -> f64 {
        match self {
            Self::Constant(constant) => {
                constant.bits_per_second as f64 / 8.0 * to.since(from).as_secs_f64()
            }
            Self::Steps(steps) => steps.capacity_bytes(from, to),
            Self::Trace(cursor) => {
                let opportunities_until =
                    |at: Time| cursor.trace.opportunities_by(at.since(cursor.origin));
                opportunities_until(to).saturating_sub(opportunities_until(from)) as f64
                    * OPPORTUNITY_BYTES as f64
            }
        }
    }
}

/// Rounding error of the departure at `at`, in bits * nanoseconds per second.
#[derive(Debug, Clone, Copy)]
struct Remainder {
    at: Time,
    work: u64,
}

impl Remainder {
    const NONE: Self = Self { at: Time::ZERO, work: 0 };

    /// Returns the error to add for a packet that starts at `start`: 0 after an idle period.
    fn carried_into(self, start: Time) -> u64 {
        if self.at == start { self.work } else { 0 }
    }
}

/// Returns bits times nanoseconds per second; divided by a rate, this is nanoseconds.
fn work_of(bytes: u64) -> u64 {
    bytes.saturating_mul(8 * NANOS_PER_SECOND)
}

#[derive(Debug)]
pub(super) struct ConstantRate {
    bits_per_second: u64,
    remainder: Remainder,
}

impl ConstantRate {
    fn transmit(&mut self, start: Time, bytes: u64) -> Time {
        let work = work_of(bytes).saturating_add(self.remainder.carried_into(start));
        let at = start + Duration::from_nanos(work / self.bits_per_second);
        self.remainder = Remainder { at, work: work % self.bits_per_second };
        at
    }
}

#[derive(Debug)]
pub(super) struct SteppedRate {
    steps: Vec<RateStep>,
    period: Option<Duration>,
    origin: Time,
    remainder: Remainder,
}

impl SteppedRate {
    fn transmit(&mut self, start: Time, bytes: u64) -> Time {
        let mut work = work_of(bytes).saturating_add(self.remainder.carried_into(start));
        let mut at = start;
        loop {
            let (rate, end) = self.segment(at);
            let segment_work = end.map(|end| u128::from(rate) * end.since(at).as_nanos());
            if let (Some(end), Some(possible)) = (end, segment_work)
                && possible <= u128::from(work)
            {
                work -= possible as u64;
                at = end;
                continue;
            }
            at = at + Duration::from_nanos(work / rate);
            self.remainder = Remainder { at, work: work % rate };
            return at;
        }
    }

    /// Returns the rate at this time, and the time of the next step.
    fn segment(&self, at: Time) -> (u64, Option<Time>) {
        let elapsed = at.since(self.origin);
        let (round_start, elapsed_in_round) = match self.period {
            Some(repeat) => {
                let rounds = elapsed.as_nanos() / repeat.as_nanos().max(1);
                let round_start = repeat.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
                (round_start, elapsed.saturating_sub(round_start))
            }
            None => (Duration::ZERO, elapsed),
        };
        let next = self.steps.partition_point(|step| step.at <= elapsed_in_round);
        let rate =
            self.steps.get(next.saturating_sub(1)).map_or(1, |step| step.rate.as_bits_per_second());
        let end = self.steps.get(next).map(|step| step.at).or(self.period);
        (rate, end.map(|end| self.origin + round_start + end))
    }

    fn capacity_bytes(&self, from: Time, to: Time) -> f64 {
        let (mut at, mut bits) = (from, 0.0);
        while at < to {
            let (rate, end) = self.segment(at);
            let end = end.unwrap_or(to).min(to);
            bits += rate as f64 * end.since(at).as_secs_f64();
            at = end;
        }
        bits / 8.0
    }
}

/// A trace and the position in it.
#[derive(Debug)]
pub(super) struct TraceCursor {
    trace: Trace,
    origin: Time,
    /// Completed repetitions before the next opportunity.
    round: u64,
    /// Index of the next opportunity.
    index: usize,
    /// Time of the last opportunity, and its unused bytes.
    last_opportunity: (Time, u64),
}

impl TraceCursor {
    fn earliest_start(&mut self, at: Time) -> Time {
        let (current, unused) = self.last_opportunity;
        if unused > 0 && current >= at {
            return current;
        }
        if self.next_opportunity_at() < at {
            self.skip_to(at);
        }
        self.next_opportunity_at()
    }

    /// The unused part of an opportunity is lost unless a packet is queued at
    /// that time, as in Mahimahi.
    fn transmit(&mut self, start: Time, bytes: u64) -> Time {
        let mut unsent = bytes;
        if self.last_opportunity.0 == start {
            let used = unsent.min(self.last_opportunity.1);
            unsent -= used;
            self.last_opportunity.1 -= used;
        }
        while unsent > 0 {
            let at = self.next_opportunity_at();
            self.index += 1;
            if self.index == self.trace.times_ms().len() {
                (self.round, self.index) = (self.round + 1, 0);
            }
            let used = unsent.min(OPPORTUNITY_BYTES);
            unsent -= used;
            self.last_opportunity = (at, OPPORTUNITY_BYTES - used);
        }
        self.last_opportunity.0
    }

    /// Returns the time of the next opportunity.
    fn next_opportunity_at(&self) -> Time {
        let millis = self.trace.times_ms().get(self.index).copied().unwrap_or_default();
        let length_ms = u64::from(self.trace.length_ms());
        let since = self.round.saturating_mul(length_ms).saturating_add(u64::from(millis));
        self.origin + Duration::from_millis(since)
    }

    /// Skips the opportunities before `at`.
    fn skip_to(&mut self, at: Time) {
        let elapsed = at.since(self.origin).as_nanos().div_ceil(1_000_000) as u64;
        let length_ms = u64::from(self.trace.length_ms());
        let (round, offset_ms) = (elapsed / length_ms, (elapsed % length_ms) as u32);
        // The end of one round is also the start of the next: an opportunity at the
        // end of the trace belongs to the round that ends there.
        let (round, offset_ms) = if offset_ms == 0 && round > 0 {
            (round - 1, length_ms as u32)
        } else {
            (round, offset_ms)
        };
        self.round = round;
        self.index = self.trace.times_ms().partition_point(|&millis| millis < offset_ms);
    }
}

impl Trace {
    /// Creates a trace of a given length from rates that change in steps.
    ///
    /// # Errors
    /// When the steps are invalid, or the trace would have no length.
    pub fn from_steps(steps: &RateSteps, length: Duration) -> Result<Self, SpecError> {
        steps.check()?;
        let mut transmitter = Transmitter::steps(steps.clone());
        let (mut at, mut millis) = (Time::ZERO, Vec::new());
        let end = Time::ZERO + length;
        loop {
            at = transmitter.transmit(at, OPPORTUNITY_BYTES);
            if at > end {
                break;
            }
            millis.push(u32::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX));
        }
        // An extra opportunity at the end preserves the length.
        let last = u32::try_from(length.as_millis()).unwrap_or(u32::MAX);
        if millis.last().is_none_or(|at| *at < last) {
            millis.push(last);
        }
        Self::new(millis).map_err(|error| SpecError::Value(error.to_string()))
    }
}
