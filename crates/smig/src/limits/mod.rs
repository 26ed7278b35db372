//! Limits of connections and of waiting requests. Each connection or request within a limit holds a permit, which is
//! released on drop.

mod client_quota;
mod connections;
mod queue;

pub use connections::{ConnectionLimit, ConnectionPermit};
pub use queue::QueueLimit;

pub(crate) use client_quota::ClientQuota;
pub(crate) use connections::OpenPermit;
pub(crate) use queue::{QueuePermit, QueueReservation};
