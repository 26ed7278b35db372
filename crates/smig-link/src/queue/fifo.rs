//! First in, first out.

use std::collections::VecDeque;

use super::{Eviction, Queued};
use crate::log::DropReason;

#[derive(Debug)]
pub(crate) struct Fifo<P> {
    queue: VecDeque<Queued<P>>,
    full: WhenFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    DropTail,
    DropHead,
}

impl<P> Fifo<P> {
    pub(super) const fn drop_tail() -> Self {
        Self { queue: VecDeque::new(), full: WhenFull::DropTail }
    }

    pub(super) const fn drop_head() -> Self {
        Self { queue: VecDeque::new(), full: WhenFull::DropHead }
    }

    pub(super) fn push(&mut self, item: Queued<P>) {
        self.queue.push_back(item);
    }

    pub(super) fn pop(&mut self) -> Option<Queued<P>> {
        self.queue.pop_front()
    }

    pub(super) fn make_room(&mut self) -> Eviction<P> {
        match self.full {
            WhenFull::DropTail => Eviction::None,
            WhenFull::DropHead => {
                let oldest = self.queue.pop_front();
                oldest
                    .map_or(Eviction::None, |oldest| Eviction::Made(oldest, DropReason::PushedOut))
            }
        }
    }
}
