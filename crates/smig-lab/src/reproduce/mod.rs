//! Reproduces the paper's evaluation: one experiment per figure, with the paper's numbers beside ours.
//!
//! Owns the mapping of scenarios to figures, the paper's claims about them, the conversion of results to a
//! table, a chart and sentences, and the combined report. Runs nothing itself: [`crate::campaign`] does.
//! Contains only numbers that the paper's text gives.

mod chart;
mod claim;
mod document;
mod experiment;
mod files;
mod finding;
mod measure;
mod moved;
mod paper;
mod scheme;
mod sizes;
mod small;
mod tail;
#[cfg(test)]
mod tests;
mod web;

pub use claim::{Claim, ClaimResult, Expected};
pub use document::{render_html, render_json, summary};
pub use experiment::{Experiment, Extent};
pub use files::{Written, write_report};
pub use finding::{Cell, Chart, Column, DataTable, Finding, Row};
pub use paper::claims_of;
pub use web::{NAME as SURVEY, SURVEY_FILE, WebError, read_survey, survey_test_web};

use smig_survey::Table;

use crate::campaign::TrialResult;

/// Returns the finding of every figure, in the paper's order. Results of other campaigns are ignored; if a
/// figure has full and quick results, the full ones are used. `survey` is that of the test sites.
#[must_use]
pub fn findings(results: &[TrialResult], survey: Option<&Table>) -> Vec<Finding> {
    let measured = Experiment::all().iter().map(|experiment| finding(experiment, results));
    let mut findings: Vec<_> = measured.collect();
    // After the slides' table, which summarises the paper's question.
    findings.insert(1, web::finding(survey));
    findings
}

fn finding(experiment: &Experiment, results: &[TrialResult]) -> Finding {
    let of = |extent| {
        let name = experiment.campaign_name(extent);
        let mine = results.iter().filter(|result| result.id.campaign == name);
        mine.collect::<Vec<_>>()
    };
    let full = of(Extent::Full);
    let (extent, mine) =
        if full.is_empty() { (Extent::Quick, of(Extent::Quick)) } else { (Extent::Full, full) };
    if mine.is_empty() {
        return Finding::missing(experiment, "no results in this directory");
    }
    let mut finding = Finding::begin(experiment, extent, &mine);
    match experiment.name {
        "slide-table" => small::slide_table(&mine, &mut finding),
        "figure-8" => sizes::by_small_size(&mine, &mut finding),
        "figure-9" => sizes::by_big_size(&mine, &mut finding),
        "figure-10" => moved::big_file(&mine, &mut finding),
        "figure-11" => tail::figure_11(&mine, &mut finding),
        "table-2" => tail::table_2(&mine, &mut finding),
        _ => small::beside_big(&mine, &mut finding),
    }
    finding
}
