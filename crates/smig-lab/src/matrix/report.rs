//! Judges the arms of each cell against the goals, and sorts the cells by what was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde::Serialize;
use smig_stats::{Bootstrap, Contrast, Interval, MIN_RUNS, Run, Statistic};

use super::arm::{Arm, Role, arms};
use super::measurement::Measurement;
use crate::scenario::{Campaign, Cell};
use crate::trial::TrialResult;

/// How much longer all bytes, those of the bulk and the objects, may take than with the best baseline, as a share.
const MAX_BULK_LOSS: f64 = 0.03;
/// How much longer the 95th percentile of the objects may take than with the best baseline, as a share.
const MAX_P95_LOSS: f64 = 0.05;

/// Resampling of the objects' times: nominally one of twenty intervals lies above the true value.
const P95_INTERVAL: Bootstrap = Bootstrap { resamples: 2_000, level: 0.9, seed: 0x5319 };

/// The share of the link that another user's download is to have beside ours.
const FAIR_SHARE: RangeInclusive<f64> = 0.45..=0.6;

/// The times of the objects, relative to those without a download, and the rate of all bytes, relative to the best
/// baseline, that an arm is to reach in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Goal {
    /// Mean time of the objects.
    pub mean: f64,
    /// Their 95th percentile.
    pub p95: f64,
    /// Rate of the download and the objects together.
    pub rate: f64,
}

impl Goal {
    /// Returns the goal of a judged arm in a cell; `None` where packets are lost, other users cause a queue, the server's
    /// process does not always run, or the access network has no goal.
    fn of(cell: &Cell, arm: &Arm) -> Option<Self> {
        let is_first = |axis, level| cell.level(axis).is_none_or(|found| found == level);
        if !is_first("loss", "none") || !is_first("cross", "none") || !is_first("process", "runs") {
            return None;
        }
        match cell.level("access") {
            None | Some("wired" | "thin") => {
                let rate = if arm.role == Role::Moved { 0.98 } else { 0.97 };
                Some(Self { mean: 1.15, p95: 1.3, rate })
            }
            Some("wifi" | "lte") => Some(Self { mean: 1.3, p95: 1.7, rate: 0.95 }),
            Some(_) => None,
        }
    }
}

/// What is wrong with a judged arm in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing.
    Good,
    /// The 95th percentile of the objects is above what is tolerated, by no more than chance explains: more repetitions decide.
    Unclear,
    /// It is not worse than any baseline, but misses the goal.
    MissesGoal,
    /// It leaves another user's download too little of the link, or takes too little itself.
    Unfair,
    /// It is worse than the best baseline.
    Worse,
    /// Transfers failed.
    Failed,
}

impl Verdict {
    /// All verdicts, the best first.
    pub const ALL: [Self; 6] =
        [Self::Good, Self::Unclear, Self::MissesGoal, Self::Unfair, Self::Worse, Self::Failed];

    /// Returns the verdict in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unclear => "unclear",
            Self::MissesGoal => "misses goal",
            Self::Unfair => "unfair",
            Self::Worse => "worse",
            Self::Failed => "failed",
        }
    }
}

/// One arm in one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmReport {
    /// Name of the arm.
    pub arm: &'static str,
    /// What was measured.
    pub measured: Measurement,
    /// Mean time of the objects, relative to the reference; absent without it.
    pub mean_ratio: Option<f64>,
    /// Their 95th percentile, relative to the reference's.
    pub p95_ratio: Option<f64>,
    /// Rate of the bulk, relative to the best baseline's.
    pub rate_ratio: Option<f64>,
    /// Rate of the bulk and the objects together, relative to the best baseline's. What a baseline's bulk has more because
    /// it leaves the objects waiting is not in it.
    pub total_ratio: Option<f64>,
    /// 95th percentile of the objects, relative to the best baseline's.
    pub p95_to_best: Option<f64>,
    /// Interval of that ratio, by resampling.
    pub p95_to_best_interval: Option<Interval>,
    /// Share of another user's download of the bytes of both, if there is one.
    pub others_share: Option<f64>,
    /// The verdict, if the arm is judged and there is a baseline.
    pub verdict: Option<Verdict>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellReport {
    /// Name of the cell.
    pub cell: String,
    /// Its levels by axis.
    pub levels: BTreeMap<String, String>,
    /// Arms in display order, without the reference.
    pub arms: Vec<ArmReport>,
    /// The reference.
    pub alone: Option<Measurement>,
    /// Arm with the highest ratio of the bulk's rate to the objects' 95th percentile, among those without failures and,
    /// beside another user's download, with a fair share.
    pub winner: Option<&'static str>,
    /// How far the worst judged arm is beyond what is tolerated: 1 is the limit.
    pub excess: f64,
}

