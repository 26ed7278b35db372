//! Limits the rate of bulk, the connections that streams have migrated to, so that interactive responses on the same
//! path find a short queue.
//!
//! Three parts without I/O; [`ConnSet`](super::ConnSet) measures the sockets for them and sets the result as
//! SO_MAX_PACING_RATE:
//!
//! 1. [`DeliveryRate`](delivery_rate::DeliveryRate) turns counts of bytes sent and acknowledged into the rate and the
//!    round-trip time of the path.
//! 2. [`Pacer`] turns these into a limit for all bulk connections together: near the delivery rate while round trips
//!    show a queue, slightly above it while they show none. This bounds the queue in the long run.
//! 3. [`BulkDeferral`] computes for how long the bytes that interactive connections have just sent occupy the
//!    path. For that time bulk gets only the path's rate divided by [`DEFERRED_RATE_DIVISOR`]. This keeps the queue from growing
//!    at the moment when a response needs it short.
//!
//! A session without bulk has only an inactive [`BulkDeferral`].

mod deferral;
mod delivery_rate;
mod pacer;

pub(super) use deferral::{BulkDeferral, DEFERRED_RATE_DIVISOR};
pub(super) use pacer::{MIN_PACED_RTT, Pacer, RateSample};
