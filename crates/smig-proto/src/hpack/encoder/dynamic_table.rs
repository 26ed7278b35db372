//! The encoder's dynamic table (RFC 7541 sections 2.3.2 and 4), with a hash index.
//!
//! Entries are copied to one buffer, so the application's values are not kept alive. The index is
//! set-associative and never cleaned up: a slot is only a hint, which a comparison with the entry
//! confirms. The cost of an insertion or an eviction therefore does not depend on the table's size,
//! and hash collisions degrade the compression, never the speed. Nothing is allocated before the
//! first insertion.

use std::collections::VecDeque;
use std::hash::Hasher;

use rustc_hash::FxHasher;

use super::super::{ENTRY_OVERHEAD_BYTES, static_table};
use crate::invariant::DebugExpect;

/// Length in bytes above which the buffer is compacted: twice the maximum table size, so that a
/// compaction moves no more bytes than were written since the last one.
const MAX_BUFFER_BYTES: usize = 2 * super::MAX_TABLE_BYTES as usize;

/// A field and its hash.
pub(super) struct Key<'a> {
    name: &'a [u8],
    value: &'a [u8],
    hash: Hash,
    /// The table that may have the name.
    name_source: NameSource,
}

#[derive(PartialEq, Eq)]
enum NameSource {
    StaticTable,
    DynamicTable,
}

#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    fn of_name(name: &[u8]) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(name);
        Self(hasher.finish())
    }

    /// The part of the hash that a slot stores; never 0, which marks empty slots.
    fn tag(self) -> u16 {
        (self.0 >> 48) as u16 | 1
    }

    /// Returns the index of the set for this hash, where the number of sets is a power of two.
    fn set_index(self, set_count: usize) -> usize {
        self.0 as usize & (set_count - 1)
    }
}

impl<'a> Key<'a> {
    /// `static_name_index` is the name's index in the static table, or 0. If it is not 0, it
    /// replaces the name in the hash.
    #[inline]
    pub(super) fn new(static_name_index: u8, name: &'a [u8], value: &'a [u8]) -> Self {
        let mut hasher = FxHasher::default();
        match static_name_index {
            0 => hasher.write(name),
            index => hasher.write_u8(index),
        }
        hasher.write(value);
        let name_source =
            if static_name_index == 0 { NameSource::DynamicTable } else { NameSource::StaticTable };
        Self { name, value, hash: Hash(hasher.finish()), name_source }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Start of the entry, counted from the first byte ever written.
    start: usize,
    name_len: usize,
    value_len: usize,
}

impl Entry {
    fn size(&self) -> usize {
        ENTRY_OVERHEAD_BYTES + self.name_len + self.value_len
    }
}

/// The dynamic table.
#[derive(Debug)]
pub(super) struct DynamicTable {
    /// The newest entry is at the back.
    entries: VecDeque<Entry>,
    /// Number of entries ever inserted, modulo 2^16: the serial number of the next one.
    next_serial: u16,
    bytes: Vec<u8>,
    /// Number of bytes that were removed from the front of `bytes`.
    removed_bytes: usize,
    size: usize,
    max_size: usize,
    fields: Slots,
    /// The newest entry for each name that is not in the static table.
    names: Slots,
    /// Tags of recent fields without an entry.
    sightings: Vec<u16>,
    /// Number of changes of the entries.
    version: u64,
    /// Number of fields that were recorded in `sightings`.
    sighting_count: u64,
}

/// Initial capacity, enough for the table of a typical connection.
const INITIAL_ENTRIES: usize = 16;
const INITIAL_BYTES: usize = 512;

const FIELD_SET_COUNT: usize = 64;
const NAME_SET_COUNT: usize = 16;
const MAX_SIGHTINGS: usize = 64;

impl DynamicTable {
    pub(super) fn new(max_size: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            next_serial: 0,
            bytes: Vec::new(),
            removed_bytes: 0,
            size: 0,
            max_size,
            fields: Slots::default(),
            names: Slots::default(),
            sightings: Vec::new(),
            version: 0,
            sighting_count: 0,
        }
    }

    /// Returns a number that changes whenever the entries do.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Returns a number that changes whenever a field is recorded as seen.
    pub(super) const fn sighting_count(&self) -> u64 {
        self.sighting_count
    }

    pub(super) fn max_size(&self) -> usize {
        self.max_size
    }

    pub(super) fn set_max_size(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.version += 1;
        self.evict_to(max_size);
    }

    /// Returns the index of a field, in the address space of both tables.
    #[inline]
    pub(super) fn find(&self, key: &Key<'_>) -> Option<usize> {
        self.fields.find(key.hash, |serial| {
            let (age, name, value) = self.entry(serial)?;
            (name == key.name && value == key.value).then_some(static_table::LEN + age)
        })
    }

