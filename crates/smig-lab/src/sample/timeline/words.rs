//! The names in a timeline's file.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::link::LinkSpec;
use crate::millis;

/// A TCP connection, named by its client's end: `10.99.0.2:41230`. Both ends, and the link between
/// them, can tell that name from what they see.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConnectionName(pub String);

impl fmt::Display for ConnectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A direction of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the server.
    ToClient,
    /// From the client.
    ToServer,
}

/// What a track is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Subject {
    /// The link's queue.
    Link {
        /// One of its two.
        direction: Direction,
        /// The packets of this connection alone; of all when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<ConnectionName>,
    },
    /// What a host's kernel knows of a TCP connection.
    Connection {
        /// The host.
        host: String,
        /// The connection.
        connection: ConnectionName,
    },
    /// What a connection brought of a stream's body.
    Stream {
        /// The stream's name.
        name: String,
        /// The connection.
        connection: ConnectionName,
    },
}

/// What a column counts. 0 stands for "not known yet" where 0 makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// Packets waiting before the link.
    QueuePackets,
    /// Their bytes.
    QueueBytes,
    /// The size of a packet that the queue did not take.
    DroppedBytes,
    /// Body bytes of a stream so far.
    CarriedBytes,
    /// The congestion window.
    CwndBytes,
    /// The slow-start threshold; 0 while there is none.
    SsthreshBytes,
    /// Sent and not acknowledged.
    UnackedBytes,
    /// In the send buffer and not sent.
    UnsentBytes,
    /// What the peer lets us send.
    SendWindowBytes,
    /// Sent and acknowledged so far.
    AckedBytes,
    /// Received so far.
    ReceivedBytes,
    /// Sent so far, again and again included.
    SentBytes,
    /// Of these, sent again.
    RetransmittedBytes,
    /// Segments believed lost just now.
    LostSegments,
    /// The smoothed round-trip time.
    SrttUs,
    /// The shortest round-trip time of late.
    MinRttUs,
    /// The latest delivery rate.
    DeliveryBytesPerS,
    /// The rate at which the kernel paces; 0 while it does not.
    PacingBytesPerS,
    /// Time with data to send, so far.
    BusyUs,
    /// Of this, time in which the receiver's window was the limit.
    ReceiverLimitedUs,
    /// Of this, time in which the send buffer was the limit.
    BufferLimitedUs,
}

/// What happened at a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkKind {
    /// A connection joined the session (JOIN).
    Join,
    /// A stream moved (MIGRATE).
    Migrate,
    /// A move was declined.
    Declined,
    /// A stream ended with an error (RST_STREAM).
    Reset,
    /// A connection was opened.
    Opened,
    /// A connection was closed.
    Closed,
    /// A connection has this congestion control from here on.
    CongestionControl,
    /// Anything else: the label says it.
    Note,
}

impl fmt::Display for MarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Join => "JOIN",
            Self::Migrate => "MIGRATE",
            Self::Declined => "declined",
            Self::Reset => "RST_STREAM",
            Self::Opened => "opened",
            Self::Closed => "closed",
            Self::CongestionControl => "congestion control",
            Self::Note => "note",
        })
    }
}

/// How a span ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// With its last byte.
    Complete,
    /// Somebody did not want it any more.
    Cancelled,
    /// With an error.
    Failed,
    /// Not while anybody looked.
    Unfinished,
}

/// What a picture says of the link, in the direction to the client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkFacts {
    /// Its rate; its mean where it varies.
    pub bits_per_s: u64,
    /// The round-trip time while it is idle.
    pub round_trip_ms: f64,
    /// Packets that may wait.
    pub queue_packets: u64,
}

// The only field that is not a whole number is a duration, never NaN.
impl Eq for LinkFacts {}

impl LinkFacts {
    /// Of a link.
    #[must_use]
    pub fn of(link: &LinkSpec) -> Self {
        let down = &link.to_client;
        Self {
            bits_per_s: down.rate.as_bits_per_second(),
            round_trip_ms: millis::of(link.round_trip()),
            queue_packets: down.queue.packets as u64,
        }
    }
}
