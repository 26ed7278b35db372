//! "Mind the Delay" (CoNEXT 2020): the grid of pages, the windows behind it, mobile links, senders, and three sites.

mod grid;
mod places;
mod senders;
mod sites;
mod windows;

pub use senders::{PROBES_FILE, SENDERS};
pub(super) use senders::{Probes, SenderProbe, read_probes};
pub(super) use windows::{WindowRatio, window_ratios};

use super::evidence::Evidence;
use super::facts::Facts;
use super::finding::Finding;
use super::page_dots::add_dots;
use super::page_table::{PageAxis, PageCell, PageCells};
use super::paper::Figure;
use crate::campaign::TrialResult;
use crate::workload::PageMetric;

/// The order of the congestion controls, as in the paper's figure.
const CONTROLS: &[&str] = &["bbr", "cubic", "yeah", "illinois", "cubic-hystart"];

const CASE_AXES: &[PageAxis] = &[
    PageAxis { key: "case", heading: "page", levels: &["epa", "surveymonkey", "360cn"] },
    PageAxis { key: "control", heading: "control", levels: CONTROLS },
];

/// Fills in tables and pictures of a figure.
pub(super) fn fill(
    results: &[&TrialResult],
    finding: &mut Finding,
    facts: &mut Facts,
    evidence: &Evidence,
) {
    match finding.name {
        "delay-grid" => grid::fill(results, finding, facts),
        "delay-windows" => windows::fill(results, finding, facts, &evidence.windows),
        "delay-places" => places::fill(results, finding, facts),
        "delay-sites" => sites::fill(results, finding, facts),
        _ => fill_cases(results, finding, facts),
    }
}

/// Returns the finding of a figure that no trials measure: Table 1 and Figure 2a, by probes.
pub(super) fn without_trials(figure: &'static Figure, evidence: &Evidence) -> Finding {
    match figure.name {
        "delay-senders" => senders::finding(figure, evidence),
        _ => Finding::unmeasured(figure, "docs/pages.md"),
    }
}

fn fill_cases(results: &[&TrialResult], finding: &mut Finding, facts: &mut Facts) {
    let pages = PageCells::new(results, CASE_AXES);
    pages.fill(PageMetric::SpeedIndex, finding, facts);
    let title = |cell: &PageCell| {
        let page = match cell.levels[0].as_str() {
            "epa" => "as epa.gov",
            "surveymonkey" => "as surveymonkey.com",
            "360cn" => "as 360.cn",
            other => other,
        };
        format!("{page}, {}", cell.levels[1])
    };
    add_dots(&pages, PageMetric::SpeedIndex, finding, title, |_| None);
}
