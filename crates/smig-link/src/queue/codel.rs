//! `CoDel`: drops packets to keep the standing queueing delay below a target.
//!
//! Rules and state names are from RFC 8289, section 5.

use std::collections::VecDeque;
use std::time::Duration;

use super::QueuedPacket;
use crate::{CoDelSpec, Time};

/// One queue with its control state.
#[derive(Debug)]
pub(crate) struct CoDelQueue<P> {
    queue: VecDeque<QueuedPacket<P>>,
    bytes: u64,
    control: CoDel,
}

/// The state of the control law.
#[derive(Debug, Clone)]
struct CoDel {
    spec: CoDelSpec,
    /// Size of the largest packet: a backlog up to this size is never dropped from.
    max_packet: u64,
    /// When the queueing delay will have been above the target for an interval.
    first_above_time: Option<Time>,
    /// Time of the next drop, in the dropping state.
    drop_next: Time,
    /// Drops in the dropping state; starts at the drops of the previous such state if that was
    /// recent, or at 1.
    count: u32,
    /// Value of `count` when the dropping state was entered.
    lastcount: u32,
    dropping: bool,
}

impl<P> CoDelQueue<P> {
    pub(super) const fn new(spec: CoDelSpec, max_packet: u64) -> Self {
        let control = CoDel {
            spec,
            max_packet,
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
            dropping: false,
        };
        Self { queue: VecDeque::new(), bytes: 0, control }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, item: QueuedPacket<P>) {
        self.bytes += item.bytes;
        self.queue.push_back(item);
    }

    /// Removes the oldest packet, without the control law.
    pub(super) fn take_head(&mut self) -> Option<QueuedPacket<P>> {
        let item = self.queue.pop_front()?;
        self.bytes -= item.bytes;
        Some(item)
    }

    /// Dequeues a packet (section 5.5).
    pub(super) fn pop(
        &mut self,
        now: Time,
        dropped: &mut Vec<QueuedPacket<P>>,
    ) -> Option<QueuedPacket<P>> {
        let (mut item, mut may_drop) = self.dodequeue(now)?;
        if self.control.dropping {
            if !may_drop {
                self.control.dropping = false;
            }
            while self.control.dropping && now >= self.control.drop_next {
                dropped.push(item);
                self.control.count += 1;
                let Some(next) = self.dodequeue(now) else {
                    self.control.dropping = false;
                    return None;
                };
                (item, may_drop) = next;
                if may_drop {
                    self.control.drop_next = self.control.control_law(self.control.drop_next);
                } else {
                    self.control.dropping = false;
                }
            }
        } else if may_drop {
            dropped.push(item);
            let next = self.dodequeue(now);
            self.control.begin_dropping(now);
            item = next?.0;
        }
        Some(item)
    }

    /// Returns the next packet, and whether it may be dropped (section 5.6).
    fn dodequeue(&mut self, now: Time) -> Option<(QueuedPacket<P>, bool)> {
        let Some(item) = self.take_head() else {
            self.control.first_above_time = None;
            self.control.dropping = false;
            return None;
        };
        let may_drop = self.control.ok_to_drop(now, now.since(item.enqueued_at), self.bytes);
        Some((item, may_drop))
    }
}

impl CoDel {
    /// Returns whether the queueing delay has been above the target for an interval.
    fn ok_to_drop(&mut self, now: Time, waited: Duration, bytes_left: u64) -> bool {
        if waited < self.spec.target || bytes_left <= self.max_packet {
            self.first_above_time = None;
            return false;
        }
        match self.first_above_time {
            None => {
                self.first_above_time = Some(now + self.spec.interval);
                false
            }
            Some(first_above_time) => now >= first_above_time,
        }
    }

    /// Enters the dropping state (section 5.5), at the previous drop rate if that state was recent.
    fn begin_dropping(&mut self, now: Time) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.lastcount);
        let recent = now.since(self.drop_next) < self.spec.interval * 16;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
    }

    /// The control law (section 5.6): the square root makes TCP throughput fall linearly.
    fn control_law(&self, at: Time) -> Time {
        at + self.spec.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}
