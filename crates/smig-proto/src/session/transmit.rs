//! Bytes to a transport: control frames first, then DATA in the order of the scheduler.

use crate::conn::OutputBuffer;
use crate::error::Cause;
use crate::ids::{ConnId, StreamId};
use crate::message::encode_trailers;
use crate::session::{Event, Session};
use crate::stream::{KeyState, Payload, RecvState, SendState, StreamKey};
use crate::time::Instant;
use crate::wire::{self, EndStream};

/// DATA frames below this length, in bytes, with more data queued, indicate that the peer keeps its
/// window small.
const MIN_ORDINARY_DATA_BYTES: usize = 1024;

/// Maximum capacity that a connection reserves for its next frames, in bytes.
const MAX_RESERVED_BYTES: usize = 4 << 10;

impl Session {
    /// Returns whether [`Self::poll_transmit`] may have output for this connection.
    #[must_use]
    pub fn wants_transmit(&self, conn_id: ConnId) -> bool {
        self.conns.find(conn_id).is_some_and(|conn| {
            !conn.control_queue.frames.is_empty() || (!conn.is_dead() && !conn.scheduler.is_empty())
        })
    }

    /// Appends frames to `out`: all control frames, then DATA until about `limit` bytes were
    /// appended. Returns the number of bytes. Data that is not taken yet can still be dropped by a
    /// reset, or overtaken by more urgent data, so a driver should take no more than the transport
    /// accepts soon.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        conn_id: ConnId,
        limit: usize,
        out: &mut OutputBuffer,
    ) -> usize {
        let len_before = out.len();
        let Some(conn) = self.conns.find_mut(conn_id) else { return 0 };
        if !conn.control_queue.frames.is_empty() {
            let frames = &mut conn.control_queue.frames;
            out.append_with(|open| {
                if open.is_empty() {
                    let used = frames.len();
                    core::mem::swap(open, frames);
                    // The next frames will be as long: growing by doubling would copy them each
                    // time.
                    if frames.capacity() < used {
                        frames.reserve(used.min(MAX_RESERVED_BYTES));
                    }
                } else {
                    open.extend_from_slice(frames);
                    frames.clear();
                }
            });
        }
        conn.control_queue.reset_counters();
        if conn.is_dead() {
            return out.len() - len_before;
        }
        if !conn.scheduler.is_empty() {
            out.restore_capacity();
        }
        while out.len() - len_before < limit {
            let room = limit - (out.len() - len_before);
            let Some(key) =
                self.conns.find_known_mut(conn_id).and_then(|conn| conn.scheduler.pop())
            else {
                break;
            };
            self.transmit_stream(now, conn_id, key, room, out);
        }
        out.len() - len_before
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
            out.append_with(|open| {
                wire::write_headers(open, stream_id, EndStream::Yes, max, |open| {
                    encode_trailers(encoder, trailers, open);
                });
            });
            stream.send.on_trailers_sent();
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
        let payload = stream.send.take(limit);
        // `room` is at least that, so only a window can be the reason.
        let is_small = payload.bytes < MIN_ORDINARY_DATA_BYTES && stream.send.queued_bytes() > 0;
        // CVE-2019-9511
        let is_abuse =
            is_small && conn.abuse.small_data_frames.increment_exceeds(now, max_small_frames);
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
        let Some(stream) = self.streams.find_known(key) else { return };
        if stream.send.state() != SendState::Ended {
            return;
        }
        let both_ended = stream.recv.state() == RecvState::Ended;
        // An application that has released the stream does not wait for its end.
        if stream.key_state == KeyState::Held {
            self.events.push_back(Event::Finished { stream: key });
        }
        if both_ended {
            self.finish_if_complete(key);
        }
        self.stop_if_due(key);
    }
}

fn write_data(out: &mut OutputBuffer, stream_id: StreamId, payload: Payload) {
    out.append_with(|open| wire::write_data_header(open, stream_id, payload.bytes, payload.end));
    for part in payload.first_part.into_iter().chain(payload.further_parts) {
        out.push(part);
    }
}
