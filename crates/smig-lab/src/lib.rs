//! Measurements of servers and clients over emulated links. Linux only.
//!
//! - [`scenario`]: what to measure, from a TOML file;
//! - [`trial`]: one run of a scenario, and its result;
//! - [`campaign`]: many trials, each in a process of its own, and their results;
//! - [`cross_traffic`]: the traffic of other users;
//! - [`servers`]: the servers; [`workload`]: the clients;
//! - [`record`]: records a page with a browser;
//! - [`recording`]: time series of a run, all on one clock;
//! - [`timeline`]: a recording on one time axis: its file and its chart;
//! - [`compare`]: comparison of results;
//! - [`har`]: recordings of pages;
//! - [`replay`]: answers a browser as a recording's servers did;
//! - [`identify`]: which congestion control a sender has;
//! - [`page_study`]: one page over some networks by some versions of HTTP, and why it was late;
//! - [`matrix`]: many networks and many ways to transfer, and who is best where;
//! - [`reproduce`]: the paper's evaluation, with its numbers beside ours.

#![cfg(target_os = "linux")]

pub mod campaign;
pub mod compare;
pub mod cross_traffic;
pub mod har;
pub mod identify;
pub mod matrix;
pub mod page_study;
pub mod record;
pub mod recording;
pub mod replay;
pub mod reproduce;
pub mod scenario;
pub mod servers;
pub mod timeline;
pub mod trial;
pub mod workload;
