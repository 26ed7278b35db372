//! Encodes header blocks (RFC 7541 section 6; RFC 9113: field blocks). `indexing` selects the fields
//! to index; `index` is the dynamic table.

use bytes::{BufMut, BytesMut};
use http::{HeaderName, HeaderValue};

use self::index::{Index, Key};
use self::indexing::{Indexing, StaticMatch};
use super::{DEFAULT_TABLE_SIZE, ENTRY_OVERHEAD, Pseudo, huffman, integer};

mod index;
mod indexing;

/// Limit for the part of the peer's table that we use, in bytes.
const MAX_TABLE_SIZE: usize = DEFAULT_TABLE_SIZE;

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
    index: Index,
    /// The maximum table size from the next block on.
    max_size: usize,
    /// The smallest target since the last block.
    smallest_size: usize,
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
            index: Index::new(DEFAULT_TABLE_SIZE),
            max_size: DEFAULT_TABLE_SIZE,
            smallest_size: DEFAULT_TABLE_SIZE,
        }
    }

    /// Sets the peer's SETTINGS_HEADER_TABLE_SIZE, in bytes. The encoder uses at most 4096 of them,
    /// from the next block on.
    pub fn set_max_table_size(&mut self, peer_limit: usize) {
        self.max_size = peer_limit.min(MAX_TABLE_SIZE);
        self.smallest_size = self.smallest_size.min(self.max_size);
    }

    /// Starts a header block: writes the table size updates that are due (RFC 7541 section 4.2).
    pub fn begin(&mut self, out: &mut BytesMut) {
        let (pattern, prefix) = SIZE_UPDATE;
        if self.smallest_size < self.max_size.min(self.index.max_size()) {
            self.index.set_max_size(self.smallest_size);
            integer::encode(self.smallest_size, prefix, pattern, out);
        }
        if self.max_size != self.index.max_size() {
            self.index.set_max_size(self.max_size);
            integer::encode(self.max_size, prefix, pattern, out);
        }
        self.smallest_size = self.max_size;
    }

    /// Appends a pseudo-header field.
    pub fn pseudo(&mut self, name: Pseudo, value: &[u8], out: &mut BytesMut) {
        match indexing::pseudo(name, value) {
            StaticMatch::Field(index) => out.put_u8(INDEXED.0 | index),
            StaticMatch::Name(index, policy) => {
                self.field(index, policy, name.as_str().as_bytes(), value, out);
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

    /// Appends a regular field. A sensitive value is encoded as never indexed, which holds for
    /// every hop (RFC 7541 section 7.1.3).
    pub fn regular(&mut self, name: &HeaderName, value: &HeaderValue, out: &mut BytesMut) {
        match indexing::regular(name, value) {
            StaticMatch::Field(index) => out.put_u8(INDEXED.0 | index),
            StaticMatch::Name(index, policy) => {
                self.field(index, policy, name.as_str().as_bytes(), value.as_bytes(), out);
            }
        }
    }

    /// `static_name` is the name's index in the static table, or 0.
    fn field(
        &mut self,
        static_name: u8,
        policy: Indexing,
        name: &[u8],
        value: &[u8],
        out: &mut BytesMut,
    ) {
        let representation = match policy {
            Indexing::Never => NEVER_INDEXED,
            Indexing::Literal => WITHOUT_INDEXING,
            Indexing::Index | Indexing::OnSecondUse => {
                let key = Key::new(static_name, name, value);
                if let Some(index) = self.index.find(&key) {
                    return integer::encode(index, INDEXED.1, INDEXED.0, out);
                }
                let size = ENTRY_OVERHEAD + name.len() + value.len();
                // An entry that evicts most of the table costs more than it saves.
                if size * 4 > self.index.max_size() * 3
                    || (policy == Indexing::OnSecondUse && !self.index.note_sighting(&key))
                {
                    WITHOUT_INDEXING
                } else {
                    self.literal(WITH_INDEXING, static_name, name, value, out);
                    return self.index.insert(&key);
                }
            }
        };
        self.literal(representation, static_name, name, value, out);
    }

    fn literal(
        &self,
        (pattern, prefix): (u8, u32),
        static_name: u8,
        name: &[u8],
        value: &[u8],
        out: &mut BytesMut,
    ) {
        let index = match static_name {
            0 => self.index.find_name(name).unwrap_or(0),
            index => usize::from(index),
        };
        integer::encode(index, prefix, pattern, out);
        if index == 0 {
            string(name, out);
        }
        string(value, out);
    }
}

/// Writes a string literal, Huffman-coded if that is shorter (RFC 7541 section 5.2).
fn string(value: &[u8], out: &mut BytesMut) {
    let len = huffman::encoded_len(value);
    if len < value.len() {
        integer::encode(len, HUFFMAN.1, HUFFMAN.0, out);
        huffman::encode(value, len, out);
    } else {
        integer::encode(value.len(), RAW.1, RAW.0, out);
        out.extend_from_slice(value);
    }
}
