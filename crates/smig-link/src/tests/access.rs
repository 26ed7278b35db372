//! What access networks do: policers, aggregation, thinned acknowledgements, queues in bandwidth-delay products.

use std::time::Duration;

use super::{
    ACK_BYTES, NumberedPacket, drain, flood, micros, new_link, new_logged_link, offer, spec,
};
use crate::{
    AckThinningSpec, AggregationSpec, DirectionSpec, DropReason, LinkEventKind, LinkSpec, Packet,
    PolicerSpec, Rate,
};

#[test]
fn a_policer_passes_a_burst_and_then_its_rate() {
    let policer = PolicerSpec { rate: Rate::mbit(8), burst_bytes: 30_000 };
    let mut link =
        new_link(DirectionSpec { policer: Some(policer), ..spec(Rate::mbit(1_000), 1, 10_000) });
    // 10 s of 16 Mbit/s: the burst, and 10 s of 8 Mbit/s.
    offer(&mut link, flood(Rate::mbit(16), 1_000, Duration::from_secs(10), 0));
    let counters = link.counters();
    assert!((10_029..=10_031).contains(&counters.delivered_packets), "{counters:?}");
    assert_eq!(counters.policed_packets, counters.dropped_packets);
    assert_eq!(counters.offered_packets, counters.delivered_packets + counters.policed_packets);
    assert_eq!(counters.max_queue_packets, 0, "no queue");
}

#[test]
fn aggregated_packets_arrive_in_bursts_and_in_order_at_the_same_rate() {
    let aggregation =
        AggregationSpec { min: Duration::from_millis(2), max: Duration::from_millis(8) };
    let mut link = new_link(DirectionSpec {
        aggregation: Some(aggregation),
        ..spec(Rate::mbit(12), 10, 10_000)
    });
    // One packet each millisecond.
    let deliveries = offer(&mut link, flood(Rate::mbit(12), 1_500, Duration::from_secs(10), 0));
    assert_eq!(deliveries.len(), 10_000);
    assert!(deliveries.is_sorted_by(|a, b| a.packet.0 < b.packet.0 && a.due <= b.due));
    let bursts: Vec<_> = deliveries.chunk_by(|a, b| a.due == b.due).collect();
    assert!(bursts.iter().all(|burst| burst.len() <= 8), "at most 8 ms");
    assert!((1_800..2_200).contains(&bursts.len()), "5 ms on average: {}", bursts.len());
    let held = deliveries
        .iter()
        .zip(1_u64..)
        .map(|(delivery, number)| delivery.due.since(micros(number * 1_000 + 10_000)));
    assert!(held.max().is_some_and(|longest| longest <= Duration::from_millis(8)));
}

fn thinned_spec() -> DirectionSpec {
    let ack_thinning = AckThinningSpec { every: 4, hold: Duration::from_millis(10) };
    DirectionSpec { ack_thinning: Some(ack_thinning), ..spec(Rate::mbit(1_000), 1, 100) }
}

#[test]
fn one_of_every_four_acknowledgements_is_sent() {
    let mut link = new_logged_link(thinned_spec());
    // Two flows, an ACK of each every millisecond.
    let acks = (0..8).flat_map(|number| {
        [1, 2].map(|flow| {
            (micros(number * 1_000), NumberedPacket(number as u32 * 1_000 + flow, ACK_BYTES))
        })
    });
    let deliveries = offer(&mut link, acks);
    let numbers: Vec<_> = deliveries.iter().map(|delivery| delivery.packet.0).collect();
    assert_eq!(numbers, [3_001, 3_002, 7_001, 7_002], "the last of each four");
    assert_eq!(link.counters().thinned_acks, 12);
    let thinned = LinkEventKind::Drop(DropReason::Thinned);
    assert_eq!(link.log().iter().filter(|event| event.kind == thinned).count(), 12);
}

