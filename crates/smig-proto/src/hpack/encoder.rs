//! Encodes header blocks (RFC 7541 section 6; RFC 9113: field blocks). `indexing` selects the fields
//! to index; `dynamic_table` has the entries.

use bytes::{BufMut, BytesMut};
use http::{HeaderName, HeaderValue};

use self::dynamic_table::{DynamicTable, Key};
use self::indexing::{Indexing, StaticMatch};
use self::repeated::RepeatedBlocks;
use super::{DEFAULT_TABLE_BYTES, ENTRY_OVERHEAD_BYTES, Pseudo, huffman, integer};

mod dynamic_table;
mod indexing;
mod repeated;

pub(crate) use repeated::{Headers, OutgoingSection};

/// Limit for the part of the peer's table that we use, in bytes.
const MAX_TABLE_BYTES: u16 = 4096;

/// Representations (RFC 7541 section 6): their bit pattern, and the number of bits that are left in
/// the first byte for the index.
const INDEXED: (u8, u32) = (0x80, 7);
const WITH_INDEXING: (u8, u32) = (0x40, 6);
const SIZE_UPDATE: (u8, u32) = (0x20, 5);
const NEVER_INDEXED: (u8, u32) = (0x10, 4);
const WITHOUT_INDEXING: (u8, u32) = (0x00, 4);

/// String literals (RFC 7541 section 5.2): the bit pattern of the H flag, and the number of bits
/// that are left for the length.
const HUFFMAN: (u8, u32) = (0x80, 7);
const RAW: (u8, u32) = (0x00, 7);

