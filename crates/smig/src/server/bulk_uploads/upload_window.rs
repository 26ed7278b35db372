//! How much the bulk uploads of a connection may have outstanding together, so that the path's queue stays short and other
//! streams of the client do not wait behind them. This module computes the window, and touches neither socket nor engine.
//!
//! The window is the rate that the uploads had without it, times the base round trip plus a small target. What it must
//! never do is cost an upload its rate, so it is an experiment all the time: if the rate falls while the window limits the
//! clients, the window is enlarged to what the credit's own round trip says that the path holds. If the rate rises with
//! it, that is the base round trip from then on (the path is longer than the kernel sees, as behind a proxy, or others fill
//! its queue). If not, the path has become slower, and only then is the window reduced.
//!
//! It fails open: the window is lifted for some time if the rate falls again and again (others compete, or the rate
//! varies), and if packets are lost again and again: until a lost one has arrived, nothing behind it gives credit back.

use std::time::Duration;

use smig_pace::MIN_PACED_RTT;
use smig_proto::Instant;

use super::round_stats::{LossWatch, Rates};
use crate::driver::{PacingDemand, ReceivePath, ReceiveWindow, bytes_per_s, bytes_within};

/// The longest part of a round trip of credit that counts for the length of a round.
const MAX_ROUND_TIME: Duration = Duration::from_secs(1);
/// Shortest time over which a rate is measured.
const MIN_ROUND: Duration = Duration::from_millis(25);
/// Rounds whose mean is the rate without a limit.
const RATE_ROUNDS: usize = 10;
/// Rounds without growth by a quarter after which the sender's start is over.
const FLAT_ROUNDS: u32 = 3;
/// The queue that is kept, as a time: this, or a quarter of the base round trip if that is longer.
const MIN_TARGET: Duration = Duration::from_millis(10);
/// Smallest window: with less, a lost packet is noticed late.
const MIN_WINDOW_BYTES: u64 = 8 << 10;

/// Rounds whose mean shows a small fall of the rate, by this many per cent...
const STEADY_ROUNDS: usize = 8;
const SMALL_FALL_PERCENT: u64 = 3;
/// ...and a large one: two, or as many as four full frames take, since whole frames arrive at once.
const FAST_ROUNDS: usize = 2;
const MIN_FAST_BYTES: u64 = 64 << 10;
const LARGE_FALL_PERCENT: u64 = 20;
/// From this growth on, the mean of two rounds is believed.
const GROWTH_PERCENT: u64 = 10;
/// The window while the rate grows, so that it may double within a few rounds.
const GROWTH_WINDOW_PERCENT: u64 = 125;
/// Rounds by which an enlarged window is judged.
const TRIAL_ROUNDS: usize = 4;
/// A trial has found a longer path if the rate rises by this part of what is possible; if it rises less, others share the path.
const MIN_RISE_PERCENT: u64 = 60;
/// A smaller change of the rate may be by chance.
const MAX_CHANCE_PERCENT: u64 = 10;
/// Trials without so many quiet rounds in between after which the window is lifted.
const MAX_TRIALS: u32 = 3;
const QUIET_ROUNDS: u32 = 40;
/// A credit's round trip that is twice the last one is the client's pause or a lost packet, but not in more rounds.
const MAX_OUTLIERS: u32 = 1;
/// After so many base round trips a longer one than the kernel's is tested again. Doubled each time.
const RETEST_RTTS: u32 = 150;
const MAX_RETEST_DOUBLINGS: u32 = 3;
/// How long the window is lifted, the first time: what was lost until then was lost within a few round trips. Doubled each time.
const MIN_LIFT_TIME: Duration = Duration::from_secs(10);
const LIFT_RTTS: u32 = 40;
const MAX_LIFT_DOUBLINGS: u32 = 4;

/// Computes the window of a connection's bulk uploads.
#[derive(Debug, Default)]
pub(super) struct UploadWindow {
    /// Start of the current round, and the bytes that had arrived.
    round: Option<(Instant, u64)>,
    /// The shortest time that the current round takes.
    round_time: Duration,
    rates: Rates<RATE_ROUNDS>,
    state: WindowState,
    lifts: u32,
    retests: u32,
}

/// What happened in a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    now: Instant,
    rate: u64,
    /// The shortest round trip of credit; `None`: no upload was limited by credit.
    credit_rtt: Option<Duration>,
    demand: PacingDemand,
    path: ReceivePath,
}

