//! What waits for the wire: queue disciplines, without time of their own.
//!
//! A queue says which packet goes next and which are dropped; the
//! [`Link`](super::Link) counts, bounds and logs. Packets of a flow keep their
//! order in every discipline.

mod codel;
mod fair;
mod fifo;

use self::codel::CoDelQueue;
use self::fair::FairQueue;
use self::fifo::Fifo;
use super::log::DropReason;
use super::{Discipline, Packet, Ports, Time};

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Queued<P> {
    pub(super) packet: P,
    pub(super) bytes: u64,
    pub(super) ports: Ports,
    /// When it came.
    pub(super) since: Time,
}

/// The packets that wait, in the order of a discipline.
#[derive(Debug)]
pub(super) enum Queue<P> {
    /// Also drop-head: the difference is in who gives way.
    Fifo(Fifo<P>),
    CoDel(CoDelQueue<P>),
    Fair(Box<FairQueue<P>>),
}

/// What a queue gives way with when it is full.
#[derive(Debug)]
pub(super) enum Room<P> {
    /// Nothing: it is the new packet that goes.
    None,
    /// This one, for that reason.
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

    /// Asks for room for a packet that found the queue full.
    pub(super) fn make_room(&mut self) -> Room<P> {
        match self {
            Self::Fifo(fifo) => fifo.make_room(),
            Self::CoDel(_) => Room::None,
            Self::Fair(fair) => fair.make_room(),
        }
    }

    /// The packet that goes onto the wire at `now`. Packets that are dropped
    /// instead are appended to `dropped`, in their order.
    #[inline]
    pub(super) fn pop(&mut self, now: Time, dropped: &mut Vec<Queued<P>>) -> Option<Queued<P>> {
        match self {
            Self::Fifo(fifo) => fifo.pop(),
            Self::CoDel(codel) => codel.pop(now, dropped),
            Self::Fair(fair) => fair.pop(now, dropped),
        }
    }
}
