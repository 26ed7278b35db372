//! Turns results into numbers: which objects count, and the statistics.

use smig_stats::{Bootstrap, Contrast, Run, Statistic};

use super::claim::MeasuredValue;
use crate::campaign::TrialResult;
use crate::workload::{Outcome, PageMetric};

/// The values of one setting, grouped by run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) runs: Vec<Run>,
    /// Number of objects that failed, or lack their cancel.
    pub(super) failed_count: usize,
}

/// Returns the results that have these levels on these axes, or lack the axis.
pub(super) fn filter_runs<'a>(
    results: &[&'a TrialResult],
    levels: &[(&str, &str)],
) -> Vec<&'a TrialResult> {
    let has_levels = |result: &&&TrialResult| {
        levels
            .iter()
            .all(|(axis, name)| result.id.condition.level(axis).is_none_or(|found| found == *name))
    };
    results.iter().filter(has_levels).copied().collect()
}

/// Returns the levels of an axis: first those of `order` that occur, then others.
pub(super) fn levels_of(results: &[&TrialResult], axis: &str, order: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let occurring_levels = || results.iter().filter_map(|result| result.id.condition.level(axis));
    let first = order.iter().copied().filter(|name| occurring_levels().any(|found| found == *name));
    for name in first.chain(occurring_levels()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Formats `10MB` as 10 MB.
pub(super) fn spaced_size(size: &str) -> String {
    let digits = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
    let (number, unit) = size.split_at(digits);
    format!("{number} {unit}")
}

/// Returns the times of a transfer's objects, in seconds.
pub(super) fn transfer_times(results: &[&TrialResult], transfer: &str) -> Sample {
    let mut sample = Sample::default();
    for result in results {
        let mut values = Vec::new();
        for object in result.observation.objects.iter().filter(|object| object.name == transfer) {
            match object.outcome {
                Outcome::Complete => values.push(object.duration_s()),
                _ => sample.failed_count += 1,
            }
        }
        sample.runs.push(Run { seed: result.seed, values });
    }
    sample
}

/// Returns the bytes that arrived at the client's host after a cancel, without other transfers' bodies.
pub(super) fn bytes_after_cancel(results: &[&TrialResult], transfer: &str) -> Sample {
    let mut sample = Sample::default();
    for result in results {
        let mut values = Vec::new();
        for object in result.observation.objects.iter().filter(|object| object.name == transfer) {
            match &object.cancel {
                Some(cancel) => {
                    values.push(cancel.wire_bytes.saturating_sub(cancel.other_bytes) as f64);
                }
                None => sample.failed_count += 1,
            }
        }
        sample.runs.push(Run { seed: result.seed, values });
    }
    sample
}

/// Returns a time of all pages' loads, in seconds.
pub(super) fn page_times(results: &[&TrialResult], time: PageMetric) -> Sample {
    let mut sample = Sample::default();
    for result in results {
        let mut values = Vec::new();
        for load in &result.observation.pages {
            match time.of(load) {
                Some(seconds) => values.push(seconds),
                None => sample.failed_count += 1,
            }
        }
        sample.runs.push(Run { seed: result.seed, values });
    }
    sample
}

impl Sample {
    pub(super) fn values(&self) -> Vec<f64> {
        self.runs.iter().flat_map(|run| run.values.iter().copied()).collect()
    }

    pub(super) fn value_count(&self) -> usize {
        self.runs.iter().map(|run| run.values.len()).sum()
    }

    /// Returns the number of runs that have values.
    pub(super) fn run_count(&self) -> usize {
        self.runs.iter().filter(|run| !run.values.is_empty()).count()
    }

    pub(super) fn mean(&self) -> Option<f64> {
        Statistic::Mean.compute(&self.values())
    }

    pub(super) fn p95(&self) -> Option<f64> {
        Statistic::Quantile(0.95).compute(&self.values())
    }

    pub(super) fn max(&self) -> Option<f64> {
        self.values().into_iter().reduce(f64::max)
    }

    /// Returns the maximum over the runs of this sample's mean relative to that of `alone_times` in the same run.
    pub(super) fn max_run_ratio(&self, alone_times: &Self) -> Option<f64> {
        let mean = |run: &Run| Statistic::Mean.compute(&run.values);
        let ratios =
            self.runs.iter().zip(&alone_times.runs).filter_map(|(run, alone)| {
                Some(mean(run)? / mean(alone).filter(|mean| *mean > 0.0)?)
            });
        ratios.reduce(f64::max)
    }

    /// Returns the 95 % confidence interval of the mean; `None` from fewer than five seeds.
    pub(super) fn interval(&self) -> Option<(f64, f64)> {
        let interval = Bootstrap::default().interval(&self.runs, Statistic::Mean)?;
        Some((interval.low, interval.high))
    }

    /// Returns the mean as a measurement.
    pub(super) fn measured_mean(&self) -> Option<MeasuredValue> {
        Some(MeasuredValue { value: self.mean()?, interval: self.interval() })
    }

    /// Returns the ratio of this sample's mean to the other's, paired if five seeds or more are in both samples: then only those count.
    pub(super) fn ratio_to(&self, other: &Self) -> Option<MeasuredValue> {
        self.ratio_by(other, Statistic::Mean)
    }

    /// Returns the same ratio of another statistic.
    pub(super) fn ratio_by(&self, other: &Self, statistic: Statistic) -> Option<MeasuredValue> {
        let bootstrap = Bootstrap::default();
        let ratio = bootstrap.contrast(&other.runs, &self.runs, statistic, Contrast::Ratio)?;
        let interval = ratio.interval.map(|interval| (interval.low, interval.high));
        Some(MeasuredValue { value: ratio.value, interval })
    }

    /// Returns the share by which this mean is less than the other; negative if it is more.
    pub(super) fn reduction_from(&self, other: &Self) -> Option<MeasuredValue> {
        self.reduction_by(other, Statistic::Mean)
    }

    /// Returns the same share of another statistic.
    pub(super) fn reduction_by(&self, other: &Self, statistic: Statistic) -> Option<MeasuredValue> {
        let ratio = self.ratio_by(other, statistic)?;
        let interval = ratio.interval.map(|(low, high)| (1.0 - high, 1.0 - low));
        Some(MeasuredValue { value: 1.0 - ratio.value, interval })
    }

    /// Returns the share by which this mean is more than the other; negative if it is less.
    pub(super) fn increase_from(&self, other: &Self) -> Option<MeasuredValue> {
        self.increase_by(other, Statistic::Mean)
    }

    /// Returns the same share of another statistic.
    pub(super) fn increase_by(&self, other: &Self, statistic: Statistic) -> Option<MeasuredValue> {
        let ratio = self.ratio_by(other, statistic)?;
        let interval = ratio.interval.map(|(low, high)| (low - 1.0, high - 1.0));
        Some(MeasuredValue { value: ratio.value - 1.0, interval })
    }
}
