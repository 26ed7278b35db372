//! What can be seen of sessions while they run: pictures for people, taken when somebody asks.
//!
//! Each session's own task takes its picture, between two turns of its work: nothing is shared and
//! nothing is counted for it. Only what a stream is about must be remembered from its beginning, and
//! that is off unless it is wanted.

mod ask;
mod book;
mod record;
mod take;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use smig_proto::{ConnId, StreamKey};

pub(crate) use ask::{Asked, collect};
pub(crate) use book::Book;
pub(crate) use record::{Departure, Record};
pub use record::{MoveCause, StreamName, Verdict};
pub(crate) use take::session;

use crate::observe::Ends;

/// Sessions in a [`Snapshot`] at most; the youngest are shown.
pub const SESSIONS_SHOWN: usize = 256;
/// Streams of a session in a [`Snapshot`] at most.
pub const STREAMS_SHOWN: usize = 256;

/// The sessions of a server or a client, as they were a moment ago.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Sessions over HTTP/2, at most [`SESSIONS_SHOWN`].
    pub sessions: Vec<SessionSnapshot>,
    /// How many more there are, or did not answer within a second.
    pub not_shown: usize,
}

/// One session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionSnapshot {
    /// Its name in snapshots and events.
    pub id: SessionId,
    /// The other end of its first connection that is open.
    pub peer: SocketAddr,
    /// Whether both ends speak SMig: its streams can move.
    pub migrates: bool,
    /// Since it began.
    pub age: Duration,
    /// Its connections, the oldest first.
    pub connections: Vec<ConnectionSnapshot>,
    /// Its streams, at most [`STREAMS_SHOWN`].
    pub streams: Vec<StreamSnapshot>,
    /// How many streams are open, shown or not.
    pub open_streams: usize,
}

/// One connection. What TCP does not tell is zero or `None`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConnectionSnapshot {
    /// Its number in the session.
    pub id: ConnId,
    /// What it is used for now.
    pub role: ConnectionRole,
    /// Both addresses.
    pub ends: Ends,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The shortest round-trip time seen lately.
    pub min_rtt: Duration,
    /// The congestion window, octets.
    pub congestion_window: u64,
    /// Octets sent and not acknowledged.
    pub in_flight: u64,
    /// Octets framed and not sent yet: in this process and in the socket.
    pub unsent: u64,
    /// What TCP says that the path delivers, octets a second.
    pub delivery_rate: Option<u64>,
    /// The bound on its rate that is set now, octets a second.
    pub pacing_cap: Option<u64>,
    /// Octets of bodies sent.
    pub sent: u64,
    /// Octets of bodies received.
    pub received: u64,
    /// Streams on it.
    pub streams: usize,
}

/// One stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// Its name in the session, for as long as it lives.
    pub key: StreamKey,
    /// What it is about, if that is remembered (`describe_streams` of the builders).
    pub name: Option<StreamName>,
    /// The connection that carries it.
    pub connection: ConnId,
    /// Octets of body sent.
    pub sent: u64,
    /// Octets of body queued behind these.
    pub queued: u64,
    /// Octets of body received.
    pub received: u64,
    /// The announced length of the longer body, if any.
    pub length: Option<u64>,
    /// Since it was opened; `None` if nothing is left of it but octets to be sent, and nobody looked
    /// from its beginning.
    pub age: Option<Duration>,
    /// How often it moved.
    pub moves: u8,
    /// Whether a move or an offer of it is not answered yet.
    pub moving: bool,
    /// What the rules said last; `None` if they do not watch it: it is small, or they are off.
    pub verdict: Option<Verdict>,
}

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionRole {
    /// New streams start here.
    Interactive,
    /// Big transfers moved here.
    Bulk,
    /// It is ready for a stream that moves.
    Spare,
}

impl ConnectionRole {
    /// One word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Bulk => "bulk",
            Self::Spare => "spare",
        }
    }
}

/// A session's name in snapshots and events: random, made when it is first asked for, and of no use to
/// anybody else. It is not the AppID, which peers prove to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// A stream and where it is. A server that has an observer gives it to its service with each request by
/// HTTP/2 (`http::Request::extensions`), so that what is observed later can be told of that request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPlace {
    /// Its session.
    pub session: SessionId,
    /// Its name there.
    pub stream: StreamKey,
    /// The connection that carries it, by its number in the session.
    pub connection: ConnId,
}
