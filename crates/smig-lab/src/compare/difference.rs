//! The comparison of two series.

use serde::{Deserialize, Serialize};
use smig_stats::{
    Bootstrap, Contrast, Effect, Interval, MIN_RUNS, RankTest, ResamplingScheme, Run, Statistic,
    Summary, cliffs_delta, mann_whitney, median,
};

use super::sentence::sentence;
use crate::scenario::ConditionName;

/// Whether lower or higher values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BetterDirection {
    /// Lower is better: times, unwanted bytes.
    Lower,
    /// Higher is better: rates, shares of the link.
    Higher,
}

/// The values of one metric on one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Name of the metric: `small 10 kB beside big`.
    pub metric: String,
    /// Unit: `ms`.
    pub unit: String,
    /// Whether lower or higher values are better.
    pub better: BetterDirection,
    /// The values of each run.
    pub runs: Vec<Run>,
}

/// Summary of one side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideSummary {
    /// Label of the side.
    pub label: String,
    /// Number of runs with at least one value.
    pub runs: usize,
    /// Summary of the pooled values of all runs.
    #[serde(flatten)]
    pub summary: Summary,
    /// Confidence interval of the median.
    pub median_interval: Option<Interval>,
}

/// The comparison of one metric on two sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Levels that both sides have in common; empty if there are none.
    pub setting: String,
    /// The same, as pairs of axis and level.
    pub levels: Vec<(String, String)>,
    /// Name of the metric.
    pub metric: String,
    /// Unit.
    pub unit: String,
    /// Whether lower or higher values are better.
    pub better: BetterDirection,
    /// The baseline.
    pub a: SideSummary,
    /// The side that is compared with the baseline.
    pub b: SideSummary,
    /// B's median divided by A's; none if A's is 0.
    pub ratio: Option<f64>,
    /// Confidence interval of the ratio; none for fewer than five runs.
    pub ratio_interval: Option<Interval>,
    /// Confidence interval of B's median minus A's. It decides whether there is a difference.
    pub difference_interval: Option<Interval>,
    /// Whether the intervals resample pairs of runs with the same seed.
    #[serde(rename = "drawn")]
    pub resampling_scheme: ResamplingScheme,
    /// B's 95th percentile divided by A's.
    pub p95_ratio: Option<f64>,
    /// Cliff's delta of B against A.
    pub effect: Effect,
    /// Mann-Whitney test over the medians of runs; none for fewer than five runs on a side.
    pub test: Option<RankTest>,
    /// The result as a sentence.
    pub sentence: String,
}

/// Compares B with A. `None` if a side has no values.
#[must_use]
pub fn compare(
    levels: &ConditionName,
    (a_label, a): (&str, &Series),
    (b_label, b): (&str, &Series),
    bootstrap: &Bootstrap,
) -> Option<Comparison> {
    let (a_values, b_values) = (values(a), values(b));
    let (a_medians, b_medians) = (medians(a), medians(b));
    let has_enough_runs = a_medians.len().min(b_medians.len()) >= MIN_RUNS;
    let test = if has_enough_runs { mann_whitney(&b_medians, &a_medians) } else { None };
    let side = |label: &str, series: &Series, values: &[f64]| {
        Some(SideSummary {
            label: label.to_owned(),
            runs: medians(series).len(),
            summary: Summary::of(values)?,
            median_interval: bootstrap.interval(&series.runs, Statistic::Median),
        })
    };
    let contrast_sides =
        |contrast| bootstrap.contrast(&a.runs, &b.runs, Statistic::Median, contrast);
    let difference = contrast_sides(Contrast::Difference)?;
    let (a_side, b_side) = (side(a_label, a, &a_values)?, side(b_label, b, &b_values)?);
    let ratio =
        |of: fn(&Summary) -> f64| Contrast::Ratio.compute(of(&a_side.summary), of(&b_side.summary));
    let mut comparison = Comparison {
        setting: if levels.0.is_empty() { String::new() } else { levels.to_string() },
        levels: levels.0.clone(),
        metric: b.metric.clone(),
        unit: b.unit.clone(),
        better: b.better,
        ratio: ratio(|summary| summary.median),
        ratio_interval: contrast_sides(Contrast::Ratio).and_then(|ratio| ratio.interval),
        difference_interval: difference.interval,
        resampling_scheme: difference.scheme,
        p95_ratio: ratio(|summary| summary.p95),
        effect: cliffs_delta(&b_values, &a_values)?,
        a: a_side,
        b: b_side,
        test,
        sentence: String::new(),
    };
    comparison.sentence = sentence(&comparison);
    Some(comparison)
}

fn values(series: &Series) -> Vec<f64> {
    series.runs.iter().flat_map(|run| run.values.iter().copied()).collect()
}

fn medians(series: &Series) -> Vec<f64> {
    series.runs.iter().filter_map(|run| median(&run.values)).collect()
}
