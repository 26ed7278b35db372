//! Flow queueing: one queue per flow, served round robin, each kept short by `CoDel`.
//!
//! RFC 8290: flows are hashed to queues; a new queue is served before the old
//! ones, once; each round serves a quantum of bytes. At the limit, the oldest
//! packet of the longest queue is dropped: one packet at a time, not a batch
//! as in the RFC, which only saves processing time.

use std::collections::VecDeque;

use super::codel::CoDelQueue;
use super::{Eviction, QueuedPacket};
use crate::log::DropReason;
use crate::random::{Purpose, SplitMix64};
use crate::{FqCodelSpec, Packet, Time};

#[derive(Debug)]
pub(crate) struct FqCodelQueue<P> {
    spec: FqCodelSpec,
    perturbation: u64,
    flows: Vec<Flow<P>>,
    /// Queued bytes by flow; separate from `flows` for a fast search.
    backlogs: Vec<u64>,
    new_flows: VecDeque<usize>,
    old_flows: VecDeque<usize>,
}

#[derive(Debug)]
struct Flow<P> {
    queue: CoDelQueue<P>,
    /// Bytes that the flow may still send in this round.
    credit: i64,
    is_listed: bool,
}

/// The list a flow is in. New flows are served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    New,
    Old,
}

impl<P: Packet> FqCodelQueue<P> {
    pub(super) fn new(spec: FqCodelSpec, max_packet: u64, seed: u64) -> Self {
        let flow = || Flow {
            queue: CoDelQueue::new(spec.codel(), max_packet),
            credit: 0,
            is_listed: false,
        };
        Self {
            spec,
            perturbation: SplitMix64::for_purpose(seed, Purpose::Flows).next_u64(),
            flows: (0..spec.flows).map(|_| flow()).collect(),
            backlogs: vec![0; spec.flows],
            new_flows: VecDeque::new(),
            old_flows: VecDeque::new(),
        }
    }

    /// Enqueues a packet (section 4.1).
    pub(super) fn push(&mut self, item: QueuedPacket<P>) {
        let hash = item.packet.flow_hash(self.perturbation);
        let index = (hash % self.flows.len() as u64) as usize;
        self.backlogs[index] += item.bytes;
        let flow = &mut self.flows[index];
        flow.queue.push(item);
        if !flow.is_listed {
            flow.is_listed = true;
            flow.credit = i64::from(self.spec.quantum);
            self.new_flows.push_back(index);
        }
    }

    /// Drops the oldest packet of the longest queue (section 4.1).
    pub(super) fn evict(&mut self) -> Eviction<P> {
        let mut longest = 0;
        for (index, bytes) in self.backlogs.iter().enumerate() {
            if *bytes > self.backlogs[longest] {
                longest = index;
            }
        }
        let Some(item) = self.flows[longest].queue.take_head() else { return Eviction::None };
        self.backlogs[longest] -= item.bytes;
        Eviction::Evicted(item, DropReason::PushedOut)
    }

    /// Dequeues a packet (section 4.2).
    pub(super) fn pop(
        &mut self,
        now: Time,
        dropped: &mut Vec<QueuedPacket<P>>,
    ) -> Option<QueuedPacket<P>> {
        loop {
            let (index, list) = match (self.new_flows.front(), self.old_flows.front()) {
                (Some(index), _) => (*index, List::New),
                (None, Some(index)) => (*index, List::Old),
                (None, None) => return None,
            };
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += i64::from(self.spec.quantum);
                self.move_to_old(list);
                continue;
            }
            let already_dropped = dropped.len();
            let item = flow.queue.pop(now, dropped);
            let dropped_bytes =
                dropped[already_dropped..].iter().map(|item| item.bytes).sum::<u64>();
            self.backlogs[index] -= dropped_bytes + item.as_ref().map_or(0, |item| item.bytes);
            let Some(item) = item else {
                self.unlist_empty(index, list);
                continue;
            };
            flow.credit -= i64::try_from(item.bytes).unwrap_or(i64::MAX);
            return Some(item);
        }
    }

    /// Unlists an empty flow. A new one moves to the end of the old list, if that
    /// is not empty, so that it does not become new again at once and starve the
    /// old flows.
    fn unlist_empty(&mut self, index: usize, list: List) {
        debug_assert!(self.flows[index].queue.is_empty());
        if list == List::New && !self.old_flows.is_empty() {
            self.move_to_old(list);
            return;
        }
        self.list(list).pop_front();
        self.flows[index].is_listed = false;
    }

    /// Moves the first flow of a list to the end of the old list.
    fn move_to_old(&mut self, from: List) {
        let index = self.list(from).pop_front();
        self.old_flows.extend(index);
    }

    const fn list(&mut self, list: List) -> &mut VecDeque<usize> {
        match list {
            List::New => &mut self.new_flows,
            List::Old => &mut self.old_flows,
        }
    }
}
