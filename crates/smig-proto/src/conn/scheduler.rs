//! Selects the stream that sends DATA next (RFC 9218 section 10): by urgency. Within one urgency,
//! sequential streams in ascending order of their IDs alternate with incremental ones in
//! round-robin order.
//!
//! Owns keys only. A stream that has an entry may have nothing to send any more, if its window was
//! reduced: the caller checks. Its entry is removed before it moves or ends.

use std::collections::VecDeque;

use crate::ids::StreamId;
use crate::invariant::DebugExpect;
use crate::priority::Priority;
use crate::stream::StreamKey;

#[derive(Debug, Default)]
struct Level {
    /// In ascending order of IDs.
    sequential: VecDeque<(StreamId, StreamKey)>,
    incremental: VecDeque<(StreamId, StreamKey)>,
    /// The queue that is next when both have streams, so that neither starves the other.
    turn: Turn,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Turn {
    #[default]
    Sequential,
    Incremental,
}

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    levels: [Level; 8],
    /// One bit for each level that may have streams; [`Scheduler::pop`] clears those of empty
    /// levels.
    occupied_levels: u8,
}

impl Scheduler {
    pub(crate) const fn is_empty(&self) -> bool {
        self.occupied_levels == 0
    }

    /// Returns the number of entries; for tests.
    pub(crate) fn len(&self) -> usize {
        self.levels.iter().map(|level| level.sequential.len() + level.incremental.len()).sum()
    }

    /// Adds a stream that has data to send.
    pub(crate) fn push(&mut self, id: StreamId, key: StreamKey, priority: Priority) {
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

    /// Removes a stream; returns whether it had an entry.
    pub(crate) fn remove(&mut self, key: StreamKey, priority: Priority) -> bool {
        let level = self.levels.get_mut(usize::from(priority.urgency()));
        let Some(level) = level.debug_expect("an urgency is below 8") else { return false };
        let queue =
            if priority.is_incremental() { &mut level.incremental } else { &mut level.sequential };
        let Some(index) = queue.iter().position(|&(_, other)| other == key) else { return false };
        queue.remove(index);
        true
    }

    /// Removes and returns the stream that is next.
    pub(crate) fn pop(&mut self) -> Option<StreamKey> {
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
            if let Some((_, key)) = queue.pop_front() {
                level.turn = turn;
                return Some(key);
            }
            self.occupied_levels &= !(1 << urgency);
        }
        None
    }
}