#[derive(Debug)]
enum WindowState {
    /// There is no window; the rate is measured. In the sender's start, it still grows.
    Measuring {
        best_rate: u64,
        flat_rounds: u32,
    },
    Limited(Box<Limit>),
    Lifted {
        until: Instant,
    },
}

impl Default for WindowState {
    fn default() -> Self {
        Self::Measuring { best_rate: 0, flat_rounds: 0 }
    }
}

/// A window in effect.
#[derive(Debug)]
struct Limit {
    /// The rate that the uploads have a right to.
    rate: u64,
    /// The round trip of what the path itself holds: the kernel's minimum, or more if a trial has shown it.
    base_rtt: Duration,
    window_bytes: u64,
    phase: Phase,
    /// Rounds since the window changed whose rate shows its effect.
    rates: Rates<STEADY_ROUNDS>,
    min_credit_rtt: Duration,
    is_settling: bool,
    last_credit_rtt: Option<Duration>,
    outliers: u32,
    trials: u32,
    /// Whether a trial among them has enlarged the window, or reduced it.
    has_enlarged: bool,
    has_reduced: bool,
    quiet_rounds: u32,
    retest_at: Instant,
    losses: LossWatch,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Steady,
    Trial(Trial),
}

/// Whether the rate rises with a larger window.
#[derive(Clone, Copy, Debug)]
struct Trial {
    rounds: usize,
    rate_before: u64,
    window_before: u64,
    /// What the base round trip is if it rises.
    base_rtt: Duration,
}

/// What is to be done after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Lift(&'static str),
}

impl UploadWindow {
    /// Returns whether the current round is over, when `received` bytes have arrived in all.
    pub(super) fn is_round_over(&mut self, now: Instant, received: u64) -> bool {
        let (started_at, _) = *self.round.get_or_insert((now, received));
        now.saturating_duration_since(started_at) >= self.round_time.max(MIN_ROUND)
    }

    /// Takes into account that `received` bytes have arrived in all, and that `credit_rtt` was the shortest round trip of credit
    /// in the round that is over. Returns the window, if the round was as long as the path's round trip.
    pub(super) fn on_progress(
        &mut self,
        now: Instant,
        received: u64,
        credit_rtt: Option<Duration>,
        demand: PacingDemand,
        path: ReceivePath,
    ) -> Option<ReceiveWindow> {
        let (started_at, received_before) = self.round?;
        let time = now.saturating_duration_since(started_at);
        if time < path.min_rtt {
            self.round_time = path.min_rtt;
            return None;
        }
        self.round = Some((now, received));
        let credit_rtt = credit_rtt.filter(|_| matches!(self.state, WindowState::Limited(_)));
        // After a pause, the credit's round trip is as long as the pause was: rounds must not take as long.
        let credit_time = credit_rtt.unwrap_or_default().min(MAX_ROUND_TIME);
        self.round_time = path.min_rtt.max(credit_time);
        let rate = bytes_per_s(received.saturating_sub(received_before), time);
        self.rates.push(rate);
        self.on_round(Round { now, rate, credit_rtt, demand, path });
        Some(match &self.state {
            WindowState::Limited(limit) => ReceiveWindow::Bytes(limit.window_bytes),
            WindowState::Measuring { .. } | WindowState::Lifted { .. } => ReceiveWindow::Unlimited,
        })
    }

    fn on_round(&mut self, round: Round) {
        if round.path.min_rtt < MIN_PACED_RTT {
            self.state = WindowState::default();
            return;
        }
        match &mut self.state {
            WindowState::Measuring { best_rate, flat_rounds } => {
                if round.rate > *best_rate + *best_rate / 4 {
                    (*best_rate, *flat_rounds) = (round.rate, 0);
                    self.rates = Rates::default();
                    self.rates.push(round.rate);
                    return;
                }
                *flat_rounds = flat_rounds.saturating_add(1);
                if *flat_rounds >= FLAT_ROUNDS && round.demand == PacingDemand::Shared {
                    let limit = Limit::new(&round, self.rates.mean());
                    self.state = WindowState::Limited(Box::new(limit));
                }
            }
            WindowState::Limited(_) if round.demand == PacingDemand::BulkAlone => {
                let best_rate = self.rates.mean();
                self.state = WindowState::Measuring { best_rate, flat_rounds: FLAT_ROUNDS };
            }
            WindowState::Limited(limit) => {
                let verdict = limit.on_round(&round, self.rates.mean(), &mut self.retests);
                if let Verdict::Lift(reason) = verdict {
                    let rtt = limit.last_credit_rtt.unwrap_or_default();
                    let time = MIN_LIFT_TIME.max(rtt * LIFT_RTTS);
                    let time = time * (1 << self.lifts.min(MAX_LIFT_DOUBLINGS));
                    tracing::debug!(reason, ?time, "window of the bulk uploads lifted");
                    self.lifts += 1;
                    self.state = WindowState::Lifted { until: round.now + time };
                }
            }
            WindowState::Lifted { until } => {
                if round.now >= *until {
                    self.state = WindowState::default();
                }
            }
        }
    }
}

