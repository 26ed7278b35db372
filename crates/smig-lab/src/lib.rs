//! Measurements of servers and clients over emulated links.
//!
//! - [`scenario`]: what to measure, from a TOML file;
//! - [`trial`]: one run of a scenario, and its result (Linux);
//! - [`campaign`]: many trials, each in a process of its own, and their results (Linux);
//! - [`peer`]: the servers; [`workload`]: the clients (Linux);
//! - [`recording`]: time series of a run, all on one clock;
//! - [`timeline`]: these on one time axis: the file and its chart;
//! - [`compare`]: comparison of results;
//! - [`reproduce`]: the paper's evaluation, with its numbers beside ours (Linux).

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
pub mod trial;
#[cfg(target_os = "linux")]
pub mod workload;
