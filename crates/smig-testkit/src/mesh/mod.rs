//! A client's engine, one or more of a server's, and the connections between them, in virtual time.
//!
//! A [`World`] holds a client's session, a server's sessions and the connections between them. An
//! [`Op`] is one step: an application writes, an engine migrates a stream, bytes arrive, a
//! connection fails. A reference model stores what each application sent, so that every byte
//! received is checked, and at the end no stream may be stuck and no state left.
//! [`run_random_sequences`] runs random steps and shrinks those that fail; [`replay`] runs a fixed
//! sequence.
//!
//! Plain synchronous code: the same seed gives the same run.

mod apps;
mod check;
mod events;
mod exchange;
mod frame_inspector;
mod link;
mod net;
mod op;
mod plan;
mod rng;
mod run;
mod setup;
mod shrink;
mod steps;
mod world;

pub use frame_inspector::FaultInjection;
pub use link::Side;
pub use net::Mesh;
pub use op::{MigrateTo, Op, random_sequence};
pub use plan::{BodyPlan, ExchangeKind, Plan};
pub use rng::Rng;
pub use run::{
    Coverage, replay, replay_with_fault, run_random_sequences, sequence_from_seed, trace,
};
pub use setup::Setup;
pub use shrink::Failure;
pub use world::World;