impl Limit {
    fn new(round: &Round, rate: u64) -> Self {
        let mut limit = Self {
            rate,
            base_rtt: round.path.min_rtt,
            window_bytes: 0,
            phase: Phase::Steady,
            rates: Rates::default(),
            min_credit_rtt: Duration::MAX,
            is_settling: true,
            last_credit_rtt: None,
            outliers: 0,
            trials: 0,
            has_enlarged: false,
            has_reduced: false,
            quiet_rounds: 0,
            retest_at: round.now,
            losses: LossWatch::new(round.path.out_of_order),
        };
        limit.window_bytes = limit.window(limit.base_rtt);
        limit
    }

    /// Returns the window for a base round trip.
    fn window(&self, base_rtt: Duration) -> u64 {
        bytes_within(self.rate, base_rtt + target(base_rtt)).max(MIN_WINDOW_BYTES)
    }

    fn on_round(&mut self, round: &Round, mean_rate: u64, retests: &mut u32) -> Verdict {
        let Some(credit_rtt) = round.credit_rtt else {
            // No upload waits for credit (also because it still has what was granted before): the rate is the clients' own,
            // and losses are not by this window.
            self.losses = LossWatch::new(round.path.out_of_order);
            if mean_rate > self.rate && matches!(self.phase, Phase::Steady) {
                self.rate = mean_rate;
                self.window_bytes = self.window(self.base_rtt);
            }
            return Verdict::Keep;
        };
        if self.losses.is_lossy(round.path.out_of_order) {
            return Verdict::Lift("losses");
        }
        if self.last_credit_rtt.is_some_and(|last| credit_rtt > last * 2) {
            self.outliers += 1;
            if self.outliers > MAX_OUTLIERS {
                return Verdict::Lift("credit takes much longer than before");
            }
            return Verdict::Keep;
        }
        self.outliers = 0;
        // Credit is announced when what was granted before is used up: the first round trip is already by this window.
        let is_first = self.last_credit_rtt.replace(credit_rtt).is_none();
        let is_settling = core::mem::take(&mut self.is_settling);
        if is_settling && !(is_first && self.is_rtt_long(credit_rtt)) {
            return Verdict::Keep;
        }
        self.rates.push(round.rate);
        self.min_credit_rtt = self.min_credit_rtt.min(credit_rtt);
        match self.phase {
            Phase::Steady => self.on_steady_round(round, mean_rate, retests),
            Phase::Trial(trial) if self.rates.len() >= trial.rounds => self.end_trial(round, trial),
            Phase::Trial(_) => Verdict::Keep,
        }
    }

    /// Returns whether credit's round trip is so long that the queue is not by this window, or the path is longer.
    fn is_rtt_long(&self, credit_rtt: Duration) -> bool {
        let is_steady = matches!(self.phase, Phase::Steady);
        is_steady && credit_rtt > (self.base_rtt + target(self.base_rtt)) * 2
    }

    fn on_steady_round(&mut self, round: &Round, mean_rate: u64, retests: &mut u32) -> Verdict {
        self.quiet_rounds += 1;
        if self.quiet_rounds >= QUIET_ROUNDS {
            self.forget_trials();
        }
        let is_full = self.rates.len() == STEADY_ROUNDS;
        let fast_rounds = self.fast_rounds();
        let (fast, steady) = (self.rates.mean_of_last(fast_rounds), self.rates.mean());
        let is_fast_known = self.rates.len() >= fast_rounds;
        if self.is_rtt_long(self.min_credit_rtt) {
            return self.begin_large_trial(fast);
        } else if is_fast_known && fast > percent(self.rate, 100 + GROWTH_PERCENT) {
            // All behind a lost packet arrives with it: a burst is not the rate of the path.
            self.rate = self.rate.max(fast.min(percent(mean_rate, 150)));
            self.set_window(percent(self.window(self.base_rtt), GROWTH_WINDOW_PERCENT));
            self.is_settling = false;
        } else if is_fast_known && self.window_bytes > self.window(self.base_rtt) {
            self.set_window(self.window(self.base_rtt));
        } else if is_full && steady > self.rate {
            self.rate = steady;
            self.window_bytes = self.window(self.base_rtt);
        } else if is_fast_known && fast < percent(self.rate, 100 - LARGE_FALL_PERCENT) {
            return self.begin_large_trial(fast);
        } else if is_full && steady < percent(self.rate, 100 - SMALL_FALL_PERCENT) {
            return self.begin_trial(steady, TRIAL_ROUNDS);
        } else if self.base_rtt > round.path.min_rtt && round.now >= self.retest_at {
            // The kernel's minimum again: what made it longer may have gone.
            *retests += 1;
            self.forget_trials();
            self.base_rtt = round.path.min_rtt;
            self.set_window(self.window(self.base_rtt));
        }
        if self.base_rtt == round.path.min_rtt {
            let retest_time = self.last_credit_rtt.unwrap_or_default() * RETEST_RTTS;
            self.retest_at = round.now + retest_time * (1 << (*retests).min(MAX_RETEST_DOUBLINGS));
        }
        Verdict::Keep
    }

