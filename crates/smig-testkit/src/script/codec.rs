//! Encoder and decoder of frames.

use std::borrow::Cow;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use smig_proto::hpack::{Decoder, Field};
use smig_proto::{AppId, Cid, EndStream, ErrorCode};

use super::frame::{Ack, Fields, Frame, flag, kind};

/// Returns the twelve bytes of a CID.
pub(super) fn cid_bytes(cid: Cid) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&cid.app.to_bytes());
    bytes[8..].copy_from_slice(&cid.number.to_be_bytes());
    bytes
}

fn parse_cid(bytes: &[u8]) -> Option<Cid> {
    let app = u64::from_be_bytes(bytes[..8].try_into().expect("8 bytes"));
    let number = u32::from_be_bytes(bytes[8..12].try_into().expect("4 bytes"));
    (app != 0 || number != 0).then_some(Cid { app: AppId::new(app), number })
}

fn put_frame(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.put_uint(payload.len() as u64, 3);
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u32(stream);
    out.put_slice(payload);
}

/// Encodes a field block, every field as a literal without indexing, so that both tables stay
/// empty.
pub(super) fn encode_block(fields: &Fields) -> Bytes {
    let mut out = BytesMut::new();
    for (name, value) in &fields.0 {
        out.put_u8(0);
        for string in [name, value] {
            put_length(&mut out, string.len());
            out.put_slice(string);
        }
    }
    out.freeze()
}

