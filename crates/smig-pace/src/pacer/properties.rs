//! Whatever the sockets report, the bounds are usable, and bulk does not stay slow after it.

use std::time::Duration;

use proptest::prelude::*;
use smig_proto::Instant;

use super::Pacer;
use crate::RateSample;

const MSS: u32 = 1448;
const RTT: Duration = Duration::from_millis(50);
/// 10 Mbit/s.
const PATH_BYTES_PER_S: u64 = 1_250_000;

/// What a peer or a kernel may report next: milliseconds later, bytes acknowledged and in flight more (less, if the sum of a
/// connection disappears), round-trip times, losses.
fn odd_sample() -> impl Strategy<Value = (u64, i64, i64, u64, u64, u64)> {
    (
        0..400_u64,
        prop_oneof![Just(0), -50_000..50_000_i64, Just(1_i64 << 40)],
        prop_oneof![Just(0), -50_000..50_000_i64, Just(1_i64 << 40)],
        0..5_000_u64,
        0..100_u64,
        0..50_u64,
    )
}

fn sample(acknowledged: u64, in_flight: u64, rtt: Duration, retransmitted: u64) -> RateSample {
    RateSample {
        acknowledged,
        sent: acknowledged + in_flight,
        rtt,
        in_flight,
        rtt_deviation: Duration::from_millis(1),
        min_rtt: RTT,
        retransmitted,
        mss: MSS,
    }
}

/// Sends under the bounds over a path without a queue that carries [`PATH_BYTES_PER_S`], for this time.
fn run_honest_path(pacer: &mut Pacer, now: &mut Instant, base: u64, time: Duration) {
    let (end, step) = (*now + time, Duration::from_millis(5));
    // What is in flight arrives a round trip later: the last ten steps.
    let (mut flight, mut acknowledged) = (std::collections::VecDeque::from([0_u64; 10]), base);
    while *now < end {
        *now = *now + step;
        acknowledged += flight.pop_front().unwrap_or(0);
        let in_flight: u64 = flight.iter().sum();
        let room = pacer.bounds().max_outstanding.saturating_sub(in_flight);
        let bytes = pacer.bounds().rate.min(PATH_BYTES_PER_S) / 200;
        flight.push_back(bytes.min(room));
        let in_flight = flight.iter().sum();
        if pacer.is_due(*now) {
            pacer.on_sample(*now, sample(acknowledged, in_flight, RTT, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bounds_stay_usable_and_bulk_recovers(odd in prop::collection::vec(odd_sample(), 0..60)) {
        let mut now = Instant::from_nanos(1_000_000_000);
        let mut pacer = Pacer::new(now, RTT, 0.0);
        let (mut acknowledged, mut in_flight, mut retransmitted) = (0_u64, 0_u64, 0);
        for (later, more_acknowledged, more_in_flight, rtt, min_rtt, lost) in odd {
            now = now + Duration::from_millis(later);
            acknowledged = acknowledged.saturating_add_signed(more_acknowledged);
            in_flight = in_flight.saturating_add_signed(more_in_flight);
            retransmitted += lost;
            let mut odd = sample(acknowledged, in_flight, Duration::from_millis(rtt), retransmitted);
            odd.min_rtt = Duration::from_millis(min_rtt);
            odd.rtt_deviation = Duration::from_millis(rtt / 2);
            pacer.on_sample(now, odd);
            prop_assert!(pacer.bounds().rate > 0);
            prop_assert!(pacer.bounds().max_outstanding >= 4 * u64::from(MSS));
            prop_assert!(pacer.deadline().is_some_and(|at| at > now));
        }
        let min_cap = PATH_BYTES_PER_S / 100;
        run_honest_path(&mut pacer, &mut now, acknowledged, RTT * 10);
        prop_assert!(pacer.bounds().rate >= min_cap, "{pacer:?}");
        run_honest_path(&mut pacer, &mut now, acknowledged + (1 << 41), Duration::from_secs(20));
        prop_assert!(pacer.bounds().rate >= 30 * min_cap, "{pacer:?}");
    }
}
