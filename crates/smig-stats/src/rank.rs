//! The Mann-Whitney U test: do values of one list tend to be larger than those of the other?
//!
//! For small samples the test is exact, with ties as midranks: it counts, for every rank sum, the
//! ways to draw the first list's ranks from all ranks. For larger samples it uses the normal
//! approximation with corrections for ties and continuity.

use serde::{Deserialize, Serialize};

/// Maximum number of values in both lists together for the exact test.
const MAX_EXACT_VALUES: usize = 60;

/// How a p value is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PValueMethod {
    /// Counted over all ways to divide the values between the lists.
    Exact,
    /// The normal approximation.
    Normal,
}

/// The result of the test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RankTest {
    /// Number of pairs in which the first list's value is larger; a tie counts half.
    pub u: f64,
    /// Two-sided p value: the probability of a difference at least this large if both lists come
    /// from one distribution and their values are independent.
    pub p: f64,
    /// How `p` was computed.
    pub method: PValueMethod,
}

/// Tests the first list against the second, two-sided. `None` if either has no finite values.
#[must_use]
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<RankTest> {
    let ranks = Ranks::new(first, second)?;
    let u = ranks.u();
    let (p, method) = if ranks.first_count + ranks.second_count <= MAX_EXACT_VALUES {
        (ranks.exact_p(), PValueMethod::Exact)
    } else {
        (ranks.normal_p(u), PValueMethod::Normal)
    };
    Some(RankTest { u, p, method })
}

/// The ranks of both lists together.
struct Ranks {
    /// Twice the rank of each value, so that midranks are integers.
    doubled_ranks: Vec<usize>,
    /// Twice the rank sum of the first list.
    doubled_rank_sum: usize,
    first_count: usize,
    second_count: usize,
    /// The sum of t³ - t over groups of t equal values.
    tie_sum: f64,
}

impl Ranks {
    fn new(first: &[f64], second: &[f64]) -> Option<Self> {
        let mut tagged_values: Vec<(f64, bool)> = first
            .iter()
            .map(|value| (*value, true))
            .chain(second.iter().map(|value| (*value, false)))
            .filter(|(value, _)| value.is_finite())
            .collect();
        tagged_values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = tagged_values.iter().filter(|(_, of_first)| *of_first).count();
        let mut ranks = Self {
            doubled_ranks: Vec::with_capacity(tagged_values.len()),
            doubled_rank_sum: 0,
            first_count: count,
            second_count: tagged_values.len() - count,
            tie_sum: 0.0,
        };
        for tie_group in tagged_values.chunk_by(|a, b| a.0 == b.0) {
            // Ranks start at 1: the first and the last rank of the group add up to twice the
            // midrank.
            let doubled_midrank = 2 * ranks.doubled_ranks.len() + tie_group.len() + 1;
            ranks.doubled_rank_sum +=
                doubled_midrank * tie_group.iter().filter(|(_, of_first)| *of_first).count();
            ranks.doubled_ranks.extend(tie_group.iter().map(|_| doubled_midrank));
            let size = tie_group.len() as f64;
            ranks.tie_sum += size.powi(3) - size;
        }
        (ranks.first_count > 0 && ranks.second_count > 0).then_some(ranks)
    }

    fn u(&self) -> f64 {
        let doubled_min_rank_sum = self.first_count * (self.first_count + 1);
        (self.doubled_rank_sum - doubled_min_rank_sum) as f64 / 2.0
    }

    /// Counts the ways to draw as many values as the first list has, for each (doubled) rank sum.
    /// In floating point: up to 1.2e17 ways exceed its 53 bits, but 15 digits suffice.
    fn count_ways(&self) -> Vec<f64> {
        let max_sum: usize = self.doubled_ranks.iter().sum();
        // ways[drawn][sum]
        let mut ways = vec![vec![0.0; max_sum + 1]; self.first_count + 1];
        ways[0][0] = 1.0;
        let mut max_reached = 0;
        for (seen, doubled_rank) in self.doubled_ranks.iter().enumerate() {
            for drawn in (0..self.first_count.min(seen + 1)).rev() {
                let (fewer, more) = ways.split_at_mut(drawn + 1);
                for (sum, from) in fewer[drawn][..=max_reached].iter().enumerate() {
                    if *from > 0.0 {
                        more[0][sum + doubled_rank] += from;
                    }
                }
            }
            max_reached += doubled_rank;
        }
        ways.pop().unwrap_or_default()
    }

    fn exact_p(&self) -> f64 {
        let ways = self.count_ways();
        let all_ways: f64 = ways.iter().sum();
        let below: f64 = ways[..=self.doubled_rank_sum].iter().sum();
        let above: f64 = ways[self.doubled_rank_sum..].iter().sum();
        (2.0 * below.min(above) / all_ways).min(1.0)
    }

