//! Variable delay, loss, and the MTU.

use std::time::Duration;

use super::{NumberedPacket, check_log, flood, micros, new_link, new_logged_link, offer, spec};
use crate::{
    DelayRamp, DirectionSpec, DropReason, EnqueueResult, GilbertElliott, JitterSpec, Link,
    LinkEventKind, LossSpec, NormalJitter, Rate, Time, UniformJitter,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn spec_with_jitter(jitter: JitterSpec, delay_ms: u64) -> DirectionSpec {
    DirectionSpec { jitter: Some(jitter), ..spec(Rate::mbit(1_000), delay_ms, 1_000) }
}

fn measure_delays_ms(spec: DirectionSpec, interval: Duration, count: u32) -> Vec<f64> {
    let packets =
        (0..count).map(|index| (Time::ZERO + interval * index, NumberedPacket(index, 125)));
    let deliveries = offer(&mut new_link(spec), packets);
    assert!(deliveries.is_sorted_by(|a, b| a.packet.0 < b.packet.0), "reordered");
    // Serialisation takes one microsecond.
    let departure = |index: u32| Time::ZERO + interval * index + Duration::from_micros(1);
    deliveries.iter().map(|a| a.due.since(departure(a.packet.0)).as_secs_f64() * 1e3).collect()
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (variance / values.len() as f64).sqrt())
}

#[test]
fn a_redrawn_delay_has_its_distribution() {
    // The gaps are large enough that no packet waits for the one before it.
    let normal = NormalJitter { deviation: ms(20), redraw_interval: ms(100) };
    let delays =
        measure_delays_ms(spec_with_jitter(JitterSpec::Normal(normal), 200), ms(500), 20_000);
    let (mean, deviation) = mean_and_deviation(&delays);
    assert!((mean - 200.0).abs() < 0.6 && (deviation - 20.0).abs() < 0.4, "{mean} {deviation}");

    let uniform = UniformJitter { width: ms(30), redraw_interval: Duration::ZERO };
    let delays =
        measure_delays_ms(spec_with_jitter(JitterSpec::Uniform(uniform), 50), ms(500), 20_000);
    let (mean, deviation) = mean_and_deviation(&delays);
    let exact = 30.0 / 12_f64.sqrt();
    assert!((mean - 50.0).abs() < 0.3 && (deviation - exact).abs() < 0.2, "{mean} {deviation}");
    assert!(delays.iter().all(|delay| (35.0..=65.0).contains(delay)));
}

#[test]
fn a_delay_is_constant_in_its_interval_and_never_negative() {
    let normal = NormalJitter { deviation: ms(70), redraw_interval: ms(100) };
    let delays = measure_delays_ms(spec_with_jitter(JitterSpec::Normal(normal), 50), ms(10), 5_000);
    assert!(delays.iter().all(|delay| *delay >= 0.0));
    let intervals: Vec<_> = delays.chunks(10).collect();
    // Within an interval the delay is constant, except for packets that may not overtake.
    for interval in &intervals {
        let last = interval[9];
        assert!(interval.iter().all(|delay| *delay >= last - 1e-6), "{interval:?}");
    }
    assert!(intervals.windows(2).filter(|pair| pair[0][9] != pair[1][9]).count() > 300);
}

#[test]
fn a_slowdown_adds_delay_each_interval_up_to_its_maximum() {
    let slowdown = DelayRamp { step_increment: ms(15), step_interval: ms(100), max_added: ms(300) };
    let delays = measure_delays_ms(spec_with_jitter(JitterSpec::Ramp(slowdown), 3), ms(50), 60);
    for (index, delay) in delays.iter().enumerate() {
        let exact = 3.0 + (15 * (index / 2)).min(300) as f64;
        assert!((delay - exact).abs() < 1e-3, "at {} ms: {delay}, not {exact}", index * 50);
    }
}

