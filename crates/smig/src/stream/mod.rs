//! The state of a stream between the application and the session's task: bodies in both directions.

mod incoming;
mod inflow;
mod info;
mod intake;
mod length;
mod outflow;
mod request_body;
mod shared;

pub use incoming::Incoming;
pub use info::{Segment, StreamInfo};

pub(crate) use inflow::{BodyRecvState, feed};
pub(crate) use intake::Intake;
pub(crate) use length::{Length, content_length};
pub(crate) use outflow::{SendProgress, pump};
pub(crate) use request_body::{RequestBody, Unsent};
pub(crate) use shared::{Head, Sends, Shared};
