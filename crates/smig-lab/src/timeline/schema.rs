//! Vocabulary of a timeline's file.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use smig_link::millis;
use smig_link::{JitterSpec, LinkSpec};

/// A TCP connection, named by its client's end: `10.99.0.2:41230`. Both ends and the link between
/// them can derive this name.
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
    /// From the server to the client.
    ToClient,
    /// From the client to the server.
    ToServer,
}

/// Subject of a track.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Subject {
    /// The link's queue.
    Link {
        /// Direction of the link.
        direction: Direction,
        /// Restricts the track to the packets of this connection; all packets if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<ConnectionName>,
    },
    /// A host's kernel state of a TCP connection.
    Connection {
        /// Name of the host.
        host: String,
        /// The connection.
        connection: ConnectionName,
    },
    /// The bytes of a stream's body that a connection carried.
    Stream {
        /// Name of the stream.
        name: String,
        /// The connection.
        connection: ConnectionName,
    },
}

/// Quantity of a column. 0 means "not known yet" where 0 is not a valid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// Packets in the queue of the link.
    QueuePackets,
    /// Bytes in the queue of the link.
    QueueBytes,
    /// Size of a dropped packet.
    DroppedBytes,
    /// Bytes of a stream's body that the connection has carried so far.
    CarriedBytes,
    /// Congestion window.
    CwndBytes,
    /// Slow-start threshold; 0 while there is none.
    SsthreshBytes,
    /// Bytes in flight: sent and not acknowledged.
    UnackedBytes,
    /// Bytes in the send buffer that are not sent yet.
    UnsentBytes,
    /// Send window advertised by the peer.
    SendWindowBytes,
    /// Bytes sent and acknowledged so far.
    AckedBytes,
    /// Bytes received so far.
    ReceivedBytes,
    /// Bytes sent so far, including retransmissions.
    SentBytes,
    /// Bytes retransmitted so far.
    RetransmittedBytes,
    /// Segments currently considered lost.
    LostSegments,
    /// Smoothed round-trip time.
    SrttUs,
    /// Minimum round-trip time in the kernel's window.
    MinRttUs,
    /// Latest delivery rate.
    DeliveryBytesPerS,
    /// Pacing rate of the kernel; 0 without pacing.
    PacingBytesPerS,
    /// Time with data to send, so far.
    BusyUs,
    /// Part of it in which the receiver's window was the limit.
    ReceiverLimitedUs,
    /// Part of it in which the send buffer was the limit.
    BufferLimitedUs,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnnotationKind {
    /// A connection joined the session (JOIN).
    Join,
    /// A stream migrated (MIGRATE).
    Migrate,
    /// A migration was declined.
    Declined,
    /// A stream ended with an error (RST_STREAM).
    Reset,
    /// A connection was opened.
    Opened,
    /// A connection was closed.
    Closed,
    /// A connection uses this congestion control from here on.
    CongestionControl,
    /// Any other event: the label describes it.
    Note,
}

impl fmt::Display for AnnotationKind {
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
pub enum SpanOutcome {
    /// With its last byte.
    Complete,
    /// Cancelled by the client.
    Cancelled,
    /// With an error.
    Failed,
    /// Did not end during the observation.
    Unfinished,
}

/// Parameters of the link for a chart, in the direction to the client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkFacts {
    /// Rate; the mean if it varies.
    pub bits_per_s: u64,
    /// Round-trip time of the idle link.
    pub round_trip_ms: f64,
    /// Capacity of the queue in packets.
    pub queue_packets: u64,
    /// What is added to the delay over time.
    #[serde(default, skip_serializing_if = "AddedDelay::is_none")]
    pub added_delay: AddedDelay,
}

/// A delay to the client that is added to a link's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddedDelay {
    /// None.
    #[default]
    None,
    /// It grows by `step_us` each `every_us`, up to `up_to_us`.
    Ramp {
        /// Added in each step.
        step_us: u64,
        /// Time between steps.
        every_us: u64,
        /// Maximum.
        up_to_us: u64,
    },
    /// It is random: only the senders' round-trip times show it.
    Random,
}

impl AddedDelay {
    const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the delay at a time since the start of the link; `None` if it is random.
    #[must_use]
    pub fn at(self, at_us: u64) -> Option<u64> {
        match self {
            Self::None => Some(0),
            Self::Random => None,
            Self::Ramp { step_us, every_us, up_to_us } => {
                let steps = at_us.checked_div(every_us).unwrap_or(0);
                Some(steps.saturating_mul(step_us).min(up_to_us))
            }
        }
    }
}

impl From<Option<JitterSpec>> for AddedDelay {
    fn from(jitter: Option<JitterSpec>) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        match jitter {
            None => Self::None,
            Some(JitterSpec::Ramp(ramp)) => Self::Ramp {
                step_us: micros(ramp.step_increment),
                every_us: micros(ramp.step_interval),
                up_to_us: micros(ramp.max_added),
            },
            Some(JitterSpec::Normal(_) | JitterSpec::Uniform(_)) => Self::Random,
        }
    }
}

// The only floating-point field is a duration, never NaN.
impl Eq for LinkFacts {}

impl LinkFacts {
    /// Returns the parameters of a link.
    #[must_use]
    pub fn of(link: &LinkSpec) -> Self {
        let down = &link.to_client;
        Self {
            bits_per_s: down.rate.mean_bits_per_second(),
            round_trip_ms: millis::of(link.round_trip()),
            queue_packets: down.queue.packets as u64,
            added_delay: down.jitter.into(),
        }
    }
}
