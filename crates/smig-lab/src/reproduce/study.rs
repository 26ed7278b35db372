//! The studies that are measured again: which figures each has, and the texts of its report.
//!
//! A study is a directory of claims, one file per figure, with a `study.toml` for what its whole report says. To add
//! one: its files in `claims/`, its scenarios in `experiment.rs`, and a module that turns results into tables and charts.

use std::sync::LazyLock;

use serde::Deserialize;

use super::evidence::Evidence;
use super::experiment::{Experiment, Extent};
use super::facts::{FactNames, Facts};
use super::finding::Finding;
use super::paper::Figure;
use super::{delay, mosaic, smig};
use crate::campaign::TrialResult;

/// Fills in table, charts and facts of a figure from the results of its runs.
pub(super) type Fill = fn(&[&TrialResult], &mut Finding, &mut Facts, &Evidence);

/// A publication whose figures are measured again.
#[derive(Debug)]
pub struct Study {
    /// The name: `smig`, `delay`.
    pub name: &'static str,
    /// The name of all its figures together on the command line.
    pub word: &'static str,
    pub(super) texts: &'static StudyTexts,
    fill: Fill,
    fact_names: fn(&str) -> FactNames,
    without_trials: fn(&'static Figure, &Evidence) -> Finding,
}

/// What a study's report says, apart from its figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StudyTexts {
    /// The title of the page.
    pub(super) title: String,
    /// What makes the claims: `paper`.
    pub(super) claimant: String,
    /// A line for lists.
    pub(super) about: String,
    /// Warning above a quick report.
    pub(super) quick: String,
    /// Which rules its claims are judged by.
    pub(super) rules: Rules,
    /// Paragraphs below the claims.
    pub(super) notes: Vec<String>,
    /// The heading of the list of terms.
    pub(super) terms_heading: String,
    /// Names in charts and tables, and what they mean.
    #[serde(default)]
    pub(super) terms: Vec<Term>,
    pub(super) network: String,
    pub(super) numbers: String,
    pub(super) source: String,
}

/// A name and its meaning.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Term {
    pub(super) name: String,
    pub(super) about: String,
}

/// Rules of [`super::judgement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Rules {
    /// For values and differences.
    Values,
    /// For shares of cells, and differences.
    Cells,
}

macro_rules! texts {
    ($path:literal) => {
        toml::from_str(include_str!(concat!("../../claims/", $path)))
            .unwrap_or_else(|error| panic!("claims/{}: {error}", $path))
    };
}

/// The files are part of the program, and a test parses them: errors cannot reach users.
static SMIG_TEXTS: LazyLock<StudyTexts> = LazyLock::new(|| texts!("study.toml"));
static DELAY_TEXTS: LazyLock<StudyTexts> = LazyLock::new(|| texts!("delay/study.toml"));
static MOSAIC_TEXTS: LazyLock<StudyTexts> = LazyLock::new(|| texts!("mosaic/study.toml"));

static STUDIES: LazyLock<[Study; 3]> = LazyLock::new(|| {
    [
        Study {
            name: "smig",
            word: "all",
            texts: &SMIG_TEXTS,
            fill: |results, finding, facts, _| smig::fill(results, finding, facts),
            fact_names: smig::fact_names,
            without_trials: smig::without_trials,
        },
        Study {
            name: "delay",
            word: "delay",
            texts: &DELAY_TEXTS,
            fill: delay::fill,
            fact_names: |_| super::page_table::PAGE_FACTS,
            without_trials: delay::without_trials,
        },
        Study {
            name: "mosaic",
            word: "mosaic",
            texts: &MOSAIC_TEXTS,
            fill: |results, finding, facts, _| mosaic::fill(results, finding, facts),
            fact_names: |_| super::page_table::PAGE_FACTS,
            without_trials: |figure, _| Finding::unmeasured(figure, "docs/pages.md"),
        },
    ]
});

impl Study {
    /// Returns all studies.
    #[must_use]
    pub fn all() -> &'static [Self] {
        &*STUDIES
    }

    /// Returns the study of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::all().iter().find(|study| study.name == name)
    }

    /// Returns the study that has a figure of this name.
    #[must_use]
    pub fn of_figure(name: &str) -> Option<&'static Self> {
        let figure = Figure::by_name(name)?;
        Self::by_name(figure.study)
    }

    /// Returns the study of results; `None` if there are none, or of other campaigns.
    #[must_use]
    pub fn of_results(results: &[TrialResult]) -> Option<&'static Self> {
        results.iter().find_map(|result| {
            let campaign = &result.id.campaign;
            Self::of_figure(campaign.strip_suffix("-quick").unwrap_or(campaign))
        })
    }

    /// Returns what it is, in a line.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.texts.about
    }

    /// Returns the names of its figures, in its order.
    pub fn figure_names(&self) -> impl Iterator<Item = &'static str> {
        self.figures().map(|figure| figure.name)
    }

    pub(super) fn figures(&self) -> impl Iterator<Item = &'static Figure> {
        let name = self.name;
        Figure::all().iter().filter(move |figure| figure.study == name)
    }

    /// Returns the figures that trials measure, in its order.
    pub fn experiments(&self) -> impl Iterator<Item = &'static Experiment> {
        let name = self.name;
        Experiment::all().iter().filter(move |experiment| experiment.study == name)
    }

    /// Returns the names of the values that a figure's report can use.
    pub(super) fn fact_names(&self, figure: &str) -> FactNames {
        (self.fact_names)(figure)
    }

    /// Returns the finding of every figure, in its order. Results of other campaigns are ignored; if a figure has full
    /// and quick results, the full ones are used.
    #[must_use]
    pub fn findings(&self, results: &[TrialResult], evidence: &Evidence) -> Vec<Finding> {
        let finding = |figure: &'static Figure| match Experiment::by_name(figure.name) {
            Some(experiment) => self.finding(experiment, results, evidence),
            None => (self.without_trials)(figure, evidence),
        };
        self.figures().map(finding).collect()
    }

    fn finding(
        &self,
        experiment: &Experiment,
        results: &[TrialResult],
        evidence: &Evidence,
    ) -> Finding {
        let runs_of = |extent| {
            let name = experiment.campaign_name(extent);
            let runs = results.iter().filter(|result| result.id.campaign == name);
            runs.collect::<Vec<_>>()
        };
        let full = runs_of(Extent::Full);
        let (extent, runs) = if full.is_empty() {
            (Extent::Quick, runs_of(Extent::Quick))
        } else {
            (Extent::Full, full)
        };
        if runs.is_empty() {
            return Finding::without_results(experiment, "no results in this directory");
        }
        let mut finding = Finding::with_claims(experiment, extent, &runs, evidence);
        let mut facts = Facts::new(self.fact_names(experiment.name));
        (self.fill)(&runs, &mut finding, &mut facts, evidence);
        finding.add_report_texts(&facts);
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_study_has_texts_figures_and_a_word_of_its_own() {
        for study in Study::all() {
            assert!(!study.texts.title.is_empty() && study.figures().count() > 0, "{}", study.name);
            assert!(Study::of_figure(study.word).is_none(), "{}: also a figure", study.word);
            for name in study.figure_names() {
                assert_eq!(Study::of_figure(name).map(|of| of.name), Some(study.name));
            }
        }
    }
}
