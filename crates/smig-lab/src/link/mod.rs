//! A bottleneck link as a model: one direction, constant rate, propagation
//! delay, drop-tail queue.
//!
//! Owns the arithmetic of when a packet leaves and arrives. It has no socket,
//! clock or thread: time is an argument, so the same code runs under real TCP
//! (`netns`) and in tests with a virtual clock. It never reorders packets.

mod log;
mod model;
mod report;
mod spec;
#[cfg(test)]
mod tests;
mod units;

pub use log::{LinkEvent, LinkEventKind, LinkLog};
pub use model::{Arrival, Link, LinkCounters, Verdict, WireSize};
pub use report::{LinkReport, Scheduling};
pub use spec::{DirectionSpec, LinkSpec, QueueLimit};
pub use units::{Rate, Time};