    const fn forget_trials(&mut self) {
        self.trials = 0;
        (self.has_enlarged, self.has_reduced) = (false, false);
    }

    fn begin_large_trial(&mut self, rate: u64) -> Verdict {
        if self.has_enlarged || self.has_reduced {
            return Verdict::Lift("the window does not explain the rate");
        }
        self.begin_trial(rate, self.fast_rounds())
    }

    /// Returns in how many rounds enough bytes arrive for a rate.
    fn fast_rounds(&self) -> usize {
        let round_bytes = bytes_within(self.rate, self.last_credit_rtt.unwrap_or_default());
        let rounds = MIN_FAST_BYTES / round_bytes.max(1) + 1;
        usize::try_from(rounds).unwrap_or(STEADY_ROUNDS).clamp(FAST_ROUNDS, STEADY_ROUNDS)
    }

    /// The rate has fallen: tries whether a larger window brings it back.
    fn begin_trial(&mut self, rate_before: u64, rounds: usize) -> Verdict {
        self.trials += 1;
        self.quiet_rounds = 0;
        if self.trials > MAX_TRIALS {
            return Verdict::Lift("the rate falls again and again");
        }
        let base_rtt = self.min_credit_rtt.max(self.base_rtt);
        let window_before = self.window_bytes;
        self.phase = Phase::Trial(Trial { rounds, rate_before, window_before, base_rtt });
        self.set_window(self.window(base_rtt));
        Verdict::Keep
    }

    fn end_trial(&mut self, round: &Round, trial: Trial) -> Verdict {
        let (rate, before) = (self.rates.mean(), trial.rate_before);
        // By what the rate would have risen if only the window limited it.
        let window_rate = before.saturating_mul(self.window_bytes) / trial.window_before.max(1);
        let possible = window_rate.min(self.rate).saturating_sub(before);
        let rise = rate.saturating_sub(before);
        tracing::debug!(before, rate, possible, right = self.rate, ?trial, "upload trial");
        self.phase = Phase::Steady;
        if possible > 0 && rise >= percent(possible, MIN_RISE_PERCENT) {
            self.base_rtt = trial.base_rtt.max(round.path.min_rtt);
            self.has_enlarged = true;
        } else if rise >= percent(before, MAX_CHANCE_PERCENT) {
            return Verdict::Lift("others compete");
        } else if rate < percent(before, 100 - MAX_CHANCE_PERCENT) {
            // It was still falling.
            return self.begin_trial(rate, self.fast_rounds());
        } else {
            self.rate = rate;
            self.has_reduced = true;
        }
        self.set_window(self.window(self.base_rtt));
        Verdict::Keep
    }

    /// Sets the window, and waits for its effect: credit needs a round trip.
    fn set_window(&mut self, window_bytes: u64) {
        if let Some(rtt) = &mut self.last_credit_rtt
            && window_bytes > self.window_bytes
        {
            // What is beyond the path's own may be in its queue.
            *rtt = rtt.mul_f64(window_bytes as f64 / self.window_bytes as f64);
        }
        self.window_bytes = window_bytes;
        self.rates = Rates::default();
        self.min_credit_rtt = Duration::MAX;
        self.is_settling = true;
    }
}

/// Returns the queue that is kept, as a time.
fn target(base_rtt: Duration) -> Duration {
    MIN_TARGET.max(base_rtt / 4)
}

const fn percent(value: u64, percent: u64) -> u64 {
    value.saturating_mul(percent) / 100
}
