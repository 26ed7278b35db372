//! Bytes from a transport: parses the preface and frames, and dispatches each frame.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

use crate::conn::{BlockKind, ConnState, FieldBlockAssembly};
use crate::error::{Cause, InputError};
use crate::ids::{ConnId, StreamId};
use crate::session::Session;
use crate::time::Instant;
use crate::wire::{self, FRAME_HEADER_BYTES, Frame, FrameHeader, kind};

/// Approximate size of a driver's read, in bytes.
const TYPICAL_READ_BYTES: usize = 64 << 10;

impl Session {
    /// Processes the input of a connection. Consumes complete frames; the rest stays in `buf` for
    /// the next call. Reports errors in the input as events, and sends RST_STREAM or GOAWAY.
    ///
    /// Body is retained as a slice of `buf`, unless it is much smaller than `buf`. Nothing else is
    /// retained. If `buf` has the size of a read plus a frame, and is used for one connection until
    /// it is replaced, the retained memory is bounded by the windows.
    pub fn handle_input(&mut self, now: Instant, conn: ConnId, buf: &mut BytesMut) {
        if let Some(conn) = self.conns.find_mut(conn) {
            conn.input_tracker.record(buf);
        }
        while let Some((head, payload)) = self.next_frame(now, conn, buf) {
            if let Err(error) = self.handle_frame(now, conn, head, payload) {
                self.on_input_error(now, conn, error);
            }
        }
    }

    /// Returns whether the driver should read the connection now: not while a JOIN is undecided,
    /// and not while the peer does not read this side's responses.
    #[must_use]
    pub fn wants_input(&self, conn: ConnId) -> bool {
        self.conns.find(conn).is_some_and(|conn| {
            !matches!(conn.state, ConnState::JoinPending(_) | ConnState::Dead)
                && conn.out.peer_caused_bytes() < self.config.limits.max_buffered_output
        })
    }

    fn next_frame(
        &mut self,
        now: Instant,
        id: ConnId,
        buf: &mut BytesMut,
    ) -> Option<(FrameHeader, Bytes)> {
        let max = self.config.max_frame_size;
        let conn = self.conns.find_mut(id)?;
        match conn.state {
            ConnState::Preface => {
                let received = buf.len().min(wire::PREFACE.len());
                if buf.get(..received) != wire::PREFACE.get(..received) {
                    self.on_input_error(now, id, Cause::BadPreface.into());
                    return None;
                }
                if received < wire::PREFACE.len() {
                    return None;
                }
                buf.advance(received);
                conn.state = ConnState::Settings;
            }
            ConnState::JoinPending(_) => return None,
            ConnState::Dead => {
                buf.clear();
                return None;
            }
            ConnState::Settings | ConnState::Open => {}
        }
        let head = FrameHeader::parse(buf)?;
        if head.length > max {
            self.on_input_error(now, id, Cause::FrameTooLong.into());
            return None;
        }
        let length = head.length as usize;
        if buf.len() < FRAME_HEADER_BYTES + length {
            if length > TYPICAL_READ_BYTES {
                // The frame arrives in many reads, and each would move it to a larger buffer.
                buf.reserve(FRAME_HEADER_BYTES + length - buf.len());
            }
            return None;
        }
        buf.advance(FRAME_HEADER_BYTES);
        Some((head, buf.split_to(length).freeze()))
    }

    fn handle_frame(
        &mut self,
        now: Instant,
        id: ConnId,
        head: FrameHeader,
        payload: Bytes,
    ) -> Result<(), InputError> {
        let points = self.config.smig.as_ref().map(|smig| smig.code_points);
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        if let Some(assembly) = &conn.field_block
            && (head.kind != kind::CONTINUATION || head.stream != assembly.stream)
        {
            return Err(Cause::ExpectedContinuation.into());
        }
        if matches!(conn.state, ConnState::Settings)
            && (head.kind != kind::SETTINGS || head.flags & 1 != 0)
        {
            return Err(Cause::FirstFrameNotSettings.into());
        }
        let smig_on = conn.peer_settings.max_open_migrations > 0 && conn.cid.is_some();
        self.mark_frame_received(id, &head);
        let frame = wire::parse(head, payload, points.as_ref().filter(|_| smig_on))?;
        self.dispatch(now, id, frame)
    }

