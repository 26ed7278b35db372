//! Comparison of results: how much they differ, how certain that is, and whether it matters.
//!
//! Owns the numbers and sentences of a comparison. It compares [`Series`], the values of one metric
//! by run; [`series_of`] extracts them from a campaign's results. All statistics come from
//! [`stats`](smig_stats). A comparison claims no more than its runs support: values of one run
//! depend on each other, so intervals resample entire runs, and the sentence says if there are
//! few runs.

mod difference;
mod metrics;
mod order;
mod pivot;
mod select;
mod sentence;
mod table;
#[cfg(test)]
mod tests;

pub use difference::{BetterDirection, Comparison, Series, SideSummary, compare};
pub use metrics::series_of;
pub use order::{OrderAgreement, order_agreements};
pub use pivot::{Pivot, pivot};
pub use select::{Selector, SelectorError, SettingRuns, pair_by_setting};
pub use table::table;
