//! Takes the snapshot of one session, on its task.

use smig_proto::{ConnId, ConnectionView, Instant, Session, StreamKey, StreamView};

use super::{
    ConnectionRole, ConnectionSnapshot, MAX_SNAPSHOT_STREAMS, SessionRecord, SessionSnapshot,
    StreamRecord, StreamSnapshot,
};

/// Returns a snapshot of the session; `connection` takes that of a connection, and `find` returns the records of the
/// session's streams. `None` if no connection is open.
pub(crate) fn capture<'a>(
    session: &Session,
    now: Instant,
    session_record: &SessionRecord,
    connection: impl Fn(&ConnectionView, ConnectionRole) -> Option<ConnectionSnapshot>,
    find: impl Fn(StreamKey) -> Option<&'a StreamRecord>,
) -> Option<SessionSnapshot> {
    let connections = connections(session, connection);
    let streams = session.streams().take(MAX_SNAPSHOT_STREAMS);
    let streams = streams.map(|(key, view)| stream(now, key, &view, find(key)));
    Some(SessionSnapshot {
        id: session_record.id(),
        peer: connections.first()?.addrs.peer,
        can_migrate: session.connections().any(|conn| conn.is_joined),
        age: now.saturating_duration_since(session_record.started_at),
        connections,
        streams: streams.collect(),
        open_streams: session.stream_count(),
    })
}

/// Returns the session's connections.
fn connections(
    session: &Session,
    connection: impl Fn(&ConnectionView, ConnectionRole) -> Option<ConnectionSnapshot>,
) -> Vec<ConnectionSnapshot> {
    let interactive = |conn: &ConnectionView| conn.role == smig_proto::ConnectionRole::Interactive;
    let primary = session.connections().find(interactive).map(|conn| conn.id);
    session.connections().filter_map(|view| connection(&view, role(&view, primary))).collect()
}

fn role(view: &ConnectionView, primary: Option<ConnId>) -> ConnectionRole {
    if view.is_joined && view.stream_count == 0 && view.accepts_streams && Some(view.id) != primary
    {
        return ConnectionRole::Spare;
    }
    match view.role {
        smig_proto::ConnectionRole::Interactive => ConnectionRole::Interactive,
        smig_proto::ConnectionRole::Bulk => ConnectionRole::Bulk,
    }
}

fn stream(
    now: Instant,
    key: StreamKey,
    view: &StreamView,
    record: Option<&StreamRecord>,
) -> StreamSnapshot {
    let send_length =
        view.unqueued_bytes.map(|left| view.sent_bytes + view.queued_bytes as u64 + left);
    StreamSnapshot {
        key,
        label: record.and_then(|record| record.label.as_deref().cloned()),
        connection: view.connection,
        sent: view.sent_bytes,
        queued: view.queued_bytes as u64,
        received: view.received_bytes,
        length: send_length.max(view.content_length),
        age: record.map(|record| now.saturating_duration_since(record.opened_at)),
        migrations: view.migrations,
        migrating: view.is_migrating,
        decision: record.and_then(|record| record.decision),
        bulk: view.bulk,
    }
}
