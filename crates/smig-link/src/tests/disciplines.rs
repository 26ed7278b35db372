//! Queue disciplines: their invariants, and the properties that the RFCs state.

use std::time::Duration;

use super::{
    ACK_BYTES, NumberedPacket, check_log, drain, flood, micros, new_logged_link, offer, spec,
};
use crate::{
    AckThinningSpec, AggregationSpec, DirectionSpec, DropReason, EnqueueResult, GilbertElliott,
    JitterSpec, Link, LinkEvent, LinkEventKind, LossSpec, LteSpec, NormalJitter, Outage,
    PolicerSpec, Qdisc, QueueLimit, Rate, RateSpec, Time,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn spec_with(discipline: Qdisc, rate: Rate, queue: usize) -> DirectionSpec {
    DirectionSpec { discipline, ..spec(rate, 10, queue) }
}

#[test]
fn drop_head_keeps_the_newest() {
    let mut link = new_logged_link(spec_with(Qdisc::DropHead, Rate::mbit(12), 3));
    for number in 0..6 {
        assert_eq!(
            link.enqueue(Time::ZERO, NumberedPacket(number, 1_500)),
            EnqueueResult::Accepted
        );
    }
    assert_eq!(link.reclaim().map(|packet| packet.0), Some(2));
    let numbers: Vec<_> = drain(&mut link).iter().map(|delivery| delivery.packet.0).collect();
    // 0 is on the wire; 1 and 2 were displaced by 4 and 5.
    assert_eq!(numbers, [0, 3, 4, 5]);
    check_log(link.log(), 4);
    assert_eq!(link.counters().dropped_queue_full, 2);
}

/// Returns a generator of pseudorandom numbers below its argument, the same in every run.
fn pseudorandom_numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % bound
    }
}

/// A random link configuration.
fn random_spec(random_below: &mut impl FnMut(u64) -> u64) -> DirectionSpec {
    let discipline = [Qdisc::DropTail, Qdisc::DropHead, Qdisc::codel(), Qdisc::fq_codel()]
        [random_below(4) as usize];
    let rate = match random_below(3) {
        0 => RateSpec::Lte(LteSpec {
            seed: Some(random_below(99)),
            period_s: 3,
            ..LteSpec::default()
        }),
        _ => RateSpec::Constant(Rate::kbit(500 + random_below(20_000))),
    };
    let jitter =
        NormalJitter { deviation: ms(random_below(50)), redraw_interval: ms(random_below(30)) };
    let bursts =
        GilbertElliott { good_to_bad: 0.01, bad_to_good: 0.3, loss_bad: 0.9, loss_good: 0.0 };
    DirectionSpec {
        rate,
        delay: ms(random_below(60)),
        jitter: (random_below(2) == 0).then_some(JitterSpec::Normal(jitter)),
        loss: [None, Some(LossSpec::Random(0.05)), Some(LossSpec::Bursts(bursts))]
            [random_below(3) as usize],
        outages: Vec::from_iter(
            (random_below(3) == 0)
                .then(|| Outage { at: ms(random_below(100)), lasts: Some(ms(random_below(100))) }),
        ),
        queue: QueueLimit {
            packets: random_below(200) as usize,
            bytes: (random_below(2) == 0).then(|| 1 + random_below(100_000)),
            bdp: None,
        },
        discipline,
        aggregation: (random_below(3) == 0).then_some(AggregationSpec { min: ms(2), max: ms(8) }),
        policer: (random_below(3) == 0)
            .then_some(PolicerSpec { rate: Rate::mbit(5), burst_bytes: 15_000 }),
        ack_thinning: (random_below(3) == 0).then_some(AckThinningSpec { every: 4, hold: ms(5) }),
        mtu: 1_400,
    }
}

