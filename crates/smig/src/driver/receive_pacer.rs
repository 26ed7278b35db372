//! How much bulk a peer without SMig may have in flight towards this side: about what the path holds, so that its queue
//! stays short, and so that other data of the peer does not wait behind bulk. The receiver says so, as in rLEDBAT (RFC 9840):
//! a client by the receive window of a connection that carries bulk, a server by the flow-control credit of each bulk
//! upload (RFC 9113 section 5.2). This module computes the window for both, and touches neither socket nor engine.
//!
//! The window is the delivery rate times the minimum round-trip time plus a small target. While the path has room, the
//! rate follows the window, which therefore grows by the target in each round trip. The round-trip time under load is the
//! window divided by the rate.
//!
//! It fails open. The window is lifted for some time if the round-trip time stays long although the window is small: the
//! queue is not ours, or something else limits the rate; if the rate falls far below what it was: then too, or the window
//! is too small, because the true round-trip time is longer than the measured one; and if packets are lost again and
//! again: until a lost one has arrived, nothing behind it counts as received, and a path that loses at random has no queue
//! of ours. When it arrives, all behind it counts at once, so no single round's rate is trusted far beyond the mean.

use std::time::Duration;

use smig_pace::MIN_PACED_RTT;
use smig_proto::Instant;

/// Shortest time over which a rate is measured.
const MIN_ROUND: Duration = Duration::from_millis(25);
/// Rounds over which the rate's maximum counts.
const RATE_ROUNDS: usize = 10;
/// The highest rate counts as this part of the mean at most, in halves: a burst is not the path's rate.
const MAX_MEANS_HALVES: u64 = 3;
/// Rounds without growth by a quarter after which the sender's start is over.
const FLAT_ROUNDS: u32 = 3;
/// The queue that is kept, as a time: this, or a quarter of the minimum round-trip time if that is longer.
const MIN_TARGET: Duration = Duration::from_millis(10);
/// A queue that is this many targets long...
const QUEUE_TARGETS: u32 = 4;
/// ...in this many rounds is not ours: more than those for which a former rate counts.
const QUEUE_ROUNDS: u32 = 20;
/// The window is lifted if the mean rate falls below its highest since the limit began, divided by this.
const MAX_SLOWDOWN: u64 = 2;
/// A path is lossy if packets arrived out of order in this many consecutive periods...
const LOSSY_PERIODS: u32 = 3;
/// ...of at least this length and of at least so many round trips.
const MIN_LOSS_PERIOD: Duration = Duration::from_secs(1);
const LOSS_PERIOD_RTTS: u32 = 8;
/// How long the window is lifted, the first time; doubled each time.
const MIN_LIFT_TIME: Duration = Duration::from_secs(5);
const MAX_LIFT_TIME: Duration = Duration::from_secs(40);
/// Smallest window: with less, a lost packet is noticed late.
const MIN_WINDOW_BYTES: u64 = 8 << 10;

/// The credit of a stream is its share of the window, an eighth, which waits for the next update, and two packets: updates wait in
/// the other direction and for the programs at both ends, while a kernel announces TCP's window with each acknowledgement.
const CREDIT_BESIDE_WINDOW_BYTES: u64 = 3 << 10;

/// Computes the receive window of a connection that carries bulk.
#[derive(Debug, Default)]
pub(crate) struct ReceivePacer {
    /// Start of the current round, and the bytes that had arrived.
    round: Option<(Instant, u64)>,
    rates: [u64; RATE_ROUNDS],
    rounds: usize,
    state: PacerState,
    lifts: u32,
}

#[derive(Clone, Copy, Debug)]
enum PacerState {
    /// No window is set; the rate is measured. In the sender's start, it still grows.
    Measuring {
        best_rate: u64,
        flat_rounds: u32,
    },
    Limited(Limit),
    Lifted {
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    window_bytes: u64,
    queue_rounds: u32,
    /// The highest mean rate since the limit began.
    best_mean: u64,
    losses: LossWatch,
}

/// Watches whether packets are lost again and again.
#[derive(Clone, Copy, Debug)]
struct LossWatch {
    since: Instant,
    out_of_order: u32,
    lossy_periods: u32,
}

impl Default for PacerState {
    fn default() -> Self {
        Self::Measuring { best_rate: 0, flat_rounds: 0 }
    }
}

/// A receive window to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveWindow {
    Bytes(u64),
    Unlimited,
}

/// Whether anything would gain from a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacingDemand {
    /// Bulk is all there is: it may fill the path.
    BulkAlone,
    /// Other streams are active.
    Shared,
}

/// What the kernel knows of the path towards this side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivePath {
    /// The minimum round-trip time, over the kernel's window.
    pub(crate) min_rtt: Duration,
    /// Packets that have arrived before an earlier one.
    pub(crate) out_of_order: u32,
    /// What the peer may have in flight now, in bytes: more than the window, if it was granted before the window was set.
    pub(crate) granted: u64,
}

