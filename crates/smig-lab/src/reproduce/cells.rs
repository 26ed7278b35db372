//! Claims that hold in some of many cells: of a grid of pages, of pairs of runs, of probes of senders.
//!
//! A cell holds or fails only if its whole interval is on one side of the limit. So a share of cells has a range: without, and
//! with, the cells that are open.

use serde::Deserialize;

use super::claim::{CellSelection, Levels};
use super::delay::{SenderProbe, WindowRatio};
use super::evaluate::{combinations, override_levels};
use super::judgement::Judgement;
use super::measure::{filter_runs, page_times};
use crate::campaign::TrialResult;
use crate::identify::Family;
use crate::scenario::Size;
use crate::workload::PageMetric;
use smig_chart::format_number;
use smig_stats::{MIN_RUNS, Statistic};

const PAIRS: &str = "pairs of runs";

/// In how many cells the median of a page's time, relative to that in other cells, is as stated.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellShare {
    #[serde(rename = "of")]
    pub(super) time: PageMetric,
    /// Every combination of these levels is a cell.
    pub(super) cells: CellSelection,
    /// Levels of the cell that each is compared with, where they differ.
    #[serde(rename = "than")]
    pub(super) baseline: CellSelection,
    /// If present, not the ratio is what counts, but how many times as large it is at the second level of an axis as at the first.
    pub(super) along: Option<Along>,
    pub(super) ratio: Limit,
}

/// Two levels of an axis.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Along {
    pub(super) axis: String,
    pub(super) from: String,
    pub(super) to: String,
}

/// In how many pairs of runs, with the same seed, the congestion window of HTTP/2's connection over the sum of HTTP/1.1's
/// was as stated at its largest while both were loading.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowShare {
    pub(super) control: String,
    pub(super) ratio: Limit,
}

/// In how many probes a sender did as stated.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SenderShare {
    pub(super) senders: Vec<String>,
    pub(super) objects: Vec<Size>,
    pub(super) shows: SenderFact,
}

/// What a probe shows.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SenderFact {
    /// A longest queue of at most this many packets.
    QueueAtMost(u32),
    /// A longest queue of at least this many packets.
    QueueAtLeast(u32),
    /// What Igor's published rule says of it.
    Ruled(Family),
}

/// What is stated of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Limit {
    LessThan(f64),
    MoreThan(f64),
    Between(f64, f64),
}

/// What a cell says of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellState {
    Holds,
    Fails,
    Open,
}

/// The cells of a claim, counted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CellCounts {
    noun: &'static str,
    total: usize,
    holding: usize,
    failing: usize,
    unmeasured: usize,
    /// Cells whose value itself is as stated, whatever its uncertainty.
    likely: usize,
    /// The least and the largest value.
    range: Option<(f64, f64)>,
    unit: &'static str,
    /// The least and the total number of runs of cells; none if they are not of runs.
    runs: Option<(usize, usize)>,
}

impl Limit {
    fn state(self, (low, high): (f64, f64)) -> CellState {
        let (holds, fails) = match self {
            Self::LessThan(limit) => (high < limit, low >= limit),
            Self::MoreThan(limit) => (low > limit, high <= limit),
            Self::Between(from, to) => (from <= low && high <= to, high < from || to < low),
        };
        match (holds, fails) {
            (true, _) => CellState::Holds,
            (false, true) => CellState::Fails,
            (false, false) => CellState::Open,
        }
    }
}

impl CellCounts {
    const fn new(noun: &'static str, unit: &'static str) -> Self {
        let (total, holding, failing, unmeasured, likely) = (0, 0, 0, 0, 0);
        Self { noun, total, holding, failing, unmeasured, likely, range: None, unit, runs: None }
    }

    /// Counts a cell by its value and the interval of that.
    fn add(&mut self, limit: Limit, value: f64, interval: (f64, f64)) {
        self.total += 1;
        match limit.state(interval) {
            CellState::Holds => self.holding += 1,
            CellState::Fails => self.failing += 1,
            CellState::Open => {}
        }
        self.likely += usize::from(limit.state((value, value)) == CellState::Holds);
        let (least, most) = self.range.unwrap_or((value, value));
        self.range = Some((least.min(value), most.max(value)));
    }

    fn add_unmeasured(&mut self) {
        self.total += 1;
        self.unmeasured += 1;
    }

    fn add_runs(&mut self, runs: usize) {
        let (least, total) = self.runs.unwrap_or((runs, 0));
        self.runs = Some((least.min(runs), total + runs));
    }

