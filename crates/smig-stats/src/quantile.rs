//! Medians and percentiles.

/// Returns the value that a share `q` (0 to 1) of `sorted` does not exceed, interpolated linearly
/// between neighbours (R's type 7, the spreadsheets' default). `None` if there are no values.
#[must_use]
pub fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last_index = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last_index as f64;
    let lower_index = position.floor();
    let low = sorted.get(lower_index as usize)?;
    let high = sorted.get((lower_index as usize + 1).min(last_index))?;
    Some(low + (high - low) * (position - lower_index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_the_values() {
        let sorted = [10.0, 20.0, 30.0, 40.0];
        assert_eq!(quantile(&sorted, 0.0), Some(10.0));
        assert_eq!(quantile(&sorted, 0.5), Some(25.0));
        assert_eq!(quantile(&sorted, 1.0), Some(40.0));
        assert_eq!(quantile(&[7.0], 0.95), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
