//! Campaigns: many cells, each in a process of its own, with results that can be merged.
//!
//! Owns the format of results, the criteria for runs to count, and the list of outstanding cells. A
//! written result is never changed.

mod cell;
mod folder;
mod length;
mod machine;
mod merge;
mod origin;
mod plan;
mod result;
mod run;
mod store;

pub use cell::{CellError, TrialRequest, check, run_cell};
pub use length::estimated_duration;
pub use merge::{Merged, merge};
pub use origin::{Build, Builds, Origin, Unvouched, doubt};
pub use plan::{CampaignError, Disturbed, Missing, Options, Plan, plan};
pub use result::{FORMAT, Machine, TrialResult};
pub use run::{Event, Summary, keep_scenario, run};
pub use store::{read_results, results_in};
