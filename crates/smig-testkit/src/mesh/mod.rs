//! Two engines and several connections in virtual time.
//!
//! A [`World`] holds a client's session, a server's sessions and the connections between them. An
//! [`Op`] is one step: an application writes, an engine migrates a stream, bytes arrive, a
//! connection fails. A reference model stores what each application sent, so that every byte
//! received is checked, and at the end no stream may be stuck and no state left.
//! [`random_sequences`] runs random steps and shrinks those that fail; [`replay`] runs a fixed
//! sequence.
//!
//! Plain synchronous code: the same seed gives the same run.

mod apps;
mod check;
mod events;
mod link;
mod net;
mod op;
mod plan;
mod rng;
mod run;
mod setup;
mod shrink;
mod steps;
mod talk;
mod watch;
mod world;

pub use link::Side;
pub use net::Mesh;
pub use op::{MigrateTo, Op, sequence};
pub use plan::{Flow, Kind, Plan};
pub use rng::Rng;
pub use run::{Coverage, random, random_sequences, replay, replay_with_fault, trace};
pub use setup::Setup;
pub use shrink::Failure;
pub use watch::FaultInjection;
pub use world::World;
