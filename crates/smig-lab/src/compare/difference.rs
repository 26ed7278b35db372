//! Two series, and what can be said of their difference.

use serde::{Deserialize, Serialize};

use super::words;
use crate::stats::{
    Bootstrap, Contrast, Drawn, Effect, Interval, LEAST_RUNS, RankTest, Run, Statistic, Summary,
    cliffs_delta, mann_whitney, median,
};

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
    pub runs: Vec<Run>,
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
    /// The ratio's interval; none from fewer than five runs.
    pub ratio_interval: Option<Interval>,
    /// The interval of B's median less A's, which is what says whether there is a difference.
    pub difference_interval: Option<Interval>,
    /// Whether intervals are of pairs of runs with one seed.
    pub drawn: Drawn,
    /// B's 95th percentile divided by A's.
    pub p95_ratio: Option<f64>,
    /// How often B is larger than A, less how often it is smaller.
    pub effect: Effect,
    /// Whether chance alone would do it: over the medians of runs; none from fewer than five a side.
    pub test: Option<RankTest>,
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
    let (a_values, b_values) = (values(a), values(b));
    let (first, second) = (medians(a), medians(b));
    let enough = first.len().min(second.len()) >= LEAST_RUNS;
    let test = if enough { mann_whitney(&second, &first) } else { None };
    let side = |label: &str, series: &Series, values: &[f64]| {
        Some(Side {
            label: label.to_owned(),
            runs: medians(series).len(),
            summary: Summary::of(values)?,
            median_interval: bootstrap.interval(&series.runs, Statistic::Median),
        })
    };
    let contrasted = |contrast| bootstrap.contrast(&a.runs, &b.runs, Statistic::Median, contrast);
    let difference = contrasted(Contrast::Difference)?;
    let (a_side, b_side) = (side(a_label, a, &a_values)?, side(b_label, b, &b_values)?);
    let ratio =
        |of: fn(&Summary) -> f64| Contrast::Ratio.of(of(&a_side.summary), of(&b_side.summary));
    let mut comparison = Comparison {
        setting: setting.to_owned(),
        metric: b.metric.clone(),
        unit: b.unit.clone(),
        better: b.better,
        ratio: ratio(|summary| summary.median),
        ratio_interval: contrasted(Contrast::Ratio).and_then(|ratio| ratio.interval),
        difference_interval: difference.interval,
        drawn: difference.drawn,
        p95_ratio: ratio(|summary| summary.p95),
        effect: cliffs_delta(&b_values, &a_values)?,
        a: a_side,
        b: b_side,
        test,
        sentence: String::new(),
    };
    comparison.sentence = words::sentence(&comparison);
    Some(comparison)
}

fn values(series: &Series) -> Vec<f64> {
    series.runs.iter().flat_map(|run| run.values.iter().copied()).collect()
}

fn medians(series: &Series) -> Vec<f64> {
    series.runs.iter().filter_map(|run| median(&run.values)).collect()
}
