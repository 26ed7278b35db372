//! The link in virtual time.

mod access;
mod constant;
mod disciplines;
mod files;
mod impaired;
mod outages;
mod rates;

use std::time::Duration;

use super::{
    Delivery, DirectionSpec, EnqueueResult, Link, LinkEvent, LinkEventKind, LinkLog, Packet,
    QueueLimit, Rate, Time,
};

/// Packets of this size are acknowledgements.
const ACK_BYTES: usize = 52;

/// A numbered packet of a given size. The number's last three digits are its flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NumberedPacket(u32, usize);

impl Packet for NumberedPacket {
    fn wire_size(&self) -> usize {
        self.1
    }

    fn is_bare_ack(&self) -> bool {
        self.1 == ACK_BYTES
    }

    fn flow_hash(&self, _perturbation: u64) -> u64 {
        u64::from(self.0 % 1_000)
    }
}

fn spec(rate: Rate, delay_ms: u64, queue: usize) -> DirectionSpec {
    DirectionSpec::new(rate, Duration::from_millis(delay_ms), QueueLimit::packets(queue))
}

fn new_link(spec: DirectionSpec) -> Link<NumberedPacket> {
    Link::new(&spec, 1).expect("a valid spec")
}

fn new_logged_link(spec: DirectionSpec) -> Link<NumberedPacket, Vec<LinkEvent>> {
    Link::with_log(&spec, 1, Vec::new()).expect("a valid spec")
}

fn micros(micros: u64) -> Time {
    Time::from_nanos(micros * 1_000)
}

/// Polls at each `next_pop_at` until the link is empty, like a caller that is never late.
fn drain<L: LinkLog>(link: &mut Link<NumberedPacket, L>) -> Vec<Delivery<NumberedPacket>> {
    let mut deliveries = Vec::new();
    while let Some(at) = link.next_pop_at() {
        while let Some(delivery) = link.pop(at) {
            assert_eq!(delivery.due, at, "delivered at the moment it was due");
            deliveries.push(delivery);
        }
    }
    deliveries
}

/// Offers packets to a link at their times, like a caller that is never late.
fn offer<L: LinkLog>(
    link: &mut Link<NumberedPacket, L>,
    packets: impl IntoIterator<Item = (Time, NumberedPacket)>,
) -> Vec<Delivery<NumberedPacket>> {
    let mut deliveries = Vec::new();
    for (at, packet) in packets {
        while let Some(delivery) = link.pop(at) {
            deliveries.push(delivery);
        }
        if let EnqueueResult::Dropped(returned) = link.enqueue(at, packet) {
            assert_eq!(returned.0, packet.0);
        }
    }
    deliveries.extend(drain(link));
    deliveries
}

/// Returns packets of `size` bytes at a constant `rate` from time 0 on.
fn flood(
    rate: Rate,
    size: usize,
    length: Duration,
    flow: u32,
) -> impl Iterator<Item = (Time, NumberedPacket)> {
    let gap = Duration::from_secs_f64(size as f64 * 8.0 / rate.as_bits_per_second() as f64);
    let count = length.as_nanos() / gap.as_nanos();
    (0..u32::try_from(count).expect("fits"))
        .map(move |index| (Time::ZERO + gap * index, NumberedPacket(index * 1_000 + flow, size)))
}

/// Asserts that the log is sorted by time and that its queue lengths follow from its events.
pub(super) fn check_log(log: &[LinkEvent], expected_dequeues: u64) {
    assert!(log.is_sorted_by(|a, b| a.at <= b.at));
    let (mut packets, mut bytes, mut dequeued) = (0_usize, 0_u64, 0);
    for event in log {
        match event.kind {
            LinkEventKind::Enqueue => (packets, bytes) = (packets + 1, bytes + event.bytes),
            LinkEventKind::Dequeue => {
                (packets, bytes) = (packets - 1, bytes - event.bytes);
                dequeued += 1;
            }
            LinkEventKind::Drop(reason) if reason.shortens_queue() => {
                (packets, bytes) = (packets - 1, bytes - event.bytes);
            }
            LinkEventKind::Drop(_) => {}
        }
        assert_eq!((event.queue_packets, event.queue_bytes), (packets, bytes));
    }
    assert_eq!(dequeued, expected_dequeues);
}
