//! The SMig paper (CoNEXT 2016): how the results of each of its figures become tables, charts and facts.

mod figure_10;
mod figure_11_table_2;
mod figures_4_to_7;
mod figures_8_9;
pub(super) mod scheme;
mod table_1;

pub use table_1::{EXPERIMENT_NAME as SURVEY, TestWebError, read_survey, survey_test_web};

use super::evidence::Evidence;
use super::facts::{FactNames, Facts};
use super::finding::Finding;
use super::paper::Figure;
use crate::campaign::TrialResult;

/// Fills in table, charts and facts of a figure.
pub(super) fn fill(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    match finding.name {
        "slide-table" => figures_4_to_7::fill_slide_table(results, finding, facts),
        "figure-8" => figures_8_9::fill_by_small_size(results, finding, facts),
        "figure-9" => figures_8_9::fill_by_big_size(results, finding, facts),
        "figure-10" => figure_10::fill_big_file(results, finding, facts),
        "figure-11" | "table-2" => figure_11_table_2::fill_after_cancel(results, finding, facts),
        _ => figures_4_to_7::fill_beside_big(results, finding, facts),
    }
}

/// Returns the names of the values that a figure's report can use.
pub(super) fn fact_names(figure: &str) -> FactNames {
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

/// Returns the finding of a figure that no trials measure: Table 1.
pub(super) fn without_trials(figure: &'static Figure, evidence: &Evidence) -> Finding {
    table_1::finding(figure, evidence.survey.as_ref())
}