    /// Returns whether there are enough runs in all cells together for a verdict.
    pub(super) fn is_judged(&self) -> bool {
        self.runs.is_none_or(|(_, total)| total >= MIN_RUNS)
    }

    const fn open(&self) -> usize {
        self.total - self.holding - self.failing - self.unmeasured
    }

    pub(super) const fn is_measured(&self) -> bool {
        self.unmeasured < self.total
    }

    /// Returns the share of cells whose value is as stated, and its range: without and with the cells that are open.
    pub(super) fn share(&self) -> (f64, (f64, f64)) {
        let share = |count: usize| count as f64 / self.total.max(1) as f64;
        (share(self.likely), (share(self.holding), share(self.total - self.failing)))
    }

    /// Returns the counts as text.
    pub(super) fn text(&self) -> String {
        let Self { noun, total, holding, failing, unmeasured, .. } = self;
        let mut text = format!("{holding} of {total} {noun}");
        if *failing > 0 {
            text += &format!(", {failing} not");
        }
        if self.open() > 0 {
            text += &format!(", {} open", self.open());
        }
        if *unmeasured > 0 {
            text += &format!(", {unmeasured} without a run");
        }
        if let Some((least, most)) = self.range {
            let (least, most) = (format_number(least), format_number(most));
            text +=
                &format!("; {}", if least == most { least } else { format!("{least} to {most}") });
            text += self.unit;
        }
        match self.runs {
            // A pair is a run of each.
            Some(_) if self.noun == PAIRS => {}
            Some((1, _)) => text += "; one run each",
            Some((runs, _)) => text += &format!("; {runs} runs each"),
            None => {}
        }
        text
    }
}

impl CellShare {
    /// Returns the levels of the axis along which ratios are compared.
    #[cfg(test)]
    pub(super) fn along_selection(&self) -> CellSelection {
        let along = self.along.iter();
        along
            .map(|Along { axis, from, to }| {
                (axis.clone(), Levels::Several(vec![from.clone(), to.clone()]))
            })
            .collect()
    }

    /// Counts the cells of the results.
    pub(super) fn count(&self, results: &[&TrialResult]) -> CellCounts {
        let mut counts = CellCounts::new("cells", if self.along.is_some() { " times" } else { "" });
        let baselines = combinations(&self.baseline);
        let Some((baseline_levels, _)) = baselines.first() else { return counts };
        let factor = Judgement::standard().few_runs_factor();
        for (cell, _) in combinations(&self.cells) {
            let sample = |levels: &std::collections::BTreeMap<&str, &str>| {
                let levels: Vec<_> = levels.iter().map(|(axis, level)| (*axis, *level)).collect();
                page_times(&filter_runs(results, &levels), self.time)
            };
            // A ratio, its interval and the number of runs behind it.
            let ratio = |further: Option<(&str, &str)>| {
                let mut cell = cell.clone();
                cell.extend(further);
                let (treatment, baseline) =
                    (sample(&cell), sample(&override_levels(&cell, baseline_levels)));
                let ratio = treatment.ratio_by(&baseline, Statistic::Median)?;
                let interval =
                    ratio.interval.unwrap_or((ratio.value / factor, ratio.value * factor));
                let runs = treatment.run_count().min(baseline.run_count());
                Some((ratio.value, interval, runs))
            };
            let found = match &self.along {
                None => ratio(None),
                Some(Along { axis, from, to }) => {
                    let ends = ratio(Some((axis, from))).zip(ratio(Some((axis, to))));
                    ends.map(|((first, (low, high), runs), (last, (from, to), last_runs))| {
                        (last / first, (from / high, to / low), runs.min(last_runs))
                    })
                }
            };
            match found {
                Some((value, interval, runs)) => {
                    counts.add(self.ratio, value, interval);
                    counts.add_runs(runs);
                }
                None => counts.add_unmeasured(),
            }
        }
        counts
    }

    /// Returns the first error that is not one of syntax.
    pub(super) fn validation_error(&self) -> Option<String> {
        let is_list = |(_, levels): &(&String, &Levels)| matches!(levels, Levels::Several(_));
        let axis = self.baseline.iter().find(is_list).map(|(axis, _)| axis);
        axis.map(|axis| format!("`than.{axis}` has a list of levels: a cell is compared with one"))
    }
}

