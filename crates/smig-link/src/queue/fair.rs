//! Flow queueing: one queue per flow, served round robin, each kept short by `CoDel`.
//!
//! RFC 8290: flows are hashed to queues; a new queue is served before the old
//! ones, once; each round serves a quantum of bytes. At the limit, the oldest
//! packet of the longest queue is dropped: one packet at a time, not a batch
//! as in the RFC, where the batch only reduces the cost.

use std::collections::VecDeque;

use super::codel::CoDelQueue;
use super::{Eviction, Queued};
use crate::log::DropReason;
use crate::random::{Purpose, Random};
use crate::{FqCodelSpec, Packet, Time};

#[derive(Debug)]
pub(crate) struct FqCodelQueue<P> {
    spec: FqCodelSpec,
    perturbation: u64,
    flows: Vec<Flow<P>>,
    /// Queued bytes by flow; separate from `flows` for a fast search.
    backlogs: Vec<u64>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
}

#[derive(Debug)]
struct Flow<P> {
    queue: CoDelQueue<P>,
    /// Bytes that the flow may still send in this round.
    credit: i64,
    listed: bool,
}

/// The list a flow is in. New flows are served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    New,
    Old,
}

impl<P: Packet> FqCodelQueue<P> {
    pub(super) fn new(spec: FqCodelSpec, largest: u64, seed: u64) -> Self {
        let flow =
            || Flow { queue: CoDelQueue::new(spec.codel(), largest), credit: 0, listed: false };
        Self {
            spec,
            perturbation: Random::for_purpose(seed, Purpose::Flows).word(),
            flows: (0..spec.flows).map(|_| flow()).collect(),
            backlogs: vec![0; spec.flows],
            new: VecDeque::new(),
            old: VecDeque::new(),
        }
    }

    /// Enqueues a packet (section 4.1).
    pub(super) fn push(&mut self, item: Queued<P>) {
        let hash = item.packet.flow(self.perturbation);
        let index = (hash % self.flows.len() as u64) as usize;
        self.backlogs[index] += item.bytes;
        let flow = &mut self.flows[index];
        flow.queue.push(item);
        if !flow.listed {
            flow.listed = true;
            flow.credit = i64::from(self.spec.quantum);
            self.new.push_back(index);
        }
    }

    /// Drops the oldest packet of the longest queue (section 4.1).
    pub(super) fn make_room(&mut self) -> Eviction<P> {
        let mut fattest = 0;
        for (index, bytes) in self.backlogs.iter().enumerate() {
            if *bytes > self.backlogs[fattest] {
                fattest = index;
            }
        }
        let Some(item) = self.flows[fattest].queue.take_head() else { return Eviction::None };
        self.backlogs[fattest] -= item.bytes;
        Eviction::Made(item, DropReason::PushedOut)
    }

    /// Dequeues a packet (section 4.2).
    pub(super) fn pop(&mut self, now: Time, dropped: &mut Vec<Queued<P>>) -> Option<Queued<P>> {
        loop {
            let (index, list) = match (self.new.front(), self.old.front()) {
                (Some(index), _) => (*index, List::New),
                (None, Some(index)) => (*index, List::Old),
                (None, None) => return None,
            };
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += i64::from(self.spec.quantum);
                self.retire(list);
                continue;
            }
            let before = dropped.len();
            let item = flow.queue.pop(now, dropped);
            let gone = dropped[before..].iter().map(|item| item.bytes).sum::<u64>();
            self.backlogs[index] -= gone + item.as_ref().map_or(0, |item| item.bytes);
            let Some(item) = item else {
                self.has_nothing(index, list);
                continue;
            };
            flow.credit -= i64::try_from(item.bytes).unwrap_or(i64::MAX);
            return Some(item);
        }
    }

    /// Unlists an empty flow. A new one moves to the end of the old list, if that
    /// is not empty, so that it does not become new again at once and starve the
    /// old flows.
    fn has_nothing(&mut self, index: usize, list: List) {
        debug_assert!(self.flows[index].queue.is_empty());
        if list == List::New && !self.old.is_empty() {
            self.retire(list);
            return;
        }
        self.list(list).pop_front();
        self.flows[index].listed = false;
    }

    /// Moves the first flow of a list to the end of the old list.
    fn retire(&mut self, from: List) {
        let index = self.list(from).pop_front();
        self.old.extend(index);
    }

    const fn list(&mut self, list: List) -> &mut VecDeque<usize> {
        match list {
            List::New => &mut self.new,
            List::Old => &mut self.old,
        }
    }
}