    fn normal_p(&self, u: f64) -> f64 {
        let (first_n, second_n) = (self.first_count as f64, self.second_count as f64);
        let count = first_n + second_n;
        let mean = first_n * second_n / 2.0;
        let tie_correction = self.tie_sum / (count * (count - 1.0));
        let standard_deviation =
            (first_n * second_n / 12.0 * (count + 1.0 - tie_correction)).sqrt();
        if standard_deviation == 0.0 {
            return 1.0; // all values are equal
        }
        let z = ((u - mean).abs() - 0.5).max(0.0) / standard_deviation;
        libm::erfc(z / std::f64::consts::SQRT_2).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MALES: [f64; 5] = [19.0, 22.0, 16.0, 29.0, 24.0];
    const FEMALES: [f64; 4] = [20.0, 11.0, 17.0, 12.0];

    fn assert_near(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-9 * expected.max(1e-3), "{got} for {expected}");
    }

    /// SciPy 1.17, `mannwhitneyu(..., method='exact')`: SciPy's example, R's example of
    /// `wilcox.test`, lists that do not overlap, and two longer ones.
    #[test]
    fn exact_p_values_match_scipy() {
        let scipy_example = mann_whitney(&MALES, &FEMALES).unwrap();
        assert_eq!((scipy_example.u, scipy_example.method), (17.0, PValueMethod::Exact));
        assert_near(scipy_example.p, 1.0 / 9.0);
        let a = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
        let b = [1.15, 0.88, 0.90, 0.74, 1.21];
        let test = mann_whitney(&a, &b).unwrap();
        assert_eq!(test.u, 35.0);
        assert_near(test.p, 0.254_412_254_412_254_4);
        let low: Vec<f64> = (1..=10).map(f64::from).collect();
        let high: Vec<f64> = (11..=20).map(f64::from).collect();
        assert_near(mann_whitney(&low, &high).unwrap().p, 1.082_508_822_446_903e-5);
        let a = [1.1, 2.3, 3.7, 4.2, 5.9, 6.1, 7.8, 8.4, 9.6, 10.3, 11.5, 12.7];
        let b =
            [2.9, 4.8, 6.6, 8.1, 9.2, 10.9, 12.2, 13.4, 14.6, 15.8, 16.1, 17.3, 18.5, 19.7, 20.9];
        assert_near(mann_whitney(&a, &b).unwrap().p, 0.007_404_224_378_245_108);
    }

    /// SciPy 1.17, `method=PermutationMethod(n_resamples=inf)`: all divisions, with ties.
    #[test]
    fn ties_are_counted_exactly() {
        let test =
            mann_whitney(&[1.0, 2.0, 2.0, 3.0, 5.0, 8.0], &[2.0, 4.0, 4.0, 6.0, 9.0, 9.0, 10.0])
                .unwrap();
        assert_eq!(test.u, 9.0);
        assert_near(test.p, 0.096_736_596_736_596_74);
    }

    /// SciPy 1.17, `method='asymptotic'`.
    #[test]
    fn the_normal_approximation_matches_scipy() {
        let a: Vec<f64> = (0..100).map(|i| f64::from((i * 37) % 101)).collect();
        let b: Vec<f64> = (0..80).map(|i| f64::from((i * 53) % 97 + 6)).collect();
        let test = mann_whitney(&a, &b).unwrap();
        assert_eq!((test.u, test.method), (3_767.0, PValueMethod::Normal));
        assert_near(test.p, 0.503_278_668_729_900_9);
        let ranks =
            Ranks::new(&[1.0, 2.0, 2.0, 3.0, 5.0, 8.0], &[2.0, 4.0, 4.0, 6.0, 9.0, 9.0, 10.0])
                .unwrap();
        assert_near(ranks.normal_p(9.0), 0.097_607_069_473_352_52);
    }

    #[test]
    fn both_methods_agree_at_the_size_limit() {
        let a: Vec<f64> = (0..30).map(|i| f64::from(i * i % 47)).collect();
        let b: Vec<f64> = (0..30).map(|i| f64::from(i * 7 % 53) + 5.0).collect();
        let ranks = Ranks::new(&a, &b).unwrap();
        let (exact, normal) = (ranks.exact_p(), ranks.normal_p(ranks.u()));
        assert!((exact - normal).abs() < 0.003, "{exact} and {normal}");
    }

    #[test]
    fn equal_or_empty_lists_show_no_difference() {
        assert_eq!(mann_whitney(&[1.0; 3], &[1.0; 4]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[1.0; 50], &[1.0; 50]).unwrap().p, 1.0);
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), None);
    }
}