fn put_length(out: &mut BytesMut, length: usize) {
    if length < 127 {
        return out.put_u8(length as u8);
    }
    out.put_u8(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.put_u8((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.put_u8(rest as u8);
}

const fn end_stream_flag(end: EndStream) -> u8 {
    if end.is_end() { flag::END_STREAM } else { 0 }
}

/// Writes one frame. A field block that exceeds a frame continues in CONTINUATION frames.
pub(super) fn encode(frame: &Frame, out: &mut BytesMut) {
    match frame {
        Frame::Data { stream, data, end } => {
            put_frame(out, kind::DATA, end_stream_flag(*end), *stream, data)
        }
        Frame::Headers { stream, fields, end } => {
            put_field_block(
                out,
                kind::HEADERS,
                end_stream_flag(*end),
                *stream,
                encode_block(fields),
            );
        }
        Frame::PushPromise { stream, promised_stream: promised, fields } => {
            let mut payload = BytesMut::new();
            payload.put_u32(*promised);
            payload.put_slice(&encode_block(fields));
            put_field_block(out, kind::PUSH_PROMISE, 0, *stream, payload.freeze());
        }
        Frame::Reset { stream, code } => {
            put_frame(out, kind::RST_STREAM, 0, *stream, &code.to_wire().to_be_bytes());
        }
        Frame::Settings(entries) => {
            let mut payload = BytesMut::new();
            for &(id, value) in entries {
                payload.put_u16(id);
                payload.put_u32(value);
            }
            put_frame(out, kind::SETTINGS, 0, 0, &payload);
        }
        Frame::SettingsAck => put_frame(out, kind::SETTINGS, flag::ACK, 0, &[]),
        Frame::Ping(opaque) => put_frame(out, kind::PING, 0, 0, opaque),
        Frame::Pong(opaque) => put_frame(out, kind::PING, flag::ACK, 0, opaque),
        Frame::GoAway { last_stream_id: last, code, debug } => {
            let mut payload = BytesMut::new();
            payload.put_u32(*last);
            payload.put_u32(code.to_wire());
            payload.put_slice(debug);
            put_frame(out, kind::GOAWAY, 0, 0, &payload);
        }
        Frame::WindowUpdate { stream, increment } => {
            put_frame(out, kind::WINDOW_UPDATE, 0, *stream, &increment.to_be_bytes());
        }
        Frame::PriorityUpdate { stream, value } => {
            let payload = [&stream.to_be_bytes()[..], value].concat();
            put_frame(out, kind::PRIORITY_UPDATE, 0, 0, &payload);
        }
        Frame::Migrate { stream, ack, dst, end } => {
            let (cid, dst_sid) = dst.map_or(([0; 12], 0), |(cid, id)| (cid_bytes(cid), id));
            let payload = [&cid[..], &dst_sid.to_be_bytes()].concat();
            let ack_flag = if *ack == Ack::Yes { flag::SMIG_ACK } else { 0 };
            put_frame(out, kind::MIGRATE, ack_flag | end_stream_flag(*end), *stream, &payload);
        }
        Frame::Join { nonce, mac, ack } => {
            let flags = if *ack == Ack::Yes { flag::SMIG_ACK } else { 0 };
            put_frame(out, kind::JOIN, flags, 0, &[&nonce[..], &mac[..]].concat());
        }
        Frame::JoinRefused(reason) => put_frame(out, kind::JOIN, flag::REFUSED, 0, &[*reason]),
        Frame::Raw { kind, flags, stream, payload } => {
            put_frame(out, *kind, *flags, *stream, payload)
        }
    }
}

fn put_field_block(out: &mut BytesMut, kind: u8, flags: u8, stream: u32, mut block: Bytes) {
    let first = block.split_to(block.len().min(16_384));
    let end_headers = |rest: &Bytes| if rest.is_empty() { flag::END_HEADERS } else { 0 };
    put_frame(out, kind, flags | end_headers(&block), stream, &first);
    while !block.is_empty() {
        let part = block.split_to(block.len().min(16_384));
        put_frame(out, kind::CONTINUATION, end_headers(&block), stream, &part);
    }
}

/// Parses the engine's frames on one connection. Panics on input that no engine may send.
#[derive(Debug)]
pub(super) struct FrameReader {
    hpack: Decoder,
    /// Type, flags and stream of a frame without END_HEADERS, and its field block so far.
    open_block: Option<(u8, u8, u32, BytesMut)>,
    /// SETTINGS_MAX_FRAME_SIZE of the script.
    max_frame_size: u32,
}

impl FrameReader {
    pub(super) fn new(max_frame_size: u32) -> Self {
        Self { hpack: Decoder::new(4096), open_block: None, max_frame_size }
    }

    /// Returns the next frame, if `buf` contains all of it.
    pub(super) fn next(&mut self, buf: &mut BytesMut) -> Option<Frame> {
        loop {
            let mut head = buf.get(..9)?;
            let length = head.get_uint(3) as usize;
            let (kind, flags, stream) = (head.get_u8(), head.get_u8(), head.get_u32());
            if buf.len() < 9 + length {
                return None;
            }
            assert!(
                length <= self.max_frame_size as usize,
                "frame longer than SETTINGS_MAX_FRAME_SIZE: {length}"
            );
            assert!(stream < 1 << 31, "the reserved bit of the stream id is set");
            buf.advance(9);
            let payload = buf.split_to(length).freeze();
            if let Some(frame) = self.parse(kind, flags, stream, payload) {
                return Some(frame);
            }
        }
    }

    fn parse(&mut self, kind: u8, flags: u8, stream: u32, payload: Bytes) -> Option<Frame> {
        if kind == kind::CONTINUATION {
            let (kind, first_flags, block_stream, mut block) =
                self.open_block.take().expect("stray CONTINUATION");
            assert_eq!(block_stream, stream, "CONTINUATION on another stream");
            block.put_slice(&payload);
            return self.finish_block(kind, first_flags, flags, stream, block);
        }
        assert!(
            self.open_block.is_none(),
            "a field block was interrupted by frame type {kind:#04x}"
        );
        if kind == kind::HEADERS || kind == kind::PUSH_PROMISE {
            return self.finish_block(kind, flags, flags, stream, BytesMut::from(&payload[..]));
        }
        Some(parse_frame(kind, flags, stream, payload))
    }

    fn finish_block(
        &mut self,
        kind: u8,
        first_flags: u8,
        last_flags: u8,
        stream: u32,
        block: BytesMut,
    ) -> Option<Frame> {
        if last_flags & flag::END_HEADERS == 0 {
            self.open_block = Some((kind, first_flags, stream, block));
            return None;
        }
        assert_eq!(
            first_flags & (flag::PADDED | flag::PRIORITY),
            0,
            "the engine sends no padding and no priority"
        );
        let mut block = block.freeze();
        if kind == kind::PUSH_PROMISE {
            let promised = block.get_u32();
            return Some(Frame::PushPromise {
                stream,
                promised_stream: promised,
                fields: self.decode_fields(&block),
            });
        }
        Some(Frame::Headers {
            stream,
            fields: self.decode_fields(&block),
            end: end_stream_from_flags(first_flags),
        })
    }

    fn decode_fields(&mut self, block: &[u8]) -> Fields {
        let mut fields = Vec::new();
        let copy = Bytes::copy_from_slice;
        let collect = |field: Cow<'_, Field>| match field.into_owned() {
            Field::Pseudo(name, value) => fields.push((copy(name.as_str().as_bytes()), value)),
            Field::Regular(name, value) => {
                fields.push((copy(name.as_str().as_bytes()), copy(value.as_bytes())));
            }
            Field::Malformed(why, _) => panic!("the engine sent a malformed field: {why}"),
        };
        self.hpack.decode(block, collect).expect("the engine's field blocks decode");
        Fields(fields)
    }
}

const fn end_stream_from_flags(flags: u8) -> EndStream {
    if flags & flag::END_STREAM == 0 { EndStream::No } else { EndStream::Yes }
}

fn parse_frame(kind: u8, flags: u8, stream: u32, payload: Bytes) -> Frame {
    let mut rest = payload.clone();
    let ack = if flags & flag::SMIG_ACK == 0 { Ack::No } else { Ack::Yes };
    let undefined_flags = flags
        & !match kind {
            kind::DATA => flag::END_STREAM,
            kind::SETTINGS | kind::PING => flag::ACK,
            kind::MIGRATE => flag::END_STREAM | flag::SMIG_ACK,
            kind::JOIN => flag::SMIG_ACK | flag::REFUSED,
            kind::RESUME => flag::SMIG_ACK | flag::REFUSED | flag::RESUME_WHOLE | flag::RESUME_HEAD,
            _ => 0,
        };
    // SMIG-2.4/reserved-bits and RFC 9113 section 4.1: undefined flags are 0 when sent.
    assert_eq!(
        undefined_flags, 0,
        "undefined flags {undefined_flags:#04x} on frame type {kind:#04x}"
    );
    match (kind, payload.len()) {
        (kind::DATA, _) => Frame::Data { stream, data: payload, end: end_stream_from_flags(flags) },
        (kind::RST_STREAM, 4) => {
            Frame::Reset { stream, code: ErrorCode::from_wire(rest.get_u32()) }
        }
        (kind::SETTINGS, 0) if flags & flag::ACK != 0 => Frame::SettingsAck,
        (kind::SETTINGS, _) => {
            let entries = payload.chunks_exact(6);
            assert!(entries.remainder().is_empty(), "SETTINGS of a wrong length");
            Frame::Settings(entries.map(|mut e| (e.get_u16(), e.get_u32())).collect())
        }
        (kind::PING, 8) => {
            let opaque = payload[..].try_into().expect("8 bytes");
            if flags & flag::ACK == 0 { Frame::Ping(opaque) } else { Frame::Pong(opaque) }
        }
        (kind::GOAWAY, 8..) => {
            let last = rest.get_u32();
            let code = ErrorCode::from_wire(rest.get_u32());
            Frame::GoAway { last_stream_id: last, code, debug: rest }
        }
        (kind::WINDOW_UPDATE, 4) => Frame::WindowUpdate { stream, increment: rest.get_u32() },
        (kind::PRIORITY_UPDATE, 4..) => {
            let stream = rest.get_u32();
            Frame::PriorityUpdate { stream, value: rest }
        }
        (kind::MIGRATE, 16) => {
            let dst_sid = u32::from_be_bytes(payload[12..].try_into().expect("4 bytes"));
            let dst = parse_cid(&payload[..12]).map(|cid| (cid, dst_sid));
            // SMIG-2.4/reserved-bits and SMIG-2.5/zero-cid: R is 0, and so is dstSID without a
            // destination.
            assert!(
                dst_sid < 1 << 31 && (dst.is_some() || dst_sid == 0),
                "MIGRATE with dstSID {dst_sid:#x}"
            );
            Frame::Migrate { stream, ack, dst, end: end_stream_from_flags(flags) }
        }
        (kind::JOIN, 1) if flags == flag::REFUSED => Frame::JoinRefused(payload[0]),
        (kind::JOIN, 48) if flags & flag::REFUSED == 0 => Frame::Join {
            nonce: payload[..16].try_into().expect("16 bytes"),
            mac: payload[16..].try_into().expect("32 bytes"),
            ack,
        },
        (kind::RESUME, 5 | 12 | 32) | (kind::LOST, 12) | (kind::RECEIPT, 8) => {
            Frame::Raw { kind, flags, stream, payload }
        }
        (kind, length) => panic!("the engine sent frame type {kind:#04x} of {length} bytes"),
    }
}
