//! How late the emulator delivered packets, relative to its own schedule.
//!
//! Owns a fixed-size histogram: memory does not grow with the length of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::millis;

/// Buckets per power of two: 3 % resolution.
const SUB_BUCKETS: u64 = 32;
const SUB_BUCKET_BITS: u32 = SUB_BUCKETS.trailing_zeros();
/// Covers 2^33 microseconds, over two hours; the last bucket also counts longer times.
const BUCKETS: usize = (SUB_BUCKETS as usize) * 29;

/// A histogram of microseconds, exact below 32 and within 3 % above.
#[derive(Debug, Clone)]
pub struct LatenessHistogram {
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

/// Summary of a [`LatenessHistogram`] for reports.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatenessSummary {
    /// Packets measured.
    pub packets: u64,
    /// The median lateness.
    #[serde(with = "millis", rename = "p50_ms")]
    pub p50: Duration,
    /// The 99th percentile.
    #[serde(with = "millis", rename = "p99_ms")]
    pub p99: Duration,
    /// The maximum.
    #[serde(with = "millis", rename = "max_ms")]
    pub max: Duration,
}

impl Default for LatenessHistogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0, max: Duration::ZERO }
    }
}

impl LatenessHistogram {
    /// Records the lateness of one packet.
    pub fn record(&mut self, lateness: Duration) {
        let micros = u64::try_from(lateness.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_index(micros)] += 1;
        self.total += 1;
        self.max = self.max.max(lateness);
    }

    /// Returns the `q`-quantile, `q` from 0 to 1; zero if nothing was recorded.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (self.total as f64 * q.clamp(0.0, 1.0)).ceil() as u64;
        let mut cumulative_count = 0;
        for (index, count) in self.counts.iter().enumerate() {
            cumulative_count += count;
            if cumulative_count >= rank.max(1) {
                return Duration::from_micros(upper_bound(index)).min(self.max);
            }
        }
        self.max
    }

    /// Returns the number of packets, median, 99th percentile and maximum.
    #[must_use]
    pub fn summary(&self) -> LatenessSummary {
        LatenessSummary {
            packets: self.total,
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            max: self.max,
        }
    }
}

fn bucket_index(micros: u64) -> usize {
    if micros < SUB_BUCKETS {
        return micros as usize;
    }
    let exponent = micros.ilog2() - SUB_BUCKET_BITS;
    let sub_bucket = (micros >> exponent) - SUB_BUCKETS;
    let index = u64::from(exponent + 1) * SUB_BUCKETS + sub_bucket;
    (index as usize).min(BUCKETS - 1)
}

/// Returns the largest value that falls into a bucket.
fn upper_bound(index: usize) -> u64 {
    let index = index as u64;
    if index < SUB_BUCKETS {
        return index;
    }
    let exponent = index / SUB_BUCKETS - 1;
    ((index % SUB_BUCKETS + SUB_BUCKETS + 1) << exponent) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_the_values_up_to_its_bound() {
        for micros in (0..5_000).chain([65_535, 65_536, 1 << 31]) {
            let index = bucket_index(micros);
            assert!(micros <= upper_bound(index), "{micros}");
            assert!(index == 0 || micros > upper_bound(index - 1), "{micros}");
        }
    }

    #[test]
    fn quantiles_are_within_four_percent() {
        let mut lateness = LatenessHistogram::default();
        for micros in 1..=10_000 {
            lateness.record(Duration::from_micros(micros));
        }
        let summary = lateness.summary();
        assert_eq!(summary.packets, 10_000);
        assert_eq!(summary.max, Duration::from_millis(10));
        for (got, exact) in [(summary.p50, 5_000.0), (summary.p99, 9_900.0)] {
            let ratio = got.as_secs_f64() * 1e6 / exact;
            assert!((0.97..1.04).contains(&ratio), "{got:?} for {exact} us");
        }
    }

    #[test]
    fn an_empty_histogram_has_quantiles_of_zero() {
        assert_eq!(LatenessHistogram::default().summary().p99, Duration::ZERO);
    }

    #[test]
    fn hours_of_lateness_do_not_overflow() {
        let mut lateness = LatenessHistogram::default();
        lateness.record(Duration::from_secs(1 << 40));
        assert_eq!(lateness.summary().packets, 1);
    }
}
