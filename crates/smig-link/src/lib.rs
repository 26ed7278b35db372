//! Model of bottleneck links: variable rates, delay and jitter, loss, queue
//! disciplines, each direction independently.
//!
//! Owns the computation of departure and arrival times, and the named link
//! profiles. It has no socket, clock or thread: time is an argument, so the
//! same code runs under real TCP (`smig-testbed`) and in tests with a virtual clock.
//! Packets of a flow are never reordered, and all randomness comes from a seed.
//!
//! | file | owns |
//! |---|---|
//! | `spec`, `rate`, `discipline`, `link_file` | configuration, as in files |
//! | `profile` | named links |
//! | `model` | [`Link`]: one direction, from queue to arrival |
//! | `queue/` | drop-tail, drop-head, `CoDel`, `fq_codel` |
//! | `transmitter`, `trace`, `lte` | serialisation: when bits leave |
//! | `delays`, `loss`, `outage`, `aggregation`, `random` | propagation delay, loss, and arrival in bursts |
//! | `policer`, `ack_thinning` | what is dropped or held in front of the queue |
//! | `log`, `report` | events and counters |
//! | `lateness` | how late an emulator delivered packets, compared with the model |
//! | [`millis`] | durations in files |

mod ack_thinning;
mod aggregation;
mod delays;
mod discipline;
mod error;
mod lateness;
mod link_file;
mod log;
mod loss;
mod lte;
pub mod millis;
mod model;
mod outage;
mod packet;
mod policer;
mod profile;
mod queue;
mod random;
mod rate;
mod report;
mod spec;
#[cfg(test)]
mod tests;
mod trace;
mod transmitter;
mod units;

pub use ack_thinning::AckThinningSpec;
pub use aggregation::AggregationSpec;
pub use delays::{DelayRamp, JitterSpec, NormalJitter, UniformJitter};
pub use discipline::{CoDelSpec, FqCodelSpec, Qdisc};
pub use error::{SpecError, TraceError};
pub use lateness::{LatenessHistogram, LatenessSummary};
pub use log::{DropReason, LinkEvent, LinkEventKind, LinkLog};
pub use loss::{GilbertElliott, LossSpec};
pub use lte::LteSpec;
pub use model::{Delivery, EnqueueResult, Link};
pub use outage::Outage;
pub use packet::{Packet, Ports};
pub use policer::PolicerSpec;
pub use profile::Profile;
pub use rate::{RateSpec, RateStep, RateSteps};
pub use report::{DirectionCounters, LinkReport, Scheduling};
pub use spec::{DEFAULT_MTU, DirectionSpec, LinkSpec, QueueLimit};
pub use trace::{OPPORTUNITY_BYTES, Trace};
pub use units::{Rate, RateError, Time};
