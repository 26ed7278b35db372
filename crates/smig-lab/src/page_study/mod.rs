//! One page: loaded over some networks by some versions of HTTP, and why it was as late as it was.
//!
//! Owns the scenario that a page becomes, the summary of its loads, and their report. The loads are trials of a
//! [`crate::campaign`]; what a load waited for is derived by [`crate::timeline::page_load`].

mod budget;
mod comparison;
mod har_file;
mod host_plan;
mod primer;
mod protocol;
mod report;
mod screen;
mod source;
mod spec;
mod summary;
#[cfg(test)]
mod tests;
mod tidy;

pub use budget::{Budget, BudgetCheck, to_junit};
pub use har_file::to_har;
pub use host_plan::HostPlan;
pub use primer::{HostChoice, PageHostLoad, choices_table};
pub use protocol::{Loader, Protocol};
pub use report::{render_html, render_svg, times_table, warnings};
pub use screen::render_filmstrips;
pub use source::{PageSource, SourceError};
pub use spec::PageStudy;
pub use summary::{MeasuredLoad, PageSummary, keep_recordings, results_of, summarize};
pub use tidy::to_tidy_table;
