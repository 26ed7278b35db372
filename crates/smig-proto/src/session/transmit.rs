//! Bytes to a transport: control frames first, then DATA in the order of the scheduler.

use crate::conn::OutputBuffer;
use crate::error::Cause;
use crate::ids::{ConnId, StreamId};
use crate::message::encode_trailers;
use crate::session::{Event, Session};
use crate::stream::{Payload, RecvState, SendState, StreamKey};
use crate::time::Instant;
use crate::wire::{self, EndStream};

/// DATA frames below this length, in bytes, with more data queued, indicate that the peer keeps its
/// window tiny.
const TINY: usize = 1024;

/// Maximum capacity that a connection reserves for its next frames, in bytes.
const KEPT: usize = 4 << 10;

impl Session {
    /// Returns whether [`Self::poll_transmit`] may have output for this connection.
    #[must_use]
    pub fn wants_transmit(&self, id: ConnId) -> bool {
        self.conns.find(id).is_some_and(|conn| {
            !conn.out.frames.is_empty() || (!conn.is_dead() && !conn.scheduler.is_empty())
        })
    }

    /// Appends frames to `out`: all control frames, then DATA until about `limit` bytes were
    /// appended. Returns the number of bytes. Data that is not taken yet can still be dropped by a
    /// reset, or overtaken by more urgent data, so a driver should take no more than the transport
    /// accepts soon.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        id: ConnId,
        limit: usize,
        out: &mut OutputBuffer,
    ) -> usize {
        let before = out.len();
        let Some(conn) = self.conns.find_mut(id) else { return 0 };
        if !conn.out.frames.is_empty() {
            let frames = &mut conn.out.frames;
            out.open_buffer(|open| {
                if open.is_empty() {
                    let used = frames.len();
                    core::mem::swap(open, frames);
                    // The next frames will be as long: growing by doubling would copy them each
                    // time.
                    if frames.capacity() < used {
                        frames.reserve(used.min(KEPT));
                    }
                } else {
                    open.extend_from_slice(frames);
                    frames.clear();
                }
            });
        }
        conn.out.on_taken();
        if conn.is_dead() {
            return out.len() - before;
        }
        if !conn.scheduler.is_empty() {
            out.expect_data();
        }
        while out.len() - before < limit {
            let room = limit - (out.len() - before);
            let Some(key) = self.conns.known_mut(id).and_then(|conn| conn.scheduler.pop()) else {
                break;
            };
            self.transmit_stream(now, id, key, room, out);
        }
        out.len() - before
    }

    /// Sends one frame of the stream that is next.
    fn transmit_stream(
        &mut self,
        now: Instant,
        id: ConnId,
        key: StreamKey,
        room: usize,
        out: &mut OutputBuffer,
    ) {
        let low_water = self.config.send_buffer / 2;
        let most_tiny = self.config.limits.max_small_data_frames;
        let Some(conn) = self.conns.known_mut(id) else { return };
        // A stream leaves its scheduler before it is freed.
        let Some(stream) = self.streams.known_mut(key) else { return };
        let at = stream.binding.leave_schedule();
        let addr = stream.binding.send_addr();
        debug_assert_eq!((at, addr.conn), (Some(id), id), "a stream is scheduled where it is");
        if !stream.has_frames() {
            // Its window was reduced, or its carrier was excluded.
            return;
        }
        let stream_id = addr.id;
        if let Some(trailers) = stream.send.due_trailers() {
            let (max, encoder) = (conn.max_frame(), &mut conn.encoder);
            out.open_buffer(|open| {
                wire::headers(open, stream_id, EndStream::Yes, max, |open| {
                    encode_trailers(encoder, trailers, open);
                });
            });
            stream.send.on_trailers_sent();
            self.after_send_end(key);
            return;
        }
        let window = conn.send_window.available();
        if window == 0 && stream.send.queued() > 0 {
            stream.binding.enter_schedule(id);
            conn.blocked.push(key);
            return;
        }
        let limit = window.min(conn.max_frame()).min(room.max(TINY));
        let payload = stream.send.take(limit);
        // `room` is at least TINY, so only a window can be the reason.
        let tiny = payload.bytes < TINY && stream.send.queued() > 0;
        // CVE-2019-9511
        let abused = tiny && conn.abuse.tiny_frames.exceeds(now, most_tiny);
        conn.send_window.consume(payload.bytes);
        conn.data_sent += payload.bytes as u64;
        if stream.send.wants_room && stream.send.queued() <= low_water && stream.send.is_open() {
            stream.send.wants_room = false;
            self.events.push_back(Event::Writable { stream: key });
        }
        write_data(out, stream_id, &payload);
        if payload.end.is_end() {
            self.after_send_end(key);
        } else {
            self.schedule(key);
        }
        if abused {
            self.fail_connection(now, id, Cause::TooManyTinyWindows);
        }
    }

    /// Handles the end of this side's direction, if it has ended.
    pub(crate) fn after_send_end(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.known(key) else { return };
        if stream.send.state() != SendState::Ended {
            return;
        }
        let complete = stream.recv.state() == RecvState::Ended;
        self.events.push_back(Event::Finished { stream: key });
        if complete {
            self.after_direction(key);
        }
        self.stop_if_due(key);
    }
}

fn write_data(out: &mut OutputBuffer, id: StreamId, payload: &Payload) {
    out.open_buffer(|open| wire::data_head(open, id, payload.bytes, payload.end));
    for part in payload.first.iter().chain(&payload.parts) {
        out.push(part.clone());
    }
}
