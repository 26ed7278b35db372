//! Measures the figures of published studies again, with each study's numbers beside ours.
//!
//! A [`Study`]'s claims, and the report's texts on our results, are files in this crate's `claims/`. This
//! module owns their evaluation, the conversion of results to tables and charts, and the combined report; what only one
//! study needs is in a folder of its name. The trials are run by [`crate::campaign`]; only Table 1's survey of a test web
//! runs here.

mod cells;
mod chart;
mod claim;
mod data_table;
mod delay;
mod document;
mod drawing;
mod evaluate;
mod evidence;
mod experiment;
mod facts;
mod files;
mod finding;
mod judgement;
mod measure;
mod mosaic;
mod page_dots;
mod page_table;
#[cfg(test)]
mod page_tests;
mod paper;
mod quick;
mod smig;
mod study;
mod template;
#[cfg(test)]
mod tests;

pub use claim::{Claim, ClaimResult, Expected};
pub use data_table::{DataCell, DataColumn, DataTable};
pub use delay::{PROBES_FILE, SENDERS};
pub use document::{render_json, summary};
pub use evidence::{Evidence, EvidenceError};
pub use experiment::{Experiment, Extent};
pub use files::{ReportFiles, write_report};
pub use finding::{Chart, ClaimRow, Finding};
pub use smig::{SURVEY, TestWebError, read_survey, survey_test_web};
pub use study::Study;