impl WindowShare {
    /// Counts the pairs of runs. The largest ratio of a pair is a single observation, without an interval.
    pub(super) fn count(&self, windows: &[WindowRatio]) -> CellCounts {
        let mut counts = CellCounts::new(PAIRS, "");
        for pair in windows.iter().filter(|pair| pair.control == self.control) {
            // The least is small with any control: one young window beside six.
            let Some((_, most)) = pair.extremes() else { continue };
            counts.add(self.ratio, most, (most, most));
            counts.add_runs(1);
        }
        counts
    }
}

impl SenderShare {
    /// Counts the probes. Senders repeat their queues to a packet or two, so that one probe is taken as it is.
    pub(super) fn count(&self, probes: &[SenderProbe]) -> CellCounts {
        let mut counts = CellCounts::new("probes", " packets");
        for sender in &self.senders {
            for object in &self.objects {
                let is_wanted = |probe: &&SenderProbe| {
                    probe.sender == *sender && probe.object_bytes == object.0
                };
                let Some(probe) = probes.iter().find(is_wanted) else {
                    counts.add_unmeasured();
                    continue;
                };
                let queue = f64::from(probe.max_queue);
                let limit = match self.shows {
                    SenderFact::QueueAtMost(packets) => Limit::Between(0.0, f64::from(packets)),
                    SenderFact::QueueAtLeast(packets) => {
                        Limit::Between(f64::from(packets), f64::INFINITY)
                    }
                    SenderFact::Ruled(family) if probe.paper_rule == family => {
                        Limit::Between(0.0, f64::INFINITY)
                    }
                    SenderFact::Ruled(_) => Limit::LessThan(0.0),
                };
                counts.add(limit, queue, (queue, queue));
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_across_the_limit_is_open() {
        for (limit, interval, state) in [
            (Limit::MoreThan(1.0), (1.1, 1.9), CellState::Holds),
            (Limit::MoreThan(1.0), (0.9, 1.9), CellState::Open),
            (Limit::MoreThan(1.0), (0.5, 1.0), CellState::Fails),
            (Limit::LessThan(1.0), (0.5, 0.9), CellState::Holds),
            (Limit::LessThan(1.0), (1.0, 2.0), CellState::Fails),
            (Limit::Between(0.8, 1.25), (0.8, 1.25), CellState::Holds),
            (Limit::Between(0.8, 1.25), (0.7, 1.0), CellState::Open),
            (Limit::Between(0.8, 1.25), (1.3, 2.0), CellState::Fails),
        ] {
            assert_eq!(limit.state(interval), state, "{limit:?} {interval:?}");
        }
    }

    #[test]
    fn a_share_has_a_range_with_and_without_open_cells() {
        let mut counts = CellCounts::new("cells", "");
        counts.add(Limit::MoreThan(1.0), 2.0, (1.5, 2.5));
        counts.add(Limit::MoreThan(1.0), 1.2, (0.9, 1.6));
        counts.add(Limit::MoreThan(1.0), 0.5, (0.4, 0.6));
        counts.add_unmeasured();
        counts.add_runs(3);
        counts.add_runs(1);
        assert_eq!(counts.share(), (0.5, (0.25, 0.75)));
        assert_eq!(
            counts.text(),
            "1 of 4 cells, 1 not, 1 open, 1 without a run; 0.5 to 2; one run each"
        );
        assert!(counts.is_measured());
    }

    #[test]
    fn a_probe_counts_for_its_sender_and_object_only() {
        let probe = |sender: &str, max_queue, paper_rule| SenderProbe {
            sender: sender.into(),
            object_bytes: 320_000,
            mtu: 500,
            max_queue,
            time_to_max_s: 1.0,
            first_drop_s: None,
            paper_rule,
        };
        let probes = [probe("bbr", 23, Family::DelayBased), probe("cubic", 100, Family::LossBased)];
        let count = |shows| {
            let senders = vec!["bbr".to_owned(), "yeah".to_owned()];
            SenderShare { senders, objects: vec![Size(320_000)], shows }.count(&probes).share().1
        };
        assert_eq!(count(SenderFact::QueueAtMost(30)), (0.5, 1.0), "yeah was not measured");
        assert_eq!(count(SenderFact::QueueAtLeast(90)), (0.0, 0.5));
        assert_eq!(count(SenderFact::Ruled(Family::DelayBased)), (0.5, 1.0));
        assert_eq!(count(SenderFact::Ruled(Family::LossBased)), (0.0, 0.5));
    }
}
