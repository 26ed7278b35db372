//! Pacing of bulk on a simulated bottleneck.

use std::time::Duration;

use super::sim::Path;

const RTT: Duration = Duration::from_millis(50);
/// 10 Mbit/s.
const RATE: u64 = 1_250_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn the_path_is_full_and_its_queue_is_short() {
    let paths = [
        (RATE, 50, 75),
        (RATE, 50, 1000),
        (RATE / 10, 100, 75),
        (RATE * 8, 5, 75),
        (RATE * 8, 80, 500),
    ];
    for (rate, rtt, limit) in paths {
        let rtt = Duration::from_millis(rtt);
        let mut path = Path::new(rate, rtt, limit);
        path.add_paced();
        path.run(seconds(3));
        let steady = path.run(seconds(20));
        assert!(steady.rates[0] > rate / 100 * 95, "{rate} {rtt:?} {limit}: {steady:?}");
        let packets = Duration::from_micros(5 * 1448 * 1_000_000 / rate);
        let most = packets.max(rtt / 8).max(Duration::from_millis(3));
        assert!(steady.queue < most, "{rate} {rtt:?} {limit}: {steady:?}");
    }
}

#[test]
fn it_starts_without_loss_within_ten_round_trips() {
    let mut path = Path::new(RATE, RTT, 75);
    path.add_paced();
    path.run(RTT * 10);
    assert_eq!(path.drops, 0);
    let steady = path.run(RTT * 10);
    assert!(steady.rates[0] > RATE / 100 * 90, "{steady:?}");
}

#[test]
fn it_follows_a_rate_that_falls_and_rises() {
    let mut path = Path::new(RATE, RTT, 1000);
    path.add_paced();
    path.run(seconds(3));
    path.rate = RATE / 4;
    path.run(seconds(2));
    let slow = path.run(seconds(5));
    assert!(slow.rates[0] > RATE / 4 / 100 * 95, "{slow:?}");
    assert!(slow.queue < Duration::from_millis(25), "{slow:?}");
    path.rate = RATE * 2;
    path.run(seconds(2));
    let fast = path.run(seconds(5));
    assert!(fast.rates[0] > RATE * 2 / 100 * 95, "{fast:?}");
    assert!(fast.queue < Duration::from_millis(6), "{fast:?}");
}

#[test]
fn it_takes_a_share_from_one_who_fills_the_queue_and_yields_again_when_alone() {
    let mut path = Path::new(RATE, RTT, 75);
    path.add_paced();
    path.run(seconds(3));
    path.add_plain();
    path.run(seconds(10));
    let both = path.run(seconds(40));
    assert!(both.rates[1] > RATE / 2 / 100 * 90, "the competing flow loses its share: {both:?}");
    assert!(both.rates[0] > RATE / 3, "the paced flow starves: {both:?}");
    path.remove();
    path.run(seconds(45));
    let alone = path.run(seconds(10));
    assert!(alone.rates[0] > RATE / 100 * 95, "{alone:?}");
    assert!(alone.queue < Duration::from_millis(6), "{alone:?}");
}

#[test]
fn a_path_that_varies_is_used_and_its_queue_stays_short() {
    let (mut used, mut queue) = (0.0, Duration::ZERO);
    for seed in 1..11 {
        let mut path = Path::new(RATE * 6 / 5, Duration::from_millis(70), 500);
        path.vary(seed * 7919);
        path.add_paced();
        path.run(seconds(3));
        let stretch = path.run(seconds(60));
        used += stretch.rates[0] as f64 / stretch.offered as f64 / 10.0;
        queue += stretch.queue / 10;
    }
    assert!(used > 0.88, "{used} of the path, queue {queue:?}");
    assert!(queue < Duration::from_millis(12), "{used} of the path, queue {queue:?}");
}

#[test]
fn a_deep_queue_of_its_own_is_not_taken_for_that_of_others() {
    let mut path = Path::new(RATE, RTT, 1000);
    path.add_plain();
    path.run(seconds(5));
    path.remove();
    path.add_paced();
    path.run(seconds(2));
    path.rate = RATE / 20;
    path.run(seconds(60));
    path.rate = RATE;
    path.run(seconds(20));
    let steady = path.run(seconds(10));
    assert!(steady.rates[0] > RATE / 100 * 95, "{steady:?}");
    assert!(steady.queue < Duration::from_millis(8), "{steady:?}");
}
