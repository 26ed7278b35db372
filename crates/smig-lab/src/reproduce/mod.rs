//! Reproduces the paper's evaluation: one experiment per figure, with the paper's numbers beside ours.
//!
//! The paper's claims, and the report's texts on our results, are files in this crate's `claims/`. This
//! module owns their evaluation, the conversion of results to tables and charts, and the combined report. The
//! trials are run by [`crate::campaign`]; only Table 1's survey of a test web runs here.

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
pub use data_table::{DataCell, DataColumn, DataTable};
pub use document::{render_json, summary};
pub use experiment::{Experiment, Extent};
pub use files::{ReportFiles, write_report};
pub use finding::{Chart, ClaimRow, Finding};
pub use table_1::{EXPERIMENT_NAME as SURVEY, TestWebError, read_survey, survey_test_web};

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
    let mut finding = Finding::with_claims(experiment, extent, &runs);
    let mut facts = Facts::new(fact_names(experiment.name));
    match experiment.name {
        "slide-table" => figures_4_to_7::fill_slide_table(&runs, &mut finding, &mut facts),
        "figure-8" => figures_8_9::fill_by_small_size(&runs, &mut finding, &mut facts),
        "figure-9" => figures_8_9::fill_by_big_size(&runs, &mut finding, &mut facts),
        "figure-10" => figure_10::fill_big_file(&runs, &mut finding, &mut facts),
        "figure-11" | "table-2" => {
            figure_11_table_2::fill_after_cancel(&runs, &mut finding, &mut facts);
        }
        _ => figures_4_to_7::fill_beside_big(&runs, &mut finding, &mut facts),
    }
    finding.add_report_texts(&facts);
    finding
}

/// Returns the names of the values that a figure's report can use.
fn fact_names(figure: &str) -> FactNames {
    match figure {
        "slide-table" => figures_4_to_7::SLIDE_TABLE_FACTS,
        "table-1" => table_1::SURVEY_FACTS,
        "figure-8" => figures_8_9::BY_SMALL_SIZE_FACTS,
        "figure-9" => figures_8_9::BY_BIG_SIZE_FACTS,
        "figure-10" => figure_10::BIG_FILE_FACTS,
        "figure-11" | "table-2" => figure_11_table_2::AFTER_CANCEL_FACTS,
        _ => figures_4_to_7::BESIDE_BIG_FACTS,
    }
}