    /// Returns the index of the newest entry with this name.
    pub(super) fn find_name(&self, name: &[u8]) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        self.names.find(Hash::of_name(name), |serial| {
            let (age, entry_name, _) = self.entry(serial)?;
            (entry_name == name).then_some(static_table::LEN + age)
        })
    }

    /// Records that the field was seen; returns whether it was recorded already.
    pub(super) fn note_sighting(&mut self, key: &Key<'_>) -> bool {
        self.sighting_count += 1;
        if self.sightings.is_empty() {
            self.sightings = vec![0; MAX_SIGHTINGS];
        }
        let tag = key.hash.tag();
        match self.sightings.get_mut(key.hash.set_index(MAX_SIGHTINGS)) {
            Some(seen) => std::mem::replace(seen, tag) == tag,
            None => false,
        }
    }

    /// Inserts a field that fits into the table.
    pub(super) fn insert(&mut self, key: &Key<'_>) {
        self.version += 1;
        let entry = Entry {
            start: self.removed_bytes + self.bytes.len(),
            name_len: key.name.len(),
            value_len: key.value.len(),
        };
        self.evict_to(self.max_size.saturating_sub(entry.size()));
        if self.bytes.capacity() == 0 {
            self.entries.reserve(INITIAL_ENTRIES);
            self.bytes.reserve(INITIAL_BYTES);
        }
        self.bytes.extend_from_slice(key.name);
        self.bytes.extend_from_slice(key.value);
        self.size += entry.size();
        self.entries.push_back(entry);
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        let live_count = self.entries.len();
        self.fields.insert(FIELD_SET_COUNT, key.hash, serial, live_count);
        if key.name_source == NameSource::DynamicTable {
            self.names.insert(NAME_SET_COUNT, Hash::of_name(key.name), serial, live_count);
        }
        self.compact();
    }

    /// Returns the entry with a serial number: its age, counted from 1 for the newest, its name and
    /// its value.
    #[inline]
    fn entry(&self, serial: u16) -> Option<(usize, &[u8], &[u8])> {
        let age = usize::from(self.next_serial.wrapping_sub(serial));
        let entry = self.entries.get(self.entries.len().checked_sub(age)?)?;
        let (name, rest) =
            self.bytes.get(entry.start - self.removed_bytes..)?.split_at_checked(entry.name_len)?;
        Some((age, name, rest.get(..entry.value_len)?))
    }

    fn evict_to(&mut self, size: usize) {
        while self.size > size {
            let oldest = self.entries.pop_front();
            let Some(oldest) = oldest.debug_expect("size is that of the entries") else { break };
            self.size = self.size.saturating_sub(oldest.size());
        }
    }

    fn compact(&mut self) {
        if self.bytes.len() > MAX_BUFFER_BYTES
            && let Some(oldest) = self.entries.front()
        {
            self.bytes.drain(..oldest.start - self.removed_bytes);
            self.removed_bytes = oldest.start;
        }
    }
}

/// Hash slots, in sets of four: each has a tag and the serial number of an entry. Empty until the
/// first insertion.
#[derive(Debug, Default)]
struct Slots {
    sets: Vec<[Slot; 4]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// 0 if the slot is empty.
    tag: u16,
    serial: u16,
}

impl Slots {
    /// Returns the first result of `confirm` for the serial numbers of the entries that may match
    /// the hash. A loop: as a chain of iterators it took a third of the time of a field.
    #[inline]
    fn find(&self, hash: Hash, confirm: impl Fn(u16) -> Option<usize>) -> Option<usize> {
        if self.sets.is_empty() {
            return None;
        }
        let tag = hash.tag();
        for slot in self.sets.get(hash.set_index(self.sets.len()))? {
            if slot.tag == tag
                && let Some(index) = confirm(slot.serial)
            {
                return Some(index);
            }
        }
        None
    }

    /// Stores an entry in the slot with the same tag, else in an empty one, else in that of the
    /// oldest entry. `serial` is the newest of `live_count` entries.
    fn insert(&mut self, set_count: usize, hash: Hash, serial: u16, live_count: usize) {
        if self.sets.is_empty() {
            self.sets = vec![[Slot::default(); 4]; set_count];
        }
        let set = self.sets.get_mut(hash.set_index(set_count));
        let Some(set) = set.debug_expect("a hash selects one of the sets") else { return };
        let tag = hash.tag();
        let slot_to_replace = set.iter_mut().max_by_key(|slot| match slot.tag {
            same if same == tag => usize::MAX,
            0 => usize::MAX - 1,
            _ => usize::from(serial.wrapping_sub(slot.serial)).min(live_count),
        });
        if let Some(slot) = slot_to_replace {
            *slot = Slot { tag, serial };
        }
    }
}
