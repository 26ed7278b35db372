//! The experiments: a scenario file for each, and how `--quick` shortens it.
//!
//! A quick campaign is a subset of the full one: fewer conditions, repetitions and objects, and
//! shorter files.

use std::path::Path;
use std::sync::LazyLock;

use super::paper::Figure;
use super::quick::{
    cases_repetitions, five_repetitions, grid_repetitions, is_compared, is_in_figure_1,
    mosaic_repetitions, sites_repetitions,
};
use crate::campaign::TrialResult;
use crate::scenario::{Campaign, ConditionName, Diagnostic, SettingsCheck, Size, TimeSpan, parse};

/// How much of an experiment is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The complete campaign: the study's repetitions in its conditions, fewer in others.
    Full,
    /// A subset that shows the same effects in minutes.
    Quick,
}

/// An experiment that reproduces one figure or table of a study.
#[derive(Debug)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The name of its study.
    pub study: &'static str,
    /// The name in the paper.
    pub paper_name: &'static str,
    /// The title.
    pub title: &'static str,
    /// The path of its scenario in this repository.
    pub scenario_path: &'static str,
    /// The scenario's text.
    pub scenario_text: &'static str,
    pub(super) figure: &'static Figure,
    /// Whether a condition is one of the study's own, which have all repetitions.
    is_studys: fn(&ConditionName) -> bool,
    quick: QuickExtent,
}

/// Returns the number of repetitions, in a quick campaign, of a condition.
type RepetitionsFn = fn(&ConditionName) -> u32;

#[derive(Debug)]
struct QuickExtent {
    repetitions: RepetitionsFn,
    /// Replacement sizes and counts of transfers.
    reductions: &'static [TransferReduction],
    /// Time after which a download is cancelled.
    cancel_after_ms: Option<u64>,
    /// Number of loads of a page in a run.
    loads: Option<u32>,
}

#[derive(Debug)]
struct TransferReduction {
    transfer: &'static str,
    size: Option<u64>,
    count: Option<u32>,
}

const fn with_big_size(size: u64) -> TransferReduction {
    TransferReduction { transfer: "big", size: Some(size), count: None }
}

const fn with_small_count(count: u32) -> TransferReduction {
    TransferReduction { transfer: "small", size: None, count: Some(count) }
}

/// Twelve small objects beside a file that outlasts them.
const WIRED_REDUCTIONS: &[TransferReduction] = &[with_big_size(18_000_000), with_small_count(12)];
/// The same on the LTE link, whose rate may double for a while.
const LTE_REDUCTIONS: &[TransferReduction] = &[with_big_size(28_000_000), with_small_count(12)];

/// The schemes that a quick campaign also measures in conditions other than the paper's.
const SECONDARY_SCHEMES: [&str; 4] = ["NoMig", "MigSW", "SMig", "Lowat"];

/// Returns whether a condition has the paper's congestion control and queue.
fn is_paper_condition(condition: &ConditionName) -> bool {
    matches_level(condition, "congestion", "cubic") && matches_level(condition, "queue", "shallow")
}

/// Returns whether a condition has this level on an axis, or the axis is not varied.
fn matches_level(condition: &ConditionName, axis: &str, name: &str) -> bool {
    condition.level(axis).is_none_or(|found| found == name)
}

/// Measures all schemes twice in the paper's setting, [`SECONDARY_SCHEMES`] once with one
/// other level.
fn beside_big_repetitions(condition: &ConditionName) -> u32 {
    match (
        matches_level(condition, "congestion", "cubic"),
        matches_level(condition, "queue", "shallow"),
    ) {
        (true, true) => 2,
        (false, false) => 0,
        _ => u32::from(
            condition.level("scheme").is_some_and(|scheme| SECONDARY_SCHEMES.contains(&scheme)),
        ),
    }
}

fn small_sizes_repetitions(condition: &ConditionName) -> u32 {
    match (condition.level("link"), condition.level("size")) {
        (Some("wired"), Some("1kB")) => 2,
        (Some("wired"), Some("5kB" | "10kB" | "50kB" | "100kB"))
        | (Some("lte"), Some("1kB" | "10kB")) => 1,
        _ => 0,
    }
}

fn big_sizes_repetitions(condition: &ConditionName) -> u32 {
    match (condition.level("link"), condition.level("big")) {
        (Some("wired"), Some("1MB" | "5MB" | "10MB")) | (Some("lte"), Some("10MB")) => 2,
        _ => 0,
    }
}

fn big_file_repetitions(condition: &ConditionName) -> u32 {
    match (condition.level("buffer"), condition.level("big")) {
        (Some("default"), Some("10MB")) => 3,
        (Some("default"), _) => 1,
        _ => 0,
    }
}

fn two_repetitions(_: &ConditionName) -> u32 {
    2
}

