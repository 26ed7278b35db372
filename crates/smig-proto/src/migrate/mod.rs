//! Moving a running stream to another connection (spec/smig.md sections 5, 6 and 8).
//!
//! Owns the phases of a migration and what each must remember. The mover's side is in `mover`, the
//! follower's in `follower`; `early` hands on what overtook its barrier. When to move is
//! [`policy`]'s, which decides nothing here.

mod early;
mod follower;
mod mover;
pub mod policy;

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;

use crate::conn::{ConnId, Early};
use crate::error::ErrorCode;
use crate::head::ResponseHead;
use crate::stream::{Route, SendPhase};
use crate::time::Instant;
use crate::wire::{Cid, EndStream, Migrate, StreamId};

/// Where a stream is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This connection.
    Connection(ConnId),
    /// The spare with the smallest CID.
    Spare,
    /// Server: ask the client to open a connection and move the stream itself.
    Offer,
}

/// Who moved a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// This side.
    Local,
    /// The peer.
    Peer,
}

/// Why a stream cannot be moved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MigrateError {
    /// The stream is over, or unknown.
    Ended,
    /// The extension is not running on the stream's connection.
    Off,
    /// A migration of the stream is open, or an offer unanswered.
    Busy,
    /// The stream was moved as often as it may be, or an offer of it was declined.
    Exhausted,
    /// The peer tolerates no more migrations at once.
    TooMany,
    /// No connection fits.
    NoTarget,
    /// Only a server offers.
    NotServer,
}

impl core::fmt::Display for MigrateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Ended => "the stream is over",
            Self::Off => "the peer does not speak the extension on this connection",
            Self::Busy => "a migration of the stream is open",
            Self::Exhausted => "the stream may not be moved again",
            Self::TooMany => "the peer tolerates no more migrations at once",
            Self::NoTarget => "no connection to move to",
            Self::NotServer => "only a server offers",
        })
    }
}

impl std::error::Error for MigrateError {}

/// The migration of one stream, as far as it is open.
#[derive(Debug)]
pub(crate) enum HandOver {
    Settled,
    /// Server: MIGRATE with dst 0 was sent and not answered.
    Offered,
    /// Client: MIGRATE with dst 0 was received and not answered.
    OfferReceived,
    /// Mover: MIGRATE was sent, the ACK is to come. A follower has no phase: it settles as it reads.
    Moving(Box<Moving>),
}

impl HandOver {
    /// Where an unanswered MIGRATE of ours was sent, and what it named.
    pub(crate) fn unanswered(&self) -> Option<(Route, (Cid, StreamId))> {
        match self {
            Self::Moving(moving) => Some((moving.from, moving.dst)),
            Self::Settled | Self::Offered | Self::OfferReceived => None,
        }
    }

    /// Ends the phase of an open move of ours; any other stays.
    pub(crate) fn take_moving(&mut self) -> Option<Box<Moving>> {
        match core::mem::replace(self, Self::Settled) {
            Self::Moving(moving) => Some(moving),
            other @ (Self::Settled | Self::Offered | Self::OfferReceived) => {
                *self = other;
                None
            }
        }
    }

    /// Whether the stream's own direction may be sent now.
    pub(crate) fn lets_send(&self) -> bool {
        match self {
            Self::Settled | Self::Offered | Self::OfferReceived => true,
            Self::Moving(moving) => match moving.pace {
                Pace::UntilReplayIsFull(limit) => !moving.to_lost && moving.replay.octets < limit,
                Pace::Held => false,
            },
        }
    }
}

/// Whether a mover sends before the ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A server does: no round trip is lost (SMIG-5.5/server-at-once). It keeps what it sends, up
    /// to so many octets.
    UntilReplayIsFull(usize),
    /// A client holds its direction (SMIG-5.6/client-holds).
    Held,
}

#[derive(Debug)]
pub(crate) struct Moving {
    /// Where the follower's frames come from until its barrier, and where a decline leads back to.
    pub(crate) from: Route,
    pub(crate) to: Route,
    /// The destination as MIGRATE named it, which an accepting answer repeats
    /// (SMIG-2.7/stray-answer).
    pub(crate) dst: (Cid, StreamId),
    pub(crate) pace: Pace,
    /// The follower's frames from behind the ACK that is to come.
    pub(crate) early: Early,
    pub(crate) replay: Replay,
    /// Sum of WINDOW_UPDATE that we sent on the carrier; a declining follower drops it.
    pub(crate) credit_on_carrier: u32,
    /// Some frame was sent on the carrier: if it is abandoned it must be closed
    /// (SMIG-6.11/close-abandoned).
    pub(crate) carrier_used: bool,
    /// The carrier's connection ended, or its GOAWAY excludes the carrier: nothing more is sent, and
    /// the answer decides (SMIG-8.9/c2-ends-early, SMIG-8.17/goaway-excludes-s2).
    pub(crate) to_lost: bool,
    pub(crate) since: Instant,
    /// For SMIG-7.5/undone-barrier: where the stream was opened, if it had not left, and the peer's
    /// initial window there at the barrier.
    pub(crate) home: Option<(ConnId, u32)>,
}

/// What a mover must still do when the answer to its MIGRATE comes for a stream that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerDue {
    pub(crate) s1: StreamId,
    /// What an accepting answer repeats (SMIG-2.7/stray-answer).
    pub(crate) dst: (Cid, StreamId),
    /// The stream was reset on the carrier: a decline brings the reset to S1
    /// (SMIG-8.3/reset-remembered).
    pub(crate) reset: Option<ErrorCode>,
}

/// A MIGRATE to a connection whose JOIN is not answered yet (SMIG-5.12/join-pending).
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingMove {
    pub(crate) from: Route,
    pub(crate) migrate: Migrate,
    pub(crate) end: EndStream,
    /// The change of the receive window that was acknowledged behind it; a decline applies it.
    pub(crate) window_due: i64,
}

/// What a mover sent on the carrier: after a decline it is sent again from the barrier
/// (SMIG-6.8/resume).
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) heads: Vec<(ResponseHead, EndStream)>,
    pub(crate) data: VecDeque<Bytes>,
    pub(crate) octets: usize,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) end: EndStream,
    /// The direction's phase at the barrier.
    pub(crate) phase: SendPhase,
}

impl Replay {
    pub(crate) const fn new(phase: SendPhase) -> Self {
        Self {
            heads: Vec::new(),
            data: VecDeque::new(),
            octets: 0,
            trailers: None,
            end: EndStream::No,
            phase,
        }
    }
}
