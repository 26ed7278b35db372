//! RECEIPT, and how much is kept (SMIG-13.4/receipts, SMIG-13.5/no-gap).

use crate::conn::Connection;
use crate::error::InputError;
use crate::ids::{ConnId, FrameNumber, Side, StreamAddr};
use crate::session::Session;
use crate::stream::{FRAME_MEMORY, Kept, StreamKey};
use crate::time::Instant;
use crate::wire::{self, FrameHeader, kind};

/// How many bytes may be kept between two looks at the sum.
const CHECK_INTERVAL_BYTES: usize = 64 << 10;

impl Session {
    /// Counts a frame before it is handled.
    pub(crate) fn count_read(&mut self, conn_id: ConnId, header: &FrameHeader) {
        let receipt_kind = self.config.smig.as_ref().map(|smig| smig.code_points.receipt);
        let conn = self.conns.find_known_mut(conn_id);
        if let Some(receipts) = conn.and_then(|conn| conn.receipts.as_mut()) {
            let data_bytes = if header.kind == kind::DATA { header.length } else { 0 };
            receipts.on_read(data_bytes, Some(header.kind) == receipt_kind);
        }
    }

    /// Sends a receipt if one is due, after a frame was handled.
    pub(crate) fn after_read(&mut self, now: Instant, conn_id: ConnId, header: &FrameHeader) {
        let Some(session) = &self.resumption else { return };
        let at = StreamAddr { conn: conn_id, id: header.stream };
        let is_dropped = self.side == Side::Client && session.dropped_at.contains(&at);
        let Some(conn) = self.conns.find_live_mut(conn_id) else { return };
        let Some(receipts) = &mut conn.receipts else { return };
        if is_dropped {
            receipts.hold();
        }
        if receipts.is_due_now() {
            self.send_receipt(conn_id);
        } else if receipts.is_due() {
            self.arm_tick(now);
        }
    }

    /// Sends the receipts that are due, once a second.
    pub(crate) fn send_due_receipts(&mut self) {
        let due: Vec<ConnId> = self.connections_with_due_receipts().collect();
        for conn_id in due {
            self.send_receipt(conn_id);
        }
    }

    /// Lets connections close whose peer owes nothing but receipts, and does not send them (SMIG-13.4/receipts).
    pub(crate) fn give_up_receipts(&mut self, now: Instant) {
        let timeout = self.config.limits.drain_timeout;
        let awaits = |conn: &&Connection| {
            !conn.is_dead() && self.is_finished(conn) && !self.is_settled(conn)
        };
        let awaiting: Vec<ConnId> = self.conns.iter().filter(awaits).map(|conn| conn.id).collect();
        for conn_id in awaiting {
            let conn = self.conns.find_known_mut(conn_id);
            if let Some(receipts) = conn.and_then(|conn| conn.receipts.as_mut()) {
                receipts.give_up_after(now, timeout);
            }
        }
    }

    /// Returns whether an orderly close waits for receipts.
    pub(super) fn awaits_receipts(&self) -> bool {
        self.conns
            .iter()
            .any(|conn| !conn.is_dead() && conn.is_going_away() && !self.is_settled(conn))
    }

    pub(super) fn connections_with_due_receipts(&self) -> impl Iterator<Item = ConnId> {
        let is_due = |conn: &&Connection| {
            !conn.is_dead() && conn.receipts.as_ref().is_some_and(|receipts| receipts.is_due())
        };
        self.conns.iter().filter(is_due).map(|conn| conn.id)
    }

    /// Sends a receipt.
    pub(crate) fn send_receipt(&mut self, conn_id: ConnId) {
        let code_points = self.resume_code_points();
        let Some(conn) = self.conns.find_live_mut(conn_id) else { return };
        let Some(receipts) = &mut conn.receipts else { return };
        let count = receipts.report();
        conn.control_queue.push_receipt(|out| wire::write_receipt(out, &code_points, count));
    }

