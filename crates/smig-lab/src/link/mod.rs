//! Bottleneck links as a model: rates that vary, delay and jitter, loss, queue
//! disciplines, each direction by itself.
//!
//! Owns the arithmetic of when a packet leaves and arrives, and the links that
//! have a name. It has no socket, clock or thread: time is an argument, so the
//! same code runs under real TCP (`netns`) and in tests with a virtual clock.
//! Nothing here reorders the packets of a flow, and all that is random follows
//! from a seed.
//!
//! | file | owns |
//! |---|---|
//! | `spec`, `rate`, `discipline` | what stands in a file |
//! | `profile` | links by name |
//! | `model` | [`Link`]: one direction, from queue to arrival |
//! | `queue/` | drop-tail, drop-head, `CoDel`, fair queue |
//! | `wire`, `trace`, `lte` | when bits leave |
//! | `delays`, `loss`, `random` | what happens to them on the way |
//! | `log`, `report` | what is told of it |

mod delays;
mod discipline;
mod log;
mod loss;
mod lte;
mod model;
mod packet;
mod profile;
mod queue;
mod random;
mod rate;
mod report;
mod spec;
#[cfg(test)]
mod tests;
mod trace;
mod units;
mod wire;

pub use delays::{JitterSpec, NormalJitter, Slowdown, UniformJitter};
pub use discipline::{CoDelSpec, Discipline, FairSpec};
pub use log::{DropReason, LinkEvent, LinkEventKind, LinkLog};
pub use loss::{Bursts, LossSpec};
pub use lte::LteSpec;
pub use model::{Arrival, Link, Verdict};
pub use packet::{Packet, Ports};
pub use profile::Profile;
pub use rate::{RateSpec, RateStep, Steps};
pub use report::{LinkCounters, LinkReport, Scheduling};
pub use spec::{DirectionSpec, LinkSpec, QueueLimit, SpecError, USUAL_MTU};
pub use trace::{OPPORTUNITY_BYTES, Trace, TraceError};
pub use units::{Rate, RateError, Time};
