//! Emulated links and the measurements made over them.
//!
//! - [`link`]: a bottleneck link as a model without sockets or clocks;
//! - [`netns`]: two hosts on one machine, joined by that link, with real TCP
//!   between them (Linux);
//! - [`demo`]: what the demonstration records and how it is told;
//! - [`report`]: charts and pages; [`terminal`]: the same while it runs;
//! - [`lateness`]: how far behind its own schedule the emulator ran, which
//!   every result carries.

pub mod demo;
pub mod lateness;
pub mod link;
pub mod millis;
#[cfg(target_os = "linux")]
pub mod netns;
pub mod report;
pub mod terminal;