    /// Returns whether a connection may be closed in order: both ends know that all was read (SMIG-13.4/receipts).
    pub(crate) fn is_settled(&self, conn: &Connection) -> bool {
        conn.receipts.as_ref().is_none_or(|receipts| receipts.is_settled())
    }

    /// Turns receipts on, on a connection of the session, or off, on one that is not.
    pub(crate) fn set_receipts(&mut self, conn_id: ConnId, is_member: bool) {
        let is_on = is_member && self.can_resume();
        let conn = self.conns.find_mut(conn_id);
        if let Some(receipts) = conn.and_then(|conn| conn.receipts.as_mut()) {
            receipts.is_on = is_on;
        }
    }

    /// Handles the peer's receipt.
    pub(crate) fn on_receipt(&mut self, conn_id: ConnId, count: u64) -> Result<(), InputError> {
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let Some(receipts) = &mut conn.receipts else { return Ok(()) };
        if !receipts.on_receipt(count)? {
            return self.count_empty_frame(conn_id);
        }
        let last = FrameNumber(count);
        for (_, stream) in self.streams.iter_mut() {
            // SMIG-13.10/kept-until-answer: a client lets go of nothing while it resumes the stream.
            if (self.side == Side::Server || !stream.is_resuming())
                && let Some(kept) = stream.send.kept_mut()
            {
                kept.on_receipt(conn_id, last);
            }
        }
        if let Some(session) = &mut self.resumption {
            session.ended_streams.on_receipt(conn_id, last, self.side);
            if self.side == Side::Client {
                session.ended_conns.on_receipt(conn_id, last);
            }
        }
        Ok(())
    }

    /// Keeps the accepting answer to a MIGRATE or RESUME that was just framed: it binds the ID that carries what follows
    /// (SMIG-13.5/no-gap).
    pub(crate) fn keep_answer(&mut self, key: StreamKey, conn_id: ConnId) {
        let stream = self.streams.find_known_mut(key).filter(|stream| stream.resumption.is_some());
        let Some(kept) = stream.and_then(|stream| stream.send.kept_mut()) else { return };
        if let Some(conn) = self.conns.find_live_mut(conn_id) {
            kept.push_answer(conn.last_framed());
            self.count_kept(FRAME_MEMORY);
        }
    }

    /// Counts memory of what was sent and is kept, and lets go of the oldest where there are too many
    /// (SMIG-13.4/receipts).
    pub(crate) fn count_kept(&mut self, memory: usize) {
        let Some(session) = &mut self.resumption else { return };
        session.unchecked_bytes += memory;
        if session.unchecked_bytes < CHECK_INTERVAL_BYTES {
            return;
        }
        session.unchecked_bytes = 0;
        let Some(config) = self.config.resumption() else { return };
        let (max_per_stream, max) = (config.max_kept_per_stream, config.max_kept);
        let mut sum = session.ended_streams.shrink(max / 2);
        for kept in self.streams.iter_mut().filter_map(|(_, stream)| stream.send.kept_mut()) {
            kept.shrink(max_per_stream);
            sum += kept.memory();
        }
        while sum > max {
            let all = self.streams.iter_mut().filter_map(|(_, stream)| stream.send.kept_mut());
            let Some(largest) = all.max_by_key(|kept| kept.frame_memory()) else { return };
            let before = largest.frame_memory();
            largest.shrink(before / 2);
            if largest.frame_memory() == before {
                // What is left is needed by declines, and bounded by their limit, or waits to be sent again.
                return;
            }
            sum -= before - largest.frame_memory();
        }
    }

    /// Returns the bytes of body that were sent and are kept, for tests and operators.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let running =
            self.streams.iter().map(|(_, stream)| stream.send.kept().map_or(0, Kept::bytes));
        let ended = self.resumption.as_ref().map_or(0, |it| it.ended_streams.kept_bytes());
        running.sum::<usize>() + ended
    }
}
