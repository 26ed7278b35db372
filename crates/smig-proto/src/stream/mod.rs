//! One stream for its whole life: what survives a migration.
//!
//! Owns offsets, windows, buffered body, half-close state, priority and identity. What is bound to a
//! connection is a [`Route`], and moving is replacing it. Knows nothing of frames.

mod arena;
mod body;
mod recv;
mod send;
mod stall;

pub(crate) use arena::Arena;
pub use arena::StreamKey;
pub(crate) use body::{Body, Buffer};
pub(crate) use recv::{Chunk, GATHERED, RecvHalf, RecvPhase, SMALL, Taken};
pub(crate) use send::{Payload, SendEnd, SendHalf, SendPhase};
pub use stall::StallClock;

use crate::conn::ConnId;
use crate::error::{Processed, StreamError};
use crate::migrate::HandOver;
use crate::priority::Priority;
use crate::wire::StreamId;

/// A stream's place on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) conn: ConnId,
    pub(crate) id: StreamId,
}

/// Who opened a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Local,
    Peer,
}

/// Whether the application still holds the stream's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Held,
    Released,
    /// A server's answer is whole and the rest of the request is read and dropped: most clients end
    /// it at once, and few expect RST_STREAM behind an answer. Counts the ticks of its patience.
    Draining(u8),
}

/// Whether the message of this side's peer may have a body, by the request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    Ordinary,
    Head,
    Tunnel,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) opener: Opener,
    pub(crate) exchange: Exchange,
    /// Where our frames go.
    pub(crate) route: Route,
    /// Where it was before; frames there are errors now (SMIG-5.19/behind-barrier).
    pub(crate) departed: Vec<Route>,
    /// Where the stream was opened: SETTINGS of that connection adjust the window of our direction
    /// until our barrier is sent (SMIG-7.4/initial-window).
    pub(crate) send_home: Option<ConnId>,
    /// The same for the peer's direction, until its barrier is read.
    pub(crate) recv_home: Option<ConnId>,
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    pub(crate) priority: Priority,
    pub(crate) hand_over: HandOver,
    pub(crate) moves: u8,
    /// Client: some frame of the stream came, or the server moved it: it was not refused unseen.
    pub(crate) heard: bool,
    /// The server offers a declined stream no second time (SMIG-6.4/offered-once).
    pub(crate) offered: bool,
    pub(crate) hold: Hold,
    /// Server: the client is to be told to stop, as soon as the response is whole and beyond recall.
    pub(crate) stop_due: bool,
    /// The connection whose scheduler knows the stream as ready.
    pub(crate) scheduled: Option<ConnId>,
    pub(crate) stall: StallClock,
    pub(crate) over: Option<StreamError>,
}

impl Stream {
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// What the peer may have done with the request, if it says at `at` that it did nothing (RFC 9113
    /// section 8.7). It is believed where the request was sent and as long as nothing else came: a
    /// carrier is refused for its own sake, and who answered has begun.
    pub(crate) fn processed_if_refused(&self, at: Route) -> Processed {
        let sent_to = match &self.hand_over {
            HandOver::Moving(moving) => moving.from,
            HandOver::Settled | HandOver::Offered | HandOver::OfferReceived => self.route,
        };
        if self.heard || at != sent_to { Processed::Maybe } else { Processed::No }
    }

    /// Both directions have ended and no migration waits for its acknowledgement.
    pub(crate) fn is_complete(&self) -> bool {
        self.send.phase() == SendPhase::Ended
            && self.recv.phase() == RecvPhase::Ended
            && !matches!(self.hand_over, HandOver::Moving(_))
    }

    /// Server: whether the whole response has been framed, and no decline can ask for it once more. A
    /// tunnel's two directions are no request and response: the end of one says nothing of the other.
    pub(crate) fn is_answered(&self) -> bool {
        self.opener == Opener::Peer
            && self.exchange != Exchange::Tunnel
            && self.send.phase() == SendPhase::Ended
            && !matches!(self.hand_over, HandOver::Moving(_))
    }

    /// Whether its own direction has something that may be framed now, connection window aside.
    pub(crate) fn has_frames(&self) -> bool {
        !self.is_over() && self.hand_over.lets_send() && self.send.has_frames()
    }
}
