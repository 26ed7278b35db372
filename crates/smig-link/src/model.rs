//! One direction of a link.

use std::collections::VecDeque;

use super::delays::Delays;
use super::log::DropReason;
use super::loss::Loss;
use super::queue::{Eviction, Queue, Queued};
use super::transmitter::Transmitter;
use super::{
    DirectionSpec, LinkCounters, LinkEvent, LinkEventKind, LinkLog, Packet, Ports, QueueLimit,
    SpecError, Time,
};

/// Maximum number of dropped packets kept for [`Link::reclaim`].
const KEPT_DROPPED: usize = 64;

/// Whether the queue accepted a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum EnqueueResult<P> {
    /// It is queued or on the wire. The discipline may still drop it, or the wire lose it.
    Accepted,
    /// It was dropped. Contains the packet, so that its memory can be reused.
    Dropped(P),
}

/// A packet at the far end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery<P> {
    /// The time it was due; the difference to the current time is the caller's lateness.
    pub due: Time,
    /// The packet.
    pub packet: P,
}

/// One direction of a link.
///
/// Add packets with [`enqueue`](Self::enqueue), call [`pop`](Self::pop) until
/// it returns `None`, and call it again at [`next_event`](Self::next_event). A
/// late caller receives packets late, but the computed times do not change: a
/// departure time follows from the departure before it, not from the time of
/// the call.
#[derive(Debug)]
pub struct Link<P, L = ()> {
    limit: QueueLimit,
    mtu: u64,
    wire: Transmitter,
    delays: Delays,
    loss: Loss,
    /// Packets waiting for the wire; the packet on the wire is not included.
    queue: Queue<P>,
    queue_packets: usize,
    queue_bytes: u64,
    /// Packets on the wire or propagating, ordered by arrival time.
    flight: VecDeque<Delivery<P>>,
    /// When the last bit of the last dequeued packet leaves.
    busy_until: Time,
    /// When the wire can take the next packet.
    free_at: Time,
    /// The latest time passed in; an earlier time in a later call is replaced by it.
    now: Time,
    counters: LinkCounters,
    /// Packets that the queue dropped during the current dequeue.
    dropping: Vec<Queued<P>>,
    dropped: Vec<P>,
    log: L,
}

impl<P: Packet> Link<P> {
    /// Creates an idle link without a log. `seed` determines all randomness.
    ///
    /// # Errors
    /// When a value of `spec` is invalid, or its trace file cannot be read.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Result<Self, SpecError> {
        Self::with_log(spec, seed, ())
    }
}

impl<P: Packet, L: LinkLog> Link<P, L> {
    /// Creates an idle link that reports each event to `log`.
    ///
    /// # Errors
    /// As [`Link::new`].
    pub fn with_log(spec: &DirectionSpec, seed: u64, log: L) -> Result<Self, SpecError> {
        let wire = spec.wire(seed)?;
        Ok(Self {
            limit: spec.queue,
            mtu: u64::from(spec.mtu),
            wire,
            delays: Delays::new(spec.delay, spec.jitter, seed),
            loss: Loss::new(spec.loss, seed),
            queue: Queue::new(spec.discipline, u64::from(spec.mtu), seed),
            queue_packets: 0,
            queue_bytes: 0,
            flight: VecDeque::new(),
            busy_until: Time::ZERO,
            free_at: Time::ZERO,
            now: Time::ZERO,
            counters: LinkCounters::default(),
            dropping: Vec::new(),
            dropped: Vec::new(),
            log,
        })
    }

    /// Sets the origin of steps, traces, generated rates and changing delays to
    /// `now`. Initially it is [`Time::ZERO`]. Packets in flight are not affected.
    pub fn start_at(&mut self, now: Time) {
        self.advance(now);
        self.wire.start_at(self.now);
        self.delays.start_at(self.now);
        self.free_at = self.wire.ready(self.now.max(self.busy_until));
    }

    /// Offers a packet to the link at `now`.
    pub fn enqueue(&mut self, now: Time, packet: P) -> EnqueueResult<P> {
        self.advance(now);
        self.counters.offered_packets += 1;
        let (bytes, ports) = (packet.wire_size() as u64, packet.ports());
        if bytes > self.mtu {
            self.drop_packet(self.now, DropReason::TooBig, bytes, ports);
            return EnqueueResult::Dropped(packet);
        }
        let idle = self.queue_packets == 0 && self.busy_until <= self.now;
        if !idle && !self.find_room(bytes) {
            self.drop_packet(self.now, DropReason::Full, bytes, ports);
            return EnqueueResult::Dropped(packet);
        }
        if idle {
            self.free_at = self.wire.ready(self.now);
        }
        self.queue_bytes += bytes;
        self.queue_packets += 1;
        self.queue.push(Queued { packet, bytes, ports, since: self.now });
        self.record(self.now, LinkEventKind::Enqueue, bytes, ports);
        if idle {
            self.advance(now);
        }
        self.counters.longest_queue = self.counters.longest_queue.max(self.queue_packets);
        EnqueueResult::Accepted
    }

