//! Campaigns: many trials, each in a process of its own, with results that can be merged.
//!
//! Owns the list of outstanding trials, how often a disturbed one is repeated, and the files of
//! results. A written result is never changed.

mod jobs;
mod merge;
mod plan;
mod run;
mod store;

pub use jobs::Jobs;
pub use merge::{MergeSummary, merge};
pub use plan::{
    CampaignError, CampaignOptions, MissingServer, OnDisturbed, Plan, plan, plan_trials,
};
pub use run::{CampaignEvent, CampaignSummary, copy_scenario, run};
pub use store::{read_results, result_files};

pub use crate::trial::{Build, Origin, TrialResult, build_inconsistency};