#[test]
fn every_link_keeps_flow_order_and_accounts_for_all_packets() {
    for seed in 1..=300_u64 {
        let mut random_below = pseudorandom_numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let spec = random_spec(&mut random_below);
        let mut link: Link<NumberedPacket, _> = Link::with_log(&spec, seed, Vec::new()).unwrap();
        let (mut now, mut deliveries) = (Time::ZERO, Vec::new());
        for number in 0..1_500_u32 {
            now = now + Duration::from_micros(random_below(3_000));
            let flow = random_below(5) as u32;
            let is_ack = random_below(3) == 0;
            let bytes = if is_ack { ACK_BYTES } else { 60 + random_below(1_360) as usize };
            let _ = link.enqueue(now, NumberedPacket(number * 1_000 + flow, bytes));
            // The caller polls at irregular times.
            if random_below(3) == 0 {
                deliveries.extend(std::iter::from_fn(|| link.pop(now)));
            }
            let counters = link.counters();
            let in_link =
                (link.queue_packets() + link.packets_in_flight() + link.held_acks()) as u64;
            assert_eq!(
                counters.offered_packets,
                counters.delivered_packets + counters.dropped_packets + in_link,
                "seed {seed}: {spec:?}"
            );
            let within_limit = link.queue_packets() <= spec.queue.packets.max(1);
            assert!(within_limit, "seed {seed}: {} queued, {spec:?}", link.queue_packets());
        }
        while let Some(at) = link.next_pop_at() {
            deliveries.extend(std::iter::from_fn(|| link.pop(at)));
        }
        assert!(deliveries.is_sorted_by(|a, b| a.due <= b.due), "seed {seed}");
        for flow in 0..5 {
            let flow_packets =
                deliveries.iter().filter(|delivery| delivery.packet.0 % 1_000 == flow);
            assert!(
                flow_packets.is_sorted_by(|a, b| a.packet.0 < b.packet.0),
                "seed {seed}, flow {flow}"
            );
        }
        let counters = link.counters();
        assert_eq!(deliveries.len() as u64, counters.delivered_packets);
        assert_eq!(link.queue_packets() + link.packets_in_flight(), 0);
        let left = counters.delivered_packets + counters.lost_packets + counters.outage_packets;
        check_log(link.log(), left);
        let is_drop = |event: &&LinkEvent| matches!(event.kind, LinkEventKind::Drop(_));
        let in_log = link.log().iter().filter(is_drop).count() as u64;
        assert_eq!(in_log, counters.dropped_packets, "seed {seed}");
    }
}

/// Runs a TCP-like source: it halves its window after drops, at most once per
/// round trip, and otherwise adds one packet per round trip.
fn run_responsive_source(spec: DirectionSpec, seconds: u64) -> (Vec<LinkEvent>, Vec<Duration>) {
    let round_trip = ms(100);
    let mut link = new_logged_link(spec);
    let (mut window, mut number) = (10.0_f64, 0_u32);
    let (mut now, mut checked_events, mut waits) = (Time::ZERO, 0, Vec::new());
    let mut last_halving = Time::ZERO;
    let end = Time::ZERO + Duration::from_secs(seconds);
    while now < end {
        let _ = link.enqueue(now, NumberedPacket(number, 1_500));
        number += 1;
        // Paced at one window per round trip, queueing delay included.
        let queueing = Duration::from_micros(1_200) * link.queue_packets() as u32;
        waits.push(queueing);
        now = now + (round_trip + queueing).div_f64(window);
        while link.pop(now).is_some() {}
        window += 1.0 / window;
        let is_drop = |event: &LinkEvent| matches!(event.kind, LinkEventKind::Drop(_));
        let log = link.log();
        if log[checked_events..].iter().any(is_drop) && now.since(last_halving) > round_trip {
            (window, last_halving) = ((window / 2.0).max(2.0), now);
        }
        checked_events = log.len();
    }
    (link.log().clone(), waits)
}

fn median(mut waits: Vec<Duration>) -> Duration {
    waits.sort_unstable();
    waits[waits.len() / 2]
}

#[test]
fn codel_keeps_the_queue_short_for_a_responsive_source() {
    let run = |discipline| run_responsive_source(spec_with(discipline, Rate::mbit(10), 1_000), 60);
    let (log, waits) = run(Qdisc::codel());
    let steady_state = waits[waits.len() / 4..].to_vec();
    let wait = median(steady_state);
    assert!(wait < ms(10), "median wait {wait:?}");
    let is_drop = |event: &&LinkEvent| event.kind == LinkEventKind::Drop(DropReason::CoDel);
    assert!(log.iter().filter(is_drop).count() > 10);
    // Halving without a standing queue keeps the link at least three quarters busy.
    let dequeued_bytes: u64 = log
        .iter()
        .filter(|event| event.kind == LinkEventKind::Dequeue)
        .map(|event| event.bytes)
        .sum();
    assert!(dequeued_bytes as f64 > 60.0 * 10e6 / 8.0 * 0.75, "{dequeued_bytes} bytes");

    let (_, waits) = run(Qdisc::DropTail);
    let drop_tail_wait = median(waits[waits.len() / 4..].to_vec());
    assert!(drop_tail_wait > wait * 10, "drop-tail {drop_tail_wait:?}, codel {wait:?}");
}

