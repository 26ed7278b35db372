//! Identifiers that every layer uses: stream IDs (RFC 9113 section 5.1.1), CIDs (spec/smig.md
//! section 1), the session's handles of its connections, and the two sides.

use core::fmt;

/// A stream identifier: 31 bits, unique on one connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u32);

impl StreamId {
    /// Stream 0, the connection itself.
    pub const CONNECTION: Self = Self(0);
    /// The highest stream identifier.
    pub const MAX: Self = Self(0x7fff_ffff);

    /// Creates a stream identifier from `value` without its highest bit, which is reserved.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & 0x7fff_ffff)
    }

    pub(crate) const fn from_wire(bytes: [u8; 4]) -> Self {
        Self::new(u32::from_be_bytes(bytes))
    }

    /// Returns the identifier as a number.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns whether this is stream 0.
    pub(crate) const fn is_connection(self) -> bool {
        self.0 == 0
    }

    /// Returns whether `side` opens streams with this identifier, by its parity.
    pub(crate) const fn is_opened_by(self, side: Side) -> bool {
        (self.0 % 2 == 1) == matches!(side, Side::Client)
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({})", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The 64 random bits by which a client names its session. An identifier, not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppId(u64);

impl AppId {
    /// Creates the AppID from these bits, which must be random.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the identifier's bytes in network byte order.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Debug for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for AppId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The name of a connection in its session: the AppID and a number that the client chose.
///
/// Ordered as the unsigned 96-bit integer that it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid {
    /// The session's AppID.
    pub app: AppId,
    /// ConnNo: chosen by the client, not 0, never reused in the session.
    pub number: u32,
}

impl Cid {
    pub(crate) const fn to_bytes(self) -> [u8; 12] {
        let [a0, a1, a2, a3, a4, a5, a6, a7] = self.app.to_bytes();
        let [n0, n1, n2, n3] = self.number.to_be_bytes();
        [a0, a1, a2, a3, a4, a5, a6, a7, n0, n1, n2, n3]
    }

    /// Parses a CID from 12 bytes; `None` if all are zero, which means "no connection".
    pub(crate) fn from_bytes(bytes: [u8; 12]) -> Option<Self> {
        (bytes != [0; 12]).then_some(Self::from_wire(bytes))
    }

    /// Parses a CID from 12 bytes, whatever they are.
    pub(crate) const fn from_wire(bytes: [u8; 12]) -> Self {
        let [a0, a1, a2, a3, a4, a5, a6, a7, n0, n1, n2, n3] = bytes;
        let app = AppId(u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7]));
        Self { app, number: u32::from_be_bytes([n0, n1, n2, n3]) }
    }

    /// Assembles the CID from the values of the three settings; `None` if ConnNo is 0.
    pub(crate) fn from_settings(hi: u32, mid: u32, low: u32) -> Option<Self> {
        let app = AppId((u64::from(hi) << 32) | u64::from(mid));
        (low != 0).then_some(Self { app, number: low })
    }

    pub(crate) const fn to_settings(self) -> [u32; 3] {
        let [a, b, c, d, e, f, g, h] = self.app.to_bytes();
        [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]), self.number]
    }
}

impl fmt::Display for Cid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.number)
    }
}

/// Identifies a TCP connection of a session to the driver and the engine. Never reused in a
/// session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(crate) u32);

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnId({})", self.0)
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The connection that carries a stream, and the stream's ID there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamAddr {
    pub(crate) conn: ConnId,
    pub(crate) id: StreamId,
}

/// The name of a stream in its session, which never changes: the connection C0 and the ID S0 on which the client opened it
/// (spec/resumption.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamName {
    pub(crate) cid: Cid,
    pub(crate) id: StreamId,
}

/// A frame's place among all that an endpoint has sent on a connection: the first SETTINGS frame is number 1
/// (SMIG-13.4/receipts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameNumber(pub(crate) u64);

/// Where a frame was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentAt {
    pub(crate) conn: ConnId,
    pub(crate) frame: FrameNumber,
}

impl SentAt {
    /// A frame that was not sent, because there was no place for it: no receipt covers it.
    pub(crate) const NOWHERE: Self = Self { conn: ConnId(u32::MAX), frame: FrameNumber(u64::MAX) };
}

/// A side of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opens connections and sends requests.
    Client,
    /// Responds.
    Server,
}

impl Side {
    /// Returns the other side.
    pub(crate) const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    /// Returns the first stream ID that this side opens.
    pub(crate) const fn first_stream_id(self) -> u32 {
        match self {
            Self::Client => 1,
            Self::Server => 2,
        }
    }
}
