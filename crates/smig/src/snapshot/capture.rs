//! Takes the snapshot of one session, on its task.

use smig_proto::{ConnId, ConnectionView, Instant, StreamKey, StreamView};

use super::{
    ConnectionRole, ConnectionSnapshot, STREAMS_SHOWN, SessionRecord, SessionSnapshot,
    StreamRecord, StreamSnapshot,
};
use crate::driver::TurnCx;

/// Returns a snapshot of the session; `find` returns the records of its streams. `None` if no connection is open.
pub(crate) fn capture<'a>(
    turn: &TurnCx<'_>,
    session_record: &SessionRecord,
    find: impl Fn(StreamKey) -> Option<&'a StreamRecord>,
) -> Option<SessionSnapshot> {
    let connections = connections(turn);
    let streams = turn.session.streams().take(STREAMS_SHOWN);
    let streams = streams.map(|(key, view)| stream(turn.now, key, &view, find(key)));
    Some(SessionSnapshot {
        id: session_record.id(),
        peer: connections.first()?.ends.peer,
        migrates: turn.session.connections().any(|conn| conn.joined),
        age: turn.now.saturating_duration_since(session_record.started),
        connections,
        streams: streams.collect(),
        open_streams: turn.session.stream_count(),
    })
}

/// Returns the session's connections.
fn connections(turn: &TurnCx<'_>) -> Vec<ConnectionSnapshot> {
    let interactive = |conn: &ConnectionView| conn.role == smig_proto::ConnectionRole::Interactive;
    let primary = turn.session.connections().find(interactive).map(|conn| conn.id);
    let views = turn.session.connections();
    views.filter_map(|view| turn.conns.snapshot(&view, role(&view, primary))).collect()
}

fn role(view: &ConnectionView, primary: Option<ConnId>) -> ConnectionRole {
    if view.joined && view.streams == 0 && view.takes_streams && Some(view.id) != primary {
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
    let to_send = view.unqueued.map(|left| view.sent + view.queued as u64 + left);
    StreamSnapshot {
        key,
        name: record.and_then(|record| record.name.as_deref().cloned()),
        connection: view.connection,
        sent: view.sent,
        queued: view.queued as u64,
        received: view.received,
        length: to_send.max(view.expected),
        age: record.map(|record| now.saturating_duration_since(record.opened)),
        moves: view.moves,
        moving: view.moving,
        verdict: record.and_then(|record| record.verdict),
    }
}
