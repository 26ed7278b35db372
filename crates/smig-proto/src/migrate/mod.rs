//! Migration of a running stream to another connection (spec/smig.md sections 5, 6 and 8).
//!
//! Owns the states of a migration and the data that each needs. `mover` and `follower` have the
//! rules of each role, as functions that return what a side must do; [`crate::session`]
//! does it. `early` buffers frames that arrive before their barrier.
//! [`policy`] decides when to migrate; this module does not.

mod early;
mod follower;
mod mover;
pub mod policy;

pub(crate) use early::{EarlyFrame, EarlyFrames, UnboundCarriers};
pub(crate) use follower::{
    Collision, NamedCarrier, OfferResponse, StrayMigrateResponse, check_migrate, on_stray_migrate,
};
pub(crate) use mover::{
    Answer, DueResets, EndBeforeAnswer, LossEffect, MigrationPreconditions, check_offer,
};

use crate::error::ErrorCode;
use crate::ids::{Cid, ConnId, StreamAddr, StreamId};
use crate::time::Instant;
use crate::wire::{EndStream, Migrate};

/// Destination of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationTarget {
    /// This connection.
    Connection(ConnId),
    /// The spare with the smallest CID.
    Spare,
    /// Server: an offer, which requests that the client open a connection and move the stream
    /// itself.
    Offer,
}

/// The side that migrated a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// This side.
    Local,
    /// The peer.
    Peer,
}

/// The reason why a stream cannot migrate now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrateError {
    /// The stream has ended, or is unknown.
    Ended,
    /// The extension is off, or the stream's connection is not joined.
    Disabled,
    /// A migration of the stream is open, or this side's offer is unanswered.
    InProgress,
    /// The stream has reached the maximum number of migrations, or an offer of it was declined.
    LimitReached,
    /// The peer does not tolerate more open migrations.
    TooManyOpen,
    /// No connection is suitable.
    NoTarget,
    /// Only a server may send an offer.
    NotServer,
}

impl core::fmt::Display for MigrateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Ended => "the stream has ended",
            Self::Disabled => "the extension is not active on this connection",
            Self::InProgress => "a migration of the stream is open",
            Self::LimitReached => "the stream has migrated, or was offered, as often as it may",
            Self::TooManyOpen => "the peer tolerates no more migrations at once",
            Self::NoTarget => "no connection to migrate to",
            Self::NotServer => "only a server may send an offer",
        })
    }
}

impl std::error::Error for MigrateError {}

/// State of a stream's open migration.
#[derive(Debug)]
pub(crate) enum MigrationState {
    Idle,
    /// Server: an offer was sent and is unanswered.
    Offered,
    /// Client: an offer was received and is unanswered.
    OfferReceived,
    /// Mover: MIGRATE was sent and is unanswered. The follower has no such state, because it
    /// answers immediately, except if it defers the MIGRATE ([`DeferredMigrate`]).
    Open(Box<OpenMigration>),
}

#[derive(Debug)]
pub(crate) struct OpenMigration {
    /// The carrier.
    pub(crate) to: StreamAddr,
    /// The CID of its connection.
    cid: Cid,
    /// The follower's frames that arrived on the carrier before its accepting answer.
    pub(crate) early_frames: EarlyFrames,
    /// Sum of the WINDOW_UPDATE increments that were sent on the carrier; a follower that declines
    /// drops them.
    pub(crate) increments_on_carrier: u32,
    /// The carrier's connection ended, or its GOAWAY excludes the carrier: no more is sent there,
    /// and the answer decides (SMIG-8.9/c2-ends-early, SMIG-8.17/goaway-excludes-s2).
    pub(crate) carrier_lost: bool,
    pub(crate) started_at: Instant,
    /// The peer's SETTINGS_INITIAL_WINDOW_SIZE on the old connection when the barrier was sent, for
    /// SMIG-7.5/undone-barrier.
    pub(crate) initial_window: u32,
}

impl OpenMigration {
    /// Returns the state for a MIGRATE that is sent now.
    pub(crate) fn new(to: StreamAddr, cid: Cid, started_at: Instant, initial_window: u32) -> Self {
        Self {
            to,
            cid,
            early_frames: EarlyFrames::default(),
            increments_on_carrier: 0,
            carrier_lost: false,
            started_at,
            initial_window,
        }
    }

    /// Returns the destination that MIGRATE names; an accepting answer repeats it
    /// (SMIG-2.7/stray-answer).
    pub(crate) const fn dst(&self) -> (Cid, StreamId) {
        (self.cid, self.to.id)
    }
}

/// State that a mover keeps for an unanswered MIGRATE after the stream has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingAnswer {
    pub(crate) s1: StreamId,
    /// The destination that an accepting answer repeats (SMIG-2.7/stray-answer).
    pub(crate) dst: (Cid, StreamId),
    /// The code of a reset on the carrier, to be sent on S1 after a decline
    /// (SMIG-8.3/reset-remembered).
    pub(crate) reset_s1_on_decline: Option<ErrorCode>,
}

/// A MIGRATE to a connection whose JOIN is unanswered (SMIG-5.12/join-pending).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeferredMigrate {
    pub(crate) from: StreamAddr,
    pub(crate) migrate: Migrate,
    pub(crate) end: EndStream,
    /// Change of the receive window that was acknowledged after the MIGRATE; a decline applies it.
    pub(crate) window_adjustment: i64,
}
