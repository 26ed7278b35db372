//! First in, first out.

use std::collections::VecDeque;

use super::{Eviction, QueuedPacket};
use crate::log::DropReason;

#[derive(Debug)]
pub(crate) struct Fifo<P> {
    queue: VecDeque<QueuedPacket<P>>,
    drop_policy: DropPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DropPolicy {
    DropTail,
    DropHead,
}

impl<P> Fifo<P> {
    pub(super) const fn drop_tail() -> Self {
        Self { queue: VecDeque::new(), drop_policy: DropPolicy::DropTail }
    }

    pub(super) const fn drop_head() -> Self {
        Self { queue: VecDeque::new(), drop_policy: DropPolicy::DropHead }
    }

    pub(super) fn push(&mut self, item: QueuedPacket<P>) {
        self.queue.push_back(item);
    }

    pub(super) fn pop(&mut self) -> Option<QueuedPacket<P>> {
        self.queue.pop_front()
    }

    pub(super) fn evict(&mut self) -> Eviction<P> {
        match self.drop_policy {
            DropPolicy::DropTail => Eviction::None,
            DropPolicy::DropHead => {
                let oldest = self.queue.pop_front();
                oldest.map_or(Eviction::None, |oldest| {
                    Eviction::Evicted(oldest, DropReason::PushedOut)
                })
            }
        }
    }
}
