//! A connection between the two ends: ordered bytes in each direction, and its failures.
//!
//! Independent of HTTP/2. Bytes are in one of three places: taken from the sender's engine but not written,
//! written and in flight, or arrived but not consumed.

use bytes::BytesMut;
use smig_proto::ConnId;

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It opens connections.
    Client,
    /// It accepts them.
    Server,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// Returns the other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// One direction, identified by its sender.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Taken from the engine, not written.
    pub(crate) backlog: BytesMut,
    /// Written, in flight.
    pub(crate) flight: BytesMut,
    /// Arrived; the receiver's engine has not consumed it.
    pub(crate) inbox: BytesMut,
    /// No more is written.
    pub(crate) ended: bool,
}

impl Pipe {
    /// Writes up to `bytes` bytes of the backlog while fewer than `room` are in flight.
    pub(crate) fn write(&mut self, bytes: usize, room: usize) -> usize {
        if self.ended {
            self.backlog.clear();
            return 0;
        }
        let free = room.saturating_sub(self.flight.len());
        let bytes = bytes.min(self.backlog.len()).min(free);
        let part = self.backlog.split_to(bytes);
        self.flight.unsplit(part);
        bytes
    }

    /// Delivers up to `bytes` bytes.
    pub(crate) fn arrive(&mut self, bytes: usize) -> usize {
        let bytes = bytes.min(self.flight.len());
        let part = self.flight.split_to(bytes);
        self.inbox.unsplit(part);
        bytes
    }
}

/// The session and connection id at one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Index of the server's session; 0 for the client.
    pub(crate) session: usize,
    /// The engine's id of the connection; `None` once this end is closed.
    pub(crate) conn: Option<ConnId>,
}

/// Why streams lose their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doom {
    /// A step of the sequence cuts or closes it.
    Step,
    /// The client's engine closes it to cancel its only stream.
    Cancel,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// The secret from which both ends' TLS derives exporters.
    pub(crate) secret: u64,
    /// The ConnNo that the client chose, or 0.
    pub(crate) number: u32,
    pub(crate) ends: [End; 2],
    pub(crate) pipes: [Pipe; 2],
    /// The connection failed; it was not closed.
    pub(crate) broken: bool,
    /// The first cause.
    pub(crate) doom: Option<Doom>,
    /// Session and connection id that an engine used, once it was notified of the end.
    pub(crate) lost: [Option<(usize, ConnId)>; 2],
}

impl Link {
    pub(crate) fn is_open_at(&self, side: Side) -> bool {
        self.ends[side.index()].conn.is_some()
    }

    /// Returns whether this end uses, or used, that id for it.
    pub(crate) fn is_known_as(&self, side: Side, session: usize, conn: ConnId) -> bool {
        let end = self.ends[side.index()];
        (end.session == session && end.conn == Some(conn))
            || self.lost[side.index()] == Some((session, conn))
    }

    /// Fails the connection: of the bytes in flight, `keep` in each direction still arrive.
    pub(crate) fn cut(&mut self, keep: [usize; 2]) {
        self.broken = true;
        for (pipe, keep) in self.pipes.iter_mut().zip(keep) {
            pipe.ended = true;
            pipe.backlog.clear();
            pipe.flight.truncate(keep);
        }
    }
}
