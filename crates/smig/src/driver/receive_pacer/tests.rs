//! The window over a path in virtual time.

use super::*;

const RTT: Duration = Duration::from_millis(50);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A path in virtual time, by milliseconds: a sender that fills every window, and a queue of other flows' bytes.
struct Path {
    pacer: ReceivePacer,
    now: Instant,
    rate: u64,
    window: u64,
    /// Bytes sent and not received.
    in_flight: u64,
    received: u64,
    foreign_bytes: u64,
    demand: PacingDemand,
    /// The part of the round-trip time that the kernel does not see.
    hidden_rtt: Duration,
    /// Whether a packet arrives out of order in each millisecond.
    is_lossy: bool,
    out_of_order: u32,
    granted: u64,
}

impl Path {
    fn new(rate: u64) -> Self {
        Self {
            pacer: ReceivePacer::default(),
            now: Instant::from_nanos(0),
            rate,
            window: 150_000,
            in_flight: 0,
            received: 0,
            foreign_bytes: 0,
            demand: PacingDemand::Shared,
            hidden_rtt: Duration::ZERO,
            is_lossy: false,
            out_of_order: 0,
            granted: 0,
        }
    }

    /// Bytes of the queue, beyond what the path itself holds.
    fn queue(&self) -> u64 {
        let path = bytes_within(self.rate, RTT + self.hidden_rtt);
        (self.in_flight + self.foreign_bytes).saturating_sub(path)
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.now = self.now + MILLISECOND;
            self.in_flight = self.in_flight.max(self.window);
            // What is in flight arrives within a round trip, the queue's time included.
            let base_rtt = (RTT + self.hidden_rtt).as_secs_f64();
            let rtt = base_rtt + self.queue() as f64 / self.rate as f64;
            let arrived = (self.in_flight as f64 / rtt / 1000.0) as u64;
            self.out_of_order += u32::from(self.is_lossy);
            let path = ReceivePath {
                min_rtt: RTT,
                out_of_order: self.out_of_order,
                granted: self.granted,
            };
            self.received += arrived;
            self.in_flight -= arrived.min(self.in_flight);
            match self.pacer.on_progress(self.now, self.received, self.demand, || path) {
                Some(ReceiveWindow::Bytes(bytes)) => self.window = bytes,
                Some(ReceiveWindow::Unlimited) => self.window = 150_000,
                None => {}
            }
        }
    }

    /// Runs, and returns the rate of what arrived.
    fn rate_in(&mut self, time: Duration) -> u64 {
        let before = self.received;
        self.run(time);
        bytes_per_s(self.received - before, time)
    }
}

#[test]
fn the_queue_is_short_and_the_link_is_full() {
    for rate in [125_000, 1_250_000, 12_500_000] {
        let mut path = Path::new(rate);
        path.window = bytes_within(rate, RTT * 3);
        path.run(Duration::from_secs(1));
        let achieved = path.rate_in(Duration::from_secs(10));
        assert!(achieved > rate * 97 / 100, "{achieved} of {rate}");
        let queue = path.queue().saturating_sub(MIN_WINDOW_BYTES);
        assert!(queue <= bytes_within(rate, RTT / 3), "{queue} bytes at {rate}");
    }
}

#[test]
fn the_window_follows_the_link() {
    let mut path = Path::new(1_250_000);
    path.run(Duration::from_secs(2));
    path.rate = 2_500_000;
    path.run(Duration::from_secs(2));
    let achieved = path.rate_in(Duration::from_secs(5));
    assert!(achieved > 2_400_000, "{achieved}");
    path.rate = 1_500_000;
    path.run(Duration::from_secs(2));
    assert!(path.queue() <= bytes_within(path.rate, RTT / 2), "{}", path.queue());
}

#[test]
fn the_window_is_lifted_where_others_fill_the_queue() {
    let mut path = Path::new(1_250_000);
    path.run(Duration::from_secs(2));
    assert!(path.window < 100_000, "{}", path.window);
    path.foreign_bytes = 300_000;
    path.run(Duration::from_secs(3));
    assert_eq!(path.window, 150_000, "it competes as without a window");
    path.foreign_bytes = 0;
    path.run(Duration::from_secs(20));
    assert!(path.window < 100_000, "{}: it is limited again", path.window);
}

#[test]
fn a_lone_upload_has_no_window() {
    let mut path = Path::new(1_250_000);
    path.demand = PacingDemand::BulkAlone;
    path.run(Duration::from_secs(5));
    assert_eq!(path.window, 150_000);
    path.demand = PacingDemand::Shared;
    path.run(RTT * 2);
    assert!(path.window < 100_000, "{}: the rate is known", path.window);
    path.demand = PacingDemand::BulkAlone;
    path.run(RTT * 2);
    assert_eq!(path.window, 150_000);
}

#[test]
fn the_window_is_lifted_where_it_is_too_small_for_the_true_round_trip() {
    // Behind a proxy, the kernel measures the way to the proxy.
    let mut path = Path::new(1_250_000);
    path.hidden_rtt = Duration::from_millis(40);
    path.window = 150_000;
    path.run(Duration::from_secs(3));
    assert_eq!(path.window, 150_000);
    let achieved = path.rate_in(Duration::from_secs(60));
    assert!(achieved > 1_250_000 * 9 / 10, "{achieved}");
}

#[test]
fn the_window_is_lifted_where_packets_are_lost_again_and_again() {
    let mut path = Path::new(1_250_000);
    path.run(Duration::from_secs(2));
    assert!(path.window < 100_000, "{}", path.window);
    path.is_lossy = true;
    path.run(Duration::from_secs(4));
    assert_eq!(path.window, 150_000);
    path.is_lossy = false;
    path.run(Duration::from_secs(6));
    assert!(path.window < 100_000, "{}: it is limited again", path.window);
}

#[test]
fn losses_by_what_was_granted_before_do_not_lift_the_window() {
    let mut path = Path::new(1_250_000);
    (path.granted, path.is_lossy) = (1 << 20, true);
    path.run(Duration::from_secs(8));
    assert!(path.window < 100_000, "{}", path.window);
    path.granted = 0;
    path.run(Duration::from_secs(4));
    assert_eq!(path.window, 150_000);
}

#[test]
fn a_burst_is_not_the_rate_of_the_path() {
    // A lost packet has arrived, and all behind it counts.
    let mut path = Path::new(1_250_000);
    path.run(Duration::from_secs(3));
    let window = path.window;
    path.received += 500_000;
    path.run(RTT * 2);
    assert!(path.window < window * 3, "{} bytes, {window} before", path.window);
    path.run(Duration::from_secs(5));
    assert!(path.window < window * 5 / 4, "{} bytes: it is not lifted", path.window);
}

#[test]
fn short_paths_have_no_window() {
    let mut pacer = ReceivePacer::default();
    let mut on_round = |round: u64, min_rtt| {
        let now = Instant::from_nanos(round * 60_000_000);
        let path = ReceivePath { min_rtt, out_of_order: 0, granted: 0 };
        pacer.on_progress(now, round * 1_000_000, PacingDemand::Shared, || path)
    };
    for round in 0..100 {
        assert_eq!(on_round(round, MILLISECOND), None);
    }
    // A path that turns out to be short has none any more.
    let limited: Vec<_> = (100..110).filter_map(|round| on_round(round, RTT)).collect();
    assert!(matches!(limited[..], [ReceiveWindow::Bytes(_), ..]), "{limited:?}");
    assert_eq!(on_round(110, MILLISECOND), Some(ReceiveWindow::Unlimited));
    assert_eq!(on_round(111, MILLISECOND), None);
}
