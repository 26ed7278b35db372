//! Bootstrap confidence intervals (Efron's percentile method), clustered by run.
//!
//! The values of one run share a queue, a congestion window and a disturbance, so they are not
//! independent: 25 values of one run carry less information than 25 runs. The bootstrap therefore
//! resamples entire runs, each with all its values. Runs with the same seed had the same link and
//! form one resampling unit. Two sides that were measured with the same seeds are resampled in
//! pairs, so that the effect of a seed on both does not count as a difference between them. Fewer
//! than [`MIN_RUNS`] runs give no interval: there are too few distinct resamples for meaningful
//! ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{quantile, sorted_finite};

/// A confidence interval: a share `level` of such intervals contains the true value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Confidence level, for example 0.95.
    pub level: f64,
}

impl Interval {
    /// Returns whether the interval contains the value; both ends are inclusive.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Minimum number of runs with different seeds for an interval.
pub const MIN_RUNS: usize = 5;

/// The values of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Seed of everything random in the run. Runs with the same seed form one resampling unit.
    pub seed: u64,
    /// The values, in any order.
    pub values: Vec<f64>,
}

/// The contrast between two sides: a difference or a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ContrastResult {
    /// Value of the contrast over the same runs that `interval` covers.
    pub value: f64,
    /// Confidence interval of the contrast; none if there are too few runs, or if a resample has no contrast (a ratio
    /// to 0).
    pub interval: Option<Interval>,
    /// Whether pairs of runs or runs of each side were resampled; `drawn` in published results.
    #[serde(rename = "drawn")]
    pub scheme: ResamplingScheme,
}

/// What a contrast resamples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResamplingScheme {
    /// Pairs of runs with the same seed.
    Pairs,
    /// Runs of each side independently.
    Sides,
}

/// The statistic to compute for each list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// The median.
    Median,
    /// The arithmetic mean.
    Mean,
    /// The value that this share (0 to 1) of the list does not exceed: [`quantile`].
    Quantile(f64),
}

impl Statistic {
    /// Computes the statistic of values in any order; `None` if there are none.
    #[must_use]
    pub fn compute(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Median => super::median(values),
            Self::Mean => super::mean(values),
            Self::Quantile(q) => quantile(&sorted_finite(values), q),
        }
    }
}

/// How the second list's statistic is compared with the first's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contrast {
    /// Second minus first.
    Difference,
    /// Second divided by first.
    Ratio,
}

impl Contrast {
    /// Computes the contrast; `None` for a ratio whose first value is 0.
    #[must_use]
    pub fn compute(self, first: f64, second: f64) -> Option<f64> {
        match self {
            Self::Difference => Some(second - first),
            Self::Ratio => (first != 0.0).then_some(second / first),
        }
    }
}

/// Parameters of the bootstrap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// Number of resamples; with 10,000 the ends of the interval are stable to the second digit.
    pub resamples: u32,
    /// Confidence level, for example 0.95.
    pub level: f64,
    /// Seed of the generator: the same seed and values give the same interval.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 10_000, level: 0.95, seed: 0x5319 }
    }
}

impl Bootstrap {
    /// Computes the interval of a statistic of the pooled values of all runs. `None` if fewer than
    /// [`MIN_RUNS`] runs with different seeds have values, or if `resamples` is 0.
    #[must_use]
    pub fn interval(&self, runs: &[Run], statistic: Statistic) -> Option<Interval> {
        let units = SeedUnits::from_runs(runs);
        let mut rng = SplitMix64(self.seed);
        self.percentile_interval(units.len(), || {
            units.statistic(&rng.draw_indices(units.len()), statistic)
        })
    }

    /// Compares the second side with the first: over pairs of runs with the same seed if both sides
    /// have at least [`MIN_RUNS`] seeds in common, otherwise over all runs of each side. `None`
    /// if a side has no values, or if the contrast is undefined for these values.
    #[must_use]
    pub fn contrast(
        &self,
        first: &[Run],
        second: &[Run],
        statistic: Statistic,
        contrast: Contrast,
    ) -> Option<ContrastResult> {
        let (mut first, mut second) = (SeedUnits::from_runs(first), SeedUnits::from_runs(second));
        let (first_seeds, second_seeds) = (first.seeds(), second.seeds());
        let scheme = if first_seeds.intersection(&second_seeds).count() >= MIN_RUNS {
            // From here on, one index selects one pair.
            first.retain_seeds(&second_seeds);
            second.retain_seeds(&first_seeds);
            ResamplingScheme::Pairs
        } else {
            ResamplingScheme::Sides
        };
        let contrast_of = |first_indices: &[usize], second_indices: &[usize]| {
            contrast.compute(
                first.statistic(first_indices, statistic)?,
                second.statistic(second_indices, statistic)?,
            )
        };
        let all_indices = |units: &SeedUnits| (0..units.len()).collect::<Vec<_>>();
        let value = contrast_of(&all_indices(&first), &all_indices(&second))?;
        let mut rng = SplitMix64(self.seed);
        let interval = self.percentile_interval(first.len().min(second.len()), || {
            let indices = rng.draw_indices(first.len());
            match scheme {
                ResamplingScheme::Pairs => contrast_of(&indices, &indices),
                ResamplingScheme::Sides => contrast_of(&indices, &rng.draw_indices(second.len())),
            }
        });
        Some(ContrastResult { value, interval, scheme })
    }

