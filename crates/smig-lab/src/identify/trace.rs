//! What a probe saw: the queue, and what the sender knew.

use serde::{Deserialize, Serialize};

/// Length of the queue after a packet came or left.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueuePoint {
    /// Seconds since the first full packet came.
    pub at_s: f64,
    /// Packets in the queue.
    pub packets: u32,
}

/// The sender's congestion window, by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowPoint {
    /// Seconds since the first full packet came into the queue.
    pub at_s: f64,
    /// Segments.
    pub segments: u32,
}

/// The queue during a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueTrace {
    /// Every change, in order of time.
    pub queue: Vec<QueuePoint>,
    /// When packets found the queue full, in seconds since the first full packet came.
    pub drops_s: Vec<f64>,
    /// The congestion window, each few milliseconds; empty if the sender is not on this machine.
    pub windows: Vec<WindowPoint>,
    /// Bytes of the object that arrived.
    pub received_bytes: u64,
}

impl QueueTrace {
    /// Returns the longest queue, and when it was first so long; zero without packets.
    #[must_use]
    pub fn longest(&self) -> QueuePoint {
        let none = QueuePoint { at_s: 0.0, packets: 0 };
        self.queue.iter().fold(
            none,
            |longest, point| {
                if point.packets > longest.packets { *point } else { longest }
            },
        )
    }

    /// Returns when the first packet was dropped.
    #[must_use]
    pub fn first_drop_s(&self) -> Option<f64> {
        self.drops_s.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_queue_is_where_it_was_first_so_long() {
        let at = |at_s, packets| QueuePoint { at_s, packets };
        let queue = vec![at(0.0, 1), at(0.5, 20), at(0.6, 19), at(0.7, 20)];
        let mut trace =
            QueueTrace { queue, drops_s: vec![], windows: vec![], received_bytes: 10_000 };
        assert_eq!(trace.longest(), at(0.5, 20));
        trace.queue.clear();
        assert_eq!(trace.longest(), at(0.0, 0));
    }
}