macro_rules! experiment {
    ($name:literal, $repetitions:expr, $reductions:expr, $cancel_after_ms:expr) => {
        ExperimentSource {
            name: $name,
            file: concat!("scenarios/paper/", $name, ".toml"),
            text: include_str!(concat!("../../../../scenarios/paper/", $name, ".toml")),
            is_studys: is_paper_condition,
            quick: QuickExtent {
                repetitions: $repetitions,
                reductions: $reductions,
                cancel_after_ms: $cancel_after_ms,
                loads: None,
            },
        }
    };
}

macro_rules! pages {
    ($name:literal, $file:literal, $is_studys:expr, $repetitions:expr, $loads:expr) => {
        ExperimentSource {
            name: $name,
            file: concat!("scenarios/", $file),
            text: include_str!(concat!("../../../../scenarios/", $file)),
            is_studys: $is_studys,
            quick: QuickExtent {
                repetitions: $repetitions,
                reductions: &[],
                cancel_after_ms: None,
                loads: $loads,
            },
        }
    };
}

/// An experiment without the paper's claims.
struct ExperimentSource {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    is_studys: fn(&ConditionName) -> bool,
    quick: QuickExtent,
}

const SOURCES: [ExperimentSource; 17] = [
    experiment!("slide-table", two_repetitions, WIRED_REDUCTIONS, None),
    experiment!("table-2", two_repetitions, &[with_big_size(16_000_000)], Some(6_000)),
    experiment!("figure-4", beside_big_repetitions, WIRED_REDUCTIONS, None),
    experiment!("figure-5", beside_big_repetitions, WIRED_REDUCTIONS, None),
    experiment!("figure-6", beside_big_repetitions, LTE_REDUCTIONS, None),
    experiment!("figure-7", beside_big_repetitions, LTE_REDUCTIONS, None),
    experiment!("figure-8", small_sizes_repetitions, LTE_REDUCTIONS, None),
    experiment!("figure-9", big_sizes_repetitions, &[], None),
    experiment!("figure-10", big_file_repetitions, &[], None),
    experiment!("figure-11", two_repetitions, &[], Some(6_000)),
    pages!("delay-grid", "pages.toml", is_in_figure_1, grid_repetitions, None),
    pages!("delay-windows", "delay/windows.toml", is_compared, five_repetitions, None),
    pages!("delay-places", "delay/places.toml", is_compared, five_repetitions, None),
    pages!("delay-sites", "delay/sites.toml", is_compared, sites_repetitions, None),
    pages!("delay-cases", "delay/cases.toml", is_compared, cases_repetitions, None),
    pages!("mosaic-table", "mosaic.toml", is_compared, mosaic_repetitions, Some(6)),
    pages!("mosaic-large", "mosaic-large.toml", is_compared, mosaic_repetitions, None),
];

static EXPERIMENTS: LazyLock<Vec<Experiment>> = LazyLock::new(|| {
    let experiment = |ExperimentSource { name, file, text, is_studys, quick }| {
        let figure = Figure::by_name(name)?;
        Some(Experiment {
            name,
            study: figure.study,
            is_studys,
            paper_name: &figure.place,
            title: &figure.title,
            scenario_path: file,
            scenario_text: text,
            figure,
            quick,
        })
    };
    SOURCES.into_iter().filter_map(experiment).collect()
});

