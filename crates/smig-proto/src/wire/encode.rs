//! Serializes frames.

use bytes::{BufMut, BytesMut};

use super::{
    CodePoints, EndStream, FrameHeader, Join, Migrate, Resume, ResumePoint, Setting, flag, kind,
};
use crate::error::ErrorCode;
use crate::ids::{Cid, StreamId};
use crate::priority::Priority;

fn write_frame_header(out: &mut BytesMut, length: usize, kind: u8, flags: u8, stream: StreamId) {
    // No caller passes a payload that exceeds 24 bits of length; a longer length would be
    // truncated.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out.put_slice(&FrameHeader { length, kind, flags, stream }.to_bytes());
}

/// Writes the header of a DATA frame; `length` bytes of data must follow.
pub(crate) fn write_data_header(
    out: &mut BytesMut,
    stream: StreamId,
    length: usize,
    end: EndStream,
) {
    write_frame_header(out, length, kind::DATA, end.flag(), stream);
}

/// Writes the field block that `fill` produces as a HEADERS frame and, where needed, CONTINUATION
/// frames, each with at most `max_frame_size` bytes of payload. Returns the number of frames.
pub(crate) fn write_headers(
    out: &mut BytesMut,
    stream: StreamId,
    end: EndStream,
    max_frame_size: usize,
    fill: impl FnOnce(&mut BytesMut),
) -> u64 {
    let start = out.len();
    write_frame_header(out, 0, kind::HEADERS, end.flag(), stream);
    fill(out);
    finish_block(out, start, stream, max_frame_size)
}

/// Writes PUSH_PROMISE and, where needed, CONTINUATION frames.
pub(crate) fn write_push_promise(
    out: &mut BytesMut,
    stream: StreamId,
    promised: StreamId,
    max_frame_size: usize,
    fill: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    write_frame_header(out, 0, kind::PUSH_PROMISE, 0, stream);
    out.put_u32(promised.value());
    fill(out);
    finish_block(out, start, stream, max_frame_size);
}

/// Sets the length of the frame that starts at `start`, and splits the excess into CONTINUATION
/// frames. Returns the number of frames.
fn finish_block(out: &mut BytesMut, start: usize, stream: StreamId, max_frame_size: usize) -> u64 {
    let payload_start = start + super::FRAME_HEADER_BYTES;
    let length = out.len().saturating_sub(payload_start);
    if length <= max_frame_size {
        patch_length_and_flags(out, start, length, flag::END_HEADERS);
        return 1;
    }
    let mut rest = out.split_off(payload_start + max_frame_size);
    patch_length_and_flags(out, start, max_frame_size, 0);
    let mut frames = 1;
    while !rest.is_empty() {
        let part = rest.split_to(rest.len().min(max_frame_size));
        let end_flag = if rest.is_empty() { flag::END_HEADERS } else { 0 };
        write_frame_header(out, part.len(), kind::CONTINUATION, end_flag, stream);
        out.put_slice(&part);
        frames += 1;
    }
    frames
}

fn patch_length_and_flags(out: &mut BytesMut, start: usize, length: usize, extra_flags: u8) {
    let [.., l0, l1, l2] = length.to_be_bytes();
    if let Some([a, b, c, _, flags]) = out.get_mut(start..).and_then(|s| s.first_chunk_mut::<5>()) {
        (*a, *b, *c) = (l0, l1, l2);
        *flags |= extra_flags;
    }
}

pub(crate) fn write_reset(out: &mut BytesMut, stream: StreamId, code: ErrorCode) {
    write_frame_header(out, 4, kind::RST_STREAM, 0, stream);
    out.put_u32(code.to_wire());
}

pub(crate) fn write_settings(out: &mut BytesMut, entries: &[Setting], code_points: &CodePoints) {
    write_frame_header(out, entries.len() * 6, kind::SETTINGS, 0, StreamId::CONNECTION);
    for entry in entries {
        let (id, value) = entry.to_wire(code_points);
        out.put_u16(id);
        out.put_u32(value);
    }
}

pub(crate) fn write_settings_ack(out: &mut BytesMut) {
    write_frame_header(out, 0, kind::SETTINGS, flag::ACK, StreamId::CONNECTION);
}

