//! Steps, traces and the generator.

use std::time::Duration;

use super::{NumberedPacket, drain, micros, new_link, offer, spec};
use crate::{
    DirectionSpec, EnqueueResult, Link, LteSpec, OPPORTUNITY_BYTES, Rate, RateSpec, RateStep,
    RateSteps, Time,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn stepped_spec(steps: &[(u64, Rate)], repeat_ms: Option<u64>) -> DirectionSpec {
    let steps = steps.iter().map(|(at, rate)| RateStep { at: ms(*at), rate: *rate }).collect();
    let rate = RateSpec::Steps(RateSteps { steps, period: repeat_ms.map(ms) });
    DirectionSpec { rate, ..spec(Rate::mbit(1), 0, usize::MAX) }
}

/// Creates a link that reads its trace from a file.
fn link_with_trace(text: &str) -> Link<NumberedPacket> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("a writable file");
    let rate = RateSpec::Trace(file.path().to_owned());
    new_link(DirectionSpec { rate, mtu: 9_000, ..spec(Rate::mbit(1), 0, usize::MAX) })
}

#[test]
fn a_step_takes_effect_in_the_middle_of_a_packet() {
    // 1,500 bytes take 1 ms at 12 Mbit/s. The rate changes at 2 ms, when half of the bits of
    // the second packet have left; the rest takes 0.5 ms * 12 / 1.2 = 5 ms.
    let mut link = new_link(stepped_spec(&[(0, Rate::mbit(12)), (2, Rate::kbit(1_200))], None));
    for number in 0..2 {
        assert_eq!(
            link.enqueue(micros(500), NumberedPacket(number, 1_500)),
            EnqueueResult::Accepted
        );
    }
    let due: Vec<_> = drain(&mut link).iter().map(|arrival| arrival.due).collect();
    assert_eq!(due, [micros(1_500), micros(7_000)]);
}

#[test]
fn stepped_rates_are_exact_over_many_rounds() {
    let steps =
        [(0, Rate::bits_per_second(7_777_777)), (30, Rate::kbit(333)), (50, Rate::mbit(91))];
    let mut link = new_link(stepped_spec(&steps, Some(80)));
    let packets = 20_000;
    for number in 0..packets {
        assert_eq!(
            link.enqueue(Time::ZERO, NumberedPacket(number, 1_317)),
            EnqueueResult::Accepted
        );
    }
    let last_due = drain(&mut link).last().copied().unwrap().due;
    // Bits of one round, and the position in a round at which the rest ends; both are scaled by
    // 1,000, since the steps are in milliseconds.
    let round = 7_777_777_u128 * 30 + 333_000 * 20 + 91_000_000 * 30;
    let bits = u128::from(packets) * 1_317 * 8 * 1_000;
    let rounds = bits / round;
    let remaining_bits = bits % round;
    let first_step_bits = 7_777_777_u128 * 30;
    let nanos = if remaining_bits <= first_step_bits {
        remaining_bits * 1_000_000 / 7_777_777
    } else if remaining_bits <= first_step_bits + 333_000 * 20 {
        30_000_000 + (remaining_bits - first_step_bits) * 1_000_000 / 333_000
    } else {
        50_000_000 + (remaining_bits - first_step_bits - 333_000 * 20) * 1_000_000 / 91_000_000
    };
    assert_eq!(u128::from(last_due.as_nanos()), rounds * 80_000_000 + nanos);
    let capacity = link.capacity_bytes(Time::ZERO, last_due);
    assert!((capacity - f64::from(packets) * 1_317.0).abs() < 1.0, "{capacity}");
}

#[test]
fn the_last_step_lasts_forever() {
    let mut link = new_link(stepped_spec(&[(0, Rate::mbit(100)), (1, Rate::mbit(12))], None));
    let at = micros(60_000_000);
    assert_eq!(link.enqueue(at, NumberedPacket(0, 1_500)), EnqueueResult::Accepted);
    assert_eq!(drain(&mut link)[0].due, at + ms(1));
}

