//! Intervals by resampling (Efron's bootstrap, percentile method).
//!
//! Values come in runs. Those of one run share a queue, a congestion window, a disturbance: they
//! depend on each other, and twenty-five of them say less than twenty-five runs. So whole runs are
//! drawn, with all their values. Only where a side has a single run are its values drawn one by
//! one; the interval is then of that run, not of the next.

use serde::{Deserialize, Serialize};

use super::{quantile, sorted};

/// A range that holds the true value in a share `level` of all such ranges.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// 0.95, for example.
    pub level: f64,
}

impl Interval {
    /// Whether the value is in it, its ends included.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// What is computed of each list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// The middle value.
    Median,
    /// The arithmetic mean.
    Mean,
    /// The value that this share (0 to 1) does not exceed: [`quantile`].
    Quantile(f64),
}

impl Statistic {
    /// Of values in any order; `None` when there are none.
    #[must_use]
    pub fn of(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Median => super::median(values),
            Self::Mean => super::mean(values),
            Self::Quantile(q) => quantile(&sorted(values), q),
        }
    }
}

/// How the second list's statistic is held against the first's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contrast {
    /// Second less first.
    Difference,
    /// Second divided by first.
    Ratio,
}

impl Contrast {
    /// `None` where a ratio has no meaning: the first is 0.
    #[must_use]
    pub fn of(self, first: f64, second: f64) -> Option<f64> {
        match self {
            Self::Difference => Some(second - first),
            Self::Ratio => (first != 0.0).then_some(second / first),
        }
    }
}

/// How to resample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// How often; 10,000 settles the ends of the interval to the second digit.
    pub resamples: u32,
    /// The interval's level, for example 0.95.
    pub level: f64,
    /// The same seed and values give the same interval.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 10_000, level: 0.95, seed: 0x5319 }
    }
}

impl Bootstrap {
    /// The interval of a statistic of the values of all runs together. `None` when there are no
    /// values or a single one, which tells nothing of others, and without resamples.
    #[must_use]
    pub fn interval(&self, runs: &[Vec<f64>], statistic: Statistic) -> Option<Interval> {
        let units = Units::of(runs)?;
        let (mut random, mut values) = (SplitMix(self.seed), Vec::new());
        self.percentiles(|| {
            units.draw(&mut random, &mut values);
            statistic.of(&values)
        })
    }

    /// The interval of how the second side differs from the first. `None` when one has no values or
    /// a single one, or when the contrast has no meaning for these.
    #[must_use]
    pub fn contrast(
        &self,
        first: &[Vec<f64>],
        second: &[Vec<f64>],
        statistic: Statistic,
        contrast: Contrast,
    ) -> Option<Interval> {
        let (first, second) = (Units::of(first)?, Units::of(second)?);
        let (mut random, mut values) = (SplitMix(self.seed), Vec::new());
        self.percentiles(|| {
            first.draw(&mut random, &mut values);
            let before = statistic.of(&values)?;
            second.draw(&mut random, &mut values);
            contrast.of(before, statistic.of(&values)?)
        })
    }

    /// The middle share `level` of what `one` gives. `None` if it ever gives none.
    fn percentiles(&self, one: impl FnMut() -> Option<f64>) -> Option<Interval> {
        let all: Option<Vec<f64>> =
            std::iter::repeat_with(one).take(self.resamples as usize).collect();
        let all = sorted(&all?);
        let tail = (1.0 - self.level.clamp(0.0, 1.0)) / 2.0;
        Some(Interval {
            low: quantile(&all, tail)?,
            high: quantile(&all, 1.0 - tail)?,
            level: self.level,
        })
    }
}

