//! Emulated links and the measurements made over them.
//!
//! - [`recording`]: time series of a run, all on one clock;
//! - [`compare`]: comparison of results;
//! - [`scenario`]: what to measure, from a TOML file;
//! - [`reproduce`]: the paper's evaluation, with its numbers beside ours;
//! - [`timeline`]: the samples of a run on one time axis.

#[cfg(target_os = "linux")]
pub mod campaign;
pub mod compare;
#[cfg(target_os = "linux")]
pub mod peer;
pub mod recording;
#[cfg(target_os = "linux")]
pub mod reproduce;
pub mod scenario;
pub mod timeline;
#[cfg(target_os = "linux")]
pub mod workload;
