//! The mapping between (connection, ID) and streams.

use crate::conn::{Connection, IdState, SendClass};
use crate::ids::{Cid, ConnId, Side, StreamAddr, StreamId};
use crate::migrate::Mover;
use crate::priority::Priority;
use crate::role::ConnectionRole;
use crate::session::Session;
use crate::stream::{
    Binding, ExchangeKind, KeyState, Opener, RecvHalf, SendHalf, StallClock, Stream, StreamKey,
};
use crate::time::Instant;
use crate::wire::{FrameHeader, kind};

impl Session {
    pub(crate) fn conn_by_cid(&self, cid: Cid) -> Option<ConnId> {
        let has_cid = |conn: &&Connection| conn.cid == Some(cid) && !conn.is_dead();
        self.conns.iter().find(has_cid).map(|conn| conn.id)
    }

    pub(crate) fn key_at(&self, conn_id: ConnId, stream_id: StreamId) -> Option<StreamKey> {
        self.conns.find(conn_id)?.streams.get(&stream_id).copied()
    }

    /// Client: records that a frame of a stream was received, even if it is then ignored.
    /// RST_STREAM is not recorded, nor is an answer to RESUME, which may be a refusal: they do not imply that the server
    /// processed the request.
    pub(crate) fn mark_frame_received(&mut self, conn_id: ConnId, header: &FrameHeader) {
        if self.side == Side::Server
            || header.stream.is_connection()
            || header.kind == kind::RST_STREAM
            || self.config.smig.as_ref().is_some_and(|it| it.code_points.resume == header.kind)
        {
            return;
        }
        if let Some(key) = self.key_at(conn_id, header.stream)
            && let Some(stream) = self.streams.find_mut(key)
        {
            stream.frame_received = true;
        }
    }

    /// Returns whether IDs of this parity are opened by the peer.
    pub(crate) fn is_peer_id(&self, stream_id: StreamId) -> bool {
        stream_id.is_opened_by(self.side.peer())
    }

    /// Returns the state of an ID that has no stream. All IDs of a connection that was removed are
    /// closed: a MIGRATE that was received there may still wait for a JOIN.
    pub(crate) fn id_state(&self, conn_id: ConnId, stream_id: StreamId) -> IdState {
        let Some(conn) = self.conns.find(conn_id) else { return IdState::Closed };
        if self.is_peer_id(stream_id) {
            // After this side's GOAWAY, new streams of the peer are ignored (RFC 9113 section 6.8).
            if conn.goaway.sent_last_id.is_some_and(|last| stream_id > last) {
                return IdState::Ignored;
            }
            conn.peer_ids.state(stream_id)
        } else {
            conn.local_ids.state(stream_id)
        }
    }