#[test]
fn codel_drops_at_the_times_of_its_control_law() {
    // An unresponsive source: the time between drops shrinks with the square root of their number.
    let mut link = new_logged_link(spec_with(Qdisc::codel(), Rate::mbit(12), 100_000));
    offer(&mut link, flood(Rate::mbit(24), 1_500, ms(3_000), 0));
    let drops: Vec<_> = link
        .log()
        .iter()
        .filter(|event| event.kind == LinkEventKind::Drop(DropReason::CoDel))
        .map(|event| event.at)
        .collect();
    // The queueing delay exceeds 5 ms after 10 ms (half of the packets are queued),
    // and the first drop is one interval later.
    let first_ms = drops[0].since(Time::ZERO).as_secs_f64() * 1e3;
    assert!((110.0..113.0).contains(&first_ms), "first drop at {first_ms} ms");
    let (mut next_drop, mut count) = (drops[0], 1_u32);
    for drop in &drops[1..100] {
        next_drop = next_drop + ms(100).div_f64(f64::from(count).sqrt());
        count += 1;
        let late = drop.since(next_drop);
        assert!(*drop >= next_drop && late <= ms(1), "drop {count}: {late:?} after its time");
    }
}

#[test]
fn codel_does_not_drop_from_a_short_queue() {
    // A permanent standing queue of 3 ms: below the target.
    let mut link = new_logged_link(spec_with(Qdisc::codel(), Rate::mbit(12), 1_000));
    for number in 0..3 {
        assert_eq!(
            link.enqueue(Time::ZERO, NumberedPacket(number, 1_500)),
            EnqueueResult::Accepted
        );
    }
    offer(&mut link, flood(Rate::mbit(12), 1_500, ms(5_000), 0));
    assert_eq!(link.counters().dropped_packets, 0);
}

#[test]
fn fq_codel_does_not_delay_a_sparse_flow() {
    // A flood at almost twice the rate, and a small packet every 20 ms.
    let sparse_packets =
        (0..100_u32).map(|n| (micros(500_000 + 20_137 * u64::from(n)), n * 1_000 + 7));
    let sparse_packets = sparse_packets.map(|(at, number)| (at, NumberedPacket(number, 200)));
    let run = |discipline| {
        let mut packets: Vec<_> =
            flood(Rate::kbit(23_100), 1_500, ms(3_000), 0).chain(sparse_packets.clone()).collect();
        packets.sort_by_key(|(at, _)| *at);
        let mut link = new_logged_link(spec_with(discipline, Rate::mbit(12), 200));
        let deliveries = offer(&mut link, packets);
        let mut waits: Vec<_> = deliveries
            .iter()
            .filter(|delivery| delivery.packet.0 % 1_000 == 7)
            .map(|delivery| {
                let sent = micros(500_000 + 20_137 * u64::from(delivery.packet.0 / 1_000));
                delivery.due.since(sent).saturating_sub(ms(10))
            })
            .collect();
        waits.sort_unstable();
        waits
    };
    let fq_codel_waits = run(Qdisc::fq_codel());
    assert_eq!(fq_codel_waits.len(), 100, "a packet of the sparse flow was dropped");
    // The residual time of the packet on the wire, and the serialisation time.
    assert!(fq_codel_waits[99] < Duration::from_micros(1_200), "{:?}", fq_codel_waits[99]);
    let drop_tail_waits = run(Qdisc::DropTail);
    assert!(
        drop_tail_waits.len() < 100 && drop_tail_waits[drop_tail_waits.len() / 2] > ms(150),
        "{} {drop_tail_waits:?}",
        drop_tail_waits.len()
    );
}

#[test]
fn fq_codel_gives_equal_bytes_to_greedy_flows() {
    let mut packets: Vec<_> = flood(Rate::mbit(12), 1_500, ms(4_000), 1)
        .chain(flood(Rate::mbit(12), 300, ms(4_000), 2))
        .chain(flood(Rate::mbit(24), 700, ms(4_000), 3))
        .collect();
    packets.sort_by_key(|(at, _)| *at);
    let mut link = new_logged_link(spec_with(Qdisc::fq_codel(), Rate::mbit(12), 300));
    let deliveries = offer(&mut link, packets);
    let bytes = [1, 2, 3].map(|flow| {
        let flow_packets = deliveries.iter().filter(|delivery| {
            delivery.packet.0 % 1_000 == flow && delivery.due < Time::ZERO + ms(4_000)
        });
        flow_packets.map(|delivery| delivery.packet.1).sum::<usize>() as f64
    });
    let mean = bytes.iter().sum::<f64>() / 3.0;
    assert!(bytes.iter().all(|bytes| (bytes / mean - 1.0).abs() < 0.03), "{bytes:?}");
}
