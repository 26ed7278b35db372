//! Bytes from a transport: parses the preface and frames, and dispatches each frame.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};

use crate::conn::{BlockKind, ConnState, FieldBlockAssembly};
use crate::error::{Cause, InputError};
use crate::ids::{ConnId, StreamAddr, StreamId};
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
    pub fn handle_input(&mut self, now: Instant, conn_id: ConnId, buf: &mut BytesMut) {
        if let Some(conn) = self.conns.find_mut(conn_id) {
            conn.input_tracker.record(buf);
        }
        while let Some(header) = self.next_frame(now, conn_id, buf) {
            let length = header.length as usize;
            buf.advance(FRAME_HEADER_BYTES);
            self.count_read(conn_id, &header);
            let handled = if header.kind == kind::DATA {
                let payload = buf.split_to(length).freeze();
                self.handle_data_frame(now, conn_id, header, payload)
            } else {
                // Nothing of it is retained, so the payload need not be split off.
                let payload = buf.get(..length).unwrap_or_default();
                let handled = self.handle_frame(now, conn_id, header, payload);
                buf.advance(length);
                handled
            };
            match handled {
                Ok(()) => self.after_read(now, conn_id, &header),
                Err(error) => self.on_input_error(now, conn_id, error),
            }
        }
    }

    /// Returns whether the driver should read the connection now: not while a JOIN is undecided,
    /// and not while the peer does not read this side's responses.
    #[must_use]
    pub fn wants_input(&self, conn_id: ConnId) -> bool {
        self.conns.find(conn_id).is_some_and(|conn| {
            !matches!(conn.state, ConnState::JoinPending(_) | ConnState::Dead)
                && conn.control_queue.peer_caused_bytes() < self.config.limits.max_buffered_output
        })
    }

    /// Returns the header of the frame at the start of `buf`, if the frame is complete and may be handled.
    fn next_frame(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        buf: &mut BytesMut,
    ) -> Option<FrameHeader> {
        let max_frame_size = self.config.max_frame_size;
        let conn = self.conns.find_mut(conn_id)?;
        match conn.state {
            ConnState::Preface => {
                let available_bytes = buf.len().min(wire::PREFACE.len());
                if buf.get(..available_bytes) != wire::PREFACE.get(..available_bytes) {
                    self.on_input_error(now, conn_id, Cause::BadPreface.into());
                    return None;
                }
                if available_bytes < wire::PREFACE.len() {
                    return None;
                }
                buf.advance(available_bytes);
                conn.state = ConnState::Settings;
            }
            ConnState::JoinPending(_) => return None,
            ConnState::Dead => {
                buf.clear();
                return None;
            }
            ConnState::Settings | ConnState::Open => {}
        }
        let header = FrameHeader::parse(buf)?;
        if header.length > max_frame_size {
            self.on_input_error(now, conn_id, Cause::FrameTooLong.into());
            return None;
        }
        let length = header.length as usize;
        if buf.len() < FRAME_HEADER_BYTES + length {
            if length > TYPICAL_READ_BYTES {
                // The frame arrives in many reads, and each would move it to a larger buffer.
                buf.reserve(FRAME_HEADER_BYTES + length - buf.len());
            }
            return None;
        }
        Some(header)
    }

    /// Checks whether a frame of this type may follow the previous ones.
    fn check_sequence(&self, conn_id: ConnId, header: &FrameHeader) -> Result<(), InputError> {
        let Some(conn) = self.conns.find_known(conn_id) else { return Ok(()) };
        if let Some(assembly) = &conn.field_block
            && (header.kind != kind::CONTINUATION || header.stream != assembly.stream)
        {
            return Err(Cause::ExpectedContinuation.into());
        }
        if matches!(conn.state, ConnState::Settings)
            && (header.kind != kind::SETTINGS || header.flags & 1 != 0)
        {
            return Err(Cause::FirstFrameNotSettings.into());
        }
        Ok(())
    }

    fn handle_data_frame(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        header: FrameHeader,
        payload: Bytes,
    ) -> Result<(), InputError> {
        self.check_sequence(conn_id, &header)?;
        self.mark_frame_received(conn_id, &header);
        let wire::DataFrame { stream, data, charged_bytes, end } =
            wire::parse_data(header, payload)?;
        self.on_data(now, conn_id, stream, data, charged_bytes, end)
    }

    fn handle_frame(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), InputError> {
        self.check_sequence(conn_id, &header)?;
        let code_points = self.config.smig.as_ref().map(|smig| smig.code_points);
        let Some(conn) = self.conns.find_known(conn_id) else { return Ok(()) };
        let smig_on = conn.peer_settings.max_open_migrations > 0 && conn.cid.is_some();
        let is_resumption_on = conn.receipts.as_ref().is_some_and(|receipts| receipts.is_on);
        self.mark_frame_received(conn_id, &header);
        let extensions =
            wire::Extensions { smig: code_points.as_ref().filter(|_| smig_on), is_resumption_on };
        let frame = wire::parse(header, payload, extensions)?;
        self.dispatch(now, conn_id, frame)
    }

    fn dispatch(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        frame: Frame<'_>,
    ) -> Result<(), InputError> {
        match frame {
            Frame::Headers { stream, block, end, last } => {
                self.on_first_fragment(now, conn_id, stream, BlockKind::Headers(end), block, last)
            }
            Frame::PushPromise { stream, promised, block, last } => self.on_first_fragment(
                now,
                conn_id,
                stream,
                BlockKind::Promise(promised),
                block,
                last,
            ),
            Frame::Continuation { stream, block, last } => {
                self.on_continuation(now, conn_id, stream, block, last)
            }
            Frame::Priority => self.on_priority(conn_id),
            Frame::Unknown => self.on_ignored_frame(conn_id),
            Frame::Reset { stream, code } => self.on_reset(now, conn_id, stream, code),
            Frame::Settings(payload) => self.on_settings(now, conn_id, payload),
            Frame::SettingsAck => self.on_settings_ack(conn_id),
            Frame::Ping(opaque) => self.on_ping(conn_id, opaque),
            Frame::Pong(opaque) => self.on_pong(conn_id, opaque),
            Frame::GoAway { last_id: last, code, debug } => {
                self.on_goaway(conn_id, last, code, debug)
            }
            Frame::WindowUpdate { stream, increment } => {
                self.on_window_update(now, conn_id, stream, increment)
            }
            Frame::PriorityUpdate { stream, priority } => {
                self.on_priority_update(conn_id, stream, priority)
            }
            Frame::Migrate { stream, migrate, end } => {
                self.on_migrate(now, conn_id, stream, migrate, end)
            }
            Frame::MigrateAck { stream, migrate, end } => {
                self.on_migrate_ack(now, conn_id, stream, migrate, end)
            }
            Frame::Join(join) => self.on_join(now, conn_id, join),
            Frame::Resume { stream, resume } => {
                self.on_resume(now, StreamAddr { conn: conn_id, id: stream }, resume)
            }
            Frame::Lost(cid) => self.on_lost(now, conn_id, cid),
            Frame::Receipt(count) => self.on_receipt(conn_id, count),
        }
    }

    /// Handles a frame that has no effect here; many consecutive ones indicate an attack.
    fn on_ignored_frame(&mut self, conn_id: ConnId) -> Result<(), InputError> {
        self.count_empty_frame(conn_id)
    }

    /// Handles PRIORITY, which has no effect here (RFC 9113 section 5.3.2). Its limit is higher:
    /// browsers send up to three for each open stream of a page when its layout is computed, and
    /// again when it is scrolled.
    fn on_priority(&mut self, conn_id: ConnId) -> Result<(), InputError> {
        let max = self.config.max_concurrent_streams.max(100).saturating_mul(8);
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        conn.abuse.consecutive_priority_frames += 1;
        if conn.abuse.consecutive_priority_frames > max {
            return Err(Cause::TooManyPriorityFrames.into());
        }
        Ok(())
    }

    /// Counts a frame that has no effect (CVE-2019-9518).
    pub(crate) fn count_empty_frame(&mut self, conn_id: ConnId) -> Result<(), InputError> {
        // Frames of unknown types may be GREASE; only a sequence of them without a useful frame is
        // counted.
        let max = self.config.limits.max_consecutive_empty_frames;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        conn.abuse.consecutive_empty_frames += 1;
        if conn.abuse.consecutive_empty_frames > max {
            return Err(Cause::TooManyEmptyFrames.into());
        }
        Ok(())
    }

    fn on_first_fragment(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        block_kind: BlockKind,
        fragment: &[u8],
        last: wire::LastFragment,
    ) -> Result<(), InputError> {
        if fragment.len() > self.config.limits.max_header_block {
            return Err(Cause::HeaderBlockTooLarge.into());
        }
        if let BlockKind::Promise(_) = block_kind {
            self.check_promise(conn_id, stream_id)?;
        }
        match last {
            wire::LastFragment::Yes => {
                self.on_field_block(now, conn_id, stream_id, block_kind, fragment)
            }
            wire::LastFragment::No => {
                if fragment.is_empty() {
                    self.count_empty_frame(conn_id)?;
                }
                self.arm_tick(now);
                if let Some(conn) = self.conns.find_known_mut(conn_id) {
                    conn.field_block =
                        Some(FieldBlockAssembly::new(stream_id, block_kind, fragment, now));
                }
                Ok(())
            }
        }
    }

    fn on_continuation(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        stream_id: StreamId,
        fragment: &[u8],
        last: wire::LastFragment,
    ) -> Result<(), InputError> {
        let config = Arc::clone(&self.config);
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return Ok(()) };
        let Some(mut assembly) = conn.field_block.take() else {
            return Err(Cause::UnexpectedContinuation.into());
        };
        assembly.push(fragment, &config.limits)?;
        if last == wire::LastFragment::No {
            conn.field_block = Some(assembly);
            return Ok(());
        }
        let block_kind = assembly.kind;
        self.on_field_block(now, conn_id, stream_id, block_kind, &assembly.into_block())
    }

    /// Handles the end of the peer's side of the transport.
    pub fn handle_eof(&mut self, now: Instant, conn_id: ConnId) {
        self.handle_lost(now, conn_id, crate::session::LostReason::Closed);
    }
}
