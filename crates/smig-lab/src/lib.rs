//! Emulated links and the measurements made over them.
//!
//! - [`link`]: a bottleneck link as a model without sockets or clocks;
//! - [`netns`]: two hosts on one machine, joined by that link, with real TCP
//!   between them (Linux);
//! - [`check`]: whether the emulated links do what they are told;
//! - [`hystart`]: the one TCP setting that is the whole machine's (Linux);
//! - [`demo`]: what the demonstration records and how it is told;
//! - [`browser`]: a browser through agent and gateway, beside a download (Linux);
//! - [`sample`]: what happens during a run, all on one clock;
//! - [`compare`]: results held against each other;
//! - [`survey`]: large objects on the sites of the web, the paper's Table 1;
//! - [`stats`]: medians, intervals, tests and effects, as pure functions;
//! - [`scenario`]: what is to be measured, from a TOML file;
//! - [`reproduce`]: the paper's evaluation, with its numbers beside ours;
//! - [`report`]: charts and pages; [`terminal`]: the same while it runs;
//! - [`stop`]: a person's wish to end a measurement, seen by all its threads;
//! - [`lateness`]: how far behind its own schedule the emulator ran, which
//!   every result carries.

#[cfg(target_os = "linux")]
pub mod browser;
#[cfg(target_os = "linux")]
pub mod campaign;
#[cfg(target_os = "linux")]
pub mod check;
pub mod compare;
pub mod demo;
#[cfg(target_os = "linux")]
pub mod hystart;
pub mod lateness;
pub mod link;
pub mod millis;
#[cfg(target_os = "linux")]
pub mod netns;
#[cfg(target_os = "linux")]
pub mod peer;
pub mod report;
#[cfg(target_os = "linux")]
pub mod reproduce;
pub mod sample;
pub mod scenario;
pub mod stats;
#[cfg(target_os = "linux")]
pub mod stop;
pub mod survey;
pub mod terminal;
#[cfg(target_os = "linux")]
pub mod workload;
