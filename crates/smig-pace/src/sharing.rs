//! Competition: what bulk does while others keep the queue full.
//!
//! Bulk yields in vain then, so it competes under its congestion control, up to a fair part of the path if its rate is
//! known from the time before. That part is also the test of whose queue it is: if the queue drains, it was bulk's.

mod alone_probe;
mod alone_rate;
mod flat_rtt;
mod growth;
mod in_flight_limit;
mod rate_test;

use std::time::Duration;

pub(crate) use alone_probe::AloneProbe;
pub(crate) use alone_rate::AloneRate;
use alone_rate::FAIR_SHARE;
use flat_rtt::FlatRtt;
use in_flight_limit::InFlightLimit;
pub(crate) use rate_test::Experience;
use rate_test::RateTests;
use smig_proto::Instant;

/// A queue up to this length is short on any path: it may be the process's timer.
const MIN_SHORT_QUEUE: Duration = Duration::from_millis(2);
/// Rounds with a short queue after which others have left.
const SHORT_ROUNDS: u32 = 3;
/// One of which only the kernel's smoothed round trip is known, as on long paths where samples are far apart, counts as this part of a
/// round.
const UNMEASURED_WEIGHT: f64 = 0.25;
/// Rounds in which bulk fills its bound in flight and gets less than half of its fair part of the rate, after which the
/// path itself is taken to be slower.
const UNANSWERED_ROUNDS: u32 = 2;
/// The same if the rate is less than this part of what is fair, and hardly more than when bulk began to share, although so many times
/// as much is in flight in a queue that is much longer. Filling a bound of many times what a slower path holds would take tens of seconds.
const MAX_VAIN_PART: f64 = 0.25;
const MIN_GAIN: f64 = 1.25;
const VAIN_GROWTH: f64 = 4.0;
/// Rounds in which the round-trip time does not change and bulk gets its fair part, after which the path itself is
/// taken to be longer: there is no queue.
const FLAT_ROUNDS: u32 = 6;
/// A part of the path that is less than this part of what is fair raises a doubt about its rate.
const MIN_FAIR_PART: f64 = 0.9;
/// Fewer packets in flight show nothing: a bound of none would stay one.
const MIN_IN_FLIGHT_PACKETS: f64 = 4.0;

/// What a round trip showed, while sharing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRound {
    pub(crate) now: Instant,
    /// The minimum round-trip time of the path and of this round.
    pub(crate) base: Duration,
    pub(crate) rtt: Duration,
    /// Whether that of this round is measured. If not, it is the kernel's smoothed one, which on a new connection remains that of the
    /// handshake for long.
    pub(crate) is_rtt_measured: bool,
    /// A queue up to this length counts as none.
    pub(crate) threshold: Duration,
    /// Bytes per second, and bytes, of bulk and all else.
    pub(crate) rate: f64,
    pub(crate) in_flight: f64,
    pub(crate) has_losses: bool,
    pub(crate) mss: u32,
}

impl SharedRound {
    fn queue(&self) -> Duration {
        self.rtt.saturating_sub(self.base)
    }

    /// Returns these bytes in flight, or a few packets if that is less.
    fn countable(&self, in_flight: f64) -> f64 {
        in_flight.max(MIN_IN_FLIGHT_PACKETS * f64::from(self.mss))
    }
}

/// Whether bulk goes on sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Share,
    /// Only bulk fills the queue. `were_others`: sharing lasted so long that others probably filled it before.
    Alone {
        were_others: bool,
    },
    /// There is no queue: the path itself takes this long.
    LongerPath(Duration),
}

/// What there was when bulk began to share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharingStart {
    pub(crate) now: Instant,
    pub(crate) queue: Duration,
    /// Whether a round trip was measured in this round; if not, the queue is what the kernel smoothed.
    pub(crate) is_queue_measured: bool,
    /// Bytes per second, and bytes in flight.
    pub(crate) rate: f64,
    pub(crate) in_flight: f64,
}

#[derive(Debug)]
pub(crate) struct Sharing {
    /// Bytes per second, and bytes in flight, at the beginning.
    start_rate: f64,
    start_in_flight: f64,
    rounds: u32,
    short_rounds: f64,
    unanswered_rounds: u32,
    flat: FlatRtt,
    max_queue: Duration,
    /// The highest rate of a round, since [`Self::forget`].
    highest_rate: f64,
    limit: InFlightLimit,
    /// The bound in flight during the last round.
    last_bound: f64,
    tests: RateTests,
}

impl Sharing {
    /// The first test of the path's rate is due after this time.
    pub(crate) fn new(start: SharingStart, first_test: Duration, experience: Experience) -> Self {
        Self {
            start_rate: start.rate,
            start_in_flight: start.in_flight,
            rounds: 0,
            short_rounds: 0.0,
            unanswered_rounds: 0,
            flat: FlatRtt::new(),
            max_queue: start.queue,
            highest_rate: 0.0,
            limit: InFlightLimit::new(&start),
            last_bound: f64::INFINITY,
            tests: RateTests::new(start.now, first_test, experience),
        }
    }

    /// Returns bytes per second, and bytes in flight; infinite is no limit.
    pub(crate) fn bounds(
        &self,
        now: Instant,
        base: Duration,
        alone: &AloneRate,
        probe: &AloneProbe,
    ) -> (f64, f64) {
        let fair_share = alone.fair_share(now);
        let known = fair_share.map(|fair| probe.rate(alone.value()).unwrap_or(fair));
        let fair = known.or_else(|| Some(self.path_rate()? * FAIR_SHARE));
        let time = base.as_secs_f64() + self.max_queue.as_secs_f64() * 1.25;
        let mut max_in_flight = fair.map_or(f64::INFINITY, |fair| fair * time);
        if !alone.is_certain() || fair.is_none() {
            max_in_flight = max_in_flight.min(self.limit.value());
        }
        // The bound in flight is kept only beside a rate.
        let cap = self.tests.rate().or(fair);
        let cap = cap.unwrap_or(max_in_flight / base.as_secs_f64());
        (cap, max_in_flight)
    }

