//! The receiving end of a connection: reassembly, in-order delivery, delayed and selective acknowledgements.

use std::collections::BTreeMap;
use std::time::Duration;

use smig_link::Time;

use crate::packet::{Ack, ByteRange, MAX_SACK_BLOCKS, MSS};

/// Linux: the shortest delay of an acknowledgement, which is what a steady flow gets.
const DELAYED_ACK_TIMEOUT: Duration = Duration::from_millis(40);
/// Linux acknowledges the first segments of a connection at once.
const QUICK_ACKS: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// All bytes before this number have been delivered to the application.
    delivered: u64,
    /// Ranges beyond a gap, by their start.
    out_of_order: BTreeMap<u64, u64>,
    /// Starts of the ranges that grew most recently, the latest first.
    recent: Vec<u64>,
    unacknowledged_bytes: u64,
    segment_count: u32,
    ack_at: Option<Time>,
}

impl Receiver {
    /// Returns the bytes delivered in order.
    pub(crate) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns when a delayed acknowledgement is due.
    pub(crate) const fn deadline(&self) -> Option<Time> {
        self.ack_at
    }

    /// Takes a segment; returns an acknowledgement if one is due at once.
    pub(crate) fn on_segment(&mut self, now: Time, range: ByteRange) -> Option<Ack> {
        let had_gap = !self.out_of_order.is_empty();
        let is_new = range.1 > self.delivered;
        if range.0 <= self.delivered {
            self.delivered = self.delivered.max(range.1);
            self.deliver_adjacent();
        } else {
            self.insert_out_of_order(range);
        }
        self.unacknowledged_bytes += range.1 - range.0;
        self.segment_count += 1;
        let at_once = had_gap || !is_new || !self.out_of_order.is_empty();
        if at_once || self.unacknowledged_bytes > MSS || self.segment_count <= QUICK_ACKS {
            return Some(self.acknowledge());
        }
        self.ack_at.get_or_insert(now + DELAYED_ACK_TIMEOUT);
        None
    }

    /// Returns the acknowledgement whose delay has ended.
    pub(crate) fn on_deadline(&mut self, now: Time) -> Option<Ack> {
        (self.ack_at? <= now).then(|| self.acknowledge())
    }

    fn acknowledge(&mut self) -> Ack {
        self.unacknowledged_bytes = 0;
        self.ack_at = None;
        let mut sacks = [(0, 0); MAX_SACK_BLOCKS];
        let blocks = self.recent.iter().filter_map(|start| self.out_of_order.get_key_value(start));
        for (slot, (&start, &end)) in sacks.iter_mut().zip(blocks) {
            *slot = (start, end);
        }
        Ack { cumulative: self.delivered, sacks }
    }

    fn deliver_adjacent(&mut self) {
        while let Some((&start, &end)) = self.out_of_order.first_key_value()
            && start <= self.delivered
        {
            self.delivered = self.delivered.max(end);
            self.out_of_order.remove(&start);
            self.recent.retain(|&recent| recent != start);
        }
    }

    fn insert_out_of_order(&mut self, (mut start, mut end): ByteRange) {
        if let Some((&before, &before_end)) = self.out_of_order.range(..=start).next_back()
            && before_end >= start
        {
            (start, end) = (before, end.max(before_end));
        }
        while let Some((&after, &after_end)) = self.out_of_order.range(start + 1..=end).next() {
            end = end.max(after_end);
            self.out_of_order.remove(&after);
            self.recent.retain(|&recent| recent != after);
        }
        self.out_of_order.insert(start, end);
        self.recent.retain(|&recent| recent != start);
        self.recent.insert(0, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_reported_until_they_are_filled() {
        let mut receiver = Receiver::default();
        let at = Time::ZERO;
        assert_eq!(receiver.on_segment(at, (0, 100)).map(|ack| ack.cumulative), Some(100));
        let ack = receiver.on_segment(at, (200, 300)).unwrap();
        assert_eq!((ack.cumulative, ack.sacks[0]), (100, (200, 300)));
        let ack = receiver.on_segment(at, (400, 500)).unwrap();
        assert_eq!(ack.sacks[..2], [(400, 500), (200, 300)]);
        let ack = receiver.on_segment(at, (300, 400)).unwrap();
        assert_eq!(ack.sacks[..2], [(200, 500), (0, 0)]);
        let ack = receiver.on_segment(at, (100, 200)).unwrap();
        assert_eq!((ack.cumulative, ack.sacks[0]), (500, (0, 0)));
    }
}
