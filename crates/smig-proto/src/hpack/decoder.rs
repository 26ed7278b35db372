//! Decodes header blocks (RFC 9113: field blocks), and owns the decoder's dynamic table (RFC 7541
//! sections 2.3.2, 4 and 6).
//!
//! Time is linear in the length of the block. The memory that the table retains is bounded by its
//! current maximum size: names and values are copied out of the block, never stored as slices of
//! it.

use std::borrow::Cow;
use std::collections::VecDeque;

use http::HeaderValue;

use super::field::Name;
use super::{DecodeError, Field, huffman, integer, static_table};
use crate::invariant::DebugExpect;

/// A Huffman buffer larger than this number of bytes is released after a block.
const MAX_SCRATCH_BYTES: usize = 4096;

/// A block may start with two size updates: the smallest size since the last block, and the final
/// one (RFC 7541 section 4.2).
const MAX_SIZE_UPDATES: usize = 2;

/// No limit is as high.
const NOT_REDUCED: u32 = u32::MAX;

/// The decoding context for one direction of one connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// Our SETTINGS_HEADER_TABLE_SIZE, as acknowledged by the peer.
    limit: u32,
    /// The smallest limit since the last block, if it was below the table's maximum size, else [`NOT_REDUCED`].
    reduced_to: u32,
    version: TableVersion,
    had_never_indexed: bool,
    scratch: Vec<u8>,
}

impl Decoder {
    /// Creates a decoder with an empty table. `max_table_size` is our SETTINGS_HEADER_TABLE_SIZE as
    /// the peer knows it, in bytes; initially 4096.
    pub fn new(max_table_size: usize) -> Self {
        Self {
            table: Table { entries: VecDeque::new(), size: 0, max_size: max_table_size },
            limit: saturate(max_table_size),
            reduced_to: NOT_REDUCED,
            version: TableVersion(0),
            had_never_indexed: false,
            scratch: Vec::new(),
        }
    }

    /// Sets our SETTINGS_HEADER_TABLE_SIZE, in bytes, once the peer has acknowledged it.
    ///
    /// If it is below the table's current maximum size, the peer must start its next block with a
    /// table size update (RFC 7541 section 4.2).
    pub fn set_max_table_size(&mut self, size: usize) {
        let is_reduced = size < self.table.max_size;
        let size = saturate(size);
        self.limit = size;
        if is_reduced {
            self.reduced_to = self.reduced_to.min(size);
        }
    }

