//! One direction of a link.

use std::collections::VecDeque;

use super::delays::Delays;
use super::log::DropReason;
use super::loss::Loss;
use super::queue::{Queue, Queued, Room};
use super::wire::Wire;
use super::{
    DirectionSpec, LinkCounters, LinkEvent, LinkEventKind, LinkLog, Packet, Ports, QueueLimit,
    SpecError, Time,
};

/// Dropped packets that are kept for [`Link::reclaim`].
const KEPT_DROPPED: usize = 64;

/// Whether the queue took a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict<P> {
    /// It waits, or is on the wire. A discipline or the wire may still lose it.
    Accepted,
    /// It was dropped. Here is the packet, so that its memory can be used again.
    Dropped(P),
}

/// A packet at the far end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When it was due; the caller is late by the time since.
    pub due: Time,
    /// The packet.
    pub packet: P,
}

/// One direction of a link.
///
/// Feed packets with [`enqueue`](Self::enqueue), call [`pop`](Self::pop) until
/// it gives `None`, and come back at [`next_event`](Self::next_event). A caller
/// that comes late gets the packets late, but what the link computes does not
/// change: a departure follows from the departure before it, not from the
/// moment of the call.
#[derive(Debug)]
pub struct Link<P, L = ()> {
    limit: QueueLimit,
    mtu: u64,
    wire: Wire,
    delays: Delays,
    loss: Loss,
    /// Waiting for the wire, none of them on it.
    queue: Queue<P>,
    queue_packets: usize,
    queue_bytes: u64,
    /// The last bit has a known time of departure; ordered by time of arrival.
    flight: VecDeque<Arrival<P>>,
    /// When the last bit of the last packet leaves.
    busy_until: Time,
    /// When the wire is free for the next packet.
    free_at: Time,
    /// The latest time seen; calls with an earlier one count as this.
    now: Time,
    counters: LinkCounters,
    /// What the queue dropped while it was asked for the next packet.
    dropping: Vec<Queued<P>>,
    dropped: Vec<P>,
    log: L,
}

impl<P: Packet> Link<P> {
    /// An idle link without a log. All that is random follows from `seed`.
    ///
    /// # Errors
    /// When a value of `spec` makes no sense, or its trace file cannot be read.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Result<Self, SpecError> {
        Self::with_log(spec, seed, ())
    }
}

impl<P: Packet, L: LinkLog> Link<P, L> {
    /// An idle link that tells `log` of each packet.
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

    /// Makes `now` the moment from which steps, traces, generated rates and
    /// changing delays are counted. A link that has not been told counts from
    /// [`Time::ZERO`]. Packets that are on their way stay on it.
    pub fn start_at(&mut self, now: Time) {
        self.advance(now);
        self.wire.start_at(self.now);
        self.delays.start_at(self.now);
        self.free_at = self.wire.ready(self.now.max(self.busy_until));
    }

    /// A packet comes to the link at `now`.
    pub fn enqueue(&mut self, now: Time, packet: P) -> Verdict<P> {
        self.advance(now);
        self.counters.offered_packets += 1;
        let (bytes, ports) = (packet.wire_size() as u64, packet.ports());
        if bytes > self.mtu {
            self.drop_packet(self.now, DropReason::TooBig, bytes, ports);
            return Verdict::Dropped(packet);
        }
        let idle = self.queue_packets == 0 && self.busy_until <= self.now;
        if !idle && !self.find_room(bytes) {
            self.drop_packet(self.now, DropReason::Full, bytes, ports);
            return Verdict::Dropped(packet);
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
        Verdict::Accepted
    }

    /// When to call [`pop`](Self::pop) next; `None` while the link is empty.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        match self.flight.front() {
            Some(arrival) => Some(arrival.due),
            None => (self.queue_packets > 0).then_some(self.free_at),
        }
    }

    /// The next packet that has arrived by `now`.
    pub fn pop(&mut self, now: Time) -> Option<Arrival<P>> {
        self.advance(now);
        if self.flight.front()?.due > self.now {
            return None;
        }
        let arrival = self.flight.pop_front()?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += arrival.packet.wire_size() as u64;
        Some(arrival)
    }

    /// A packet that was dropped after it had been accepted, so that its memory
    /// can be used again. Some are kept for this, the others are freed.
    pub fn reclaim(&mut self) -> Option<P> {
        self.dropped.pop()
    }

    /// Packets waiting for the wire.
    #[must_use]
    pub const fn queue_packets(&self) -> usize {
        self.queue_packets
    }

    /// Packets whose turn has come, and which have not arrived.
    #[must_use]
    pub fn packets_in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Bytes that a link which never lacks packets sends between two moments.
    #[must_use]
    pub fn capacity(&self, from: Time, to: Time) -> f64 {
        self.wire.capacity(from, to)
    }

    /// What it did so far.
    #[must_use]
    pub const fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// The log.
    #[must_use]
    pub const fn log(&self) -> &L {
        &self.log
    }

    /// Whether a packet may wait, if need be after others have given way.
    fn find_room(&mut self, bytes: u64) -> bool {
        while !self.has_room(bytes) {
            let Room::Made(item, reason) = self.queue.make_room() else { return false };
            self.discard(self.now, reason, item);
        }
        true
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.queue_packets < self.limit.packets
            && self.limit.bytes.is_none_or(|most| self.queue_bytes + bytes <= most)
    }

    /// Puts onto the wire every packet whose turn has come by `now`.
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
                self.flight.push_back(Arrival { due, packet });
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

    /// Takes a packet out of the count of the queue that has dropped it.
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