/// What is drawn: whole runs, or the values of the only one.
enum Units<'a> {
    Runs(Vec<&'a [f64]>),
    Values(&'a [f64]),
}

impl<'a> Units<'a> {
    fn of(runs: &'a [Vec<f64>]) -> Option<Self> {
        let runs: Vec<&[f64]> =
            runs.iter().filter(|run| !run.is_empty()).map(Vec::as_slice).collect();
        match runs.as_slice() {
            [] | [[_]] => None,
            [only] => Some(Self::Values(only)),
            _ => Some(Self::Runs(runs)),
        }
    }

    /// Draws as many as there are, each time from all.
    fn draw(&self, random: &mut SplitMix, into: &mut Vec<f64>) {
        into.clear();
        match self {
            Self::Values(values) => {
                into.extend((0..values.len()).map(|_| values[random.below(values.len())]));
            }
            Self::Runs(runs) => {
                for _ in 0..runs.len() {
                    into.extend(runs[random.below(runs.len())]);
                }
            }
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014). Its few lines are here, not in a library, because a
/// published interval must come out the same in ten years.
struct SplitMix(u64);

impl SplitMix {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An index below `bound`, which is not 0. The bias is below 2^-40 for any list in memory here.
    const fn below(&mut self, bound: usize) -> usize {
        ((self.next() as u128 * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Efron and Tibshirani's mice, An Introduction to the Bootstrap (1993), table 2.1.
    const TREATED: [f64; 7] = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0];
    const CONTROL: [f64; 9] = [52.0, 104.0, 146.0, 10.0, 50.0, 31.0, 40.0, 27.0, 46.0];

    fn near(interval: Interval, low: f64, high: f64, within: f64) {
        assert!((interval.low - low).abs() < within, "{interval:?} for {low}");
        assert!((interval.high - high).abs() < within, "{interval:?} for {high}");
    }

    #[test]
    fn random_numbers_are_the_published_ones() {
        let mut random = SplitMix(1_234_567);
        let got = [random.next(), random.next(), random.next()];
        assert_eq!(
            got,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    /// SciPy 1.17: `bootstrap(..., method='percentile', n_resamples=200000)`. Another generator, so
    /// the same to the width of resampling.
    #[test]
    fn intervals_are_scipys() {
        let (treated, control) = (vec![TREATED.to_vec()], vec![CONTROL.to_vec()]);
        let bootstrap = Bootstrap { resamples: 40_000, ..Bootstrap::default() };
        near(bootstrap.interval(&control, Statistic::Mean).unwrap(), 33.108, 84.667, 0.6);
        near(bootstrap.interval(&control, Statistic::Median).unwrap(), 27.0, 104.0, 1e-9);
        let contrast = |statistic, contrast| {
            bootstrap.contrast(&control, &treated, statistic, contrast).unwrap()
        };
        near(contrast(Statistic::Mean, Contrast::Difference), -20.873, 84.365, 1.2);
        near(contrast(Statistic::Median, Contrast::Ratio), 0.442_307, 3.788_461, 0.15);
    }

    #[test]
    fn a_seed_gives_one_interval() {
        let runs = vec![CONTROL.to_vec()];
        let with = |seed| {
            Bootstrap { seed, resamples: 500, ..Bootstrap::default() }
                .interval(&runs, Statistic::Mean)
                .unwrap()
        };
        assert_eq!(with(1), with(1));
        assert_ne!(with(1), with(2));
    }

    #[test]
    fn whole_runs_are_drawn() {
        // Ten values in two runs that agree within themselves: there are two observations, and the
        // interval says so. Drawn one by one they would look like ten.
        let runs = [vec![1.0; 5], vec![2.0; 5]];
        let together = [runs.concat()];
        let bootstrap = Bootstrap { resamples: 2_000, ..Bootstrap::default() };
        let by_run = bootstrap.interval(&runs, Statistic::Mean).unwrap();
        let by_value = bootstrap.interval(&together, Statistic::Mean).unwrap();
        assert_eq!((by_run.low, by_run.high), (1.0, 2.0));
        assert!(by_value.low > 1.1 && by_value.high < 1.9, "{by_value:?}");
    }

    #[test]
    fn without_values_or_meaning_there_is_no_interval() {
        let bootstrap = Bootstrap { resamples: 100, ..Bootstrap::default() };
        assert_eq!(bootstrap.interval(&[], Statistic::Mean), None);
        assert_eq!(bootstrap.interval(&[vec![]], Statistic::Mean), None);
        let zero = [vec![0.0, 0.0]];
        let one = [vec![1.0]];
        assert_eq!(bootstrap.interval(&one, Statistic::Mean), None);
        let one = [vec![1.0], vec![2.0]];
        assert!(bootstrap.interval(&one, Statistic::Mean).is_some());
        assert_eq!(bootstrap.contrast(&zero, &one, Statistic::Mean, Contrast::Ratio), None);
        let none = Bootstrap { resamples: 0, ..bootstrap };
        assert_eq!(none.interval(&one, Statistic::Mean), None);
    }
}
