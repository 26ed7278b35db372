//! A model of the hand-over in `spec/smig.md`, sections 4 to 8, checked exhaustively within bounds.
//!
//! Two endpoints share one stream and two or three connections. Each connection keeps the order of
//! its frames, and nothing else is ordered: the model tries every interleaving of delivery, sending,
//! moving, resetting, GOAWAY and loss that a [`Scenario`] allows, and looks at every state it reaches.
//!
//! An [`Omission`] takes one rule out of the endpoints. The model must then find a broken state;
//! that is how we know that it looks.

mod action;
mod check;
mod endpoint;
mod frame;
mod id;
mod network;
mod omission;
mod property;
mod scenario;
mod suite;
mod world;

pub use check::{Outcome, Violation, check};
pub use omission::Omission;
pub use scenario::{Budget, EndAt, Scenario};
pub use suite::{Size, suite, witness};
