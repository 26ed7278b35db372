//! Percentiles of any number of sizes in bounded memory.
//!
//! Owns the counts. They are exact while there are few distinct sizes; beyond that, sizes are
//! rounded to one part in 4,096, which the table reports.

use std::collections::BTreeMap;

/// Number of distinct sizes that are counted exactly.
const MAX_EXACT_SIZES: usize = 1 << 18;

/// Number of leading bits of a size that rounding preserves.
const PRECISION_BITS: u32 = 12;

/// A histogram of sizes in bytes.
#[derive(Debug, Default)]
pub(super) struct SizeHistogram {
    counts: BTreeMap<u64, u64>,
    total: u64,
    is_rounded: bool,
}

impl SizeHistogram {
    pub(super) fn add(&mut self, size: u64) {
        let key = if self.is_rounded { round(size) } else { size };
        *self.counts.entry(key).or_default() += 1;
        self.total += 1;
        if !self.is_rounded && self.counts.len() > MAX_EXACT_SIZES {
            self.is_rounded = true;
            let exact = std::mem::take(&mut self.counts);
            for (size, count) in exact {
                *self.counts.entry(round(size)).or_default() += count;
            }
        }
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    pub(super) const fn is_rounded(&self) -> bool {
        self.is_rounded
    }

    /// Returns the quantile, defined as in [`smig_stats::quantile`].
    pub(super) fn quantile(&self, q: f64) -> Option<f64> {
        let last_rank = self.total.checked_sub(1)?;
        let position = q.clamp(0.0, 1.0) * last_rank as f64;
        let lower_rank = position.floor() as u64;
        let low = self.size_at_rank(lower_rank)? as f64;
        let high = self.size_at_rank((lower_rank + 1).min(last_rank))? as f64;
        Some(low + (high - low) * (position - lower_rank as f64))
    }

    /// Returns the size at a rank in ascending order.
    fn size_at_rank(&self, rank: u64) -> Option<u64> {
        let mut cumulative_count = 0;
        for (size, count) in &self.counts {
            cumulative_count += count;
            if cumulative_count > rank {
                return Some(*size);
            }
        }
        None
    }
}

/// Returns the midpoint of the sizes that share the leading bits.
const fn round(size: u64) -> u64 {
    let bits = u64::BITS - size.leading_zeros();
    let shift = bits.saturating_sub(PRECISION_BITS);
    let floor = (size >> shift) << shift;
    if shift == 0 { floor } else { floor + (1 << (shift - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_have_exact_percentiles() {
        let values = [18_000, 40_000, 115_000, 40_000, 7, 0, 9_999_999];
        let mut sizes = SizeHistogram::default();
        values.iter().for_each(|size| sizes.add(*size));
        let sorted = smig_stats::sorted_finite(&values.map(|size| size as f64));
        for q in [0.0, 0.25, 0.5, 0.75, 0.9, 1.0] {
            assert_eq!(sizes.quantile(q), smig_stats::quantile(&sorted, q));
        }
        assert_eq!(SizeHistogram::default().quantile(0.5), None);
    }

    #[test]
    fn many_sizes_are_rounded_and_take_bounded_memory() {
        let mut sizes = SizeHistogram::default();
        let count = 3 * MAX_EXACT_SIZES as u64;
        for step in 0..count {
            sizes.add(1_000_000 + step * 1_000);
        }
        assert!(sizes.is_rounded());
        assert!(sizes.counts.len() < MAX_EXACT_SIZES);
        assert_eq!(sizes.total(), count);
        let median = sizes.quantile(0.5).unwrap();
        let exact = 1_000_000.0 + (count - 1) as f64 / 2.0 * 1_000.0;
        assert!((median / exact - 1.0).abs() < 1.0 / 4096.0, "{median} {exact}");
    }
}
