//! The experiments: a scenario file for each, and how `--quick` shortens it.
//!
//! A quick campaign is a subset of the full one: fewer settings, repetitions and objects, shorter files, and
//! nothing that the full one lacks.

use std::path::Path;
use std::sync::LazyLock;

use super::paper::Figure;
use crate::campaign::TrialResult;
use crate::scenario::{Campaign, Diagnostic, SettingsCheck, Size, Span, Variant, parse};

/// How much of an experiment is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The complete campaign: the paper's repetitions in its settings, fewer with other queues and congestion
    /// controls.
    Full,
    /// A subset that shows the same effects in minutes.
    Quick,
}

/// An experiment that reproduces one figure or table.
#[derive(Debug)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// The name in the paper.
    pub place: &'static str,
    /// The title.
    pub title: &'static str,
    /// The path of its scenario in this repository.
    pub file: &'static str,
    /// The scenario's text.
    pub text: &'static str,
    pub(super) figure: &'static Figure,
    quick: Quick,
}

/// Returns the number of repetitions of a setting in a quick campaign.
type Repeats = fn(&Variant) -> u32;

#[derive(Debug)]
struct Quick {
    repeats: Repeats,
    /// Replacement sizes and counts of transfers.
    shorter: &'static [Shorter],
    /// Time in milliseconds after which a download is cancelled.
    cancel_after: Option<u64>,
}

#[derive(Debug)]
struct Shorter {
    transfer: &'static str,
    size: Option<u64>,
    count: Option<u32>,
}

const fn files(size: u64) -> Shorter {
    Shorter { transfer: "big", size: Some(size), count: None }
}

const fn objects(count: u32) -> Shorter {
    Shorter { transfer: "small", size: None, count: Some(count) }
}

/// Twelve small objects beside a file that outlasts them.
const WIRED: &[Shorter] = &[files(18_000_000), objects(12)];
/// The same on a link that may be twice as fast for a while.
const LTE: &[Shorter] = &[files(28_000_000), objects(12)];

/// The schemes that are measured in settings other than the paper's.
const SIDE: [&str; 4] = ["NoMig", "MigSW", "SMig", "Lowat"];

/// Returns whether a setting has the paper's congestion control and queue.
fn is_the_papers(variant: &Variant) -> bool {
    is(variant, "congestion", "cubic") && is(variant, "queue", "shallow")
}

/// Returns whether a setting has this level on an axis, or the axis is not varied.
fn is(variant: &Variant, axis: &str, name: &str) -> bool {
    variant.on(axis).is_none_or(|found| found == name)
}

/// Measures all schemes twice in the paper's setting; [`SIDE`] once with one factor changed.
fn beside_big(variant: &Variant) -> u32 {
    match (is(variant, "congestion", "cubic"), is(variant, "queue", "shallow")) {
        (true, true) => 2,
        (false, false) => 0,
        _ => u32::from(variant.on("scheme").is_some_and(|scheme| SIDE.contains(&scheme))),
    }
}

fn small_sizes(variant: &Variant) -> u32 {
    match (variant.on("link"), variant.on("size")) {
        (Some("wired"), Some("1kB")) => 2,
        (Some("wired"), Some("5kB" | "10kB" | "50kB" | "100kB"))
        | (Some("lte"), Some("1kB" | "10kB")) => 1,
        _ => 0,
    }
}

fn big_sizes(variant: &Variant) -> u32 {
    match (variant.on("link"), variant.on("big")) {
        (Some("wired"), Some("1MB" | "5MB" | "10MB")) | (Some("lte"), Some("10MB")) => 2,
        _ => 0,
    }
}

fn big_file(variant: &Variant) -> u32 {
    match (variant.on("buffer"), variant.on("big")) {
        (Some("default"), Some("10MB")) => 3,
        (Some("default"), _) => 1,
        _ => 0,
    }
}

fn twice(_: &Variant) -> u32 {
    2
}

macro_rules! experiment {
    ($name:literal, $repeats:expr, $shorter:expr, $cancel:expr) => {
        Source {
            name: $name,
            file: concat!("scenarios/paper/", $name, ".toml"),
            text: include_str!(concat!("../../../../scenarios/paper/", $name, ".toml")),
            quick: Quick { repeats: $repeats, shorter: $shorter, cancel_after: $cancel },
        }
    };
}

/// An experiment without what the paper says of it.
struct Source {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    quick: Quick,
}

const SOURCES: [Source; 10] = [
    experiment!("slide-table", twice, WIRED, None),
    experiment!("table-2", twice, &[files(16_000_000)], Some(6_000)),
    experiment!("figure-4", beside_big, WIRED, None),
    experiment!("figure-5", beside_big, WIRED, None),
    experiment!("figure-6", beside_big, LTE, None),
    experiment!("figure-7", beside_big, LTE, None),
    experiment!("figure-8", small_sizes, LTE, None),
    experiment!("figure-9", big_sizes, &[], None),
    experiment!("figure-10", big_file, &[], None),
    experiment!("figure-11", twice, &[], Some(6_000)),
];

static ALL: LazyLock<Vec<Experiment>> = LazyLock::new(|| {
    let experiment = |Source { name, file, text, quick }| {
        let figure = Figure::named(name)?;
        Some(Experiment {
            name,
            place: &figure.place,
            title: &figure.title,
            file,
            text,
            figure,
            quick,
        })
    };
    SOURCES.into_iter().filter_map(experiment).collect()
});

