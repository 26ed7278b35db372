//! Sessions as JSON: the format of `/api/sessions` and of the admin page's events.
//!
//! Units are bytes and bytes per second unless a name says otherwise. Ids that may have more digits than a
//! JavaScript number can represent are strings.

use std::time::Duration;

use serde::Serialize;
use smig::{BulkReason, ConnectionSnapshot, SessionSnapshot, Snapshot, StreamSnapshot};

/// Maximum number of sessions shown: sessions that can migrate first, then those with the most streams.
const MAX_SESSIONS: usize = 64;
/// Maximum number of streams shown, over all sessions.
const MAX_STREAMS: usize = 512;

/// All open sessions, up to the limits above.
#[derive(Debug, Serialize)]
pub(crate) struct Sessions {
    sessions: Vec<Session>,
    /// Number of open sessions that are left out.
    sessions_omitted: usize,
}

#[derive(Debug, Serialize)]
struct Session {
    id: String,
    peer: String,
    /// Whether both ends support SMig.
    can_migrate: bool,
    age_s: f64,
    open_streams: usize,
    connections: Vec<Connection>,
    streams: Vec<Stream>,
}

#[derive(Debug, Serialize)]
struct Connection {
    id: String,
    role: &'static str,
    local: String,
    peer: String,
    rtt_ms: f64,
    min_rtt_ms: f64,
    congestion_window: u64,
    in_flight: u64,
    unsent: u64,
    delivery_rate: Option<u64>,
    pacing_cap: Option<u64>,
    sent: u64,
    received: u64,
    streams: usize,
}

#[derive(Debug, Serialize)]
struct Stream {
    key: String,
    method: Option<String>,
    authority: Option<String>,
    path: Option<String>,
    connection: String,
    sent: u64,
    queued: u64,
    received: u64,
    length: Option<u64>,
    age_s: Option<f64>,
    migrations: u8,
    migrating: bool,
    decision: Option<String>,
    /// Why it is bulk, if it is.
    bulk: Option<&'static str>,
}

impl Sessions {
    pub(crate) fn from_snapshot(snapshot: Snapshot) -> Self {
        let mut snapshots = snapshot.sessions;
        // Most relevant first: sessions that can migrate, then those with the most streams.
        snapshots.sort_by_key(|session| {
            (std::cmp::Reverse((session.can_migrate, session.open_streams)), session.id)
        });
        let excess = snapshots.len().saturating_sub(MAX_SESSIONS);
        let mut streams_left = MAX_STREAMS;
        let sessions = snapshots
            .iter()
            .take(MAX_SESSIONS)
            .map(|session| Session::from_snapshot(session, &mut streams_left));
        Self { sessions: sessions.collect(), sessions_omitted: snapshot.sessions_omitted + excess }
    }
}

impl Session {
    fn from_snapshot(session: &SessionSnapshot, streams_left: &mut usize) -> Self {
        let streams: Vec<_> =
            session.streams.iter().take(*streams_left).map(Stream::from_snapshot).collect();
        *streams_left -= streams.len();
        Self {
            id: session.id.to_string(),
            peer: session.peer.to_string(),
            can_migrate: session.can_migrate,
            age_s: session.age.as_secs_f64(),
            open_streams: session.open_streams,
            connections: session.connections.iter().map(Connection::from_snapshot).collect(),
            streams,
        }
    }
}

impl Connection {
    fn from_snapshot(connection: &ConnectionSnapshot) -> Self {
        Self {
            id: connection.id.to_string(),
            role: connection.role.as_str(),
            local: connection.addrs.local.to_string(),
            peer: connection.addrs.peer.to_string(),
            rtt_ms: to_millis(connection.rtt),
            min_rtt_ms: to_millis(connection.min_rtt),
            congestion_window: connection.congestion_window,
            in_flight: connection.in_flight,
            unsent: connection.unsent,
            delivery_rate: connection.delivery_rate,
            pacing_cap: connection.pacing_cap,
            sent: connection.sent,
            received: connection.received,
            streams: connection.streams,
        }
    }
}

impl Stream {
    fn from_snapshot(stream: &StreamSnapshot) -> Self {
        let label = stream.label.as_ref();
        Self {
            key: stream.key.as_u64().to_string(),
            method: label.map(|name| name.method.to_string()),
            authority: label.map(|name| name.authority.to_string()),
            path: label.map(|name| name.path.to_string()),
            connection: stream.connection.to_string(),
            sent: stream.sent,
            queued: stream.queued,
            received: stream.received,
            length: stream.length,
            age_s: stream.age.map(|age| age.as_secs_f64()),
            migrations: stream.migrations,
            migrating: stream.migrating,
            decision: stream.decision.map(|decision| decision.to_string()),
            bulk: stream.bulk.map(BulkReason::as_str),
        }
    }
}

/// Converts to milliseconds, the usual unit of round-trip times.
pub(crate) fn to_millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
