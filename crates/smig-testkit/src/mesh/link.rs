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
    pub(crate) in_flight: BytesMut,
    /// Arrived; the receiver's engine has not consumed it.
    pub(crate) inbox: BytesMut,
    /// No more is written.
    pub(crate) is_closed: bool,
    /// The connection is cut when this many more bytes have arrived.
    pub(crate) fuse: Option<usize>,
}

impl Pipe {
    /// Writes up to `bytes` bytes of the backlog while fewer than `capacity` are in flight.
    pub(crate) fn write(&mut self, bytes: usize, capacity: usize) -> usize {
        if self.is_closed {
            self.backlog.clear();
            return 0;
        }
        let free = capacity.saturating_sub(self.in_flight.len());
        let bytes = bytes.min(self.backlog.len()).min(free);
        let chunk = self.backlog.split_to(bytes);
        self.in_flight.unsplit(chunk);
        bytes
    }

    /// Delivers up to `bytes` bytes, and no more than its fuse allows.
    pub(crate) fn deliver(&mut self, bytes: usize) -> usize {
        let bytes = bytes.min(self.in_flight.len()).min(self.fuse.unwrap_or(usize::MAX));
        self.fuse = self.fuse.map(|fuse| fuse - bytes);
        let chunk = self.in_flight.split_to(bytes);
        self.inbox.unsplit(chunk);
        bytes
    }
}

/// The session and connection id at one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkEnd {
    /// Index of the server's session; 0 for the client.
    pub(crate) session: usize,
    /// The engine's id of the connection; `None` once this end is closed.
    pub(crate) conn: Option<ConnId>,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseCause {
    /// A step of the sequence cuts or closes it.
    Step,
    /// The client's engine closes it to cancel its only stream.
    Cancel,
}

/// A connection: its two ends, and what is on the way in each direction.
#[derive(Debug)]
pub(crate) struct Link {
    /// The secret from which both ends' TLS derives exporters.
    pub(crate) secret: u64,
    /// The ConnNo that the client chose, or 0.
    pub(crate) conn_no: u32,
    pub(crate) ends: [LinkEnd; 2],
    pub(crate) pipes: [Pipe; 2],
    /// The connection failed; it was not closed.
    pub(crate) has_failed: bool,
    /// The first cause.
    pub(crate) close_cause: Option<CloseCause>,
    /// Session and connection id at each end, once its engine was notified of the end.
    pub(crate) former_ids: [Option<(usize, ConnId)>; 2],
}

impl Link {
    pub(crate) fn is_open_at(&self, side: Side) -> bool {
        self.ends[side.index()].conn.is_some()
    }

    /// Returns whether this end uses, or used, that id for it.
    pub(crate) fn is_known_as(&self, side: Side, session: usize, conn: ConnId) -> bool {
        let end = self.ends[side.index()];
        (end.session == session && end.conn == Some(conn))
            || self.former_ids[side.index()] == Some((session, conn))
    }

    /// Fails the connection: of the bytes in flight, `delivered_bytes` in each direction still arrive.
    pub(crate) fn cut(&mut self, delivered_bytes: [usize; 2]) {
        self.has_failed = true;
        for (pipe, bytes) in self.pipes.iter_mut().zip(delivered_bytes) {
            pipe.is_closed = true;
            pipe.backlog.clear();
            pipe.in_flight.truncate(bytes);
        }
    }
}
