//! Per-session state for snapshots and observers: the session's id, and migrations that outlive their streams.

use std::cell::OnceCell;
use std::collections::VecDeque;

use smig_proto::{ConnId, Instant, Mover, Session, StreamKey};

use super::{MigrationCause, PendingMigration, SessionId, StreamRecord, StreamRef};
use crate::entropy;

/// Maximum number of closed streams whose migration is still unanswered.
const MAX_CLOSED_STREAMS: usize = 64;

#[derive(Debug)]
pub(crate) struct SessionRecord {
    id: OnceCell<SessionId>,
    pub(super) started_at: Instant,
    /// Migrations of closed streams: the last byte may be sent before the migration is answered.
    closed_streams: VecDeque<(StreamKey, PendingMigration)>,
}

impl SessionRecord {
    pub(crate) const fn new(started_at: Instant) -> Self {
        Self { id: OnceCell::new(), started_at, closed_streams: VecDeque::new() }
    }

    /// Returns the session's identifier, which is created on first use.
    pub(crate) fn id(&self) -> SessionId {
        *self.id.get_or_init(|| SessionId(u64::from_ne_bytes(entropy::bytes())))
    }

    /// Returns a stream with the connection that carries it.
    pub(crate) fn stream_ref(&self, session: &Session, stream: StreamKey) -> Option<StreamRef> {
        Some(self.stream_ref_on(stream, session.stream(stream)?.connection))
    }

    /// Returns a stream on the connection `connection`.
    pub(crate) fn stream_ref_on(&self, stream: StreamKey, connection: ConnId) -> StreamRef {
        StreamRef { session: self.id(), stream, connection }
    }

    /// Records that a stream is closed.
    pub(crate) fn on_closed(&mut self, stream: StreamKey, record: &StreamRecord) {
        let Some(pending) = record.pending_migration else { return };
        if self.closed_streams.len() == MAX_CLOSED_STREAMS {
            self.closed_streams.pop_front();
        }
        self.closed_streams.push_back((stream, pending));
    }

    /// Records that a stream has migrated. Returns the cause, and the bytes of body before the migration: the count
    /// when this end began it, otherwise `counted_bytes`, the count when it was reported.
    pub(crate) fn on_migrated(
        &mut self,
        stream: StreamKey,
        record: Option<&mut StreamRecord>,
        mover: Mover,
        counted_bytes: u64,
    ) -> (MigrationCause, u64) {
        let pending = self.take_pending(stream, record);
        // A migration by the peer may be the answer to an offer, which has no offset.
        let offset = pending.filter(|_| mover == Mover::Local).and_then(|d| d.offset);
        (pending.map_or(MigrationCause::Peer, |d| d.why), offset.unwrap_or(counted_bytes))
    }

    /// Records that a migration was declined.
    pub(crate) fn on_declined(&mut self, stream: StreamKey, record: Option<&mut StreamRecord>) {
        self.take_pending(stream, record);
    }

    fn take_pending(
        &mut self,
        stream: StreamKey,
        record: Option<&mut StreamRecord>,
    ) -> Option<PendingMigration> {
        if let Some(record) = record {
            return record.pending_migration.take();
        }
        let index = self.closed_streams.iter().position(|(released, _)| *released == stream)?;
        self.closed_streams.remove(index).map(|(_, pending)| pending)
    }
}