    /// Adds a stream, which counts against the limit from now on, and maps `addr` to it.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        opener: Opener,
        exchange_kind: ExchangeKind,
        addr: StreamAddr,
        halves: (SendHalf, RecvHalf),
        priority: Priority,
    ) -> StreamKey {
        let (send, recv) = halves;
        let key = self.streams.insert(Stream {
            opener,
            exchange_kind,
            binding: Binding::new(addr),
            send,
            recv,
            priority,
            frame_received: false,
            was_offered_or_declined: false,
            offered_role: None,
            key_state: KeyState::Held,
            stop_due: false,
            stall: StallClock::new(now),
            error: None,
            resumption: None,
        });
        match opener {
            Opener::Local => self.open_local_streams += 1,
            Opener::Peer => self.open_peer_streams += 1,
        }
        if let Some(conn) = self.conns.find_known_mut(addr.conn) {
            conn.streams.insert(addr.id, key);
        }
        key
    }

    /// Removes the mapping of this address, unless its connection was removed.
    pub(crate) fn unmap(&mut self, at: StreamAddr) {
        if let Some(conn) = self.conns.find_mut(at.conn) {
            conn.streams.remove(&at.id);
        }
    }

    /// Binds a stream to the address where both of its directions continue. Frames that arrive on
    /// the old one are errors from now on (SMIG-5.19/behind-barrier).
    pub(crate) fn rebind(&mut self, key: StreamKey, to: StreamAddr, mover: Mover) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let old_addr = stream.binding.rebind(to, mover);
        // A complete stream stays on its carrier although its old connection was removed.
        if let Some(c1) = self.conns.find_mut(old_addr.conn) {
            c1.streams.remove(&old_addr.id);
            c1.vacated_streams.insert(old_addr.id, key);
        }
        // A mover has it in the map of its carrier already.
        if let Some(c2) = self.conns.find_mut(to.conn) {
            c2.streams.insert(to.id, key);
        }
    }

    /// Returns the stream that moved away from this address, if it is still running.
    pub(crate) fn vacated_key(&self, at: StreamAddr) -> Option<StreamKey> {
        self.conns.find(at.conn)?.vacated_streams.get(&at.id).copied()
    }

    /// Ignores late frames on this address from now on, unless its connection was removed.
    pub(crate) fn ignore_late_frames(&mut self, at: StreamAddr) {
        let is_peer_id = self.is_peer_id(at.id);
        if let Some(conn) = self.conns.find_mut(at.conn) {
            if is_peer_id { conn.peer_ids.ignore(at.id) } else { conn.local_ids.ignore(at.id) }
        }
    }

    /// Stops ignoring frames on this address, because the peer has sent its last frame there:
    /// further frames are errors.
    pub(crate) fn stop_ignoring_late_frames(&mut self, at: StreamAddr) {
        let is_peer_id = self.is_peer_id(at.id);
        if let Some(conn) = self.conns.find_mut(at.conn) {
            if is_peer_id {
                conn.peer_ids.stop_ignoring(at.id)
            } else {
                conn.local_ids.stop_ignoring(at.id)
            }
        }
    }

    /// Returns the spare with the smallest CID: a joined connection that accepts streams and has
    /// none (SMIG-5.1/choice-of-c2).
    #[must_use]
    pub fn spare(&self, c1: ConnId) -> Option<ConnId> {
        let is_spare = |conn: &&Connection| conn.accepts_carrier(c1) && conn.is_unused();
        self.conns.iter().filter(is_spare).min_by_key(|conn| conn.cid).map(|conn| conn.id)
    }

    /// Removes a stream from its connection's scheduler, or from the list of streams that wait for
    /// the connection's window.
    pub(crate) fn unschedule(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let (Some(scheduled_conn_id), priority) =
            (stream.binding.take_scheduled(), stream.priority)
        else {
            return;
        };
        let Some(conn) = self.conns.find_known_mut(scheduled_conn_id) else { return };
        if !conn.scheduler.remove(key, priority) {
            conn.blocked_streams.retain(|&waiting| waiting != key);
        }
    }

    /// Adds a stream to its connection's scheduler, if it has data to send and has not ended
    /// meanwhile.
    pub(crate) fn schedule(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_mut(key) else { return };
        if stream.binding.scheduled_on().is_some() || !stream.has_frames() {
            return;
        }
        let (addr, priority) = (stream.binding.send_addr(), stream.priority);
        let Some(conn) = self.conns.find_known_mut(addr.conn) else { return };
        if let Some(policy) = &self.config.bulk {
            let is_tunnel = stream.exchange_kind == ExchangeKind::Tunnel;
            let has_migrated = conn.role == ConnectionRole::Bulk;
            stream.send.classify(policy, priority, is_tunnel, has_migrated);
        }
        let class = match stream.send.is_held_as_bulk() {
            true => SendClass::Bulk,
            false => SendClass::Interactive,
        };
        stream.binding.set_scheduled(addr.conn);
        conn.scheduler.push(class, addr.id, key, priority);
    }
}
