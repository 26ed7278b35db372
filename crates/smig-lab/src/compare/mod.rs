//! Results held against each other: how much they differ, how sure that is, and whether it matters.
//!
//! Owns the numbers and sentences of a comparison. What is compared are [`Series`]: values of one
//! metric by run. [`series_of`] makes them of a campaign's results. It computes with
//! [`stats`](crate::stats) alone, and never tells a result better than its runs allow: values of one
//! run depend on each other, so intervals draw whole runs, and with few runs the words say so.

mod difference;
#[cfg(target_os = "linux")]
mod metrics;
#[cfg(target_os = "linux")]
mod select;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use difference::{Better, Comparison, Series, Side, compare};
#[cfg(target_os = "linux")]
pub use metrics::series_of;
#[cfg(target_os = "linux")]
pub use select::{Group, Selector, SelectorError, pair};
pub use table::table;
