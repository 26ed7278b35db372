//! The state of a stream between the application and the session's task: bodies in both directions.

mod incoming;
mod inflow;
mod info;
mod intake;
mod outflow;
mod shared;

pub use incoming::Incoming;
pub use info::{Segment, StreamInfo};

pub(crate) use inflow::{BodyRecvState, feed};
pub(crate) use intake::Intake;
pub(crate) use outflow::{Length, SendProgress, pump};
pub(crate) use shared::{Head, Sends, Shared};
