//! One stream during its lifetime: the state that survives a migration.
//!
//! Owns offsets, windows, buffered body, half-closed state, priority and identity. The part that is
//! bound to a connection is a [`StreamAddr`]; a migration replaces it. Does not handle frames.

mod arena;
mod body;
mod recv;
mod replay;
mod send;
mod stall;

pub(crate) use arena::Arena;
pub use arena::StreamKey;
pub(crate) use body::{Body, Buffer};
pub(crate) use recv::{Chunk, GATHERED, RecvHalf, RecvItem, RecvState, SMALL};
pub(crate) use replay::SendBeforeAnswer;
pub(crate) use send::{Payload, SendEnd, SendHalf, SendState};
pub use stall::StallClock;

use crate::conn::ConnId;
use crate::error::{Processed, StreamError};
use crate::migrate::MigrationState;
use crate::priority::Priority;
use crate::wire::StreamId;

/// The connection that carries a stream, and the stream's ID there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamAddr {
    pub(crate) conn: ConnId,
    pub(crate) id: StreamId,
}

/// The side that opened a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Local,
    Peer,
}

/// Whether the application still holds the stream's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    Held,
    Released,
    /// Server: the response is complete, and the rest of the request is read and dropped. Most
    /// clients end the request soon, and few expect RST_STREAM after a response. Counts timer
    /// ticks; at the third, the client is requested to stop sending.
    Draining(u8),
}

/// Kind of exchange, by the request's method and the response's status. Determines whether the
/// response may have a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Ordinary,
    Head,
    Tunnel,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) opener: Opener,
    pub(crate) request_kind: RequestKind,
    /// The current route, to which this side's frames are sent.
    pub(crate) addr: StreamAddr,
    /// Former routes; frames that arrive there are errors (SMIG-5.19/behind-barrier).
    pub(crate) vacated: Vec<StreamAddr>,
    /// The connection on which the stream was opened: its SETTINGS adjust the send window until
    /// this side's barrier is sent (SMIG-7.4/initial-window).
    pub(crate) send_home: Option<ConnId>,
    /// The same for the receive window, until the peer's barrier is read.
    pub(crate) recv_home: Option<ConnId>,
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    pub(crate) priority: Priority,
    pub(crate) migration: MigrationState,
    pub(crate) moves: u8,
    /// Client: the server sent a frame of the stream other than RST_STREAM, or moved it, so it may
    /// have processed the request.
    pub(crate) heard: bool,
    /// The stream was offered (server), or an offer was declined (client): no second offer
    /// (SMIG-6.4/offered-once).
    pub(crate) offered: bool,
    pub(crate) key_state: KeyState,
    /// Server: request that the client stop sending, once the response is complete and no decline
    /// can require it to be sent again.
    pub(crate) stop_due: bool,
    /// The connection whose scheduler has an entry for the stream.
    pub(crate) scheduled: Option<ConnId>,
    pub(crate) stall: StallClock,
    pub(crate) over: Option<StreamError>,
}

impl Stream {
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Returns whether the peer may have processed the request, given that it reports at `at` that
    /// it did not (RFC 9113 section 8.7). The report counts only on the route where the request was
    /// sent, and only if no other frame of the stream was received: a refused carrier says nothing
    /// about the request, and a peer that has responded has processed it.
    pub(crate) fn processed_if_refused(&self, at: StreamAddr) -> Processed {
        let sent_to = match &self.migration {
            MigrationState::Open(moving) => moving.from,
            MigrationState::Idle | MigrationState::Offered | MigrationState::OfferReceived => {
                self.addr
            }
        };
        if self.heard || at != sent_to { Processed::Maybe } else { Processed::No }
    }

    /// Returns whether both directions have ended and no MIGRATE of this side is unanswered.
    pub(crate) fn is_complete(&self) -> bool {
        self.send.state() == SendState::Ended
            && self.recv.state() == RecvState::Ended
            && !matches!(self.migration, MigrationState::Open(_))
    }

    /// Server: returns whether the complete response has been framed and no decline can require it
    /// to be sent again. False for a tunnel: the end of one direction implies nothing about the
    /// other.
    pub(crate) fn is_answered(&self) -> bool {
        self.opener == Opener::Peer
            && self.request_kind != RequestKind::Tunnel
            && self.send.state() == SendState::Ended
            && !matches!(self.migration, MigrationState::Open(_))
    }

    /// Returns whether a frame was sent on the carrier of an open migration, so that the carrier
    /// must be closed if it is abandoned (SMIG-6.11/close-abandoned).
    pub(crate) fn has_used_carrier(&self) -> bool {
        match &self.migration {
            MigrationState::Open(open) => {
                open.credit_on_carrier > 0 || self.send.is_behind_barrier()
            }
            MigrationState::Idle | MigrationState::Offered | MigrationState::OfferReceived => false,
        }
    }

    /// Returns whether this side has frames to send now, except for the connection's window.
    pub(crate) fn has_frames(&self) -> bool {
        !self.is_over() && !self.migration.is_carrier_lost() && self.send.has_frames()
    }
}
