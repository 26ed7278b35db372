//! Why a page was late: its critical path, and what each part of it waited for.
//!
//! Pure functions of a timeline: requests, TCP and the link's queue are on one clock there.

mod critical_path;
mod lateness;
mod network;
#[cfg(test)]
mod tests;

pub(in crate::timeline) use critical_path::end_us;
pub(crate) use critical_path::phases;
pub use critical_path::{Phase, Step, StepKind, critical_path, requests_of};
pub use lateness::{Cause, Lateness};
