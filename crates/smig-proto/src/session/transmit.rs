//! Bytes to a transport: control frames first, then DATA in the order of the scheduler. Bulk waits
//! until the driver allows it.

use crate::conn::{Connection, OutputBuffer, SendClass};
use crate::error::Cause;
use crate::ids::{ConnId, StreamId};
use crate::message::encode_trailers;
use crate::session::{Event, Session};
use crate::stream::{FRAME_MEMORY, KeyState, Payload, RecvState, SendState, StreamKey};
use crate::time::Instant;
use crate::wire::{self, EndStream};

/// DATA frames below this length, in bytes, with more data queued, indicate that the peer keeps its
/// window small.
const MIN_ORDINARY_DATA_BYTES: usize = 1024;

/// Maximum capacity that a connection reserves for its next frames, in bytes.
const MAX_RESERVED_BYTES: usize = 4 << 10;

/// What a connection has to send. There may be less: a window that was reduced is noticed when its
/// stream is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransmitDemand {
    /// Whether there is something that is not bulk.
    pub interactive: bool,
    /// Whether there is bulk.
    pub bulk: bool,
}

impl TransmitDemand {
    /// Returns whether there is nothing to send.
    #[must_use]
    pub const fn is_none(self) -> bool {
        !self.interactive && !self.bulk
    }
}

/// How much [`Session::poll_transmit`] may append, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitLimits {
    /// Of all frames, approximately. Control frames and field blocks count, but are appended even
    /// beyond it; DATA and trailers are not started beyond it.
    pub bytes: usize,
    /// Of these, DATA frames of bulk. No bulk is sent below 1 KiB.
    pub bulk_bytes: usize,
}

impl TransmitLimits {
    /// About `bytes` bytes of whatever is next.
    #[must_use]
    pub const fn any(bytes: usize) -> Self {
        Self { bytes, bulk_bytes: usize::MAX }
    }

    /// About `bytes` bytes that are not bulk.
    #[must_use]
    pub const fn interactive(bytes: usize) -> Self {
        Self { bytes, bulk_bytes: 0 }
    }
}

/// How much [`Session::poll_transmit`] has appended, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmitted {
    /// Of all frames.
    pub bytes: usize,
    /// Of these, DATA frames of bulk.
    pub bulk_bytes: usize,
}

impl Session {
    /// Returns what [`Self::poll_transmit`] may have for this connection.
    #[must_use]
    pub fn transmit_demand(&self, conn_id: ConnId) -> TransmitDemand {
        let Some(conn) = self.conns.find(conn_id) else { return TransmitDemand::default() };
        let may_send_data = !conn.is_dead();
        let has_control_frames = !conn.control_queue.frames.is_empty();
        TransmitDemand {
            interactive: has_control_frames || (may_send_data && conn.scheduler.has_interactive()),
            bulk: may_send_data && conn.scheduler.has_bulk(),
        }
    }