    /// Returns the interval of the central share `level` of the values that `resample` returns.
    /// `None` if there are too few runs, or if `resample` ever returns `None`.
    fn percentile_interval(
        &self,
        unit_count: usize,
        resample: impl FnMut() -> Option<f64>,
    ) -> Option<Interval> {
        if unit_count < MIN_RUNS {
            return None;
        }
        let values: Option<Vec<f64>> =
            std::iter::repeat_with(resample).take(self.resamples as usize).collect();
        let values = sorted_finite(&values?);
        let tail = (1.0 - self.level.clamp(0.0, 1.0)) / 2.0;
        Some(Interval {
            low: quantile(&values, tail)?,
            high: quantile(&values, 1.0 - tail)?,
            level: self.level,
        })
    }
}

/// A resampling unit: the values of all runs with one seed.
struct SeedUnit {
    seed: u64,
    values: Vec<f64>,
    sum: f64,
}

/// One unit for each seed that has values, sorted by seed.
struct SeedUnits(Vec<SeedUnit>);

impl SeedUnits {
    fn from_runs(runs: &[Run]) -> Self {
        let mut units: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for run in runs.iter().filter(|run| !run.values.is_empty()) {
            units.entry(run.seed).or_default().extend(&run.values);
        }
        let unit =
            |(seed, values): (u64, Vec<f64>)| SeedUnit { seed, sum: values.iter().sum(), values };
        Self(units.into_iter().map(unit).collect())
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Retains only the units with one of these seeds.
    fn retain_seeds(&mut self, seeds: &BTreeSet<u64>) {
        self.0.retain(|unit| seeds.contains(&unit.seed));
    }

    fn seeds(&self) -> BTreeSet<u64> {
        self.0.iter().map(|unit| unit.seed).collect()
    }

    /// Computes the statistic over the units at these indices; repeated indices count repeatedly.
    fn statistic(&self, indices: &[usize], statistic: Statistic) -> Option<f64> {
        let selected = || indices.iter().filter_map(|index| self.0.get(*index));
        match statistic {
            // The sums suffice: there may be thousands of values.
            Statistic::Mean => {
                let (mut sum, mut count) = (0.0, 0);
                for unit in selected() {
                    sum += unit.sum;
                    count += unit.values.len();
                }
                (count > 0).then(|| sum / count as f64)
            }
            Statistic::Median | Statistic::Quantile(_) => {
                let values = selected().flat_map(|unit| unit.values.iter().copied());
                statistic.compute(&values.collect::<Vec<_>>())
            }
        }
    }
}

/// The generator of Steele, Lea and Flood (2014). Implemented here and not taken from a library,
/// because a published interval must be reproducible in ten years.
struct SplitMix64(u64);

impl SplitMix64 {
    const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws `count` indices below `count`, with replacement.
    fn draw_indices(&mut self, count: usize) -> Vec<usize> {
        (0..count).map(|_| self.next_below(count)).collect()
    }