impl Experiment {
    /// Returns all experiments, in the paper's order.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// Returns the experiment of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|experiment| experiment.name == name)
    }

    /// Returns the campaign name that its results carry.
    #[must_use]
    pub fn campaign_name(&self, extent: Extent) -> String {
        match extent {
            Extent::Full => self.name.to_owned(),
            Extent::Quick => format!("{}-quick", self.name),
        }
    }

    /// Returns the campaign. Its repetitions are the maximum over the settings;
    /// [`Experiment::repeats`] gives those of each setting.
    ///
    /// # Errors
    /// Errors in the scenario file.
    pub fn campaign(
        &self,
        extent: Extent,
        settings: SettingsCheck<'_>,
    ) -> Result<Campaign, Vec<Diagnostic>> {
        let mut campaign = parse(self.text, self.name, Path::new("."), settings)?;
        campaign.name = self.campaign_name(extent);
        if extent == Extent::Quick {
            self.shorten(&mut campaign);
        }
        Ok(campaign)
    }

    /// Returns the number of repetitions of a setting.
    #[must_use]
    pub fn repeats(&self, extent: Extent, campaign: &Campaign, variant: &Variant) -> u32 {
        match extent {
            Extent::Full if is_the_papers(variant) => campaign.repetitions,
            Extent::Full => campaign.repetitions.div_ceil(4),
            Extent::Quick => (self.quick.repeats)(variant),
        }
    }

    fn shorten(&self, campaign: &mut Campaign) {
        campaign.settings.retain(|setting| (self.quick.repeats)(&setting.variant) > 0);
        let repeats =
            campaign.settings.iter().map(|setting| (self.quick.repeats)(&setting.variant));
        campaign.repetitions = repeats.max().unwrap_or(1);
        for setting in &mut campaign.settings {
            let transfers = &mut setting.scenario.workload.transfers;
            for shorter in self.quick.shorter {
                let Some(transfer) = transfers.get_mut(shorter.transfer) else { continue };
                if let Some(size) = shorter.size {
                    transfer.size.0 = vec![Size(size)];
                }
                transfer.count = shorter.count.or(transfer.count);
            }
            let cancels = transfers.values_mut().filter_map(|transfer| transfer.cancel.as_mut());
            for cancel in cancels {
                let after = self.quick.cancel_after.map(std::time::Duration::from_millis);
                cancel.after = after.map(Span).or(cancel.after);
            }
        }
    }

    /// Returns the number of runs of the full campaign that have no result.
    pub(super) fn missing(&self, results: &[&TrialResult]) -> usize {
        let Ok(full) = self.campaign(Extent::Full, &|_| Ok(())) else { return 0 };
        let of = |variant: &Variant| {
            let made = results.iter().filter(|result| result.id.variant == *variant).count();
            let wanted = self.repeats(Extent::Full, &full, variant) as usize;
            wanted.saturating_sub(made)
        };
        full.settings.iter().map(|setting| of(&setting.variant)).sum()
    }

    /// Returns, as text, what a quick campaign omits: from the results and the scenario.
    pub(super) fn trimmed(&self, results: &[&TrialResult]) -> Vec<String> {
        let Ok(full) = self.campaign(Extent::Full, &|_| Ok(())) else { return Vec::new() };
        let mut words = Vec::new();
        let (most, least) = repetitions(results);
        let runs = if most == least { most.to_string() } else { format!("{least} to {most}") };
        words.push(format!("{runs} of {} repetitions", full.repetitions));
        let mut settings: Vec<_> = results.iter().map(|result| &result.id.variant).collect();
        settings.sort();
        settings.dedup();
        if settings.len() < full.settings.len() {
            words.push(format!("{} of {} settings", settings.len(), full.settings.len()));
        }
        let of_full = results.first().and_then(|result| {
            let same = |setting: &&crate::scenario::Condition| setting.variant == result.id.variant;
            Some((full.settings.iter().find(same)?, result))
        });
        if let Some((setting, result)) = of_full {
            words.extend(differences(&setting.scenario, &result.scenario));
        }
        words
    }
}

/// Returns the maximum and the minimum number of runs of a setting.
fn repetitions(results: &[&TrialResult]) -> (usize, usize) {
    let count =
        |variant: &Variant| results.iter().filter(|result| result.id.variant == *variant).count();
    let counts = || results.iter().map(|result| count(&result.id.variant));
    (counts().max().unwrap_or(0), counts().min().unwrap_or(0))
}

fn differences(full: &crate::scenario::Scenario, quick: &crate::scenario::Scenario) -> Vec<String> {
    let mut words = Vec::new();
    for (name, whole) in &full.workload.transfers {
        let Some(part) = quick.workload.transfers.get(name) else { continue };
        let (size, of) = (part.size_of(0), whole.size_of(0));
        if size != of {
            let (size, of) = (smig_chart::bytes(size), smig_chart::bytes(of));
            words.push(format!("{name}: {size} instead of {of}"));
        }
        if let (Some(count), Some(of)) = (part.count, whole.count)
            && count != of
        {
            words.push(format!("{name}: {count} of {of} objects a run"));
        }
        let after = |transfer: &crate::scenario::Transfer| {
            transfer.cancel.as_ref().and_then(|cancel| cancel.after).map(|after| after.0.as_secs())
        };
        if let (Some(early), Some(late)) = (after(part), after(whole))
            && early != late
        {
            words.push(format!("cancelled after {early} s instead of {late} s"));
        }
    }
    words
}