    /// Appends frames to `out`: all control frames, then DATA within `limits`. Returns the number of
    /// bytes. Data that is not taken yet can still be dropped by a reset, or overtaken by more
    /// urgent data, so a driver should take no more than the transport accepts soon.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        limits: TransmitLimits,
        out: &mut OutputBuffer,
    ) -> Transmitted {
        let len_before = out.len();
        let Some(conn) = self.conns.find_mut(conn_id) else { return Transmitted::default() };
        take_control_frames(conn, out);
        let mut bulk_bytes = 0;
        if conn.is_dead() {
            return Transmitted { bytes: out.len() - len_before, bulk_bytes };
        }
        if !conn.scheduler.is_empty() {
            out.restore_capacity();
        }
        while out.len() - len_before < limits.bytes {
            let mut room = limits.bytes - (out.len() - len_before);
            let bulk_room = limits.bulk_bytes.saturating_sub(bulk_bytes);
            let Some(conn) = self.conns.find_known_mut(conn_id) else { break };
            // What the frame before has caused keeps its place: receipts count frames in order.
            take_control_frames(conn, out);
            let next = conn.scheduler.pop(bulk_room >= MIN_ORDINARY_DATA_BYTES);
            let Some((key, class)) = next else { break };
            if class == SendClass::Bulk {
                // With its header, the frame should fill packets.
                room = room.min(bulk_room.saturating_sub(wire::FRAME_HEADER_BYTES));
            }
            let frame_start = out.len();
            self.transmit_stream(now, conn_id, key, room, out);
            if class == SendClass::Bulk {
                bulk_bytes += out.len() - frame_start;
            }
        }
        Transmitted { bytes: out.len() - len_before, bulk_bytes }
    }

    /// Sends one frame of the stream that is next.
    fn transmit_stream(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        key: StreamKey,
        room: usize,
        out: &mut OutputBuffer,
    ) {
        let low_water = self.config.send_buffer / 2;
        let max_small_frames = self.config.limits.max_small_data_frames;
        let Some(conn) = self.conns.find_known_mut(conn_id) else { return };
        // A stream leaves its scheduler before it is freed.
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        let scheduled_conn_id = stream.binding.take_scheduled();
        let addr = stream.binding.send_addr();
        debug_assert_eq!(
            (scheduled_conn_id, addr.conn),
            (Some(conn_id), conn_id),
            "a stream is scheduled where it sends"
        );
        if !stream.has_frames() {
            // Its window was reduced, or its carrier was excluded.
            return;
        }
        let stream_id = addr.id;
        if let Some(trailers) = stream.send.due_trailers() {
            let (max, encoder) = (conn.peer_max_frame_size(), &mut conn.encoder);
            let mut frames = 0;
            out.append_with(|open| {
                frames = wire::write_headers(open, stream_id, EndStream::Yes, max, |open| {
                    encode_trailers(encoder, trailers, open);
                });
            });
            let sent_at = conn.count_sent(frames);
            let kept_memory = stream.send.on_trailers_sent(sent_at);
            self.count_kept(kept_memory);
            self.after_send_end(key);
            return;
        }
        let window = conn.send_window.available();
        if window == 0 && stream.send.queued_bytes() > 0 {
            stream.binding.set_scheduled(conn_id);
            conn.blocked_streams.push(key);
            return;
        }
        let limit = window.min(conn.peer_max_frame_size()).min(room.max(MIN_ORDINARY_DATA_BYTES));
        let mut kept_memory = 0;
        let sent_at = conn.count_sent(1);
        let payload = stream.send.take(limit, sent_at);
        if let Some(policy) = &self.config.bulk {
            stream.send.track_pauses(now, policy, payload.bytes);
        }
        // The limit from `room` is at least MIN_ORDINARY_DATA_BYTES, so only a window can make a
        // frame with more data behind it smaller.
        let is_small = payload.bytes < MIN_ORDINARY_DATA_BYTES && stream.send.queued_bytes() > 0;
        // CVE-2019-9511
        let is_abuse =
            is_small && conn.abuse.small_data_frames.increment_exceeds(now, max_small_frames);
        if stream.resumption.is_some() {
            kept_memory = payload.bytes + FRAME_MEMORY * (1 + payload.further_parts.len());
        }
        conn.send_window.consume(payload.bytes);
        conn.data_bytes_sent += payload.bytes as u64;
        if stream.send.awaits_capacity
            && stream.send.queued_bytes() <= low_water
            && stream.send.is_open()
        {
            stream.send.awaits_capacity = false;
            self.events.push_back(Event::Writable { stream: key });
        }
        let end = payload.end;
        write_data(out, stream_id, payload);
        self.count_kept(kept_memory);
        if end.is_end() {
            self.after_send_end(key);
        } else {
            self.schedule(key);
        }
        if is_abuse {
            self.fail_connection(now, conn_id, Cause::TooManySmallDataFrames);
        }
    }

    /// Handles the end of this side's direction, if it has ended.
    pub(crate) fn after_send_end(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.find_known_mut(key) else { return };
        if stream.send.state() != SendState::Ended {
            return;
        }
        let both_ended = stream.recv.state() == RecvState::Ended;
        // An application that has released the stream does not wait for its end.
        if stream.key_state == KeyState::Held && stream.send.report_end() {
            self.events.push_back(Event::Finished { stream: key });
        }
        if both_ended {
            self.finish_if_complete(key);
        }
        self.stop_if_due(key);
    }
}

/// Moves the control frames of a connection to its output.
fn take_control_frames(conn: &mut Connection, out: &mut OutputBuffer) {
    let queue = &mut conn.control_queue;
    if let Some(receipts) = &mut conn.receipts {
        receipts.on_taken(queue.count_frames());
    }
    let frames = &mut queue.frames;
    if !frames.is_empty() {
        out.append_with(|open| {
            if open.is_empty() {
                let used = frames.len();
                core::mem::swap(open, frames);
                // The next frames will be as long: growing by doubling would copy them each time.
                if frames.capacity() < used {
                    frames.reserve(used.min(MAX_RESERVED_BYTES));
                }
            } else {
                open.extend_from_slice(frames);
                frames.clear();
            }
        });
    }
    queue.reset_counters();
}

fn write_data(out: &mut OutputBuffer, stream_id: StreamId, payload: Payload) {
    out.append_with(|open| wire::write_data_header(open, stream_id, payload.bytes, payload.end));
    for part in payload.first_part.into_iter().chain(payload.further_parts) {
        out.push(part);
    }
}
