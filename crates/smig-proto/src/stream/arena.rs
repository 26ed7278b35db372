//! Storage of streams, whose keys are never reused.

use super::Stream;
use crate::invariant::DebugExpect;

/// Identifies a stream during its lifetime, across migrations. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    index: u32,
    generation: u32,
}

impl StreamKey {
    /// Returns a small number that is unique among the streams that are open at the same time, for
    /// tables. Unlike the key, it is reused.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Returns a number that is unique among the streams of a session, for maps and logs.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        ((self.generation as u64) << 32) | self.index as u64
    }
}

/// Streams by their index. Unlike a general slab, it neither moves a stream to drop it, nor compares more than the generation
/// to find it.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    slots: Vec<Slot>,
    /// Indices of free slots; the last one that became free is used first.
    free: Vec<u32>,
    generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    stream: Option<Stream>,
}

impl Arena {
    pub(crate) fn insert(&mut self, stream: Stream) -> StreamKey {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(index as usize)
        {
            slot.generation = generation;
            slot.stream = Some(stream);
            return StreamKey { index, generation };
        }
        let index = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Slot { generation, stream: Some(stream) });
        StreamKey { index, generation }
    }

    /// Returns a stream, unless it was freed: the application has released it, and it has ended.
    pub(crate) fn find(&self, key: StreamKey) -> Option<&Stream> {
        let slot = self.slots.get(key.index as usize)?;
        slot.stream.as_ref().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn find_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.stream.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// Returns a stream that cannot have been freed: the caller has already found it, or an address
    /// maps to it.
    #[track_caller]
    pub(crate) fn find_known(&self, key: StreamKey) -> Option<&Stream> {
        self.find(key).debug_expect("the stream is in the session")
    }

    /// Like [`Self::find_known`].
    #[track_caller]
    pub(crate) fn find_known_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.find_mut(key).debug_expect("the stream is in the session")
    }

    /// Drops a stream.
    pub(crate) fn free(&mut self, key: StreamKey) {
        if let Some(slot) = self.slots.get_mut(key.index as usize)
            && slot.generation == key.generation
            && slot.stream.is_some()
        {
            slot.stream = None;
            self.free.push(key.index);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Like [`Self::iter`].
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamKey, &mut Stream)> {
        (0..).zip(&mut self.slots).filter_map(|(index, Slot { generation, stream })| {
            Some((StreamKey { index, generation: *generation }, stream.as_mut()?))
        })
    }

    /// Iterates over all streams, in an order that depends only on the session's history.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamKey, &Stream)> {
        (0..).zip(&self.slots).filter_map(|(index, Slot { generation, stream })| {
            Some((StreamKey { index, generation: *generation }, stream.as_ref()?))
        })
    }
}
