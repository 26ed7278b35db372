//! Two engines and several connections in virtual time.
//!
//! A [`World`] holds a client's session, a server's sessions and the connections between them; an
//! [`Op`] is one step: an application writes, an engine moves a stream, octets arrive, a connection
//! breaks. A reference model knows what each application sent, so every octet that arrives is
//! checked, and at the end nothing may be stuck or left behind. [`random_sequences`] runs random
//! steps and shortens those that fail; [`replay`] runs a fixed sequence.
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
pub use op::{Op, Whither, sequence};
pub use plan::{Flow, Kind, Plan};
pub use rng::Rng;
pub use run::{Coverage, random, random_sequences, replay, replay_spoiled, trace};
pub use setup::Setup;
pub use shrink::Failure;
pub use watch::Sabotage;
pub use world::World;