#[test]
fn the_seed_determines_the_run() {
    let spec = DirectionSpec {
        loss: Some(LossSpec::Random(0.1)),
        ..spec_with_jitter(
            JitterSpec::Uniform(UniformJitter { width: ms(9), redraw_interval: ms(1) }),
            10,
        )
    };
    let run = |seed| {
        let mut link = Link::new(&spec, seed).unwrap();
        offer(&mut link, flood(Rate::mbit(10), 1_000, ms(500), 0))
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Returns the share of lost packets, and its difference from the configured
/// share in standard deviations.
fn measure_loss_and_z_score(loss: LossSpec, seed: u64, packets: u64) -> (f64, f64) {
    let spec = DirectionSpec { loss: Some(loss), ..spec(Rate::mbit(100), 1, 10) };
    let mut link = Link::new(&spec, seed).unwrap();
    let interval = Duration::from_millis(1);
    for index in 0..packets {
        let now = Time::ZERO + interval * u32::try_from(index).unwrap();
        while link.pop(now).is_some() {}
        assert_eq!(link.enqueue(now, NumberedPacket(0, 100)), EnqueueResult::Accepted);
    }
    let counters = link.counters();
    assert_eq!(counters.lost_packets, counters.dropped_packets);
    let share = counters.lost_packets as f64 / packets as f64;
    (share, (share - loss.share()) / loss.standard_deviation(packets))
}

#[test]
fn loss_is_within_its_confidence_interval() {
    let bursts =
        GilbertElliott { good_to_bad: 0.002, bad_to_good: 0.2, loss_bad: 0.8, loss_good: 0.001 };
    for loss in [LossSpec::Random(0.01), LossSpec::Random(0.2), LossSpec::Bursts(bursts)] {
        let z_scores: Vec<_> =
            (1..=40).map(|seed| measure_loss_and_z_score(loss, seed, 20_000).1).collect();
        // On average 2 of 40 are outside 1.96 standard deviations.
        let outside = z_scores.iter().filter(|z_score| z_score.abs() > 1.96).count();
        assert!(outside <= 6, "{loss:?}: {z_scores:?}");
        let (mean, deviation) = mean_and_deviation(&z_scores);
        assert!(
            mean.abs() < 0.5 && (0.7..1.35).contains(&deviation),
            "{loss:?}: {mean} {deviation}"
        );
    }
    assert_eq!(measure_loss_and_z_score(LossSpec::Random(0.0), 1, 1_000).0, 0.0);
    assert_eq!(measure_loss_and_z_score(LossSpec::Random(1.0), 1, 1_000).0, 1.0);
}

#[test]
fn bursts_have_the_configured_mean_length() {
    let bursts =
        GilbertElliott { good_to_bad: 0.01, bad_to_good: 0.25, loss_bad: 1.0, loss_good: 0.0 };
    let spec =
        DirectionSpec { loss: Some(LossSpec::Bursts(bursts)), ..spec(Rate::mbit(100), 1, 200_000) };
    let mut link = new_link(spec);
    let deliveries = offer(&mut link, (0..100_000).map(|n| (Time::ZERO, NumberedPacket(n, 100))));
    let gaps: Vec<_> = deliveries
        .windows(2)
        .map(|pair| pair[1].packet.0 - pair[0].packet.0 - 1)
        .filter(|gap| *gap > 0)
        .collect();
    let mean = f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
    assert!((3.8..4.2).contains(&mean), "{mean} packets in a burst");
}

#[test]
fn a_lost_packet_occupies_the_wire() {
    let spec = DirectionSpec { loss: Some(LossSpec::Random(0.5)), ..spec(Rate::mbit(12), 0, 100) };
    let mut link = new_logged_link(spec);
    let deliveries = offer(&mut link, (0..100).map(|n| (Time::ZERO, NumberedPacket(n, 1_500))));
    for delivery in &deliveries {
        assert_eq!(delivery.due, micros(1_000 * u64::from(delivery.packet.0 + 1)));
    }
    check_log(link.log(), 100);
    let lost = |kind| kind == LinkEventKind::Drop(DropReason::Lost);
    let in_log = link.log().iter().filter(|event| lost(event.kind)).count();
    assert_eq!(deliveries.len() + in_log, 100);
}

#[test]
fn packets_above_the_mtu_are_dropped() {
    let mut link = new_logged_link(DirectionSpec { mtu: 1_280, ..spec(Rate::mbit(12), 0, 100) });
    assert!(matches!(
        link.enqueue(Time::ZERO, NumberedPacket(0, 1_281)),
        EnqueueResult::Dropped(_)
    ));
    assert_eq!(link.enqueue(Time::ZERO, NumberedPacket(1, 1_280)), EnqueueResult::Accepted);
    assert_eq!(link.log()[0].kind, LinkEventKind::Drop(DropReason::TooBig));
    assert_eq!(link.counters().dropped_packets, 1);
}
