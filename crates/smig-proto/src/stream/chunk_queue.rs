//! Queued body. The first chunk needs no allocation: most responses have only one.

use std::collections::VecDeque;

use bytes::Bytes;

/// Chunks of a body, none of them empty.
#[derive(Debug, Default)]
pub(super) struct ChunkQueue {
    /// Empty if the queue is.
    first: Bytes,
    further: VecDeque<Bytes>,
}

impl ChunkQueue {
    pub(super) fn push_back(&mut self, chunk: Bytes) {
        if self.first.is_empty() {
            self.first = chunk;
        } else {
            self.further.push_back(chunk);
        }
    }

    pub(super) fn push_front(&mut self, chunk: Bytes) {
        let former_first = core::mem::replace(&mut self.first, chunk);
        if !former_first.is_empty() {
            self.further.push_front(former_first);
        }
    }

    /// Removes and returns the first chunk or, if it is longer, its first `limit` bytes. Returns
    /// `None` if the queue is empty.
    pub(super) fn take(&mut self, limit: usize) -> Option<Bytes> {
        if self.first.is_empty() {
            return None;
        }
        if self.first.len() > limit {
            return Some(self.first.split_to(limit));
        }
        let next = self.further.pop_front().unwrap_or_default();
        Some(core::mem::replace(&mut self.first, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut ChunkQueue, limit: usize) -> Vec<Bytes> {
        std::iter::from_fn(|| queue.take(limit)).collect()
    }

    #[test]
    fn chunks_leave_in_order_and_at_most_as_long_as_asked_for() {
        let mut queue = ChunkQueue::default();
        for chunk in ["b", "cd", "e"] {
            queue.push_back(Bytes::from_static(chunk.as_bytes()));
        }
        queue.push_front(Bytes::from_static(b"a"));
        assert_eq!(drain(&mut queue, 1), ["a", "b", "c", "d", "e"]);
        queue.push_front(Bytes::from_static(b"fg"));
        queue.push_back(Bytes::from_static(b"h"));
        assert_eq!(drain(&mut queue, 2), ["fg", "h"]);
    }
}