/// All cells, the worst first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MatrixReport {
    /// The cells that have results.
    pub cells: Vec<CellReport>,
    /// Number of selected cells without a result of any arm other than the reference.
    pub missing_cells: usize,
    /// The builds that measured them, in words; published results have one, with a known commit.
    pub builds: Vec<String>,
}

impl MatrixReport {
    /// Evaluates the results of a campaign.
    #[must_use]
    pub fn new(campaign: &Campaign, results: &[TrialResult]) -> Self {
        let mut by_cell: BTreeMap<(&str, &str), Vec<&TrialResult>> = BTreeMap::new();
        let mut builds = BTreeSet::new();
        for result in results.iter().filter(|result| result.id.campaign == campaign.name) {
            let build = result.origin.as_ref().map(|origin| origin.build.to_string());
            builds.insert(build.unwrap_or_else(|| "a build that is not recorded".into()));
            let condition = &result.id.condition;
            if let (Some(cell), Some(arm)) = (condition.level("cell"), condition.level("arm")) {
                by_cell.entry((cell, arm)).or_default().push(result);
            }
        }
        let report = |cell: &Cell| {
            let measure = |arm: &Arm| {
                let results = by_cell.get(&(cell.name.as_str(), arm.key))?;
                Measurement::of(results, arm.role == Role::Reference)
            };
            CellReport::new(cell, &measure)
        };
        let mut cells: Vec<_> = campaign.cells.iter().filter_map(report).collect();
        cells.sort_by(|a, b| b.excess.total_cmp(&a.excess));
        let missing_cells = campaign.cells.len() - cells.len();
        Self { cells, missing_cells, builds: builds.into_iter().collect() }
    }
}

impl CellReport {
    /// Evaluates a cell; `None` if there is no result of an arm other than the reference.
    pub(super) fn new(cell: &Cell, measure: &dyn Fn(&Arm) -> Option<Measurement>) -> Option<Self> {
        let mut alone = None;
        let mut measured = Vec::new();
        for arm in arms() {
            match (arm.role, measure(arm)) {
                (Role::Reference, found) => alone = found,
                (_, Some(found)) => measured.push((arm, found)),
                (_, None) => {}
            }
        }
        if measured.is_empty() {
            return None;
        }
        let arms: Vec<_> = measured
            .iter()
            .map(|(arm, found)| ArmReport::new(cell, arm, found, alone.as_ref(), &measured))
            .collect();
        let excess = arms.iter().filter_map(ArmReport::excess).fold(0.0, f64::max);
        Some(Self {
            cell: cell.name.clone(),
            levels: cell.levels.iter().cloned().collect(),
            winner: winner(&arms),
            alone,
            arms,
            excess,
        })
    }

    /// Returns an arm's report.
    #[must_use]
    pub fn arm(&self, key: &str) -> Option<&ArmReport> {
        self.arms.iter().find(|report| report.arm == key)
    }
}

/// Returns the arm with the most power, in Kleinrock's sense: rate of the bulk divided by the objects' 95th percentile. Arms
/// with failures, and unfair ones beside another user's download, are excluded.
fn winner(arms: &[ArmReport]) -> Option<&'static str> {
    let power = |report: &ArmReport| report.measured.bulk_mbit / report.measured.p95_ms.max(1e-3);
    arms.iter()
        .filter(|report| report.others_share.is_none_or(|share| FAIR_SHARE.contains(&share)))
        .filter(|report| report.measured.failed == 0)
        .max_by(|a, b| power(a).total_cmp(&power(b)))
        .map(|report| report.arm)
}

