//! A connection between the two ends: octets in order, each way, and how it breaks.
//!
//! Knows nothing of HTTP/2. Octets stand in one of three places: taken from the sender's engine and not
//! written, written and under way, or arrived and not consumed.

use bytes::BytesMut;
use smig_proto::ConnId;

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It opens connections.
    Client,
    /// It accepts them.
    Server,
}

impl Side {
    /// The two ends.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// The other end.
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

/// One direction, named by its sender.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// Taken from the engine, not written.
    pub(crate) backlog: BytesMut,
    /// Written, under way.
    pub(crate) flight: BytesMut,
    /// Arrived; the receiver's engine has not consumed it.
    pub(crate) inbox: BytesMut,
    /// Nothing is written any more.
    pub(crate) ended: bool,
}

impl Pipe {
    /// Writes up to `octets` of the backlog while fewer than `room` are under way.
    pub(crate) fn write(&mut self, octets: usize, room: usize) -> usize {
        if self.ended {
            self.backlog.clear();
            return 0;
        }
        let free = room.saturating_sub(self.flight.len());
        let octets = octets.min(self.backlog.len()).min(free);
        let part = self.backlog.split_to(octets);
        self.flight.unsplit(part);
        octets
    }

    /// Lets up to `octets` arrive.
    pub(crate) fn arrive(&mut self, octets: usize) -> usize {
        let octets = octets.min(self.flight.len());
        let part = self.flight.split_to(octets);
        self.inbox.unsplit(part);
        octets
    }
}

/// Where an end of a connection is handled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Which of the server's sessions; 0 for the client.
    pub(crate) session: usize,
    /// The engine's name of the connection; `None` once this end is closed.
    pub(crate) conn: Option<ConnId>,
}

/// What may take a connection from streams that run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doom {
    /// The sequence: it cuts or closes it.
    Step,
    /// The client's engine, to cancel a stream that was alone there.
    Cancel,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// What both ends' TLS would derive exporters from.
    pub(crate) secret: u64,
    /// The ConnNo that the client chose, or 0.
    pub(crate) number: u32,
    pub(crate) ends: [End; 2],
    pub(crate) pipes: [Pipe; 2],
    /// It failed, rather than being closed.
    pub(crate) broken: bool,
    /// The first cause.
    pub(crate) doom: Option<Doom>,
    /// What the engines called it that have been told of its end: session and connection.
    pub(crate) lost: [Option<(usize, ConnId)>; 2],
}

impl Link {
    pub(crate) fn is_open_at(&self, side: Side) -> bool {
        self.ends[side.index()].conn.is_some()
    }

    /// Whether this end knows it by that name, or did.
    pub(crate) fn is_known_as(&self, side: Side, session: usize, conn: ConnId) -> bool {
        let end = self.ends[side.index()];
        (end.session == session && end.conn == Some(conn))
            || self.lost[side.index()] == Some((session, conn))
    }

    /// It fails: of what is under way, so many octets each way still arrive.
    pub(crate) fn cut(&mut self, keep: [usize; 2]) {
        self.broken = true;
        for (pipe, keep) in self.pipes.iter_mut().zip(keep) {
            pipe.ended = true;
            pipe.backlog.clear();
            pipe.flight.truncate(keep);
        }
    }
}