    /// Decodes one complete header block, and passes its fields to `emit` in order: borrowed if they
    /// are in a table. A caller that needs no more fields can drop them; the table stays in sync.
    ///
    /// # Errors
    ///
    /// Every error is a connection error COMPRESSION_ERROR: the table is out of sync, and the
    /// decoder must not be used again. Fields before the invalid one have been emitted.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut emit: impl FnMut(Cow<'_, Field>),
    ) -> Result<(), DecodeError> {
        let mut rest = block;
        self.had_never_indexed = false;
        self.read_size_updates(&mut rest)?;
        while let Some((&first, tail)) = rest.split_first() {
            rest = tail;
            if first & 0x80 != 0 {
                let index = integer::decode(first, 7, &mut rest)?;
                emit(Cow::Borrowed(self.field(index)?));
            } else if first & 0x40 != 0 {
                let (field, name) = self.decode_literal(first, 6, &mut rest)?;
                emit(Cow::Borrowed(&field));
                self.version.increment();
                self.table.insert(field, name);
            } else if first & 0x20 != 0 {
                return Err(DecodeError::LateSizeUpdate);
            } else {
                let (mut field, _) = self.decode_literal(first, 4, &mut rest)?;
                self.had_never_indexed |= first & 0x10 != 0;
                if let (0x10, Field::Regular(_, value)) = (first & 0x10, &mut field) {
                    HeaderValue::set_sensitive(value, true);
                }
                emit(Cow::Owned(field));
            }
        }
        if self.scratch.len() > MAX_SCRATCH_BYTES {
            self.scratch = Vec::new();
        }
        Ok(())
    }

    /// Returns whether the last block had a never-indexed field (RFC 7541 section 7.1.3), pseudo-header fields included.
    pub(crate) const fn had_never_indexed(&self) -> bool {
        self.had_never_indexed
    }

    /// Returns the version of the table. A block that is decoded without a change of it is decoded to the same fields, and
    /// again without a change, while [`Self::is_at_version`].
    pub(crate) const fn version(&self) -> TableVersion {
        self.version
    }

    /// Returns whether the table has this version, and the next block need not start with a size update.
    pub(crate) const fn is_at_version(&self, version: TableVersion) -> bool {
        self.version.0 == version.0 && version.0 != u32::MAX && self.reduced_to == NOT_REDUCED
    }

    /// Returns the dynamic table, newest entry first.
    #[cfg(test)]
    pub(super) fn table(&self) -> Vec<Field> {
        self.table.entries.iter().map(|entry| entry.field.clone()).collect()
    }

    fn read_size_updates(&mut self, rest: &mut &[u8]) -> Result<(), DecodeError> {
        let mut updates = 0;
        while let Some((&first @ 0x20..=0x3f, tail)) = rest.split_first() {
            *rest = tail;
            let size = integer::decode(first, 5, rest)?;
            if size > self.limit as usize {
                return Err(DecodeError::SizeUpdateTooLarge);
            }
            updates += 1;
            if updates > MAX_SIZE_UPDATES {
                return Err(DecodeError::TooManySizeUpdates);
            }
            if size > core::mem::replace(&mut self.reduced_to, NOT_REDUCED) as usize {
                return Err(DecodeError::MissingSizeUpdate);
            }
            self.version.increment();
            self.table.set_max_size(size);
        }
        if self.reduced_to == NOT_REDUCED { Ok(()) } else { Err(DecodeError::MissingSizeUpdate) }
    }

    /// Decodes the rest of a literal, whose name index has `prefix_bits` bits in `first`.
    /// Also returns the name if the field is malformed.
    fn decode_literal(
        &mut self,
        first: u8,
        prefix_bits: u32,
        rest: &mut &[u8],
    ) -> Result<(Field, Option<Name>), DecodeError> {
        let name = match integer::decode(first, prefix_bits, rest)? {
            0 => Name::from_wire(decode_string(rest, &mut self.scratch)?),
            index => self.name(index)?,
        };
        let value = decode_string(rest, &mut self.scratch)?;
        Ok(name.with_value(value))
    }

    #[inline]
    fn field(&self, index: usize) -> Result<&Field, DecodeError> {
        static_table::entry(index)
            .or_else(|| Some(&self.table.entry(index)?.field))
            .ok_or(DecodeError::InvalidIndex)
    }

    fn name(&self, index: usize) -> Result<Name, DecodeError> {
        if let Some(field) = static_table::entry(index) {
            return Name::from_field(field).ok_or(DecodeError::InvalidIndex);
        }
        let entry = self.table.entry(index).ok_or(DecodeError::InvalidIndex)?;
        Name::from_field(&entry.field)
            .or_else(|| Some(Name::clone(entry.name_of_malformed.as_deref()?)))
            .ok_or(DecodeError::InvalidIndex)
    }
}

/// Number of insertions into a table and of its size updates. The highest number is no version: a table that has reached it
/// counts as changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableVersion(u32);

impl TableVersion {
    const fn increment(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// Returns the number, for hashes.
    pub(crate) const fn as_u32(self) -> u32 {
        self.0
    }
}

fn saturate(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Reads a string literal (RFC 7541 section 5.2). A Huffman-coded one is decoded into `scratch`.
#[inline]
fn decode_string<'a, 'block: 'a>(
    rest: &mut &'block [u8],
    scratch: &'a mut Vec<u8>,
) -> Result<&'a [u8], DecodeError> {
    let (&first, tail) = rest.split_first().ok_or(DecodeError::Truncated)?;
    *rest = tail;
    let len = integer::decode(first, 7, rest)?;
    let (raw, tail) = rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
    *rest = tail;
    if first & 0x80 == 0 { Ok(raw) } else { huffman::decode(raw, scratch) }
}

/// The dynamic table. The newest entry is at the front.
#[derive(Debug)]
struct Table {
    entries: VecDeque<Entry>,
    /// Size of the entries as RFC 7541 section 4.1 defines it, in bytes.
    size: usize,
    /// The maximum size, as set by the last size update.
    max_size: usize,
}

#[derive(Debug)]
struct Entry {
    field: Field,
    /// Set if `field` is malformed: later literals may still refer to its name.
    name_of_malformed: Option<Box<Name>>,
}

impl Table {
    #[inline]
    fn entry(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index.checked_sub(static_table::LEN + 1)?)
    }

    /// Inserts an entry. One that is larger than the table empties it (RFC 7541 section 4.4).
    fn insert(&mut self, field: Field, name_of_malformed: Option<Name>) {
        let size = field.size();
        self.evict_to(self.max_size.saturating_sub(size));
        if size <= self.max_size {
            self.size += size;
            self.entries
                .push_front(Entry { field, name_of_malformed: name_of_malformed.map(Box::new) });
        }
    }

    fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict_to(max_size);
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let oldest = self.entries.pop_back();
            let Some(oldest) = oldest.debug_expect("size is that of the entries") else { break };
            self.size = self.size.saturating_sub(oldest.field.size());
        }
    }
}
