//! Reproduces the paper's evaluation: one experiment per figure, with the paper's numbers beside ours.
//!
//! What the paper claims, and what the report says of our results, are the files in this crate's `claims/`. This
//! module owns their evaluation, the conversion of results to tables and charts, and the combined report. Runs
//! nothing itself: [`crate::campaign`] does.

mod chart;
mod claim;
mod data_table;
mod document;
mod evaluate;
mod experiment;
mod facts;
mod figure_10;
mod figure_11_table_2;
mod figures_4_to_7;
mod figures_8_9;
mod files;
mod finding;
mod judgement;
mod measure;
mod paper;
mod scheme;
mod table_1;
mod template;
#[cfg(test)]
mod tests;

pub use claim::{Claim, ClaimResult, Expected};
pub use data_table::{Cell, Column, DataTable};
pub use document::{render_json, summary};
pub use experiment::{Experiment, Extent};
pub use files::{Written, write_report};
pub use finding::{Chart, Finding, Row};
pub use table_1::{NAME as SURVEY, WebError, read_survey, survey_test_web};

use smig_survey::Table;

use crate::campaign::TrialResult;
use facts::{FactNames, Facts};

/// Returns the finding of every figure, in the paper's order. Results of other campaigns are ignored; if a
/// figure has full and quick results, the full ones are used. `survey` is that of the test sites.
#[must_use]
pub fn findings(results: &[TrialResult], survey: Option<&Table>) -> Vec<Finding> {
    let measured = Experiment::all().iter().map(|experiment| finding(experiment, results));
    let mut findings: Vec<_> = measured.collect();
    // After the slides' table, which summarises the paper's question.
    findings.splice(1..1, table_1::finding(survey));
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
    let mut facts = Facts::new(fact_names(experiment.name));
    match experiment.name {
        "slide-table" => figures_4_to_7::slide_table(&mine, &mut finding, &mut facts),
        "figure-8" => figures_8_9::by_small_size(&mine, &mut finding, &mut facts),
        "figure-9" => figures_8_9::by_big_size(&mine, &mut finding, &mut facts),
        "figure-10" => figure_10::big_file(&mine, &mut finding, &mut facts),
        "figure-11" | "table-2" => {
            figure_11_table_2::after_cancel(&mine, &mut finding, &mut facts);
        }
        _ => figures_4_to_7::beside_big(&mine, &mut finding, &mut facts),
    }
    finding.report(&facts);
    finding
}

/// Returns the names of the values that a figure's report can use.
fn fact_names(figure: &str) -> FactNames {
    match figure {
        "slide-table" => figures_4_to_7::SLIDE_TABLE,
        "table-1" => table_1::SURVEY,
        "figure-8" => figures_8_9::BY_SMALL_SIZE,
        "figure-9" => figures_8_9::BY_BIG_SIZE,
        "figure-10" => figure_10::BIG_FILE,
        "figure-11" | "table-2" => figure_11_table_2::AFTER_CANCEL,
        _ => figures_4_to_7::BESIDE_BIG,
    }
}
