//! Pacing of bulk on a simulated bottleneck.

use std::time::Duration;

use smig_proto::Instant;

use super::sim::Path;
use super::{Pacer, RateSample};

const RTT: Duration = Duration::from_millis(50);
/// 10 Mbit/s.
const RATE_BYTES_PER_S: u64 = 1_250_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_paced_flow_fills_the_path_and_keeps_its_queue_short() {
    let paths = [
        (RATE_BYTES_PER_S, 50, 75),
        (RATE_BYTES_PER_S, 50, 1000),
        (RATE_BYTES_PER_S / 10, 100, 75),
        (RATE_BYTES_PER_S * 8, 5, 75),
        (RATE_BYTES_PER_S * 8, 80, 500),
    ];
    for (rate, rtt, limit) in paths {
        let rtt = Duration::from_millis(rtt);
        let mut path = Path::new(rate, rtt, limit);
        path.add_paced();
        path.run(seconds(3));
        let steady = path.run(seconds(20));
        assert!(steady.rates[0] > rate / 100 * 95, "{rate} {rtt:?} {limit}: {steady:?}");
        let five_packets_time = Duration::from_micros(5 * 1448 * 1_000_000 / rate);
        let max_queue = five_packets_time.max(rtt / 8).max(Duration::from_millis(3));
        assert!(steady.queue_delay < max_queue, "{rate} {rtt:?} {limit}: {steady:?}");
    }
}

#[test]
fn startup_fills_the_path_within_ten_round_trips_without_loss() {
    let mut path = Path::new(RATE_BYTES_PER_S, RTT, 75);
    path.add_paced();
    path.run(RTT * 10);
    assert_eq!(path.drops, 0);
    let steady = path.run(RTT * 10);
    assert!(steady.rates[0] > RATE_BYTES_PER_S / 100 * 90, "{steady:?}");
}

#[test]
fn a_paced_flow_follows_a_rate_that_falls_and_rises() {
    let mut path = Path::new(RATE_BYTES_PER_S, RTT, 1000);
    path.add_paced();
    path.run(seconds(3));
    path.rate = RATE_BYTES_PER_S / 4;
    path.run(seconds(2));
    let slow = path.run(seconds(5));
    assert!(slow.rates[0] > RATE_BYTES_PER_S / 4 / 100 * 95, "{slow:?}");
    assert!(slow.queue_delay < Duration::from_millis(25), "{slow:?}");
    path.rate = RATE_BYTES_PER_S * 2;
    path.run(seconds(2));
    let fast = path.run(seconds(5));
    assert!(fast.rates[0] > RATE_BYTES_PER_S * 2 / 100 * 95, "{fast:?}");
    assert!(fast.queue_delay < Duration::from_millis(6), "{fast:?}");
}

#[test]
fn a_paced_flow_gets_a_share_beside_a_queue_filling_flow_and_paces_again_after_it() {
    let mut path = Path::new(RATE_BYTES_PER_S, RTT, 75);
    path.add_paced();
    path.run(seconds(3));
    path.add_unpaced();
    path.run(seconds(10));
    let both = path.run(seconds(40));
    assert!(
        both.rates[1] > RATE_BYTES_PER_S / 2 / 100 * 90,
        "the competing flow loses its share: {both:?}"
    );
    assert!(both.rates[0] > RATE_BYTES_PER_S / 3, "the paced flow starves: {both:?}");
    path.remove_last();
    path.run(seconds(45));
    let alone = path.run(seconds(10));
    assert!(alone.rates[0] > RATE_BYTES_PER_S / 100 * 95, "{alone:?}");
    assert!(alone.queue_delay < Duration::from_millis(6), "{alone:?}");
}

#[test]
fn a_varying_path_is_used_and_its_queue_stays_short() {
    let (mut used_share, mut mean_queue_delay) = (0.0, Duration::ZERO);
    for seed in 1..11 {
        let mut path = Path::new(RATE_BYTES_PER_S * 6 / 5, Duration::from_millis(70), 500);
        path.vary_rate(seed * 7919);
        path.add_paced();
        path.run(seconds(3));
        let measurement = path.run(seconds(60));
        used_share += measurement.rates[0] as f64 / measurement.offered_rate as f64 / 10.0;
        mean_queue_delay += measurement.queue_delay / 10;
    }
    assert!(used_share > 0.93, "{used_share} of the path, queue {mean_queue_delay:?}");
    assert!(
        mean_queue_delay < Duration::from_millis(22),
        "{used_share} of the path, queue {mean_queue_delay:?}"
    );
}

#[test]
fn its_own_standing_queue_is_not_mistaken_for_cross_traffic() {
    let mut path = Path::new(RATE_BYTES_PER_S, RTT, 1000);
    path.add_unpaced();
    path.run(seconds(5));
    path.remove_last();
    path.add_paced();
    path.run(seconds(2));
    path.rate = RATE_BYTES_PER_S / 20;
    path.run(seconds(60));
    path.rate = RATE_BYTES_PER_S;
    path.run(seconds(20));
    let steady = path.run(seconds(10));
    assert!(steady.rates[0] > RATE_BYTES_PER_S / 100 * 95, "{steady:?}");
    assert!(steady.queue_delay < Duration::from_millis(8), "{steady:?}");
}

#[test]
fn a_round_trip_time_that_cannot_be_does_not_postpone_the_next_sample() {
    // The kernel's value before its first sample: 2^32 - 1 microseconds.
    let mut pacer = Pacer::new(Instant::from_nanos(0), Duration::from_micros(u32::MAX.into()));
    assert!(pacer.cap() >= 1448, "{} bytes per second", pacer.cap());
    pacer.on_idle(Instant::from_nanos(0));
    assert!(pacer.is_due(Instant::from_nanos(2_000_000_000)));
}

#[test]
fn a_process_is_starved_while_its_samples_are_late() {
    let mut pacer = Pacer::new(Instant::from_nanos(0), RTT);
    let mut now = Duration::ZERO;
    let mut sample_after = |pacer: &mut Pacer, millis| {
        now += Duration::from_millis(millis);
        let sent = now.as_millis() as u64 * 1250;
        let sample = RateSample {
            acknowledged: sent,
            sent: sent + 60_000,
            rtt: RTT,
            in_flight: 60_000,
            rtt_deviation: Duration::ZERO,
            min_rtt: RTT,
            retransmitted: 0,
            mss: 1448,
        };
        pacer.on_sample(Instant::from_nanos(now.as_nanos() as u64), sample);
        pacer.is_starved()
    };
    for _ in 0..20 {
        assert!(!sample_after(&mut pacer, 7));
    }
    assert!(sample_after(&mut pacer, 150));
    let samples = (0..100).take_while(|_| sample_after(&mut pacer, 7)).count();
    assert!((10..99).contains(&samples), "{samples} samples");
}
