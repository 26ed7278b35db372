//! Summary statistics of one list of values.

use serde::{Deserialize, Serialize};

use super::quantile;

/// Returns the finite values in ascending order; non-finite values are dropped.
#[must_use]
pub fn sorted_finite(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the arithmetic mean; `None` if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns the median of values in any order; for an even count the mean of the two middle values.
/// `None` if there are no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(&sorted_finite(values), 0.5)
}

/// Summary statistics of one list of values, in the values' unit. Percentiles are those of
/// [`quantile`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation (divided by n - 1); 0 for a single value.
    pub standard_deviation: f64,
    /// Minimum.
    pub min: f64,
    /// 25th percentile.
    pub p25: f64,
    /// 50th percentile.
    pub median: f64,
    /// 75th percentile.
    pub p75: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Summary {
    /// Summarizes the finite values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted_finite(values);
        let mean = mean(&sorted)?;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let percentile = |q| quantile(&sorted, q);
        Some(Self {
            n: sorted.len(),
            mean,
            standard_deviation: (squares / (sorted.len() - 1).max(1) as f64).sqrt(),
            min: percentile(0.0)?,
            p25: percentile(0.25)?,
            median: percentile(0.5)?,
            p75: percentile(0.75)?,
            p95: percentile(0.95)?,
            p99: percentile(0.99)?,
            max: percentile(1.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NumPy 2: `mean`, `std(ddof=1)`, `quantile` (its default, linear).
    #[test]
    fn a_summary_matches_numpy() {
        let summary = Summary::of(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]).unwrap();
        assert_eq!((summary.n, summary.mean, summary.median), (8, 3.875, 3.5));
        assert!((summary.p95 - 7.95).abs() < 1e-12, "{summary:?}");
        assert!((summary.standard_deviation - 2.748_376_143_938_713).abs() < 1e-12, "{summary:?}");
        assert_eq!((summary.min, summary.p25, summary.p75, summary.max), (1.0, 1.75, 5.25, 9.0));
    }

    #[test]
    fn non_finite_values_are_ignored() {
        let summary = Summary::of(&[f64::NAN, 2.0, f64::INFINITY]).unwrap();
        assert_eq!((summary.n, summary.median, summary.standard_deviation), (1, 2.0, 0.0));
        assert_eq!(Summary::of(&[f64::NAN]), None);
        assert_eq!((mean(&[]), median(&[])), (None, None));
    }
}
