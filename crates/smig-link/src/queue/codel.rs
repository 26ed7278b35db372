//! `CoDel`: drops packets to keep the standing queueing delay below a target.
//!
//! Rules and state names are from RFC 8289, section 5.

use std::collections::VecDeque;
use std::time::Duration;

use super::Queued;
use crate::{CoDelSpec, Time};

/// One queue with its control state.
#[derive(Debug)]
pub(crate) struct CoDelQueue<P> {
    queue: VecDeque<Queued<P>>,
    bytes: u64,
    control: CoDel,
}

/// The state of the control law.
#[derive(Debug, Clone)]
struct CoDel {
    spec: CoDelSpec,
    /// Size of the largest packet: a backlog up to this size is never dropped from.
    largest: u64,
    /// When the queueing delay will have been above the target for an interval.
    first_above: Option<Time>,
    /// Time of the next drop, in the dropping state.
    drop_next: Time,
    /// Drops in the dropping state; starts at the previous state's drops if that was recent, or at 1.
    count: u32,
    /// Value of `count` when the dropping state was entered.
    last_count: u32,
    dropping: bool,
}

impl<P> CoDelQueue<P> {
    pub(super) const fn new(spec: CoDelSpec, largest: u64) -> Self {
        let control = CoDel {
            spec,
            largest,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        };
        Self { queue: VecDeque::new(), bytes: 0, control }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, item: Queued<P>) {
        self.bytes += item.bytes;
        self.queue.push_back(item);
    }

    /// Removes the oldest packet, without the control law.
    pub(super) fn take_head(&mut self) -> Option<Queued<P>> {
        let item = self.queue.pop_front()?;
        self.bytes -= item.bytes;
        Some(item)
    }

    /// Dequeues a packet (section 5.5).
    pub(super) fn pop(&mut self, now: Time, dropped: &mut Vec<Queued<P>>) -> Option<Queued<P>> {
        let (mut item, mut may_drop) = self.next(now)?;
        if self.control.dropping {
            if !may_drop {
                self.control.dropping = false;
            }
            while self.control.dropping && now >= self.control.drop_next {
                dropped.push(item);
                self.control.count += 1;
                let Some(next) = self.next(now) else {
                    self.control.dropping = false;
                    return None;
                };
                (item, may_drop) = next;
                if may_drop {
                    self.control.drop_next = self.control.law(self.control.drop_next);
                } else {
                    self.control.dropping = false;
                }
            }
        } else if may_drop {
            dropped.push(item);
            let next = self.next(now);
            self.control.begin_dropping(now);
            item = next?.0;
        }
        Some(item)
    }

    /// Returns the next packet, and whether it may be dropped (section 5.6, `dodequeue`).
    fn next(&mut self, now: Time) -> Option<(Queued<P>, bool)> {
        let Some(item) = self.take_head() else {
            self.control.first_above = None;
            self.control.dropping = false;
            return None;
        };
        let may_drop = self.control.is_bad(now, now.since(item.since), self.bytes);
        Some((item, may_drop))
    }
}

impl CoDel {
    /// Returns whether the queueing delay has been above the target for an interval.
    fn is_bad(&mut self, now: Time, waited: Duration, bytes_left: u64) -> bool {
        if waited < self.spec.target || bytes_left <= self.largest {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + self.spec.interval);
                false
            }
            Some(first_above) => now >= first_above,
        }
    }

    /// Enters the dropping state (section 5.5), at the previous drop rate if that state was recent.
    fn begin_dropping(&mut self, now: Time) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.since(self.drop_next) < self.spec.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.law(now);
        self.last_count = self.count;
    }

    /// The control law (section 5.6): the square root makes TCP throughput fall linearly.
    fn law(&self, at: Time) -> Time {
        at + self.spec.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}
