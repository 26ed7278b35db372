//! Two series, and what can be said of their difference.

use serde::{Deserialize, Serialize};

use super::words;
use crate::stats::{
    Bootstrap, Contrast, Effect, Interval, RankTest, Statistic, Summary, cliffs_delta,
    mann_whitney, median,
};

/// With this many runs on either side, runs are compared with runs; with fewer, values with values.
const ENOUGH_RUNS: usize = 4;

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Times, bytes that nobody wanted.
    Lower,
    /// Rates, shares of the link.
    Higher,
}

/// One metric on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What is measured: `small 10 kB beside big`.
    pub metric: String,
    /// In which unit: `ms`.
    pub unit: String,
    /// Which way is good.
    pub better: Better,
    /// The values of each run.
    pub runs: Vec<Vec<f64>>,
}

/// One side in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Its name.
    pub label: String,
    /// Runs with at least one value.
    pub runs: usize,
    /// All values of all runs together.
    #[serde(flatten)]
    pub summary: Summary,
    /// The median's interval.
    pub median_interval: Option<Interval>,
}

/// What the test compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestedOver {
    /// The medians of runs.
    Runs,
    /// Single values, as if they did not depend on each other: p is too small by some.
    Values,
}

/// Everything about one metric on two sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What both sides have in common beside the metric; empty if nothing need be said.
    pub setting: String,
    /// What is measured.
    pub metric: String,
    /// In which unit.
    pub unit: String,
    /// Which way is good.
    pub better: Better,
    /// What is compared with.
    pub a: Side,
    /// What is compared.
    pub b: Side,
    /// B's median divided by A's; none if A's is 0.
    pub ratio: Option<f64>,
    /// The ratio's interval.
    pub ratio_interval: Option<Interval>,
    /// B's 95th percentile divided by A's.
    pub p95_ratio: Option<f64>,
    /// How often B is larger than A, less how often it is smaller.
    pub effect: Effect,
    /// Whether chance alone would do it.
    pub test: RankTest,
    /// What the test compared.
    pub tested_over: TestedOver,
    /// The same in a sentence.
    pub sentence: String,
}

/// Compares B with A. `None` if a side has no values.
#[must_use]
pub fn compare(
    setting: &str,
    (a_label, a): (&str, &Series),
    (b_label, b): (&str, &Series),
    bootstrap: &Bootstrap,
) -> Option<Comparison> {
    let (a_values, b_values) = (a.runs.concat(), b.runs.concat());
    let (first, second) = (medians(a), medians(b));
    let by_runs = first.len() >= ENOUGH_RUNS && second.len() >= ENOUGH_RUNS;
    let (test, tested_over) = if by_runs {
        (mann_whitney(&second, &first)?, TestedOver::Runs)
    } else {
        (mann_whitney(&b_values, &a_values)?, TestedOver::Values)
    };
    let side = |label: &str, series: &Series, values: &[f64]| {
        Some(Side {
            label: label.to_owned(),
            runs: medians(series).len(),
            summary: Summary::of(values)?,
            median_interval: bootstrap.interval(&series.runs, Statistic::Median),
        })
    };
    let (a_side, b_side) = (side(a_label, a, &a_values)?, side(b_label, b, &b_values)?);
    let ratio =
        |of: fn(&Summary) -> f64| Contrast::Ratio.of(of(&a_side.summary), of(&b_side.summary));
    let mut comparison = Comparison {
        setting: setting.to_owned(),
        metric: b.metric.clone(),
        unit: b.unit.clone(),
        better: b.better,
        ratio: ratio(|summary| summary.median),
        ratio_interval: bootstrap.contrast(&a.runs, &b.runs, Statistic::Median, Contrast::Ratio),
        p95_ratio: ratio(|summary| summary.p95),
        effect: cliffs_delta(&b_values, &a_values)?,
        a: a_side,
        b: b_side,
        test,
        tested_over,
        sentence: String::new(),
    };
    comparison.sentence = words::sentence(&comparison);
    Some(comparison)
}

fn medians(series: &Series) -> Vec<f64> {
    series.runs.iter().filter_map(|run| median(run)).collect()
}
