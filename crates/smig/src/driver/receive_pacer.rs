//! How much a server without SMig may have in flight towards this side: about what the path holds, so that its queue
//! stays short. The receive window says so, as in rLEDBAT (RFC 9840).
//!
//! The window is the delivery rate times the minimum round-trip time plus a small target. While the path has room, the
//! rate follows the window, which therefore grows by the target in each round trip. The round-trip time under load is the
//! window divided by the rate. If it stays long although the window is small, the queue is not ours, or something else
//! limits the rate: the window is lifted.

use std::time::Duration;

use smig_pace::MIN_PACED_RTT;
use smig_proto::Instant;

/// Shortest time over which a rate is measured.
const MIN_ROUND: Duration = Duration::from_millis(25);
/// Rounds over which the rate's maximum counts.
const RATE_ROUNDS: usize = 10;
/// Rounds without growth by a quarter after which the sender's start is over.
const FLAT_ROUNDS: u32 = 3;
/// The queue that is kept, as a time: this, or a quarter of the minimum round-trip time if that is longer.
const MIN_TARGET: Duration = Duration::from_millis(10);
/// A queue that is this many targets long...
const QUEUE_TARGETS: u32 = 4;
/// ...in this many rounds is not ours: more than those for which a former rate counts.
const QUEUE_ROUNDS: u32 = 20;
/// How long the window is lifted, the first time; doubled each time.
const MIN_LIFT_TIME: Duration = Duration::from_secs(5);
const MAX_LIFT_TIME: Duration = Duration::from_secs(40);
/// Smallest window: with less, a lost packet is noticed late.
const MIN_WINDOW_BYTES: u64 = 8 << 10;

/// Computes the receive window of a connection that carries bulk.
#[derive(Debug, Default)]
pub(super) struct ReceivePacer {
    /// Start of the current round, and the bytes that had arrived.
    round: Option<(Instant, u64)>,
    rates: [u64; RATE_ROUNDS],
    next_rate: usize,
    state: PacerState,
    lifts: u32,
}

#[derive(Clone, Copy, Debug)]
enum PacerState {
    /// The sender's start: the rate still grows.
    Starting {
        best_rate: u64,
        flat_rounds: u32,
    },
    Limited {
        window_bytes: u64,
        queue_rounds: u32,
    },
    Lifted {
        until: Instant,
    },
}

impl Default for PacerState {
    fn default() -> Self {
        Self::Starting { best_rate: 0, flat_rounds: 0 }
    }
}

/// A receive window to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveWindow {
    Bytes(u64),
    Unlimited,
}

impl ReceivePacer {
    /// Takes into account that `received` bytes have arrived in all; returns the window to set now, if any.
    pub(super) fn on_progress(
        &mut self,
        now: Instant,
        received: u64,
        min_rtt: impl FnOnce() -> Duration,
    ) -> Option<ReceiveWindow> {
        let (started_at, received_before) = *self.round.get_or_insert((now, received));
        let time = now.saturating_duration_since(started_at);
        if time < MIN_ROUND {
            return None;
        }
        let min_rtt = min_rtt();
        if time < min_rtt {
            return None;
        }
        self.round = Some((now, received));
        if min_rtt < MIN_PACED_RTT {
            return None;
        }
        self.on_round(now, bytes_per_s(received.saturating_sub(received_before), time), min_rtt)
    }

    fn on_round(&mut self, now: Instant, rate: u64, min_rtt: Duration) -> Option<ReceiveWindow> {
        if let Some(entry) = self.rates.get_mut(self.next_rate) {
            *entry = rate;
        }
        self.next_rate = (self.next_rate + 1) % RATE_ROUNDS;
        let target = MIN_TARGET.max(min_rtt / 4);
        let max_rate = self.rates.iter().copied().max().unwrap_or(0);
        let window_bytes = bytes_within(max_rate, min_rtt + target).max(MIN_WINDOW_BYTES);
        match &mut self.state {
            PacerState::Starting { best_rate, flat_rounds } => {
                if rate > *best_rate + *best_rate / 4 {
                    (*best_rate, *flat_rounds) = (rate, 0);
                    return None;
                }
                *flat_rounds += 1;
                if *flat_rounds < FLAT_ROUNDS {
                    return None;
                }
                self.state = PacerState::Limited { window_bytes, queue_rounds: 0 };
                Some(ReceiveWindow::Bytes(window_bytes))
            }
            PacerState::Limited { window_bytes: window, queue_rounds } => {
                let limit = bytes_within(rate, min_rtt + target * QUEUE_TARGETS);
                *queue_rounds = if *window > limit { *queue_rounds + 1 } else { 0 };
                if *queue_rounds >= QUEUE_ROUNDS {
                    let time = MIN_LIFT_TIME * (1 << self.lifts.min(3));
                    self.lifts += 1;
                    self.state = PacerState::Lifted { until: now + time.min(MAX_LIFT_TIME) };
                    return Some(ReceiveWindow::Unlimited);
                }
                *window = window_bytes;
                Some(ReceiveWindow::Bytes(window_bytes))
            }
            PacerState::Lifted { until } => {
                if now >= *until {
                    self.state = PacerState::default();
                }
                None
            }
        }
    }
}

fn bytes_per_s(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn bytes_within(bytes_per_s: u64, time: Duration) -> u64 {
    let bytes = u128::from(bytes_per_s) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
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
            }
        }

        /// Bytes of the queue, beyond what the path itself holds.
        fn queue(&self) -> u64 {
            let path = bytes_within(self.rate, RTT);
            (self.in_flight + self.foreign_bytes).saturating_sub(path)
        }

        fn run(&mut self, time: Duration) {
            for _ in 0..time.as_millis() {
                self.now = self.now + MILLISECOND;
                self.in_flight = self.in_flight.max(self.window);
                // What is in flight arrives within a round trip and the queue's time.
                let queue_time = RTT.as_secs_f64() + self.queue() as f64 / self.rate as f64;
                let arrived = (self.in_flight as f64 / queue_time / 1000.0) as u64;
                self.received += arrived;
                self.in_flight -= arrived.min(self.in_flight);
                match self.pacer.on_progress(self.now, self.received, || RTT) {
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
        path.rate = 625_000;
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
    fn short_paths_have_no_window() {
        let mut pacer = ReceivePacer::default();
        for round in 0..100_u64 {
            let now = Instant::from_nanos(round * 30_000_000);
            assert_eq!(pacer.on_progress(now, round * 1_000_000, || MILLISECOND), None);
        }
    }
}
