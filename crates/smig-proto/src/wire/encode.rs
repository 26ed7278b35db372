//! Serializes frames.

use bytes::{BufMut, BytesMut};

use super::{CodePoints, EndStream, FrameHeader, Join, Migrate, Setting, flag, kind};
use crate::error::ErrorCode;
use crate::ids::StreamId;
use crate::priority::Priority;

fn frame_header(out: &mut BytesMut, length: usize, kind: u8, flags: u8, stream: StreamId) {
    // No caller passes a payload that exceeds 24 bits of length; a longer length would be
    // truncated.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out.put_slice(&FrameHeader { length, kind, flags, stream }.to_bytes());
}

/// Writes the header of a DATA frame; `length` bytes of data must follow.
pub(crate) fn data_header(out: &mut BytesMut, stream: StreamId, length: usize, end: EndStream) {
    frame_header(out, length, kind::DATA, end.flag(), stream);
}

/// Writes the field block that `fill` produces as a HEADERS frame and, where needed, CONTINUATION
/// frames, each with at most `max_frame` bytes of payload.
pub(crate) fn headers(
    out: &mut BytesMut,
    stream: StreamId,
    end: EndStream,
    max_frame: usize,
    fill: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    frame_header(out, 0, kind::HEADERS, end.flag(), stream);
    fill(out);
    finish_block(out, start, stream, max_frame);
}

/// Writes PUSH_PROMISE and, where needed, CONTINUATION frames.
pub(crate) fn push_promise(
    out: &mut BytesMut,
    stream: StreamId,
    promised: StreamId,
    max_frame: usize,
    fill: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    frame_header(out, 0, kind::PUSH_PROMISE, 0, stream);
    out.put_u32(promised.value());
    fill(out);
    finish_block(out, start, stream, max_frame);
}

/// Sets the length of the frame that starts at `start`, and splits the excess into CONTINUATION
/// frames.
fn finish_block(out: &mut BytesMut, start: usize, stream: StreamId, max_frame: usize) {
    let body = start + super::FRAME_HEADER_BYTES;
    let length = out.len().saturating_sub(body);
    if length <= max_frame {
        patch(out, start, length, flag::END_HEADERS);
        return;
    }
    let mut rest = out.split_off(body + max_frame);
    patch(out, start, max_frame, 0);
    while !rest.is_empty() {
        let part = rest.split_to(rest.len().min(max_frame));
        let last = if rest.is_empty() { flag::END_HEADERS } else { 0 };
        frame_header(out, part.len(), kind::CONTINUATION, last, stream);
        out.put_slice(&part);
    }
}

fn patch(out: &mut BytesMut, start: usize, length: usize, extra_flags: u8) {
    let [.., l0, l1, l2] = length.to_be_bytes();
    if let Some([a, b, c, _, flags]) = out.get_mut(start..).and_then(|s| s.first_chunk_mut::<5>()) {
        (*a, *b, *c) = (l0, l1, l2);
        *flags |= extra_flags;
    }
}

pub(crate) fn reset(out: &mut BytesMut, stream: StreamId, code: ErrorCode) {
    frame_header(out, 4, kind::RST_STREAM, 0, stream);
    out.put_u32(code.to_wire());
}

pub(crate) fn settings(out: &mut BytesMut, entries: &[Setting], points: &CodePoints) {
    frame_header(out, entries.len() * 6, kind::SETTINGS, 0, StreamId::CONNECTION);
    for entry in entries {
        let (id, value) = entry.to_wire(points);
        out.put_u16(id);
        out.put_u32(value);
    }
}

pub(crate) fn settings_ack(out: &mut BytesMut) {
    frame_header(out, 0, kind::SETTINGS, flag::ACK, StreamId::CONNECTION);
}

pub(crate) fn ping(out: &mut BytesMut, opaque: [u8; 8]) {
    frame_header(out, 8, kind::PING, 0, StreamId::CONNECTION);
    out.put_slice(&opaque);
}

pub(crate) fn pong(out: &mut BytesMut, opaque: [u8; 8]) {
    frame_header(out, 8, kind::PING, flag::ACK, StreamId::CONNECTION);
    out.put_slice(&opaque);
}

pub(crate) fn goaway(out: &mut BytesMut, last: StreamId, code: ErrorCode, debug: &[u8]) {
    frame_header(out, 8 + debug.len(), kind::GOAWAY, 0, StreamId::CONNECTION);
    out.put_u32(last.value());
    out.put_u32(code.to_wire());
    out.put_slice(debug);
}

pub(crate) fn window_update(out: &mut BytesMut, stream: StreamId, increment: u32) {
    frame_header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.put_u32(increment);
}

pub(crate) fn priority_update(out: &mut BytesMut, stream: StreamId, priority: Priority) {
    let value = priority.to_string();
    frame_header(out, 4 + value.len(), kind::PRIORITY_UPDATE, 0, StreamId::CONNECTION);
    out.put_u32(stream.value());
    out.put_slice(value.as_bytes());
}

/// Writes MIGRATE. `flags` is a combination of [`flag::SMIG_ACK`] and [`flag::END_STREAM`].
pub(crate) fn migrate(
    out: &mut BytesMut,
    points: &CodePoints,
    stream: StreamId,
    migrate: Migrate,
    flags: u8,
) {
    frame_header(out, Migrate::LENGTH as usize, points.migrate, flags, stream);
    let (cid, sid) = migrate.to_bytes();
    out.put_slice(&cid);
    out.put_slice(&sid);
}

pub(crate) fn join(out: &mut BytesMut, points: &CodePoints, join: Join) {
    let (flags, nonce, mac) = match join {
        Join::Proof { nonce, mac } => (0, nonce, mac),
        Join::Ack { nonce, mac } => (flag::SMIG_ACK, nonce, mac),
        Join::Refused(reason) => {
            frame_header(out, 1, points.join, flag::JOIN_REFUSED, StreamId::CONNECTION);
            out.put_u8(reason.byte());
            return;
        }
    };
    frame_header(out, 48, points.join, flags, StreamId::CONNECTION);
    out.put_slice(&nonce);
    out.put_slice(&mac);
}
