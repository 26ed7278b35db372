//! A constant rate with a drop-tail queue.

use std::time::Duration;

use super::{NumberedPacket, check_log, drain, micros, new_link, new_logged_link, spec};
use crate::{EnqueueResult, Link, Rate, Time};

#[test]
fn a_lone_packet_arrives_after_serialisation_and_delay() {
    // 1,500 bytes at 10 Mbit/s are 1.2 ms.
    let mut link = new_link(spec(Rate::mbit(10), 25, 10));
    assert_eq!(link.next_pop_at(), None);
    assert_eq!(link.enqueue(micros(100), NumberedPacket(0, 1500)), EnqueueResult::Accepted);
    assert_eq!(link.next_pop_at(), Some(micros(26_300)));
    assert_eq!(link.pop(micros(26_299)), None);
    assert_eq!(link.pop(micros(26_300)).map(|a| a.packet.0), Some(0));
    assert_eq!(link.next_pop_at(), None);
}

#[test]
fn a_busy_link_has_exactly_its_rate() {
    // The serialisation time is not a whole number of nanoseconds.
    let rate = Rate::bits_per_second(7_777_777);
    let mut link = new_link(spec(rate, 0, usize::MAX));
    let packets = 50_000_u32;
    for number in 0..packets {
        assert_eq!(link.enqueue(Time::ZERO, NumberedPacket(number, 1500)), EnqueueResult::Accepted);
    }
    let last = drain(&mut link).last().copied().unwrap();
    let bits = u128::from(packets) * 1500 * 8;
    let exact = bits * 1_000_000_000 / u128::from(rate.as_bits_per_second());
    assert_eq!(u128::from(last.due.as_nanos()), exact);
}

#[test]
fn a_late_caller_does_not_slow_the_link() {
    let feed = |link: &mut Link<NumberedPacket>| {
        for number in 0..100 {
            assert_eq!(
                link.enqueue(Time::ZERO, NumberedPacket(number, 1000)),
                EnqueueResult::Accepted
            );
        }
    };
    let mut punctual_link = new_link(spec(Rate::mbit(8), 5, 1_000));
    feed(&mut punctual_link);
    let mut late_link = new_link(spec(Rate::mbit(8), 5, 1_000));
    feed(&mut late_link);

    let mut deliveries = Vec::new();
    while let Some(at) = late_link.next_pop_at() {
        let poll_time = at + Duration::from_millis(7);
        while let Some(delivery) = late_link.pop(poll_time) {
            deliveries.push(delivery);
        }
    }
    assert_eq!(deliveries, drain(&mut punctual_link));
}

#[test]
fn the_queue_limit_excludes_the_packet_on_the_wire() {
    let mut link = new_logged_link(spec(Rate::mbit(10), 0, 3));
    let results: Vec<_> =
        (0..6).map(|number| link.enqueue(Time::ZERO, NumberedPacket(number, 1500))).collect();
    assert_eq!(results[..4], [EnqueueResult::Accepted; 4]);
    assert_eq!(results[4], EnqueueResult::Dropped(NumberedPacket(4, 1500)));
    assert_eq!(results[5], EnqueueResult::Dropped(NumberedPacket(5, 1500)));
    assert_eq!(link.queue_packets(), 3);

    // The first packet has left the wire after 1.2 ms: one place in the queue is free, not two.
    assert_eq!(link.enqueue(micros(1_200), NumberedPacket(6, 40)), EnqueueResult::Accepted);
    assert!(matches!(
        link.enqueue(micros(1_200), NumberedPacket(7, 40)),
        EnqueueResult::Dropped(_)
    ));

    let numbers: Vec<_> = drain(&mut link).iter().map(|delivery| delivery.packet.0).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 6]);
    let counters = link.counters();
    assert_eq!((counters.delivered_packets, counters.dropped_packets), (5, 3));
    assert_eq!((counters.delivered_bytes, counters.max_queue_packets), (6_040, 3));
}

#[test]
fn the_queue_can_be_limited_in_bytes() {
    let mut spec_with_bytes = spec(Rate::mbit(10), 0, 1_000);
    spec_with_bytes.queue.bytes = Some(2_000);
    let mut link = new_link(spec_with_bytes);
    assert_eq!(link.enqueue(Time::ZERO, NumberedPacket(0, 1500)), EnqueueResult::Accepted);
    assert_eq!(link.enqueue(Time::ZERO, NumberedPacket(1, 1500)), EnqueueResult::Accepted);
    assert!(matches!(link.enqueue(Time::ZERO, NumberedPacket(2, 1500)), EnqueueResult::Dropped(_)));
    assert_eq!(link.enqueue(Time::ZERO, NumberedPacket(3, 500)), EnqueueResult::Accepted);
}

#[test]
fn an_idle_link_accepts_a_packet_at_any_limit() {
    let mut link = new_link(spec(Rate::mbit(1), 0, 0));
    assert_eq!(link.enqueue(Time::ZERO, NumberedPacket(0, 1500)), EnqueueResult::Accepted);
    assert!(matches!(
        link.enqueue(micros(11_999), NumberedPacket(1, 1500)),
        EnqueueResult::Dropped(_)
    ));
    assert_eq!(link.enqueue(micros(12_000), NumberedPacket(2, 1500)), EnqueueResult::Accepted);
}

#[test]
fn packets_of_mixed_sizes_at_mixed_times_keep_their_order() {
    let mut link = new_logged_link(spec(Rate::mbit(10), 10, 20));
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut now = Time::ZERO;
    let mut deliveries = Vec::new();
    for number in 0..20_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        now = now + Duration::from_micros(state % 1_200);
        let _ = link.enqueue(now, NumberedPacket(number, 40 + (state >> 32) as usize % 1_461));
        while let Some(delivery) = link.pop(now) {
            deliveries.push(delivery);
        }
    }
    deliveries.extend(drain(&mut link));

    assert!(deliveries.is_sorted_by(|a, b| a.packet.0 < b.packet.0));
    assert!(deliveries.is_sorted_by(|a, b| a.due <= b.due));
    let counters = link.counters();
    assert!(counters.dropped_packets > 0, "the queue was filled");
    assert_eq!(counters.delivered_packets + counters.dropped_packets, 20_000);
    check_log(link.log(), counters.delivered_packets);
}

#[test]
fn a_clock_that_steps_back_is_ignored() {
    let mut link = new_link(spec(Rate::mbit(10), 0, 10));
    assert_eq!(link.enqueue(micros(5_000), NumberedPacket(0, 1500)), EnqueueResult::Accepted);
    assert_eq!(link.enqueue(micros(1), NumberedPacket(1, 1500)), EnqueueResult::Accepted);
    let due: Vec<_> = drain(&mut link).iter().map(|delivery| delivery.due).collect();
    assert_eq!(due, [micros(6_200), micros(7_400)]);
}