    fn dispatch(&mut self, now: Instant, conn: ConnId, frame: Frame) -> Result<(), InputError> {
        match frame {
            Frame::Data { stream, data, charged, end } => {
                self.on_data(now, conn, stream, data, charged, end)
            }
            Frame::Headers { stream, block, end, last } => {
                self.on_block(now, conn, stream, BlockKind::Headers(end), block, last)
            }
            Frame::PushPromise { stream, promised, block, last } => {
                self.on_block(now, conn, stream, BlockKind::Promise(promised), block, last)
            }
            Frame::Continuation { stream, block, last } => {
                self.on_continuation(now, conn, stream, &block, last)
            }
            Frame::Priority => self.on_priority(conn),
            Frame::Unknown => self.on_ignored_frame(conn),
            Frame::Reset { stream, code } => self.on_reset(now, conn, stream, code),
            Frame::Settings(payload) => self.on_settings(now, conn, &payload),
            Frame::SettingsAck => self.on_settings_ack(conn),
            Frame::Ping(opaque) => self.on_ping(conn, opaque),
            Frame::Pong(opaque) => self.on_pong(conn, opaque),
            Frame::GoAway { last, code, debug } => self.on_goaway(conn, last, code, &debug),
            Frame::WindowUpdate { stream, increment } => {
                self.on_window_update(now, conn, stream, increment)
            }
            Frame::PriorityUpdate { stream, priority } => {
                self.on_priority_update(conn, stream, priority)
            }
            Frame::Migrate { stream, migrate, end } => {
                self.on_migrate(now, conn, stream, migrate, end)
            }
            Frame::MigrateAck { stream, migrate, end } => {
                self.on_migrate_ack(now, conn, stream, migrate, end)
            }
            Frame::Join(join) => self.on_join(now, conn, join),
        }
    }

    /// Handles a frame that has no effect here; many consecutive ones indicate an attack.
    fn on_ignored_frame(&mut self, id: ConnId) -> Result<(), InputError> {
        self.count_empty(id)
    }

    /// Handles PRIORITY, which has no effect here (RFC 9113 section 5.3.2). Its limit is higher:
    /// browsers send up to three for each open stream of a page when its layout is computed, and
    /// again when it is scrolled.
    fn on_priority(&mut self, id: ConnId) -> Result<(), InputError> {
        let max = self.config.max_concurrent_streams.max(100).saturating_mul(8);
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        conn.abuse.consecutive_priorities += 1;
        if conn.abuse.consecutive_priorities > max {
            return Err(Cause::TooManyPriorityFrames.into());
        }
        Ok(())
    }

    /// Counts a frame that has no effect (CVE-2019-9518).
    pub(crate) fn count_empty(&mut self, id: ConnId) -> Result<(), InputError> {
        // Frames of unknown types may be GREASE; only a sequence of them without a useful frame is
        // counted.
        let max = self.config.limits.max_consecutive_empty_frames;
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        conn.abuse.consecutive_empty += 1;
        if conn.abuse.consecutive_empty > max {
            return Err(Cause::TooManyEmptyFrames.into());
        }
        Ok(())
    }

    fn on_block(
        &mut self,
        now: Instant,
        id: ConnId,
        stream: StreamId,
        block_kind: BlockKind,
        block: Bytes,
        last: wire::LastFragment,
    ) -> Result<(), InputError> {
        if let BlockKind::Promise(_) = block_kind {
            self.check_promise(id, stream)?;
        }
        match last {
            wire::LastFragment::Yes => self.on_field_block(now, id, stream, block_kind, &block),
            wire::LastFragment::No => {
                if block.is_empty() {
                    self.count_empty(id)?;
                }
                self.arm(now);
                if let Some(conn) = self.conns.known_mut(id) {
                    conn.field_block =
                        Some(FieldBlockAssembly::new(stream, block_kind, &block, now));
                }
                Ok(())
            }
        }
    }

    fn on_continuation(
        &mut self,
        now: Instant,
        id: ConnId,
        stream: StreamId,
        fragment: &Bytes,
        last: wire::LastFragment,
    ) -> Result<(), InputError> {
        let config = Arc::clone(&self.config);
        let Some(conn) = self.conns.known_mut(id) else { return Ok(()) };
        let Some(mut assembly) = conn.field_block.take() else {
            return Err(Cause::UnexpectedContinuation.into());
        };
        assembly.push(fragment, &config.limits)?;
        if last == wire::LastFragment::No {
            conn.field_block = Some(assembly);
            return Ok(());
        }
        let block_kind = assembly.kind;
        self.on_field_block(now, id, stream, block_kind, &assembly.into_block())
    }

    /// Handles the end of the peer's side of the transport.
    pub fn handle_eof(&mut self, now: Instant, conn: ConnId) {
        self.handle_lost(now, conn, crate::session::LostReason::Closed);
    }
}