#[test]
fn packets_leave_at_the_opportunities_of_a_trace() {
    let mut link = link_with_trace("5\n5\n9\n20\n");
    for number in 0..6 {
        assert_eq!(
            link.enqueue(micros(1_000), NumberedPacket(number, 1_500)),
            EnqueueResult::Accepted
        );
    }
    let due: Vec<_> = drain(&mut link).iter().map(|a| a.due.as_nanos() / 1_000_000).collect();
    assert_eq!(due, [5, 5, 9, 20, 25, 25]);
}

#[test]
fn queued_packets_share_an_opportunity_and_its_rest_is_lost() {
    let mut link = link_with_trace("5\n9\n20\n");
    // Three packets of 500 bytes fill the first opportunity; the fourth needs the next.
    for number in 0..4 {
        assert_eq!(link.enqueue(Time::ZERO, NumberedPacket(number, 500)), EnqueueResult::Accepted);
    }
    // A packet that arrives after 9 ms cannot use the rest of that opportunity.
    let mut deliveries = offer(&mut link, [(micros(9_001), NumberedPacket(4, 400))]);
    // A packet larger than an opportunity takes two.
    deliveries.extend(offer(&mut link, [(micros(21_000), NumberedPacket(5, 1_501))]));
    let due: Vec<_> = deliveries.iter().map(|a| a.due.as_nanos() / 1_000_000).collect();
    assert_eq!(due, [5, 5, 5, 9, 20, 29]);
}

#[test]
fn opportunities_of_an_idle_link_are_lost() {
    let mut link = link_with_trace("1\n4\n");
    // Rounds of 4 ms: opportunities at 1, 4, 5, 8, 9, 12, ...
    let packets = [(3_999_999, 0), (8_000, 1), (9_000, 2), (1_001, 3)];
    let mut deliveries = Vec::new();
    let mut sorted_packets = packets;
    sorted_packets.sort_unstable();
    for (at, number) in sorted_packets {
        deliveries.extend(offer(&mut link, [(micros(at), NumberedPacket(number, 1_500))]));
    }
    let due: Vec<_> =
        deliveries.iter().map(|a| (a.packet.0, a.due.as_nanos() / 1_000_000)).collect();
    assert_eq!(due, [(3, 4), (1, 8), (2, 9), (0, 4_000)]);
}

#[test]
fn a_busy_link_uses_all_opportunities_of_its_trace() {
    let lte = LteSpec { seed: Some(5), period_s: 10, ..LteSpec::default() };
    let trace = lte.generate(0);
    let mut link =
        new_link(DirectionSpec { rate: RateSpec::Lte(lte), ..spec(Rate::mbit(1), 0, usize::MAX) });
    for number in 0..30_000 {
        assert_eq!(
            link.enqueue(Time::ZERO, NumberedPacket(number, 1_000)),
            EnqueueResult::Accepted
        );
    }
    // Two and a half rounds of the trace.
    let end = Time::ZERO + Duration::from_secs(25);
    let arrived = std::iter::from_fn(|| link.pop(end)).count() as u64;
    let opportunities = trace.times_ms().len() * 2
        + trace.times_ms().iter().filter(|&&millis| millis <= 5_000).count();
    assert_eq!(arrived, (opportunities as u64 * OPPORTUNITY_BYTES / 1_000).min(30_000));
    assert!((link.capacity_bytes(Time::ZERO, end) - opportunities as f64 * 1_500.0).abs() < 1e-3);
}

#[test]
fn schedules_count_from_the_time_of_start_at() {
    let mut link = new_link(stepped_spec(&[(0, Rate::mbit(12)), (10, Rate::kbit(1_200))], None));
    let start = micros(3_000_000_000);
    link.start_at(start);
    let deliveries = offer(
        &mut link,
        [(start, NumberedPacket(0, 1_500)), (start + ms(20), NumberedPacket(1, 1_500))],
    );
    let due: Vec<_> = deliveries.iter().map(|arrival| arrival.due.since(start)).collect();
    assert_eq!(due, [ms(1), ms(30)]);

    let mut link = link_with_trace("7\n");
    link.start_at(start);
    let deliveries = offer(&mut link, [(start + ms(1), NumberedPacket(0, 1_500))]);
    assert_eq!(deliveries[0].due.since(start), ms(7));
    link.start_at(start + ms(10));
    let deliveries = offer(&mut link, [(start + ms(11), NumberedPacket(0, 1_500))]);
    assert_eq!(deliveries[0].due.since(start), ms(17));
}
