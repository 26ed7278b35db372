//! Queue disciplines, without a clock.
//!
//! A queue decides which packet is sent next and which are dropped; the
//! [`Link`](super::Link) counts, enforces limits and logs. Every discipline
//! preserves the order of a flow's packets.

mod codel;
mod fifo;
mod fq_codel;

use self::codel::CoDelQueue;
use self::fifo::Fifo;
use self::fq_codel::FqCodelQueue;
use super::log::DropReason;
use super::{Packet, Ports, Qdisc, Time};

/// A queued packet.
#[derive(Debug)]
pub(super) struct QueuedPacket<P> {
    pub(super) packet: P,
    pub(super) bytes: u64,
    pub(super) ports: Ports,
    /// When it was enqueued.
    pub(super) enqueued_at: Time,
}

/// The queue of one direction, by discipline.
#[derive(Debug)]
pub(super) enum Queue<P> {
    /// Drop-tail and drop-head: they differ in which packet is dropped.
    Fifo(Fifo<P>),
    CoDel(CoDelQueue<P>),
    FqCodel(Box<FqCodelQueue<P>>),
}

/// The packet that a full queue drops for a new one.
#[derive(Debug)]
pub(super) enum Eviction<P> {
    /// None: the new packet is dropped.
    None,
    /// This packet, for this reason.
    Evicted(QueuedPacket<P>, DropReason),
}

impl<P: Packet> Queue<P> {
    pub(super) fn new(discipline: Qdisc, max_packet: u64, seed: u64) -> Self {
        match discipline {
            Qdisc::DropTail => Self::Fifo(Fifo::drop_tail()),
            Qdisc::DropHead => Self::Fifo(Fifo::drop_head()),
            Qdisc::CoDel(spec) => Self::CoDel(CoDelQueue::new(spec, max_packet)),
            Qdisc::FqCodel(spec) => {
                Self::FqCodel(Box::new(FqCodelQueue::new(spec, max_packet, seed)))
            }
        }
    }

    #[inline]
    pub(super) fn push(&mut self, item: QueuedPacket<P>) {
        match self {
            Self::Fifo(fifo) => fifo.push(item),
            Self::CoDel(codel) => codel.push(item),
            Self::FqCodel(fq_codel) => fq_codel.push(item),
        }
    }

    /// Drops a packet to make room for a new one, if the discipline does so.
    pub(super) fn evict(&mut self) -> Eviction<P> {
        match self {
            Self::Fifo(fifo) => fifo.evict(),
            Self::CoDel(_) => Eviction::None,
            Self::FqCodel(fq_codel) => fq_codel.evict(),
        }
    }

    /// Removes the packet to send at `now`. Packets dropped before it are
    /// appended to `dropped`, in queue order.
    #[inline]
    pub(super) fn pop(
        &mut self,
        now: Time,
        dropped: &mut Vec<QueuedPacket<P>>,
    ) -> Option<QueuedPacket<P>> {
        match self {
            Self::Fifo(fifo) => fifo.pop(),
            Self::CoDel(codel) => codel.pop(now, dropped),
            Self::FqCodel(fq_codel) => fq_codel.pop(now, dropped),
        }
    }
}