impl ReceivePacer {
    /// Takes into account that `received` bytes have arrived in all; returns the window to set now, if any.
    pub(crate) fn on_progress(
        &mut self,
        now: Instant,
        received: u64,
        demand: PacingDemand,
        path: impl FnOnce() -> ReceivePath,
    ) -> Option<ReceiveWindow> {
        let (started_at, received_before) = *self.round.get_or_insert((now, received));
        let time = now.saturating_duration_since(started_at);
        if time < MIN_ROUND {
            return None;
        }
        let path = path();
        if time < path.min_rtt {
            return None;
        }
        self.round = Some((now, received));
        if path.min_rtt < MIN_PACED_RTT {
            return self.lift_to(PacerState::default());
        }
        let rate = bytes_per_s(received.saturating_sub(received_before), time);
        if let Some(entry) = self.rates.get_mut(self.rounds % RATE_ROUNDS) {
            *entry = rate;
        }
        self.rounds = self.rounds.wrapping_add(1);
        self.on_round(now, rate, demand, path)
    }

    fn on_round(
        &mut self,
        now: Instant,
        rate: u64,
        demand: PacingDemand,
        path: ReceivePath,
    ) -> Option<ReceiveWindow> {
        let target = MIN_TARGET.max(path.min_rtt / 4);
        let mean_rate = self.mean_rate();
        let max_rate = self.rates.iter().copied().max().unwrap_or(0);
        let path_rate = max_rate.min(mean_rate.saturating_mul(MAX_MEANS_HALVES) / 2);
        let window_bytes = bytes_within(path_rate, path.min_rtt + target).max(MIN_WINDOW_BYTES);
        match &mut self.state {
            PacerState::Measuring { best_rate, flat_rounds } => {
                if rate > *best_rate + *best_rate / 4 {
                    (*best_rate, *flat_rounds) = (rate, 0);
                    return None;
                }
                *flat_rounds = flat_rounds.saturating_add(1);
                if *flat_rounds < FLAT_ROUNDS || demand == PacingDemand::BulkAlone {
                    return None;
                }
                let losses = LossWatch::new(now, path.out_of_order);
                self.state = PacerState::Limited(Limit {
                    window_bytes,
                    queue_rounds: 0,
                    best_mean: mean_rate,
                    losses,
                });
                Some(ReceiveWindow::Bytes(window_bytes))
            }
            PacerState::Limited(_) if demand == PacingDemand::BulkAlone => {
                let best_rate = max_rate;
                self.lift_to(PacerState::Measuring { best_rate, flat_rounds: FLAT_ROUNDS })
            }
            PacerState::Limited(limit)
                if path.granted > limit.window_bytes.max(window_bytes) * 2 =>
            {
                // The peer still sends by what it had before (streams have somewhat more than the window): that says
                // nothing about this window.
                limit.losses = LossWatch::new(now, path.out_of_order);
                limit.window_bytes = window_bytes;
                Some(ReceiveWindow::Bytes(window_bytes))
            }
            PacerState::Limited(limit) => {
                let queue_limit = bytes_within(rate, path.min_rtt + target * QUEUE_TARGETS);
                let is_queue_long = limit.window_bytes > queue_limit;
                limit.queue_rounds = if is_queue_long { limit.queue_rounds + 1 } else { 0 };
                limit.best_mean = limit.best_mean.max(mean_rate);
                let is_slow = mean_rate < limit.best_mean / MAX_SLOWDOWN;
                let is_lossy = limit.losses.update(now, path);
                if limit.queue_rounds >= QUEUE_ROUNDS || is_slow || is_lossy {
                    let queue_rounds = limit.queue_rounds;
                    tracing::debug!(queue_rounds, is_slow, is_lossy, "receive window lifted");
                    let time = MIN_LIFT_TIME * (1 << self.lifts.min(3));
                    self.lifts += 1;
                    return self
                        .lift_to(PacerState::Lifted { until: now + time.min(MAX_LIFT_TIME) });
                }
                limit.window_bytes = window_bytes;
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

    /// Returns the mean of the last rounds' rates.
    fn mean_rate(&self) -> u64 {
        let rounds = self.rounds.clamp(1, RATE_ROUNDS) as u64;
        self.rates.iter().fold(0, |sum: u64, &rate| sum.saturating_add(rate)) / rounds
    }

    /// Sets a state without a window. Returns that there is none, if there was one.
    fn lift_to(&mut self, state: PacerState) -> Option<ReceiveWindow> {
        let before = core::mem::replace(&mut self.state, state);
        matches!(before, PacerState::Limited(_)).then_some(ReceiveWindow::Unlimited)
    }
}

/// Returns the flow-control credit of each of `streams` streams that share a window.
pub(crate) fn stream_credit(window_bytes: u64, streams: usize) -> u32 {
    let share = window_bytes / streams.max(1) as u64;
    u32::try_from(share + share / 8 + CREDIT_BESIDE_WINDOW_BYTES).unwrap_or(u32::MAX)
}

impl LossWatch {
    const fn new(now: Instant, out_of_order: u32) -> Self {
        Self { since: now, out_of_order, lossy_periods: 0 }
    }

    /// Returns whether packets are lost again and again.
    fn update(&mut self, now: Instant, path: ReceivePath) -> bool {
        let period = MIN_LOSS_PERIOD.max(path.min_rtt * LOSS_PERIOD_RTTS);
        if now.saturating_duration_since(self.since) >= period {
            let is_lossy = path.out_of_order != self.out_of_order;
            let lossy_periods = if is_lossy { self.lossy_periods + 1 } else { 0 };
            *self = Self { lossy_periods, ..Self::new(now, path.out_of_order) };
        }
        self.lossy_periods >= LOSSY_PERIODS
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
mod tests;
#[cfg(test)]
mod upload_tests;
