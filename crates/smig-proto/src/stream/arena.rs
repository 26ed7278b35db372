//! Storage of streams: a slab whose keys are never reused.

use slab::Slab;

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

#[derive(Debug, Default)]
pub(crate) struct Arena {
    slots: Slab<(u32, Stream)>,
    generation: u32,
}

impl Arena {
    pub(crate) fn insert(&mut self, stream: Stream) -> StreamKey {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let index = self.slots.insert((generation, stream));
        StreamKey { index: u32::try_from(index).unwrap_or(u32::MAX), generation }
    }

    /// Returns a stream, unless it was freed: the application has released it, and it has ended.
    pub(crate) fn find(&self, key: StreamKey) -> Option<&Stream> {
        let (generation, stream) = self.slots.get(key.index as usize)?;
        (*generation == key.generation).then_some(stream)
    }

    pub(crate) fn find_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        let (generation, stream) = self.slots.get_mut(key.index as usize)?;
        (*generation == key.generation).then_some(stream)
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
        if self.find(key).is_some() {
            self.slots.remove(key.index as usize);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Iterates over all streams, in an order that depends only on the session's history.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamKey, &Stream)> {
        self.slots.iter().map(|(index, (generation, stream))| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            (StreamKey { index, generation: *generation }, stream)
        })
    }
}
