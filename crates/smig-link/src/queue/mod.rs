//! Queue disciplines, without a clock.
//!
//! A queue decides which packet is sent next and which are dropped; the
//! [`Link`](super::Link) counts, enforces limits and logs. Every discipline
//! preserves the order of a flow's packets.

mod codel;
mod fair;
mod fifo;

use self::codel::CoDelQueue;
use self::fair::FqCodelQueue;
use self::fifo::Fifo;
use super::log::DropReason;
use super::{Packet, Ports, Qdisc, Time};

/// A queued packet.
#[derive(Debug)]
pub(super) struct Queued<P> {
    pub(super) packet: P,
    pub(super) bytes: u64,
    pub(super) ports: Ports,
    /// When it was enqueued.
    pub(super) since: Time,
}

/// The queue of one direction, by discipline.
#[derive(Debug)]
pub(super) enum Queue<P> {
    /// Drop-tail and drop-head: they differ in which packet is dropped.
    Fifo(Fifo<P>),
    CoDel(CoDelQueue<P>),
    Fair(Box<FqCodelQueue<P>>),
}

/// The packet that a full queue drops for a new one.
#[derive(Debug)]
pub(super) enum Eviction<P> {
    /// None: the new packet is dropped.
    None,
    /// This packet, for this reason.
    Made(Queued<P>, DropReason),
}

impl<P: Packet> Queue<P> {
    pub(super) fn new(discipline: Qdisc, largest: u64, seed: u64) -> Self {
        match discipline {
            Qdisc::DropTail => Self::Fifo(Fifo::drop_tail()),
            Qdisc::DropHead => Self::Fifo(Fifo::drop_head()),
            Qdisc::CoDel(spec) => Self::CoDel(CoDelQueue::new(spec, largest)),
            Qdisc::FqCodel(spec) => Self::Fair(Box::new(FqCodelQueue::new(spec, largest, seed))),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, item: Queued<P>) {
        match self {
            Self::Fifo(fifo) => fifo.push(item),
            Self::CoDel(codel) => codel.push(item),
            Self::Fair(fair) => fair.push(item),
        }
    }

    /// Drops a packet, if the discipline does so, to make room for a new one.
    pub(super) fn make_room(&mut self) -> Eviction<P> {
        match self {
            Self::Fifo(fifo) => fifo.make_room(),
            Self::CoDel(_) => Eviction::None,
            Self::Fair(fair) => fair.make_room(),
        }
    }

    /// Removes the packet to send at `now`. Packets dropped before it are
    /// appended to `dropped`, in queue order.
    #[inline]
    pub(super) fn pop(&mut self, now: Time, dropped: &mut Vec<Queued<P>>) -> Option<Queued<P>> {
        match self {
            Self::Fifo(fifo) => fifo.pop(),
            Self::CoDel(codel) => codel.pop(now, dropped),
            Self::Fair(fair) => fair.pop(now, dropped),
        }
    }
}
