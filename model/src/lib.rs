//! A model of the migration in `spec/smig.md`, sections 4 to 8, and of the resumption in
//! `spec/resumption.md`, checked exhaustively within bounds.
//!
//! Two endpoints share one stream and two or three connections. Each connection preserves the order
//! of its frames, and nothing else is ordered. The model tries every interleaving of delivery,
//! sending, moving, resetting, GOAWAY and loss that a [`Scenario`] allows, and checks every state
//! that it reaches.
//!
//! The bounds: up to two units of data from client to server (none in a GET) and one to three back;
//! windows of one or two units, so that credit matters; each event as often as the scenario's
//! [`Budget`] permits, at any time. A lost connection loses any suffix of each direction, and the
//! two ends notice independently. Each step consumes a unit, a frame or budget, so there are no
//! cycles: every path ends in a state at rest, which is checked.
//!
//! Scenarios with resumption have one or two units a direction and three connections: a stream has to
//! survive the loss of any of them as long as one is left. Receipts and resumptions of streams whose
//! connection lives are events with a budget, too.
//!
//! Not in the model: a second stream (skipped IDs, SMIG-5.26/skipped-ids), connection windows,
//! HPACK, the proofs of JOIN, limits (SMIG-5.9/open-limit, SMIG-5.22/unbound-bytes,
//! SMIG-5.23/unbound-count), a peer that violates rules or never answers
//! (SMIG-8.13/answer-timeout), push, the time of `linger`, stopped uploads together with resumption.
//!
//! An [`Omission`] removes one rule from the endpoints. The model must then find a violation, which
//! proves that the check is effective.

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

pub use check::{ExplorationResult, Violation, check};
pub use omission::Omission;
pub use scenario::{Budget, EndAt, Scenario};
pub use suite::{Size, suite, witness};
