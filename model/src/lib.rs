//! A model of the hand-over in `spec/smig.md`, sections 4 to 8, checked exhaustively within bounds.
//!
//! Two endpoints share one stream and two or three connections. Each connection keeps the order of
//! its frames, and nothing else is ordered: the model tries every interleaving of delivery, sending,
//! moving, resetting, GOAWAY and loss that a [`Scenario`] allows, and looks at every state it reaches.
//!
//! The bounds: one to three units of data a direction, windows of one or two units, so that credit
//! matters; each event as often as the scenario's [`Budget`] says, at any moment; a lost connection
//! loses any suffix of each direction, and the two ends notice on their own. Each step uses up a unit,
//! a frame or some budget, so there are no cycles: what never comes to rest badly comes to rest well.
//!
//! Not in the model: a second stream (skipped ids, SMIG-5.26/skipped-ids), connection windows,
//! HPACK, the proofs of JOIN, limits (SMIG-5.9/open-limit, SMIG-5.22/unbound-bytes,
//! SMIG-5.23/unbound-count), a peer that breaks rules or never answers (SMIG-8.13/answer-timeout),
//! push.
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