impl Experiment {
    /// Returns all experiments of all studies, each study's in its order.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &EXPERIMENTS
    }

    /// Returns the experiment of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        EXPERIMENTS.iter().find(|experiment| experiment.name == name)
    }

    /// Returns the campaign name that its results carry.
    #[must_use]
    pub fn campaign_name(&self, extent: Extent) -> String {
        match extent {
            Extent::Full => self.name.to_owned(),
            Extent::Quick => format!("{}-quick", self.name),
        }
    }

    /// Returns the campaign. Its repetitions are the maximum over the conditions;
    /// [`Experiment::repetitions`] gives those of each condition.
    ///
    /// # Errors
    /// Errors in the scenario file.
    pub fn campaign(
        &self,
        extent: Extent,
        check_setting: SettingsCheck<'_>,
    ) -> Result<Campaign, Vec<Diagnostic>> {
        let mut campaign = parse(self.scenario_text, self.name, Path::new("."), check_setting)?;
        campaign.name = self.campaign_name(extent);
        if extent == Extent::Quick {
            self.shorten(&mut campaign);
        }
        Ok(campaign)
    }

    /// Returns the number of repetitions of a condition.
    #[must_use]
    pub fn repetitions(
        &self,
        extent: Extent,
        campaign: &Campaign,
        condition: &ConditionName,
    ) -> u32 {
        match extent {
            Extent::Full if (self.is_studys)(condition) => campaign.repetitions,
            Extent::Full => campaign.repetitions.div_ceil(4),
            Extent::Quick => (self.quick.repetitions)(condition),
        }
    }

    fn shorten(&self, campaign: &mut Campaign) {
        campaign.conditions.retain(|condition| (self.quick.repetitions)(&condition.name) > 0);
        let repetitions =
            campaign.conditions.iter().map(|condition| (self.quick.repetitions)(&condition.name));
        campaign.repetitions = repetitions.max().unwrap_or(1);
        for condition in &mut campaign.conditions {
            let transfers = &mut condition.scenario.workload.transfers;
            for reduction in self.quick.reductions {
                let Some(transfer) = transfers.get_mut(reduction.transfer) else { continue };
                if let Some(size) = reduction.size {
                    transfer.size.0 = vec![Size(size)];
                }
                transfer.count = reduction.count.or(transfer.count);
            }
            let pages = condition.scenario.workload.pages.values_mut();
            pages.for_each(|page| page.count = self.quick.loads.or(page.count));
            let transfers = &mut condition.scenario.workload.transfers;
            let cancels = transfers.values_mut().filter_map(|transfer| transfer.cancel.as_mut());
            for cancel in cancels {
                let after = self.quick.cancel_after_ms.map(std::time::Duration::from_millis);
                cancel.after = after.map(TimeSpan).or(cancel.after);
            }
        }
    }

    /// Returns the number of runs of the full campaign that have no result.
    pub(super) fn missing_runs(&self, results: &[&TrialResult]) -> usize {
        let Ok(full) = self.campaign(Extent::Full, &|_| Ok(())) else { return 0 };
        let missing_repetitions = |condition: &ConditionName| {
            let existing_count =
                results.iter().filter(|result| result.id.condition == *condition).count();
            let required = self.repetitions(Extent::Full, &full, condition) as usize;
            required.saturating_sub(existing_count)
        };
        full.conditions.iter().map(|condition| missing_repetitions(&condition.name)).sum()
    }

    /// Returns what a quick campaign omits, as text, computed from its results.
    pub(super) fn omissions(&self, results: &[&TrialResult]) -> Vec<String> {
        let Ok(full) = self.campaign(Extent::Full, &|_| Ok(())) else { return Vec::new() };
        let mut omissions = Vec::new();
        let (max, min) = repetition_range(results);
        let repetitions = if max == min { max.to_string() } else { format!("{min} to {max}") };
        omissions.push(format!("{repetitions} of {} repetitions", full.repetitions));
        let mut names: Vec<_> = results.iter().map(|result| &result.id.condition).collect();
        names.sort();
        names.dedup();
        if names.len() < full.conditions.len() {
            omissions.push(format!("{} of {} conditions", names.len(), full.conditions.len()));
        }
        let condition_and_result = results.first().and_then(|result| {
            let same =
                |condition: &&crate::scenario::Condition| condition.name == result.id.condition;
            Some((full.conditions.iter().find(same)?, result))
        });
        if let Some((condition, result)) = condition_and_result {
            omissions.extend(differences(&condition.scenario, &result.scenario));
        }
        omissions
    }
}

/// Returns the maximum and the minimum number of results per condition.
fn repetition_range(results: &[&TrialResult]) -> (usize, usize) {
    let count = |condition: &ConditionName| {
        results.iter().filter(|result| result.id.condition == *condition).count()
    };
    let counts = || results.iter().map(|result| count(&result.id.condition));
    (counts().max().unwrap_or(0), counts().min().unwrap_or(0))
}

fn differences(full: &crate::scenario::Scenario, quick: &crate::scenario::Scenario) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, full_transfer) in &full.workload.transfers {
        let Some(quick_transfer) = quick.workload.transfers.get(name) else { continue };
        let (quick_bytes, full_bytes) = (quick_transfer.size_of(0), full_transfer.size_of(0));
        if quick_bytes != full_bytes {
            let (quick_text, full_text) =
                (smig_chart::format_bytes(quick_bytes), smig_chart::format_bytes(full_bytes));
            differences.push(format!("{name}: {quick_text} instead of {full_text}"));
        }
        if let (Some(quick_count), Some(full_count)) = (quick_transfer.count, full_transfer.count)
            && quick_count != full_count
        {
            differences.push(format!("{name}: {quick_count} of {full_count} objects a run"));
        }
        let after = |transfer: &crate::scenario::Transfer| {
            transfer.cancel.as_ref().and_then(|cancel| cancel.after).map(|after| after.0.as_secs())
        };
        if let (Some(quick_s), Some(full_s)) = (after(quick_transfer), after(full_transfer))
            && quick_s != full_s
        {
            differences.push(format!("cancelled after {quick_s} s instead of {full_s} s"));
        }
    }
    for (name, full_page) in &full.workload.pages {
        let Some(quick_page) = quick.workload.pages.get(name) else { continue };
        let (quick_loads, full_loads) = (quick_page.loads(), full_page.loads());
        if quick_loads != full_loads {
            differences.push(format!("{name}: {quick_loads} of {full_loads} loads a run"));
        }
    }
    differences
}
