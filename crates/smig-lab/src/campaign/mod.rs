//! Campaigns: many cells, each in a process of its own, with results that can be merged.
//!
//! Owns the list of outstanding cells, how often a disturbed one is repeated, and the files of
//! results. A written result is never changed.

mod merge;
mod plan;
mod run;
mod store;

pub use merge::{Merged, merge};
pub use plan::{CampaignError, Disturbed, Missing, Options, Plan, plan};
pub use run::{Event, Summary, keep_scenario, run};
pub use store::{read_results, results_in};

pub use crate::trial::{Build, Origin, TrialResult, doubt};
