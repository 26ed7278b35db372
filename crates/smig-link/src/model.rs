//! One direction of a link.

use std::collections::VecDeque;

use super::ack_thinning::AckThinning;
use super::delays::Delays;
use super::log::DropReason;
use super::loss::Loss;
use super::outage::Outages;
use super::policer::Policer;
use super::queue::{Eviction, Queue, QueuedPacket};
use super::transmitter::Transmitter;
use super::{
    DirectionCounters, DirectionSpec, LinkEvent, LinkEventKind, LinkLog, Packet, Ports, QueueLimit,
    SpecError, Time,
};

/// Maximum number of dropped packets held for [`Link::reclaim`].
const MAX_RECLAIMABLE: usize = 64;

/// Whether the link accepted a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum EnqueueResult<P> {
    /// It is queued or on the wire, or an acknowledgement that is held in front of the queue. It may
    /// still be dropped, or lost on the wire.
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
/// it returns `None`, and call it again at [`next_pop_at`](Self::next_pop_at). A
/// late caller receives packets late, but the computed times do not change: a
/// departure time follows from the departure before it, not from the time of
/// the call.
#[derive(Debug)]
pub struct Link<P, L = ()> {
    limit: QueueLimit,
    mtu: u64,
    policer: Option<Policer>,
    ack_thinning: Option<AckThinning<P>>,
    transmitter: Transmitter,
    delays: Delays,
    loss: Loss,
    outages: Outages,
    /// Packets waiting for the wire; the packet on the wire is not included.
    queue: Queue<P>,
    queue_packets: usize,
    queue_bytes: u64,
    /// Packets on the wire or propagating, ordered by arrival time.
    in_flight: VecDeque<Delivery<P>>,
    /// When the last bit of the last dequeued packet leaves.
    busy_until: Time,
    /// When the wire can take the next packet.
    free_at: Time,
    /// The latest time passed in; an earlier time in a later call is replaced by it.
    now: Time,
    counters: DirectionCounters,
    /// Packets that the queue dropped during the current dequeue; a buffer that is reused.
    dropped_by_queue: Vec<QueuedPacket<P>>,
    reclaimable: Vec<P>,
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
        let transmitter = spec.build_transmitter(seed)?;
        Ok(Self {
            limit: spec.queue,
            mtu: u64::from(spec.mtu),
            policer: spec.policer.map(Policer::new),
            ack_thinning: spec.ack_thinning.map(AckThinning::new),
            transmitter,
            delays: Delays::new(spec.delay, spec.jitter, spec.aggregation, seed),
            loss: Loss::new(spec.loss, seed),
            outages: Outages::new(spec.outages.clone()),
            queue: Queue::new(spec.discipline, u64::from(spec.mtu), seed),
            queue_packets: 0,
            queue_bytes: 0,
            in_flight: VecDeque::new(),
            busy_until: Time::ZERO,
            free_at: Time::ZERO,
            now: Time::ZERO,
            counters: DirectionCounters::default(),
            dropped_by_queue: Vec::new(),
            reclaimable: Vec::new(),
            log,
        })
    }

    /// Sets the origin of steps, traces, generated rates, outages and changing delays to
    /// `now`. Initially it is [`Time::ZERO`]. Packets in flight are not affected.
    pub fn start_at(&mut self, now: Time) {
        self.advance(now);
        self.transmitter.start_at(self.now);
        self.delays.start_at(self.now);
        self.outages.start_at(self.now);
        self.free_at = self.transmitter.earliest_start(self.now.max(self.busy_until));
    }

    /// Lets no outage begin until the next [`start_at`](Self::start_at): what sets up a run is not what an outage is to hit.
    pub const fn hold_back_outages(&mut self) {
        self.outages.hold_back();
    }

    /// Offers a packet to the link at `now`.
    pub fn enqueue(&mut self, now: Time, packet: P) -> EnqueueResult<P> {
        self.advance(now);
        self.counters.offered_packets += 1;
        let Some(thinning) = &mut self.ack_thinning else { return self.admit(packet) };
        let thinned = thinning.offer(self.now, packet);
        if let Some(packet) = thinned.superseded {
            let (bytes, ports) = (packet.wire_size() as u64, packet.ports());
            self.record_drop(self.now, DropReason::Thinned, bytes, ports);
            self.keep_for_reclaim(packet);
        }
        let mut result = EnqueueResult::Accepted;
        for packet in thinned.released.into_iter().flatten() {
            if let EnqueueResult::Dropped(packet) =
                std::mem::replace(&mut result, self.admit(packet))
            {
                self.keep_for_reclaim(packet);
            }
        }
        result
    }

    /// Offers a packet to policer and queue.
    fn admit(&mut self, packet: P) -> EnqueueResult<P> {
        let (bytes, ports) = (packet.wire_size() as u64, packet.ports());
        if bytes > self.mtu {
            self.record_drop(self.now, DropReason::TooBig, bytes, ports);
            return EnqueueResult::Dropped(packet);
        }
        if let Some(policer) = &mut self.policer
            && !policer.conforms(self.now, bytes)
        {
            self.record_drop(self.now, DropReason::Policed, bytes, ports);
            return EnqueueResult::Dropped(packet);
        }
        let is_idle = self.queue_packets == 0 && self.busy_until <= self.now;
        if !is_idle && !self.make_room(bytes) {
            self.record_drop(self.now, DropReason::Full, bytes, ports);
            return EnqueueResult::Dropped(packet);
        }
        if is_idle {
            self.free_at = self.transmitter.earliest_start(self.now);
        }
        self.queue_bytes += bytes;
        self.queue_packets += 1;
        self.queue.push(QueuedPacket { packet, bytes, ports, enqueued_at: self.now });
        self.record(self.now, LinkEventKind::Enqueue, bytes, ports);
        if is_idle {
            self.dequeue_until(self.now);
        }
        self.counters.max_queue_packets = self.counters.max_queue_packets.max(self.queue_packets);
        EnqueueResult::Accepted
    }

    /// Returns when to call [`pop`](Self::pop) next; `None` while the link is empty.
    #[must_use]
    pub fn next_pop_at(&self) -> Option<Time> {
        match self.in_flight.front() {
            // What is queued or held arrives later.
            Some(arrival) => Some(arrival.due),
            None => {
                let dequeue_at = (self.queue_packets > 0).then_some(self.free_at);
                let release_at = self.ack_thinning.as_ref().and_then(AckThinning::next_due);
                dequeue_at.into_iter().chain(release_at).min()
            }
        }
    }

    /// Returns the next packet that has arrived by `now`.
    pub fn pop(&mut self, now: Time) -> Option<Delivery<P>> {
        self.advance(now);
        if self.in_flight.front()?.due > self.now {
            return None;
        }
        let delivery = self.in_flight.pop_front()?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += delivery.packet.wire_size() as u64;
        Some(delivery)
    }

    /// Returns a packet that was dropped after it had been accepted, so that its
    /// memory can be reused. A limited number of them is held.
    pub fn reclaim(&mut self) -> Option<P> {
        self.reclaimable.pop()
    }

    /// Returns the number of packets waiting for the wire.
    #[must_use]
    pub const fn queue_packets(&self) -> usize {
        self.queue_packets
    }

    /// Returns the number of packets that have left the queue and not been popped.
    #[must_use]
    pub fn packets_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the number of acknowledgements that are held in front of the queue.
    #[must_use]
    pub fn held_acks(&self) -> usize {
        self.ack_thinning.as_ref().map_or(0, AckThinning::len)
    }

    /// Returns the bytes that the link sends between two times if its queue is never empty.
    #[must_use]
    pub fn capacity_bytes(&self, from: Time, to: Time) -> f64 {
        self.transmitter.capacity_bytes(from, to)
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> DirectionCounters {
        self.counters
    }

    /// Returns the log.
    #[must_use]
    pub const fn log(&self) -> &L {
        &self.log
    }

    /// Drops packets until another fits, if the discipline does so. Returns whether it now fits.
    fn make_room(&mut self, bytes: u64) -> bool {
        while !self.has_room(bytes) {
            let Eviction::Evicted(item, reason) = self.queue.evict() else { return false };
            self.discard(self.now, reason, item);
        }
        true
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.queue_packets < self.limit.packets
            && self.limit.bytes.is_none_or(|max| self.queue_bytes + bytes <= max)
    }

    /// Brings the state up to `now`: releases held acknowledgements that are due, and dequeues.
    fn advance(&mut self, now: Time) {
        while let Some(due) = self.ack_thinning.as_ref().and_then(AckThinning::next_due)
            && due <= now
        {
            self.dequeue_until(due);
            let released = self.ack_thinning.as_mut().and_then(AckThinning::pop);
            if let Some(EnqueueResult::Dropped(packet)) = released.map(|packet| self.admit(packet))
            {
                self.keep_for_reclaim(packet);
            }
        }
        self.dequeue_until(now);
    }

    /// Dequeues every packet whose transmission starts by `now`.
    fn dequeue_until(&mut self, now: Time) {
        self.now = self.now.max(now);
        while self.queue_packets > 0 && self.free_at <= self.now {
            let at = self.free_at;
            let item = self.queue.pop(at, &mut self.dropped_by_queue);
            self.discard_dropped(at);
            let Some(QueuedPacket { packet, bytes, ports, .. }) = item else { return };
            self.queue_packets -= 1;
            self.queue_bytes -= bytes;
            self.record(at, LinkEventKind::Dequeue, bytes, ports);
            self.busy_until = self.transmitter.transmit(at, bytes);
            self.free_at = self.transmitter.earliest_start(self.busy_until);
            let loss = self.loss.next_is_lost().then_some(DropReason::Lost);
            let loss = self.outages.include(self.busy_until).then_some(DropReason::Outage).or(loss);
            if let Some(reason) = loss {
                self.record_drop(at, reason, bytes, ports);
                self.keep_for_reclaim(packet);
            } else {
                let due = self.delays.arrival(self.busy_until);
                self.in_flight.push_back(Delivery { due, packet });
            }
        }
    }

    fn discard_dropped(&mut self, at: Time) {
        if self.dropped_by_queue.is_empty() {
            return;
        }
        let mut dropped = std::mem::take(&mut self.dropped_by_queue);
        for item in dropped.drain(..) {
            self.discard(at, DropReason::CoDel, item);
        }
        self.dropped_by_queue = dropped;
    }

    /// Accounts for a packet that the queue has dropped.
    fn discard(&mut self, at: Time, reason: DropReason, item: QueuedPacket<P>) {
        self.queue_packets -= 1;
        self.queue_bytes -= item.bytes;
        self.record_drop(at, reason, item.bytes, item.ports);
        self.keep_for_reclaim(item.packet);
    }

    fn record_drop(&mut self, at: Time, reason: DropReason, bytes: u64, ports: Ports) {
        self.counters.count_drop(reason);
        self.record(at, LinkEventKind::Drop(reason), bytes, ports);
    }

    fn keep_for_reclaim(&mut self, packet: P) {
        if self.reclaimable.len() < MAX_RECLAIMABLE {
            self.reclaimable.push(packet);
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
