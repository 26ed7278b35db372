//! Queue disciplines, without a clock.
//!
//! A queue decides which packet is sent next and which are dropped; the
//! [`Link`](super::Link) counts, enforces limits and logs. Every discipline
//! preserves the order of a flow's packets.

mod codel;
mod fair;
mod fifo;

use self::codel::CoDelQueue;
use self::fair::FairQueue;
use self::fifo::Fifo;
use super::log::DropReason;
use super::{Discipline, Packet, Ports, Time};

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
    Fair(Box<FairQueue<P>>),
}

/// The packet that a full queue drops for a new one.
#[derive(Debug)]
pub(super) enum Room<P> {
    /// None: the new packet is dropped.
    None,
    /// This packet, for this reason.
    Made(Queued<P>, DropReason),
}

impl<P: Packet> Queue<P> {
    pub(super) fn new(discipline: Discipline, largest: u64, seed: u64) -> Self {
        match discipline {
            Discipline::DropTail => Self::Fifo(Fifo::drop_tail()),
            Discipline::DropHead => Self::Fifo(Fifo::drop_head()),
            Discipline::CoDel(spec) => Self::CoDel(CoDelQueue::new(spec, largest)),
            Discipline::Fair(spec) => Self::Fair(Box::new(FairQueue::new(spec, largest, seed))),
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
    pub(super) fn make_room(&mut self) -> Room<P> {
        match self {
            Self::Fifo(fifo) => fifo.make_room(),
            Self::CoDel(_) => Room::None,
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
