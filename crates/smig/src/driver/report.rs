//! What a session reports to the counters and the observer of its endpoint: events of streams and connections, each with
//! the connection and the stream that it concerns; and the session's snapshot.
//!
//! Without an observer, no connection is looked up, and a stream only for a migration.

use smig_proto::{ConnId, ConnectionView, Mover, StreamKey};

use super::TurnCx;
use crate::clock;
use crate::observer::{EventSink, ObserverEvent};
use crate::snapshot::{self, SessionRecord, SessionSnapshot, StreamRecord, StreamRef};
use crate::socket::ConnectionAddrs;

/// The engine's event that a stream has migrated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) stream: StreamKey,
    pub(crate) from: ConnId,
    pub(crate) to: ConnId,
    pub(crate) mover: Mover,
    /// Bytes of body received before.
    pub(crate) received: u64,
}

impl TurnCx<'_> {
    /// Returns a snapshot of the session; `find` returns the records of its streams. `None` if no connection is open.
    pub(crate) fn snapshot<'a>(
        &self,
        session_record: &SessionRecord,
        find: impl Fn(StreamKey) -> Option<&'a StreamRecord>,
    ) -> Option<SessionSnapshot> {
        let connection = |view: &ConnectionView, role| self.conns.snapshot(view, role);
        snapshot::capture(self.session, self.now, session_record, connection, find)
    }
}

impl EventSink {
    /// Like [`Self::addrs`], for one of a session's connections.
    pub(crate) fn addrs_of(&self, turn: &TurnCx<'_>, conn: ConnId) -> Option<ConnectionAddrs> {
        self.addrs(|| Some(turn.conns.info(conn)?.addrs()))
    }

    /// Like [`Self::addrs`], for the connection that carries a stream.
    pub(crate) fn addrs_of_stream(
        &self,
        turn: &TurnCx<'_>,
        stream: StreamKey,
    ) -> Option<ConnectionAddrs> {
        self.addrs(|| Some(turn.conns.info(turn.session.stream(stream)?.connection)?.addrs()))
    }

    /// Returns a stream and its connection for the observer; `None` without an observer.
    pub(crate) fn stream_ref(
        &self,
        turn: &TurnCx<'_>,
        session_record: &SessionRecord,
        stream: StreamKey,
    ) -> Option<StreamRef> {
        self.is_observed().then(|| session_record.stream_ref(turn.session, stream))?
    }

    /// Reports a migration.
    pub(crate) fn on_migrated(
        &self,
        turn: &TurnCx<'_>,
        session_record: &mut SessionRecord,
        record: Option<&mut StreamRecord>,
        migration: Migration,
    ) {
        let Migration { stream, from, to, mover, received } = migration;
        let sent = turn.session.stream(stream).map_or(0, |view| view.sent_bytes);
        let (why, transferred_bytes) =
            session_record.on_migrated(stream, record, mover, sent + received);
        let stream_ref = self.is_observed().then(|| session_record.stream_ref_on(stream, to));
        let addrs = self.addrs_of(turn, to);
        self.on_event(&ObserverEvent::Migrated {
            from,
            to,
            mover,
            addrs,
            stream: stream_ref,
            transferred_bytes,
            why,
        });
    }

    /// Reports that a stream has completed.
    pub(crate) fn on_stream_completed(
        &self,
        turn: &TurnCx<'_>,
        session_record: &SessionRecord,
        key: StreamKey,
        record: &StreamRecord,
    ) {
        if !self.is_observed() {
            return self.count_stream_completion();
        }
        let view = turn.session.stream(key);
        self.on_event(&ObserverEvent::StreamCompleted {
            stream: self.stream_ref(turn, session_record, key),
            // One turn may open and complete a stream: its timestamp is too coarse for a latency.
            latency: clock::now().saturating_duration_since(record.opened_at),
            sent: view.map_or(0, |view| view.sent_bytes),
            received: view.map_or(0, |view| view.received_bytes),
            migrations: view.map_or(0, |view| view.migrations),
        });
    }
}
