//! Snapshots of running sessions, for operators, taken on request.
//!
//! Each session's own task takes its snapshot in one of its turns: nothing is shared, and nothing is counted
//! for it. Only the labels of streams must be recorded when they are opened, and that is off by default.

mod capture;
mod collect;
mod record;
mod session_record;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use smig_proto::{BulkReason, ConnId, StreamKey};

pub(crate) use capture::capture;
pub(crate) use collect::{SnapshotSender, collect};
pub use record::{MigrationCause, PolicyDecision, RequestLabel};
pub(crate) use record::{PendingMigration, StreamRecord};
pub(crate) use session_record::SessionRecord;

use crate::socket::ConnectionAddrs;

/// Maximum number of sessions in a [`Snapshot`]: of a server the youngest of all its workers together, of a client any.
pub const MAX_SNAPSHOT_SESSIONS: usize = 256;
/// Maximum number of streams per session in a [`Snapshot`].
pub const MAX_SNAPSHOT_STREAMS: usize = 256;

/// The sessions of a server or a client. Each is a picture of its own moment, all within a second.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// HTTP/2 sessions, at most [`MAX_SNAPSHOT_SESSIONS`]: of a server the youngest first, of a client in no order.
    pub sessions: Vec<SessionSnapshot>,
    /// Number of sessions beyond the maximum, or that did not answer within a second. A client counts those over
    /// HTTP/1.1 beyond the maximum too.
    pub sessions_omitted: usize,
}

/// One session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SessionSnapshot {
    /// Its identifier in snapshots and events.
    pub id: SessionId,
    /// The peer's address on the oldest connection that is open.
    pub peer: SocketAddr,
    /// Whether both ends support SMig, so that streams can migrate.
    pub can_migrate: bool,
    /// Time since it began.
    pub age: Duration,
    /// Its connections, the oldest first.
    pub connections: Vec<ConnectionSnapshot>,
    /// Its streams, at most [`MAX_SNAPSHOT_STREAMS`], in no order.
    pub streams: Vec<StreamSnapshot>,
    /// Number of open streams, including those beyond the maximum.
    pub open_streams: usize,
}

/// One connection. Values that TCP does not report are zero or `None`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConnectionSnapshot {
    /// Its number in the session.
    pub id: ConnId,
    /// What it is used for now.
    pub role: ConnectionRole,
    /// Both addresses.
    pub addrs: ConnectionAddrs,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Minimum round-trip time, over the kernel's window.
    pub min_rtt: Duration,
    /// The congestion window, bytes.
    pub congestion_window: u64,
    /// Bytes in flight: sent and not acknowledged.
    pub in_flight: u64,
    /// Bytes framed and not sent yet, in this process and in the socket.
    pub unsent: u64,
    /// The delivery rate that TCP reports, bytes per second.
    pub delivery_rate: Option<u64>,
    /// The rate to which all bulk of the session together is limited now, bytes per second, if the connection carries
    /// any; a connection whose options set a pacing rate has that without bulk.
    pub pacing_cap: Option<u64>,
    /// Bytes of bodies sent.
    pub sent: u64,
    /// Bytes of bodies received.
    pub received: u64,
    /// Number of streams on it.
    pub streams: usize,
}

/// One stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StreamSnapshot {
    /// Identifies it within the session.
    pub key: StreamKey,
    /// The request that it carries, if labels are recorded (`request_label_limit` of the builders).
    pub label: Option<RequestLabel>,
    /// The connection that carries it.
    pub connection: ConnId,
    /// Bytes of body sent.
    pub sent: u64,
    /// Bytes of body queued behind these.
    pub queued: u64,
    /// Bytes of body received.
    pub received: u64,
    /// The announced length of the longer body in bytes, if any.
    pub length: Option<u64>,
    /// Time since it was opened; `None` if its exchange is over but for queued output. A server keeps the record until
    /// that is sent if it has an observer, records labels, or may still migrate the stream.
    pub age: Option<Duration>,
    /// Number of its migrations: those that this end began, even if unanswered or declined, and those of the peer.
    pub migrations: u8,
    /// Whether a migration or an offer of it is unanswered.
    pub migrating: bool,
    /// The last decision of the rules; `None` if there is none yet, or if they do not track it: what this end sends on it
    /// is small, the application's hint excludes it, the session cannot migrate, or the rules are off.
    pub decision: Option<PolicyDecision>,
    /// Why what this end sends on it is bulk, if it is: its connection then sends it no faster than
    /// [`ConnectionSnapshot::pacing_cap`].
    pub bulk: Option<BulkReason>,
}

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionRole {
    /// New streams start here.
    Interactive,
    /// Large transfers migrated here.
    Bulk,
    /// A spare, ready for a stream that migrates.
    Spare,
}

impl ConnectionRole {
    /// Returns the role as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Bulk => "bulk",
            Self::Spare => "spare",
        }
    }
}

/// A session's identifier in snapshots and events: random, created on first use, and used for nothing else.
/// It is not the AppID, which is part of the protocol.
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

/// A stream and where it is. A server that has an observer adds it to each HTTP/2 request
/// (`http::Request::extensions`), so that later events can be related to the request; not with
/// [`RequestExtensions::Protocol`](crate::RequestExtensions::Protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRef {
    /// Its session.
    pub session: SessionId,
    /// Its key there.
    pub stream: StreamKey,
    /// The connection that carries it, by its number in the session.
    pub connection: ConnId,
}