/// The encoding context for one direction of one connection.
///
/// Each block starts with [`begin`](Self::begin), followed by its fields in order. Blocks must
/// reach the peer in the order in which they were encoded.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// The maximum table size from the next block on.
    max_size: u16,
    /// The smallest `max_size` since the last block.
    smallest_size: u16,
    /// Boxed to keep connections small; `None` until a response could repeat.
    repeated: Option<Box<RepeatedBlocks>>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Creates an encoder with an empty table of 4096 bytes.
    pub fn new() -> Self {
        Self {
            table: DynamicTable::new(DEFAULT_TABLE_BYTES),
            max_size: MAX_TABLE_BYTES,
            smallest_size: MAX_TABLE_BYTES,
            repeated: None,
        }
    }

    /// Sets the peer's SETTINGS_HEADER_TABLE_SIZE, in bytes. The encoder uses at most 4096 of them,
    /// from the next block on.
    pub fn set_max_table_size(&mut self, peer_limit: usize) {
        self.max_size = u16::try_from(peer_limit).unwrap_or(u16::MAX).min(MAX_TABLE_BYTES);
        self.smallest_size = self.smallest_size.min(self.max_size);
    }

    /// Starts a header block: writes the table size updates that are due (RFC 7541 section 4.2).
    pub fn begin(&mut self, out: &mut BytesMut) {
        let (pattern, prefix_bits) = SIZE_UPDATE;
        let smallest_size = usize::from(self.smallest_size);
        let max_size = usize::from(self.max_size);
        if smallest_size < max_size.min(self.table.max_size()) {
            self.table.set_max_size(smallest_size);
            integer::encode(smallest_size, prefix_bits, pattern, out);
        }
        if max_size != self.table.max_size() {
            self.table.set_max_size(max_size);
            integer::encode(max_size, prefix_bits, pattern, out);
        }
        self.smallest_size = self.max_size;
    }

    /// Appends a pseudo-header field.
    pub fn pseudo(&mut self, name: Pseudo, value: &[u8], out: &mut BytesMut) {
        match indexing::pseudo(name, value) {
            StaticMatch::Field(index) => out.put_u8(INDEXED.0 | index),
            StaticMatch::Name(index, policy) => {
                self.encode_field(index, policy, name.as_str().as_bytes(), value, out);
            }
        }
    }

    /// Appends `:status`.
    #[inline]
    pub fn status(&mut self, status: u16, out: &mut BytesMut) {
        match indexing::status(status) {
            Some(index) => out.put_u8(INDEXED.0 | index),
            None => {
                let digit = |unit| b'0' + (status / unit % 10) as u8;
                self.pseudo(Pseudo::Status, &[digit(100), digit(10), digit(1)], out);
            }
        }
    }

    /// Appends a response's head, or trailers: a copy of the last such block, if it repeats and the
    /// table has not changed since. Fields for which `is_sent` is false are left out; it must depend
    /// on nothing else.
    pub(crate) fn section(
        &mut self,
        section: OutgoingSection<'_>,
        is_sent: impl Fn(&HeaderName, &HeaderValue) -> bool,
        out: &mut BytesMut,
    ) {
        let version = self.table.version();
        if let Some(repeated) = &self.repeated
            && let Some(block) = repeated.find(version, section)
        {
            return out.extend_from_slice(block);
        }
        let (start, sighting_count) = (out.len(), self.table.sighting_count());
        if let Some(status) = section.status {
            self.status(status.as_u16(), out);
        }
        for (name, value) in section.fields() {
            if is_sent(name, value) {
                self.regular(name, value, out);
            }
        }
        // Otherwise the same fields might be encoded differently the next time.
        let is_repeatable =
            version == self.table.version() && sighting_count == self.table.sighting_count();
        if is_repeatable && let Some(block) = out.get(start..) {
            self.repeated.get_or_insert_default().note(version, section, block);
        }
    }

    /// Appends a regular field. A sensitive value is encoded as never indexed, which holds for
    /// every hop (RFC 7541 section 7.1.3).
    pub fn regular(&mut self, name: &HeaderName, value: &HeaderValue, out: &mut BytesMut) {
        match indexing::regular(name, value) {
            StaticMatch::Field(index) => out.put_u8(INDEXED.0 | index),
            StaticMatch::Name(index, policy) => {
                self.encode_field(index, policy, name.as_str().as_bytes(), value.as_bytes(), out);
            }
        }
    }

    /// `static_name_index` is the name's index in the static table, or 0.
    fn encode_field(
        &mut self,
        static_name_index: u8,
        policy: Indexing,
        name: &[u8],
        value: &[u8],
        out: &mut BytesMut,
    ) {
        let representation = match policy {
            Indexing::NeverIndexed => NEVER_INDEXED,
            Indexing::NotIndexed => WITHOUT_INDEXING,
            Indexing::Always | Indexing::OnSecondUse => {
                let key = Key::new(static_name_index, name, value);
                if let Some(index) = self.table.find(&key) {
                    return integer::encode(index, INDEXED.1, INDEXED.0, out);
                }
                let size = ENTRY_OVERHEAD_BYTES + name.len() + value.len();
                // An entry that evicts most of the table costs more than it saves.
                if size * 4 > self.table.max_size() * 3
                    || (policy == Indexing::OnSecondUse && !self.table.note_sighting(&key))
                {
                    WITHOUT_INDEXING
                } else {
                    self.encode_literal(WITH_INDEXING, static_name_index, name, value, out);
                    return self.table.insert(&key);
                }
            }
        };
        self.encode_literal(representation, static_name_index, name, value, out);
    }

    fn encode_literal(
        &self,
        (pattern, prefix_bits): (u8, u32),
        static_name_index: u8,
        name: &[u8],
        value: &[u8],
        out: &mut BytesMut,
    ) {
        let index = match static_name_index {
            0 => self.table.find_name(name).unwrap_or(0),
            index => usize::from(index),
        };
        integer::encode(index, prefix_bits, pattern, out);
        if index == 0 {
            encode_string(name, out);
        }
        encode_string(value, out);
    }
}

/// Writes a string literal, Huffman-coded if that is shorter (RFC 7541 section 5.2).
fn encode_string(value: &[u8], out: &mut BytesMut) {
    let len = huffman::encoded_len(value);
    if len < value.len() {
        integer::encode(len, HUFFMAN.1, HUFFMAN.0, out);
        huffman::encode(value, len, out);
    } else {
        integer::encode(value.len(), RAW.1, RAW.0, out);
        out.extend_from_slice(value);
    }
}
