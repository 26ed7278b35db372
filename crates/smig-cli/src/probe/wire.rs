//! Names and numbers of frames, flags, settings and error codes, and their encoding.
//!
//! Does not use the engine's encoder, because scripts must be able to send invalid frames.

use bytes::{BufMut, BytesMut};

/// The client connection preface (RFC 9113 section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header in bytes (RFC 9113 section 4.1).
pub(super) const FRAME_HEADER_BYTES: usize = 9;

pub(super) const END_STREAM: u8 = 0x01;
pub(super) const ACK: u8 = 0x01;
pub(super) const END_HEADERS: u8 = 0x04;
pub(super) const PADDED: u8 = 0x08;
pub(super) const PRIORITY_FLAG: u8 = 0x20;
/// ACK of MIGRATE and JOIN (spec/smig.md section 2).
pub(super) const SMIG_ACK: u8 = 0x02;
pub(super) const REFUSED: u8 = 0x04;

pub(super) const DATA: u8 = 0x00;
pub(super) const HEADERS: u8 = 0x01;
pub(super) const PRIORITY: u8 = 0x02;
pub(super) const RST_STREAM: u8 = 0x03;
pub(super) const SETTINGS: u8 = 0x04;
pub(super) const PUSH_PROMISE: u8 = 0x05;
pub(super) const PING: u8 = 0x06;
pub(super) const GOAWAY: u8 = 0x07;
pub(super) const WINDOW_UPDATE: u8 = 0x08;
pub(super) const CONTINUATION: u8 = 0x09;
pub(super) const PRIORITY_UPDATE: u8 = 0x10;
pub(super) const MIGRATE: u8 = 0xf5;
pub(super) const JOIN: u8 = 0xf6;

/// Frame types by their names in scripts.
pub(super) const FRAME_TYPES: [(&str, u8); 13] = [
    ("data", DATA),
    ("headers", HEADERS),
    ("priority", PRIORITY),
    ("rst", RST_STREAM),
    ("settings", SETTINGS),
    ("push_promise", PUSH_PROMISE),
    ("ping", PING),
    ("goaway", GOAWAY),
    ("window", WINDOW_UPDATE),
    ("continuation", CONTINUATION),
    ("priority_update", PRIORITY_UPDATE),
    ("migrate", MIGRATE),
    ("join", JOIN),
];

/// Settings by name (RFC 9113 section 6.5.2, RFC 8441, RFC 9218, spec/smig.md section 2).
pub(super) const SETTINGS_NAMES: [(&str, u16); 12] = [
    ("header_table_size", 0x1),
    ("enable_push", 0x2),
    ("max_concurrent_streams", 0x3),
    ("initial_window_size", 0x4),
    ("max_frame_size", 0x5),
    ("max_header_list_size", 0x6),
    ("enable_connect_protocol", 0x8),
    ("no_rfc7540_priorities", 0x9),
    ("smig", 0xf5e1),
    ("smig_cid_hi", 0xf5e2),
    ("smig_cid_mid", 0xf5e3),
    ("smig_cid_lo", 0xf5e4),
];

/// Error codes by name (RFC 9113 section 7).
pub(super) const ERROR_CODES: [(&str, u32); 14] = [
    ("NO_ERROR", 0x0),
    ("PROTOCOL_ERROR", 0x1),
    ("INTERNAL_ERROR", 0x2),
    ("FLOW_CONTROL_ERROR", 0x3),
    ("SETTINGS_TIMEOUT", 0x4),
    ("STREAM_CLOSED", 0x5),
    ("FRAME_SIZE_ERROR", 0x6),
    ("REFUSED_STREAM", 0x7),
    ("CANCEL", 0x8),
    ("COMPRESSION_ERROR", 0x9),
    ("CONNECT_ERROR", 0xa),
    ("ENHANCE_YOUR_CALM", 0xb),
    ("INADEQUATE_SECURITY", 0xc),
    ("HTTP_1_1_REQUIRED", 0xd),
];

/// Returns the name of a number in one of the tables.
pub(super) fn name_of<T: Copy + PartialEq>(
    table: &'static [(&'static str, T)],
    number: T,
) -> Option<&'static str> {
    table.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// A frame as a script describes it; every part may be invalid.
#[derive(Debug, Default)]
pub(super) struct ScriptFrame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    /// Overrides the length field; `None` is the payload's length.
    pub(super) length: Option<u32>,
    pub(super) payload: Vec<u8>,
}

impl ScriptFrame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let payload_length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        let [_, length @ ..] = self.length.unwrap_or(payload_length).to_be_bytes();
        let mut bytes = length.to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }
}

/// Encodes a field block with literals that are never indexed and not Huffman coded: no dynamic
/// table changes, and any bytes are possible (RFC 7541 section 6.2.3).
pub(super) fn encode_fields(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = BytesMut::new();
    for (name, value) in fields {
        out.put_u8(0x10);
        for text in [name, value] {
            put_length(&mut out, text.len());
            out.put_slice(text);
        }
    }
    out.to_vec()
}

/// Encodes an integer with a 7-bit prefix (RFC 7541 section 5.1).
fn put_length(out: &mut BytesMut, length: usize) {
    const MAX_PREFIX_VALUE: usize = 127;
    let Some(mut remaining) = length.checked_sub(MAX_PREFIX_VALUE) else {
        out.put_u8(u8::try_from(length).unwrap_or(0));
        return;
    };
    out.put_u8(127);
    while remaining >= 128 {
        out.put_u8(u8::try_from(remaining % 128).unwrap_or(0) | 128);
        remaining /= 128;
    }
    out.put_u8(u8::try_from(remaining).unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use smig_proto::hpack::{Decoder, Field};

    use super::*;

    #[test]
    fn encoded_field_blocks_decode() {
        let long_value = vec![b'x'; 70_000];
        let block = encode_fields(&[
            (b"name".to_vec(), b"value".to_vec()),
            (b"long".to_vec(), long_value.clone()),
        ]);
        let mut fields = Vec::new();
        let push = |field: Cow<'_, Field>| match field.into_owned() {
            Field::Regular(name, value) => {
                fields.push((name.to_string(), value.as_bytes().to_vec()))
            }
            other => panic!("{other:?}"),
        };
        Decoder::new(4096).decode(&block, push).unwrap();
        assert_eq!(
            fields,
            [("name".to_owned(), b"value".to_vec()), ("long".to_owned(), long_value)]
        );
    }

    #[test]
    fn the_length_field_can_be_overridden() {
        let mut frame =
            ScriptFrame { kind: DATA, flags: 1, stream: 3, payload: b"hi".to_vec(), length: None };
        assert_eq!(frame.encode(), b"\0\0\x02\0\x01\0\0\0\x03hi");
        frame.length = Some(0x010203);
        assert_eq!(frame.encode(), b"\x01\x02\x03\0\x01\0\0\0\x03hi");
    }
}
