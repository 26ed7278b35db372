//! Selects the stream that sends DATA next: interactive streams before bulk, and within each of the
//! two classes by RFC 9218 section 10. That is by urgency; within one urgency, sequential streams in
//! ascending order of their IDs alternate with incremental ones in round-robin order.
//!
//! Owns keys only. A stream that has an entry may have nothing to send any more, if its window was
//! reduced: the caller checks. Its entry is removed before it moves or ends.

use std::collections::VecDeque;

use crate::ids::StreamId;
use crate::invariant::DebugExpect;
use crate::priority::Priority;
use crate::stream::StreamKey;

/// Frames of interactive streams for each frame of bulk, if both could send: bulk is late, but does
/// not starve.
const INTERACTIVE_FRAMES_PER_BULK_FRAME: u8 = 8;

#[derive(Debug, Default)]
struct Level {
    /// In ascending order of IDs.
    sequential: VecDeque<(StreamId, StreamKey)>,
    incremental: VecDeque<(StreamId, StreamKey)>,
    /// The queue that is next when both have streams, so that neither starves the other.
    turn: Turn,
}

impl Level {
    fn is_empty(&self) -> bool {
        self.sequential.is_empty() && self.incremental.is_empty()
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Turn {
    #[default]
    Sequential,
    Incremental,
}

/// How the driver sends what a stream has queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendClass {
    /// As soon as the transport accepts it.
    Interactive,
    /// As far as the driver allows bulk.
    Bulk,
}

/// The streams of one class.
#[derive(Debug, Default)]
struct ClassQueue {
    levels: [Level; 8],
    /// One bit for each level that has streams.
    occupied_levels: u8,
}

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    interactive: ClassQueue,
    /// Allocated with the first bulk stream: few connections have one.
    bulk: Option<Box<BulkQueue>>,
}

/// The bulk streams.
#[derive(Debug, Default)]
struct BulkQueue {
    streams: ClassQueue,
    /// Frames of interactive streams since the last one of bulk, or since bulk was queued.
    interactive_run: u8,
}

impl Scheduler {
    pub(crate) const fn is_empty(&self) -> bool {
        !self.has_interactive() && !self.has_bulk()
    }

    /// Returns whether there is an interactive stream.
    pub(crate) const fn has_interactive(&self) -> bool {
        self.interactive.occupied_levels != 0
    }

    /// Returns whether there is a bulk stream.
    pub(crate) const fn has_bulk(&self) -> bool {
        match &self.bulk {
            Some(bulk) => bulk.streams.occupied_levels != 0,
            None => false,
        }
    }

    /// Returns the number of entries; for tests.
    pub(crate) fn len(&self) -> usize {
        self.interactive.len() + self.bulk.as_ref().map_or(0, |bulk| bulk.streams.len())
    }

    /// Adds a stream that has data to send.
    pub(crate) fn push(
        &mut self,
        class: SendClass,
        id: StreamId,
        key: StreamKey,
        priority: Priority,
    ) {
        match class {
            SendClass::Interactive => self.interactive.push(id, key, priority),
            SendClass::Bulk => {
                self.bulk.get_or_insert_default().streams.push(id, key, priority);
            }
        }
    }

    /// Removes a stream; returns whether it had an entry.
    pub(crate) fn remove(&mut self, key: StreamKey, priority: Priority) -> bool {
        self.interactive.remove(key, priority)
            || self.bulk.as_mut().is_some_and(|bulk| bulk.streams.remove(key, priority))
    }

    /// Removes and returns the stream that is next, with its class. Skips bulk streams unless
    /// `may_send_bulk`.
    pub(crate) fn pop(&mut self, may_send_bulk: bool) -> Option<(StreamKey, SendClass)> {
        let bulk =
            self.bulk.as_mut().filter(|bulk| may_send_bulk && bulk.streams.occupied_levels != 0);
        let Some(bulk) = bulk else {
            return self.interactive.pop().map(|key| (key, SendClass::Interactive));
        };
        if bulk.interactive_run < INTERACTIVE_FRAMES_PER_BULK_FRAME
            && let Some(key) = self.interactive.pop()
        {
            bulk.interactive_run += 1;
            return Some((key, SendClass::Interactive));
        }
        bulk.interactive_run = 0;
        match bulk.streams.pop() {
            Some(key) => Some((key, SendClass::Bulk)),
            None => self.interactive.pop().map(|key| (key, SendClass::Interactive)),
        }
    }
}

impl ClassQueue {
    fn len(&self) -> usize {
        self.levels.iter().map(|level| level.sequential.len() + level.incremental.len()).sum()
    }

    fn push(&mut self, id: StreamId, key: StreamKey, priority: Priority) {
        let urgency = usize::from(priority.urgency());
        let level = self.levels.get_mut(urgency);
        let Some(level) = level.debug_expect("an urgency is below 8") else { return };
        self.occupied_levels |= 1 << urgency;
        if priority.is_incremental() {
            level.incremental.push_back((id, key));
        } else if level.sequential.back().is_none_or(|&(last, _)| last < id) {
            level.sequential.push_back((id, key));
        } else {
            let index = level.sequential.partition_point(|&(other, _)| other < id);
            level.sequential.insert(index, (id, key));
        }
    }

    fn remove(&mut self, key: StreamKey, priority: Priority) -> bool {
        let urgency = usize::from(priority.urgency());
        let level = self.levels.get_mut(urgency);
        let Some(level) = level.debug_expect("an urgency is below 8") else { return false };
        let queue =
            if priority.is_incremental() { &mut level.incremental } else { &mut level.sequential };
        let Some(index) = queue.iter().position(|&(_, other)| other == key) else { return false };
        queue.remove(index);
        if level.is_empty() {
            self.occupied_levels &= !(1 << urgency);
        }
        true
    }

    fn pop(&mut self) -> Option<StreamKey> {
        while self.occupied_levels != 0 {
            let urgency = self.occupied_levels.trailing_zeros() as usize;
            let level = self.levels.get_mut(urgency)?;
            let (queue, turn) = match level.turn {
                Turn::Sequential if !level.sequential.is_empty() => {
                    (&mut level.sequential, Turn::Incremental)
                }
                Turn::Incremental if level.incremental.is_empty() => {
                    (&mut level.sequential, Turn::Incremental)
                }
                Turn::Sequential | Turn::Incremental => (&mut level.incremental, Turn::Sequential),
            };
            let next = queue.pop_front();
            level.turn = turn;
            if level.is_empty() {
                self.occupied_levels &= !(1 << urgency);
            }
            if let Some((_, key)) = next {
                return Some(key);
            }
        }
        None
    }
}