pub(crate) fn write_ping(out: &mut BytesMut, opaque: [u8; 8]) {
    write_frame_header(out, 8, kind::PING, 0, StreamId::CONNECTION);
    out.put_slice(&opaque);
}

pub(crate) fn write_pong(out: &mut BytesMut, opaque: [u8; 8]) {
    write_frame_header(out, 8, kind::PING, flag::ACK, StreamId::CONNECTION);
    out.put_slice(&opaque);
}

pub(crate) fn write_goaway(out: &mut BytesMut, last_id: StreamId, code: ErrorCode, debug: &[u8]) {
    write_frame_header(out, 8 + debug.len(), kind::GOAWAY, 0, StreamId::CONNECTION);
    out.put_u32(last_id.value());
    out.put_u32(code.to_wire());
    out.put_slice(debug);
}

pub(crate) fn write_window_update(out: &mut BytesMut, stream: StreamId, increment: u32) {
    write_frame_header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.put_u32(increment);
}

pub(crate) fn write_priority_update(out: &mut BytesMut, stream: StreamId, priority: Priority) {
    let value = priority.to_string();
    write_frame_header(out, 4 + value.len(), kind::PRIORITY_UPDATE, 0, StreamId::CONNECTION);
    out.put_u32(stream.value());
    out.put_slice(value.as_bytes());
}

/// Writes MIGRATE. `flags` is a combination of [`flag::SMIG_ACK`] and [`flag::END_STREAM`].
pub(crate) fn write_migrate(
    out: &mut BytesMut,
    code_points: &CodePoints,
    stream: StreamId,
    migrate: Migrate,
    flags: u8,
) {
    write_frame_header(out, Migrate::PAYLOAD_BYTES as usize, code_points.migrate, flags, stream);
    let (cid, sid) = migrate.to_bytes();
    out.put_slice(&cid);
    out.put_slice(&sid);
}

pub(crate) fn write_join(out: &mut BytesMut, code_points: &CodePoints, join: Join) {
    let (flags, nonce, mac) = match join {
        Join::Proof { nonce, mac } => (0, nonce, mac),
        Join::Ack { nonce, mac } => (flag::SMIG_ACK, nonce, mac),
        Join::Refused(reason) => {
            write_frame_header(out, 1, code_points.join, flag::JOIN_REFUSED, StreamId::CONNECTION);
            out.put_u8(reason.byte());
            return;
        }
    };
    write_frame_header(out, 48, code_points.join, flags, StreamId::CONNECTION);
    out.put_slice(&nonce);
    out.put_slice(&mac);
}

pub(crate) fn write_resume(
    out: &mut BytesMut,
    code_points: &CodePoints,
    stream: StreamId,
    resume: Resume,
) {
    match resume {
        Resume::Request { name, attempt, point, has_head } => {
            let head = if has_head { flag::RESUME_HEAD } else { 0 };
            write_frame_header(out, 32, code_points.resume, point.flag() | head, stream);
            out.put_slice(&name.cid.to_bytes());
            out.put_u32(name.id.value());
            out.put_u32(attempt);
            write_resume_point(out, point);
        }
        Resume::Accepted(point) => {
            let flags = flag::SMIG_ACK | point.flag();
            write_frame_header(out, 12, code_points.resume, flags, stream);
            write_resume_point(out, point);
        }
        Resume::Refused(refusal) => {
            let flags = flag::SMIG_ACK | flag::RESUME_REFUSED;
            write_frame_header(out, 5, code_points.resume, flags, stream);
            let (reason, code) = refusal.to_wire();
            out.put_u8(reason);
            out.put_u32(code);
        }
    }
}

fn write_resume_point(out: &mut BytesMut, point: ResumePoint) {
    out.put_u64(point.received);
    out.put_u32(point.window);
}

pub(crate) fn write_lost(out: &mut BytesMut, code_points: &CodePoints, lost: Cid) {
    write_frame_header(out, 12, code_points.lost, 0, StreamId::CONNECTION);
    out.put_slice(&lost.to_bytes());
}

pub(crate) fn write_receipt(out: &mut BytesMut, code_points: &CodePoints, count: u64) {
    write_frame_header(out, 8, code_points.receipt, 0, StreamId::CONNECTION);
    out.put_u64(count);
}
