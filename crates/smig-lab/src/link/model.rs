//! One direction of a link.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DirectionSpec, LinkEvent, LinkEventKind, LinkLog, Time};

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// How many bytes of the wire's time a packet takes: its IP length.
pub trait WireSize {
    /// Bytes, from the first of the IP header to the last of the payload.
    fn wire_size(&self) -> usize;
}

impl WireSize for Vec<u8> {
    fn wire_size(&self) -> usize {
        self.len()
    }
}

/// Whether the queue took a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict<P> {
    /// It will arrive.
    Accepted,
    /// The queue was full. Here is the packet, so that its memory can be used again.
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

/// What a link did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Packets handed out at the far end.
    pub delivered_packets: u64,
    /// Bytes of those.
    pub delivered_bytes: u64,
    /// Packets that found the queue full.
    pub dropped_packets: u64,
    /// The longest the queue was, in packets.
    pub longest_queue: usize,
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
    spec: DirectionSpec,
    /// Waiting for the wire, none of them on it.
    queue: VecDeque<P>,
    queue_bytes: u64,
    /// The last bit has a known time of departure; ordered by time of arrival.
    flight: VecDeque<Arrival<P>>,
    /// When the wire is free for the next packet.
    free_at: Time,
    /// Bit-nanoseconds that the last departure was rounded down by.
    remainder: u128,
    /// The latest time seen; calls with an earlier one count as this.
    now: Time,
    counters: LinkCounters,
    log: L,
}

impl<P: WireSize> Link<P> {
    /// An idle link without a log.
    #[must_use]
    pub fn new(spec: DirectionSpec) -> Self {
        Self::with_log(spec, ())
    }
}

impl<P: WireSize, L: LinkLog> Link<P, L> {
    /// An idle link that tells `log` of each packet.
    #[must_use]
    pub fn with_log(spec: DirectionSpec, log: L) -> Self {
        Self {
            spec,
            queue: VecDeque::new(),
            queue_bytes: 0,
            flight: VecDeque::new(),
            free_at: Time::ZERO,
            remainder: 0,
            now: Time::ZERO,
            counters: LinkCounters::default(),
            log,
        }
    }

    /// A packet comes to the link at `now`.
    pub fn enqueue(&mut self, now: Time, packet: P) -> Verdict<P> {
        self.advance(now);
        let bytes = packet.wire_size() as u64;
        let idle = self.queue.is_empty() && self.free_at <= self.now;
        if !idle && !self.has_room(bytes) {
            self.counters.dropped_packets += 1;
            self.record(self.now, LinkEventKind::Drop, bytes);
            return Verdict::Dropped(packet);
        }
        if idle {
            self.free_at = self.now;
            self.remainder = 0;
        }
        self.queue_bytes += bytes;
        self.queue.push_back(packet);
        self.record(self.now, LinkEventKind::Enqueue, bytes);
        if idle {
            self.advance(now);
        }
        self.counters.longest_queue = self.counters.longest_queue.max(self.queue.len());
        Verdict::Accepted
    }

    /// When to call [`pop`](Self::pop) next; `None` while the link is empty.
    #[must_use]
    pub fn next_event(&self) -> Option<Time> {
        match self.flight.front() {
            Some(arrival) => Some(arrival.due),
            None => (!self.queue.is_empty()).then_some(self.free_at),
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

    /// Packets waiting for the wire.
    #[must_use]
    pub fn queue_packets(&self) -> usize {
        self.queue.len()
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

    fn has_room(&self, bytes: u64) -> bool {
        let limit = self.spec.queue;
        self.queue.len() < limit.packets
            && limit.bytes.is_none_or(|most| self.queue_bytes + bytes <= most)
    }

    /// Puts onto the wire every packet whose turn has come by `now`.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while self.free_at <= self.now
            && let Some(packet) = self.queue.pop_front()
        {
            let bytes = packet.wire_size() as u64;
            self.queue_bytes -= bytes;
            self.record(self.free_at, LinkEventKind::Dequeue, bytes);
            self.free_at = self.free_at + self.time_on_wire(bytes);
            self.flight.push_back(Arrival { due: self.free_at + self.spec.delay, packet });
        }
    }

    /// Carries what rounding cut off to the next packet, so that a busy link
    /// has exactly its rate.
    fn time_on_wire(&mut self, bytes: u64) -> Duration {
        let rate = u128::from(self.spec.rate.as_bits_per_second());
        let work = u128::from(bytes) * 8 * NANOS_PER_SECOND + self.remainder;
        self.remainder = work % rate;
        Duration::from_nanos(u64::try_from(work / rate).unwrap_or(u64::MAX))
    }

    fn record(&mut self, at: Time, kind: LinkEventKind, bytes: u64) {
        self.log.record(LinkEvent {
            at,
            kind,
            bytes,
            queue_packets: self.queue.len(),
            queue_bytes: self.queue_bytes,
        });
    }
}