    /// Returns whether bulk sends at half of the rate.
    pub(crate) const fn is_testing(&self) -> bool {
        self.tests.is_running()
    }

    /// Notes a queue between two rounds.
    pub(crate) fn on_queue(&mut self, queue: Duration) {
        self.max_queue = self.max_queue.max(queue);
    }

    /// Ends a round.
    pub(crate) fn on_round(
        &mut self,
        round: &SharedRound,
        alone: &mut AloneRate,
        probe: &mut AloneProbe,
    ) -> Verdict {
        self.rounds += 1;
        self.highest_rate = self.highest_rate.max(round.rate);
        let is_tested = self.tests.may_show(self.rounds);
        if !self.tests.is_running() {
            self.flat.on_round(round, alone.value());
        }
        self.limit.on_round(round, is_tested, self.last_bound, &self.flat);
        // While the path's rate is unknown, a small share of a fast path would pass for a slow path, on which a few packets
        // are a long queue.
        let threshold = if alone.value() > 0.0 { round.threshold } else { MIN_SHORT_QUEUE };
        let short = threshold.max(round.base / 8).max(self.max_queue / 8);
        let weight = if round.is_rtt_measured { 1.0 } else { UNMEASURED_WEIGHT };
        self.short_rounds = if round.queue() <= short { self.short_rounds + weight } else { 0.0 };
        if self.short_rounds >= f64::from(SHORT_ROUNDS) {
            // A queue that a test drains was bulk's, and its rate nearly the path's.
            let shown = self.path_rate().filter(|_| !is_tested);
            let carried = shown.unwrap_or(self.highest_rate);
            if carried > alone.value() || (is_tested && !alone.is_certain()) {
                // At least this much the path has carried.
                alone.reset(round.now, carried);
            } else if is_tested {
                // BBR and losses of others empty a queue, too.
                alone.doubt();
            }
            return Verdict::Alone { were_others: self.rounds > 8 };
        }
        let fair = alone.fair_share(round.now);
        if fair.is_none() && self.tests.are_enough() {
            self.forget(round.rate);
        }
        if let Some(fair) = fair {
            self.note_answer(round, fair, alone);
        }
        match fair.filter(|_| alone.is_certain()) {
            Some(fair) => {
                if let Some(rtt) = probe.on_round(round, fair, alone.value()) {
                    return Verdict::LongerPath(rtt);
                }
            }
            // What tests have shown of the path's rate is too uncertain.
            None => probe.cancel(),
        }
        let is_flat = self.flat.rounds() >= FLAT_ROUNDS && !self.tests.is_running();
        if is_flat && fair.is_some_and(|fair| round.rate > fair * 0.93) {
            return Verdict::LongerPath(self.flat.shortest());
        }
        self.advance_test(round, alone);
        self.last_bound = self.bounds(round.now, round.base, alone, probe).1;
        Verdict::Share
    }

    /// Beside others, more in flight is a larger share. Where it is not, the path itself is slower.
    fn note_answer(&mut self, round: &SharedRound, fair: f64, alone: &mut AloneRate) {
        if self.tests.may_show(self.rounds) {
            // It has less by itself.
            self.unanswered_rounds = 0;
            return;
        }
        let fills = round.in_flight > self.last_bound * 0.85;
        let is_unanswered = (fills && round.rate < fair / 2.0) || self.is_in_vain(round, fair);
        self.unanswered_rounds = if is_unanswered { self.unanswered_rounds + 1 } else { 0 };
        if self.unanswered_rounds >= UNANSWERED_ROUNDS {
            alone.reset(round.now, round.rate);
            self.forget(round.rate);
        }
    }

    /// Returns whether nothing is gained by much more in flight.
    fn is_in_vain(&self, round: &SharedRound, fair: f64) -> bool {
        round.rate < fair * MAX_VAIN_PART
            && round.rate < self.start_rate * MIN_GAIN
            && round.in_flight > round.countable(self.start_in_flight) * VAIN_GROWTH
            && self.limit.is_exceeded(round)
    }

    /// Forgets what the path has carried before, and what tests have shown.
    fn forget(&mut self, rate: f64) {
        self.highest_rate = rate;
        self.tests.forget();
    }

    /// Returns whether the path's rate is unknown, or probably less than it was: bulk does not get its part of that, and the
    /// queue has become much longer than others filled it.
    fn is_rate_doubtful(&self, round: &SharedRound, alone: &AloneRate) -> bool {
        let Some(fair) = alone.fair_share(round.now) else { return true };
        self.limit.is_exceeded(round) && round.rate < fair * MIN_FAIR_PART
    }

    fn advance_test(&mut self, round: &SharedRound, alone: &mut AloneRate) {
        let is_doubtful = self.is_rate_doubtful(round, alone);
        if self.tests.on_round(self.rounds, round, is_doubtful)
            && self.tests.are_enough()
            && let Some(rate) = self.path_rate()
        {
            if alone.is_certain() {
                alone.doubt();
                self.forget(round.rate);
            } else {
                alone.reset(round.now, rate);
            }
        }
    }

    /// Returns the rate of the whole path as far as is known.
    fn path_rate(&self) -> Option<f64> {
        self.tests.path_rate(self.highest_rate)
    }
}

#[cfg(test)]
mod tests;
