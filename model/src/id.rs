//! Identifiers of endpoints, connections and stream addresses.
//!
//! Owns the parity rule of stream IDs. Must never depend on frames.

use std::fmt;

/// Maximum number of connections in a scenario.
pub(crate) const MAX_CONNS: usize = 3;

/// IDs on a connection are below this number, so that a set of them fits into one word.
const IDS_PER_CONN: u8 = 16;

/// One of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    pub(crate) fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    pub(crate) fn index(self) -> usize {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// A connection of the session; the first is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conn(pub(crate) u8);

impl Conn {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns all that a scenario may have.
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        (0..).take(MAX_CONNS).map(Self)
    }

    pub(crate) fn all(count: u8) -> impl Iterator<Item = Self> {
        (0..count).map(Self)
    }
}

impl fmt::Display for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conn{}", self.0)
    }
}

/// A stream ID on a connection: a former, current or future address of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StreamAddr {
    pub(crate) conn: Conn,
    pub(crate) id: u8,
}

impl StreamAddr {
    /// The request's original ID, on the first connection.
    pub(crate) const ORIGIN: Self = Self { conn: Conn(0), id: 1 };

    /// Returns the endpoint that may open this ID (RFC 9113 section 5.1.1).
    pub(crate) fn owner(self) -> Side {
        if self.id % 2 == 1 { Side::Client } else { Side::Server }
    }

    fn bit(self) -> u64 {
        debug_assert!(self.id < IDS_PER_CONN);
        1 << (self.conn.0 * IDS_PER_CONN + self.id)
    }
}

impl fmt::Display for StreamAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.conn, self.id)
    }
}

/// A set of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StreamAddrSet(u64);

impl StreamAddrSet {
    pub(crate) fn insert(&mut self, addr: StreamAddr) {
        self.0 |= addr.bit();
    }

    pub(crate) fn contains(self, addr: StreamAddr) -> bool {
        self.0 & addr.bit() != 0
    }
}