    /// Returns an index below `bound`, which must not be 0. The bias is below 2^-40 for any list
    /// that fits in memory.
    const fn next_below(&mut self, bound: usize) -> usize {
        ((self.next_u64() as u128 * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Efron and Tibshirani's mice, An Introduction to the Bootstrap (1993), table 2.1.
    const TREATED: [f64; 7] = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0];
    const CONTROL: [f64; 9] = [52.0, 104.0, 146.0, 10.0, 50.0, 31.0, 40.0, 27.0, 46.0];

    /// Returns one run for each value, with different seeds.
    fn one_run_per_value(values: &[f64]) -> Vec<Run> {
        (0..).zip(values).map(|(seed, value)| Run { seed, values: vec![*value] }).collect()
    }

    fn assert_near(interval: Interval, low: f64, high: f64, tolerance: f64) {
        assert!((interval.low - low).abs() < tolerance, "{interval:?} for {low}");
        assert!((interval.high - high).abs() < tolerance, "{interval:?} for {high}");
    }

    #[test]
    fn random_numbers_are_the_published_ones() {
        let mut rng = SplitMix64(1_234_567);
        let got = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(
            got,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    /// SciPy 1.17: `bootstrap(..., method='percentile', n_resamples=200000)`. Its generator
    /// differs, so the results agree only within the resampling error.
    #[test]
    fn intervals_match_scipy() {
        let mut treated = one_run_per_value(&TREATED);
        treated.iter_mut().for_each(|run| run.seed += 100);
        let control = one_run_per_value(&CONTROL);
        let bootstrap = Bootstrap { resamples: 40_000, ..Bootstrap::default() };
        assert_near(bootstrap.interval(&control, Statistic::Mean).unwrap(), 33.108, 84.667, 0.6);
        assert_near(bootstrap.interval(&control, Statistic::Median).unwrap(), 27.0, 104.0, 1e-9);
        let contrast = |statistic, contrast| {
            let result = bootstrap.contrast(&control, &treated, statistic, contrast).unwrap();
            assert_eq!(result.scheme, ResamplingScheme::Sides);
            result.interval.unwrap()
        };
        assert_near(contrast(Statistic::Mean, Contrast::Difference), -20.873, 84.365, 1.2);
        assert_near(contrast(Statistic::Median, Contrast::Ratio), 0.442_307, 3.788_461, 0.15);
    }

    #[test]
    fn a_seed_gives_one_interval() {
        let runs = one_run_per_value(&CONTROL);
        let interval_with_seed = |seed| {
            Bootstrap { seed, resamples: 500, ..Bootstrap::default() }
                .interval(&runs, Statistic::Mean)
                .unwrap()
        };
        assert_eq!(interval_with_seed(1), interval_with_seed(1));
        assert_ne!(interval_with_seed(1), interval_with_seed(2));
    }

    #[test]
    fn entire_runs_are_resampled() {
        // Thirty values in six runs that are constant within each run are six observations, and the
        // interval must show that. Resampled one by one they would count as thirty.
        let runs: Vec<Run> =
            (0..6).map(|seed| Run { seed, values: vec![(seed % 2) as f64; 5] }).collect();
        let single_values: Vec<f64> = runs.iter().flat_map(|run| run.values.clone()).collect();
        let bootstrap = Bootstrap { resamples: 2_000, ..Bootstrap::default() };
        let width = |runs: &[Run]| {
            let interval = bootstrap.interval(runs, Statistic::Mean).unwrap();
            interval.high - interval.low
        };
        assert!(
            width(&runs) > 1.8 * width(&one_run_per_value(&single_values)),
            "{} {}",
            width(&runs),
            width(&one_run_per_value(&single_values))
        );
    }

    #[test]
    fn runs_with_one_seed_form_one_unit() {
        let bootstrap = Bootstrap { resamples: 100, ..Bootstrap::default() };
        let runs_with_seeds = |seeds: u64| -> Vec<Run> {
            (0..20).map(|run| Run { seed: run % seeds, values: vec![run as f64] }).collect()
        };
        assert_eq!(bootstrap.interval(&runs_with_seeds(4), Statistic::Mean), None);
        assert!(bootstrap.interval(&runs_with_seeds(5), Statistic::Mean).is_some());
    }

    #[test]
    fn an_effect_of_the_seed_on_both_sides_is_no_difference() {
        let bootstrap = Bootstrap { resamples: 500, ..Bootstrap::default() };
        let side = |first_seed: u64, factor: f64| -> Vec<Run> {
            let values = [10.0, 80.0, 40.0, 160.0, 20.0, 320.0];
            let run = |(seed, value): (u64, f64)| Run { seed, values: vec![value * factor] };
            (first_seed..).zip(values).map(run).collect()
        };
        let ratio = |second: &[Run]| {
            bootstrap.contrast(&side(0, 1.0), second, Statistic::Mean, Contrast::Ratio).unwrap()
        };
        let pairs = ratio(&side(0, 1.1));
        assert_eq!(pairs.scheme, ResamplingScheme::Pairs);
        let interval = pairs.interval.unwrap();
        assert!((interval.low - 1.1).abs() < 1e-9 && (interval.high - 1.1).abs() < 1e-9);
        let unpaired = ratio(&side(50, 1.1));
        assert_eq!(unpaired.scheme, ResamplingScheme::Sides);
        assert!(unpaired.interval.unwrap().contains(1.0) && (unpaired.value - 1.1).abs() < 1e-9);
        // An unpaired run counts neither for the interval nor for the value.
        let mut with_unpaired_run = side(0, 1.1);
        with_unpaired_run.push(Run { seed: 99, values: vec![1e6] });
        assert_eq!(ratio(&with_unpaired_run), pairs);
    }

    #[test]
    fn too_few_runs_or_an_undefined_contrast_give_no_interval() {
        let bootstrap = Bootstrap { resamples: 100, ..Bootstrap::default() };
        assert_eq!(bootstrap.interval(&[], Statistic::Mean), None);
        assert_eq!(
            bootstrap.interval(&one_run_per_value(&[1.0, 2.0, 3.0, 4.0]), Statistic::Mean),
            None
        );
        let five_runs = one_run_per_value(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(bootstrap.interval(&five_runs, Statistic::Mean).is_some());
        let contrast =
            |first: &[Run]| bootstrap.contrast(first, &five_runs, Statistic::Mean, Contrast::Ratio);
        assert_eq!(contrast(&one_run_per_value(&[0.0; 5])), None);
        assert_eq!(contrast(&[]), None);
        let few_runs_result = contrast(&one_run_per_value(&[1.0, 1.0])).unwrap();
        assert_eq!((few_runs_result.value, few_runs_result.interval), (3.0, None));
        let no_resamples = Bootstrap { resamples: 0, ..bootstrap };
        assert_eq!(no_resamples.interval(&five_runs, Statistic::Mean), None);
    }
}