impl ArmReport {
    fn new(
        cell: &Cell,
        arm: &Arm,
        measured: &Measurement,
        alone: Option<&Measurement>,
        all: &[(&'static Arm, Measurement)],
    ) -> Self {
        let baselines =
            || all.iter().filter(|(other, _)| other.is_baseline_of(arm) && other.key != arm.key);
        let best = |rate: &dyn Fn(&Measurement) -> f64| {
            baselines().map(|(_, other)| rate(other)).max_by(f64::total_cmp).filter(|m| *m > 0.0)
        };
        let best_mbit = best(&|other| other.bulk_mbit);
        let best_total_mbit = best(&|other| other.total_mbit);
        let best_p95 =
            baselines().map(|(_, other)| other).min_by(|a, b| a.p95_ms.total_cmp(&b.p95_ms));
        let has_neighbour = matches!(cell.level("cross"), Some("cubic" | "bbr"));
        let others_share = measured
            .other_mbit
            .filter(|_| has_neighbour)
            .map(|other| other / (other + measured.bulk_mbit).max(1e-9));
        let mut report = Self {
            arm: arm.key,
            others_share,
            mean_ratio: alone.map(|alone| measured.mean_ms / alone.mean_ms),
            p95_ratio: alone.map(|alone| measured.p95_ms / alone.p95_ms),
            rate_ratio: best_mbit.map(|best| measured.bulk_mbit / best),
            total_ratio: best_total_mbit.map(|best| measured.total_mbit / best),
            p95_to_best: best_p95.map(|best| measured.p95_ms / best.p95_ms),
            p95_to_best_interval: best_p95.and_then(|best| p95_interval(best, measured)),
            measured: measured.clone(),
            verdict: None,
        };
        if arm.is_judged() && best_mbit.is_some() {
            report.verdict = Some(report.judge(Goal::of(cell, arm)));
        }
        report
    }

    /// Returns how far it is beyond what is tolerated, if it is judged; 1 is the limit, which no difference exceeds that
    /// chance explains.
    fn excess(&self) -> Option<f64> {
        self.verdict?;
        let mut bulk = (1.0 / self.total_ratio?.max(1e-3) - 1.0) / MAX_BULK_LOSS;
        if self.others_share.is_some() {
            // What ours is to have depends on the other one.
            bulk = 0.0;
        }
        let p95 = (self.p95_to_best? - 1.0) / MAX_P95_LOSS;
        let p95 = if self.is_p95_certain() { p95 } else { p95.min(1.0) };
        Some(bulk.max(p95))
    }

    /// Returns whether the 95th percentile is above the best baseline's by more than chance explains.
    fn is_p95_certain(&self) -> bool {
        self.p95_to_best_interval.is_some_and(|interval| interval.low > 1.0)
    }

    fn judge(&self, goal: Option<Goal>) -> Verdict {
        let beyond = |value: Option<f64>, limit: f64| value.is_some_and(|value| value > limit);
        if self.measured.failed > 0 {
            return Verdict::Failed;
        }
        let is_slower = self.others_share.is_none()
            && self.total_ratio.is_some_and(|ratio| 1.0 / ratio.max(1e-9) > 1.0 + MAX_BULK_LOSS);
        let is_later = beyond(self.p95_to_best, 1.0 + MAX_P95_LOSS);
        if is_slower || is_later && self.is_p95_certain() {
            return Verdict::Worse;
        }
        if self.others_share.is_some_and(|share| !FAIR_SHARE.contains(&share)) {
            return Verdict::Unfair;
        }
        let misses = goal.is_some_and(|goal| {
            beyond(self.mean_ratio, goal.mean)
                || beyond(self.p95_ratio, goal.p95)
                || self.total_ratio.is_some_and(|ratio| ratio < goal.rate)
        });
        match (misses, is_later) {
            (true, _) => Verdict::MissesGoal,
            (false, true) => Verdict::Unclear,
            (false, false) => Verdict::Good,
        }
    }
}

/// Returns the interval of the 95th percentile relative to another's. Entire runs are resampled where there are enough of
/// them, otherwise objects, which is too sure of itself: objects of one run met the same queue.
fn p95_interval(baseline: &Measurement, measured: &Measurement) -> Option<Interval> {
    let has_enough_runs = |side: &&Measurement| {
        let runs = side.times_ms.iter().filter(|run| !run.values.is_empty());
        runs.map(|run| run.seed).collect::<BTreeSet<_>>().len() >= MIN_RUNS
    };
    let is_by_run = [baseline, measured].iter().all(has_enough_runs);
    // Objects of one side have no counterparts on the other: no seed is on both.
    let units = |side: &Measurement, first_seed: u64| {
        if is_by_run {
            return side.times_ms.clone();
        }
        let times = side.times_ms.iter().flat_map(|run| &run.values);
        (first_seed..).zip(times).map(|(seed, time)| Run { seed, values: vec![*time] }).collect()
    };
    let statistic = Statistic::Quantile(0.95);
    let (baseline, measured) = (units(baseline, 0), units(measured, 1 << 32));
    P95_INTERVAL.contrast(&baseline, &measured, statistic, Contrast::Ratio)?.interval
}
