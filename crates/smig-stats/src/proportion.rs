//! Confidence interval of a proportion, such as lost packets or failed requests.

use super::Interval;

/// The 97.5th percentile of the normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// Wilson's 95 % interval of a proportion with `hits` in `trials`. Unlike the normal approximation
/// it is valid for zero and for few hits. `None` if `trials` is 0.
#[must_use]
pub fn wilson(hits: u64, trials: u64) -> Option<Interval> {
    if trials == 0 {
        return None;
    }
    let n = trials as f64;
    let share = hits.min(trials) as f64 / n;
    let z2 = Z95 * Z95;
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half_width = Z95 / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    let clamp = |value: f64| if value < 1e-15 { 0.0 } else { value.min(1.0) };
    Some(Interval {
        low: clamp(middle - half_width),
        high: clamp(middle + half_width),
        level: 0.95,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SciPy 1.17: `binomtest(hits, trials).proportion_ci(method='wilson')`.
    #[test]
    fn intervals_match_scipy() {
        for (hits, trials, low, high) in [
            (8, 100, 0.041_093_461_484_380_61, 0.149_981_077_009_487_35),
            (0, 50, 0.0, 0.071_347_599_133_358_72),
        ] {
            let interval = wilson(hits, trials).unwrap();
            assert!((interval.low - low).abs() < 1e-12, "{interval:?}");
            assert!((interval.high - high).abs() < 1e-12, "{interval:?}");
        }
        assert_eq!(wilson(0, 0), None);
        assert!(wilson(5, 5).unwrap().high <= 1.0);
    }
}