#[test]
fn a_held_acknowledgement_is_sent_in_time_and_before_data_of_its_flow() {
    let mut link = new_link(thinned_spec());
    let packets = [
        (micros(0), NumberedPacket(1_000, ACK_BYTES)),
        // Another flow's data passes.
        (micros(100), NumberedPacket(2_001, 1_500)),
        (micros(30_000), NumberedPacket(3_000, ACK_BYTES)),
        (micros(30_100), NumberedPacket(4_000, 1_500)),
    ];
    let deliveries = offer(&mut link, packets);
    let numbers: Vec<_> = deliveries.iter().map(|delivery| delivery.packet.0).collect();
    assert_eq!(numbers, [2_001, 1_000, 3_000, 4_000]);
    let ack_due = deliveries[1].due;
    assert!(ack_due >= micros(11_000) && ack_due < micros(11_010), "{ack_due:?}");
    assert!(drain(&mut link).is_empty());
}

/// A TCP segment in IPv4 with these flags, options and data.
fn tcp(flags: u8, options: &[u8], data: usize) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let total = u16::try_from(20 + header_bytes + data).expect("fits");
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 99, 0, 1, 10, 99, 0, 2]);
    packet.extend([0; 12]);
    packet.extend([(header_bytes as u8 / 4) << 4, flags, 1, 0, 0, 0, 0, 0]);
    packet.extend(options);
    packet.resize(usize::from(total), 0);
    packet
}

#[test]
fn only_bare_acknowledgements_may_be_thinned() {
    let timestamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    assert!(tcp(0x10, &[], 0).is_bare_ack());
    assert!(tcp(0x10, &timestamps, 0).is_bare_ack());
    for (packet, why) in [
        (tcp(0x10, &timestamps, 1), "data"),
        (tcp(0x10, &sack, 0), "SACK blocks"),
        (tcp(0x11, &timestamps, 0), "FIN"),
        (tcp(0x12, &timestamps, 0), "SYN"),
        (tcp(0x50, &timestamps, 0), "ECE"),
    ] {
        assert!(!packet.is_bare_ack(), "{why}");
    }
    for packet in [tcp(0x10, &timestamps, 0), tcp(0x10, &sack, 3)] {
        for length in 0..packet.len() {
            assert!(!packet[..length].to_vec().is_bare_ack(), "truncated");
        }
    }
}

#[test]
fn a_queue_in_bandwidth_delay_products_becomes_packets() {
    let link = |rate: &str, delay_ms: u32, bdp: f64| {
        let json = format!(
            r#"{{"both": {{"rate": "{rate}", "delay_ms": {delay_ms}, "queue": {{"bdp": {bdp}}}}}}}"#
        );
        serde_json::from_str::<LinkSpec>(&json).map(|link| link.to_client.queue.packets)
    };
    assert_eq!(link("12 Mbit/s", 25, 1.0).unwrap(), 50);
    assert_eq!(link("12 Mbit/s", 25, 0.5).unwrap(), 25);
    assert_eq!(link("1 Mbit/s", 10, 0.5).unwrap(), 5, "the minimum");
    assert!(link("1 Mbit/s", 10, 0.0).unwrap_err().to_string().contains("more than 0"));
}

#[test]
fn invalid_values_are_named() {
    let policer = PolicerSpec { rate: Rate::mbit(1), burst_bytes: 100 };
    let aggregation =
        AggregationSpec { min: Duration::from_millis(3), max: Duration::from_millis(2) };
    let ack_thinning = AckThinningSpec { every: 0, hold: Duration::from_millis(2) };
    let plain = || spec(Rate::mbit(1), 1, 10);
    for (spec, key) in [
        (DirectionSpec { policer: Some(policer), ..plain() }, "policer.burst_bytes"),
        (DirectionSpec { aggregation: Some(aggregation), ..plain() }, "aggregation"),
        (DirectionSpec { ack_thinning: Some(ack_thinning), ..plain() }, "ack_thinning"),
    ] {
        let error = spec.build_transmitter(1).unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}
