//! Limits of connections and of waiting requests. What is within a limit holds a permit, which releases its place when it
//! is dropped.

mod client_quota;
mod connections;
mod queue;

pub use connections::{ConnectionLimit, ConnectionPlace};
pub use queue::QueueLimit;

pub(crate) use client_quota::ClientQuota;
pub(crate) use connections::Permit;
pub(crate) use queue::{QueuePlace, Reserved};
