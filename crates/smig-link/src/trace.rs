//! Mahimahi's trace files: delivery opportunities of a link.
//!
//! One line for each opportunity: the millisecond, counted from the start, at
//! which 1,500 bytes can leave. Lines do not decrease; several may be equal.
//! The last line is also the period after which the trace repeats.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Rate, TraceError};

/// Bytes of IP packets in one delivery opportunity.
pub const OPPORTUNITY_BYTES: u64 = 1_500;

/// A periodic sequence of delivery opportunities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    times_ms: Vec<u32>,
}

impl Trace {
    /// Creates a trace from times in milliseconds.
    ///
    /// # Errors
    /// When they decrease, or the last is 0 or missing.
    pub fn new(millis: Vec<u32>) -> Result<Self, TraceError> {
        let pairs = millis.windows(2).enumerate();
        if let Some((index, pair)) = pairs.into_iter().find(|(_, pair)| pair[0] > pair[1]) {
            return Err(TraceError::Order { line: index + 2, millis: pair[1], previous: pair[0] });
        }
        match millis.last() {
            None | Some(0) => Err(TraceError::ZeroLength),
            Some(_) => Ok(Self { times_ms: millis }),
        }
    }

    /// Creates a trace of a constant rate, as evenly spaced as whole milliseconds allow.
    #[must_use]
    pub fn constant(rate: Rate, length: Duration) -> Self {
        let length_ms = u32::try_from(length.as_millis()).unwrap_or(u32::MAX).max(1);
        let bits = OPPORTUNITY_BYTES * 8;
        let opportunities = (u128::from(rate.as_bits_per_second()) * u128::from(length_ms)
            / u128::from(bits * 1_000))
        .max(1) as u64;
        // The last opportunity is at the end of the trace and defines its length.
        let at = |index: u64| (index * u64::from(length_ms)).div_ceil(opportunities) as u32;
        Self { times_ms: (1..=opportunities).map(at).collect() }
    }

    /// Returns the rate in each interval of this length, without a partial interval at the end.
    #[must_use]
    pub fn rates(&self, interval: Duration) -> Vec<Rate> {
        let interval_ms = u32::try_from(interval.as_millis()).unwrap_or(u32::MAX).max(1);
        let count_until = |at: u32| self.times_ms.partition_point(|&millis| millis <= at);
        let rate = |interval_index: u32| {
            // The first interval also includes the opportunities at 0.
            let before =
                if interval_index == 0 { 0 } else { count_until(interval_index * interval_ms) };
            let opportunities = (count_until((interval_index + 1) * interval_ms) - before) as u64;
            let bits = opportunities * OPPORTUNITY_BYTES * 8;
            Rate::bits_per_second(bits * 1_000 / u64::from(interval_ms))
        };
        (0..self.length_ms() / interval_ms).map(rate).collect()
    }

    /// Returns the times of the opportunities in milliseconds, not decreasing.
    #[must_use]
    pub fn times_ms(&self) -> &[u32] {
        &self.times_ms
    }

    /// Returns the period of the trace.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_millis(u64::from(self.length_ms()))
    }

    pub(super) fn length_ms(&self) -> u32 {
        self.times_ms.last().copied().unwrap_or(1)
    }

    /// Returns the average rate.
    #[must_use]
    pub fn mean(&self) -> Rate {
        let bits = u128::from(OPPORTUNITY_BYTES * 8) * self.times_ms.len() as u128;
        let rate = bits * 1_000 / u128::from(self.length_ms());
        Rate::bits_per_second(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Returns the number of opportunities up to and including this time, repetitions included.
    pub(super) fn opportunities_by(&self, since_start: Duration) -> u64 {
        let millis = since_start.as_millis();
        let length_ms = u128::from(self.length_ms());
        let (rounds, remainder) = ((millis / length_ms) as u64, (millis % length_ms) as u32);
        let in_partial_round = self.times_ms.partition_point(|&at| at <= remainder) as u64;
        rounds * self.times_ms.len() as u64 + in_partial_round
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut millis = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let number = |_| TraceError::Number { line: index + 1, text: line.to_owned() };
            let at: u32 = line.parse().map_err(number)?;
            if let Some(&previous) = millis.last().filter(|&&before| before > at) {
                return Err(TraceError::Order { line: index + 1, millis: at, previous });
            }
            millis.push(at);
        }
        Self::new(millis)
    }
}

/// Formats the trace as in the file.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.times_ms.iter().try_for_each(|at| writeln!(f, "{at}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RateStep, RateSteps};
    use super::*;

    #[test]
    fn a_trace_round_trips_through_text() {
        let trace: Trace = "0\n3\n3\n10\n".parse().unwrap();
        assert_eq!(trace.times_ms(), [0, 3, 3, 10]);
        assert_eq!(trace.to_string(), "0\n3\n3\n10\n");
        assert_eq!(trace.length(), Duration::from_millis(10));
        assert_eq!(trace.mean(), Rate::kbit(4 * 1_200));
    }

    #[test]
    fn an_error_names_the_line() {
        let error = |text: &str| text.parse::<Trace>().unwrap_err().to_string();
        assert_eq!(error("1\n\nx\n"), "line 3: \"x\" is not a number of milliseconds");
        assert_eq!(error("1\n\n5\n4\n"), "line 4: 4 follows 5; lines must not decrease");
        assert!(error("").contains("length of the trace"));
        assert!(error("0\n0\n").contains("length of the trace"));
        assert!(error("-1\n").starts_with("line 1"));
    }

    #[test]
    fn a_constant_trace_has_its_rate() {
        for (rate, seconds) in [(Rate::mbit(12), 1), (Rate::mbit(10), 60), (Rate::kbit(780), 10)] {
            let trace = Trace::constant(rate, Duration::from_secs(seconds));
            assert_eq!(trace.length(), Duration::from_secs(seconds));
            let relative_error = trace.mean().as_mbit() / rate.as_mbit() - 1.0;
            assert!(relative_error.abs() < 0.002, "{rate}: {}", trace.mean());
        }
    }

    #[test]
    fn steps_become_a_trace_and_the_trace_has_their_rates() {
        let step = |at, mbit| RateStep { at: Duration::from_secs(at), rate: Rate::mbit(mbit) };
        let steps = RateSteps { steps: vec![step(0, 12), step(1, 3), step(3, 24)], period: None };
        let trace = Trace::from_steps(&steps, Duration::from_secs(4)).unwrap();
        assert_eq!(trace.length(), Duration::from_secs(4));
        let rates = trace.rates(Duration::from_secs(1));
        assert_eq!(rates, [12, 3, 3, 24].map(Rate::mbit));
        let late = RateSteps { steps: vec![step(1, 12)], period: None };
        assert!(Trace::from_steps(&late, Duration::from_secs(4)).is_err());
    }

    #[test]
    fn opportunities_are_counted_over_repetitions() {
        let trace: Trace = "2\n2\n5\n".parse().unwrap();
        let by = |ms| trace.opportunities_by(Duration::from_millis(ms));
        assert_eq!([0, 1, 2, 4, 5, 6, 7, 10, 12].map(by), [0, 0, 2, 2, 3, 3, 5, 6, 8]);
    }
}