    /// Returns when to call [`pop`](Self::pop) next; `None` while the link is empty.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        match self.flight.front() {
            Some(arrival) => Some(arrival.due),
            None => (self.queue_packets > 0).then_some(self.free_at),
        }
    }

    /// Returns the next packet that has arrived by `now`.
    pub fn pop(&mut self, now: Time) -> Option<Delivery<P>> {
        self.advance(now);
        if self.flight.front()?.due > self.now {
            return None;
        }
        let arrival = self.flight.pop_front()?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += arrival.packet.wire_size() as u64;
        Some(arrival)
    }

    /// Returns a packet that was dropped after it had been accepted, so that its
    /// memory can be reused. A limited number is kept for this.
    pub fn reclaim(&mut self) -> Option<P> {
        self.dropped.pop()
    }

    /// Returns the number of packets waiting for the wire.
    #[must_use]
    pub const fn queue_packets(&self) -> usize {
        self.queue_packets
    }

    /// Returns the number of packets that have left the queue and not been popped.
    #[must_use]
    pub fn packets_in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Returns the bytes that the link sends between two times if its queue is never empty.
    #[must_use]
    pub fn capacity(&self, from: Time, to: Time) -> f64 {
        self.wire.capacity(from, to)
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Returns the log.
    #[must_use]
    pub const fn log(&self) -> &L {
        &self.log
    }

    /// Returns whether a packet may be queued; first drops others if the discipline does so.
    fn find_room(&mut self, bytes: u64) -> bool {
        while !self.has_room(bytes) {
            let Eviction::Made(item, reason) = self.queue.make_room() else { return false };
            self.discard(self.now, reason, item);
        }
        true
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.queue_packets < self.limit.packets
            && self.limit.bytes.is_none_or(|most| self.queue_bytes + bytes <= most)
    }

    /// Dequeues every packet whose transmission starts by `now`.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while self.queue_packets > 0 && self.free_at <= self.now {
            let at = self.free_at;
            let item = self.queue.pop(at, &mut self.dropping);
            self.discard_dropped(at);
            let Some(Queued { packet, bytes, ports, .. }) = item else { return };
            self.queue_packets -= 1;
            self.queue_bytes -= bytes;
            self.record(at, LinkEventKind::Dequeue, bytes, ports);
            self.busy_until = self.wire.carry(at, bytes);
            self.free_at = self.wire.ready(self.busy_until);
            if self.loss.strikes() {
                self.drop_packet(at, DropReason::Lost, bytes, ports);
                self.keep(packet);
            } else {
                let due = self.delays.arrival(self.busy_until);
                self.flight.push_back(Delivery { due, packet });
            }
        }
    }

    fn discard_dropped(&mut self, at: Time) {
        if self.dropping.is_empty() {
            return;
        }
        let mut dropping = std::mem::take(&mut self.dropping);
        for item in dropping.drain(..) {
            self.discard(at, DropReason::CoDel, item);
        }
        self.dropping = dropping;
    }

    /// Accounts for a packet that the queue has dropped.
    fn discard(&mut self, at: Time, reason: DropReason, item: Queued<P>) {
        self.queue_packets -= 1;
        self.queue_bytes -= item.bytes;
        self.drop_packet(at, reason, item.bytes, item.ports);
        self.keep(item.packet);
    }

    fn drop_packet(&mut self, at: Time, reason: DropReason, bytes: u64, ports: Ports) {
        self.counters.count_drop(reason);
        self.record(at, LinkEventKind::Drop(reason), bytes, ports);
    }

    fn keep(&mut self, packet: P) {
        if self.dropped.len() < KEPT_DROPPED {
            self.dropped.push(packet);
        }
    }

    fn record(&mut self, at: Time, kind: LinkEventKind, bytes: u64, ports: Ports) {
        self.log.record(LinkEvent {
            at,
            kind,
            bytes,
            ports,
            queue_packets: self.queue_packets,
            queue_bytes: self.queue_bytes,
        });
    }
}
