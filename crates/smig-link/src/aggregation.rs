//! Aggregation: packets arrive in bursts, as on Wi-Fi, where a station sends all that has collected since its last
//! turn in one frame.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::{Purpose, SplitMix64};
use super::{SpecError, Time};
use crate::millis;

/// Configuration of aggregation. Intervals follow each other without a gap; a packet that leaves the wire during one
/// of them is held until its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregationSpec {
    /// Minimum length of an interval.
    #[serde(with = "millis", rename = "min_ms")]
    pub min: Duration,
    /// Maximum length of an interval; lengths are uniformly distributed.
    #[serde(with = "millis", rename = "max_ms")]
    pub max: Duration,
}

impl AggregationSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.min.is_zero() || self.min > self.max {
            let text = "aggregation: min_ms must be more than 0 and at most max_ms";
            return Err(SpecError::Value(text.into()));
        }
        Ok(())
    }
}

/// The intervals of one direction.
#[derive(Debug)]
pub(super) struct Aggregation {
    spec: AggregationSpec,
    random: SplitMix64,
    /// End of the current interval.
    interval_end: Time,
}

impl Aggregation {
    pub(super) fn new(spec: AggregationSpec, seed: u64) -> Self {
        let random = SplitMix64::for_purpose(seed, Purpose::Aggregation);
        Self { spec, random, interval_end: Time::ZERO }
    }

    /// Returns the end of the interval in which a packet's last bit left. Departures must not decrease.
    pub(super) fn release(&mut self, departure: Time) -> Time {
        let AggregationSpec { min, max } = self.spec;
        // After a long pause one interval is as good as any other.
        if departure.since(self.interval_end) > max * 1_000 {
            self.interval_end = departure;
        }
        while self.interval_end < departure {
            let length = min + (max - min).mul_f64(self.random.next_f64());
            self.interval_end = self.interval_end + length;
        }
        self.interval_end
    }
}
