//! Competition: what bulk does while others keep the queue full.
//!
//! Bulk yields in vain then, so it competes under its congestion control, up to a fair part of the path if its rate is
//! known from the time before. That part is also the test of whose queue it is: if the queue drains, it was bulk's.

mod alone_probe;
mod alone_rate;
mod growth;
mod rate_test;

use std::time::Duration;

pub(crate) use alone_probe::AloneProbe;
pub(crate) use alone_rate::AloneRate;
use alone_rate::FAIR_SHARE;
use growth::RateGrowth;
pub(crate) use rate_test::Experience;
use rate_test::RateTests;
use smig_proto::Instant;

/// A queue up to this length is short on any path: it may be the process's timer.
const MIN_SHORT_QUEUE: Duration = Duration::from_millis(2);
/// Rounds with a short queue after which others have left.
const SHORT_ROUNDS: u32 = 3;
/// Rounds in which bulk fills its bound in flight and gets less than half of its fair part of the rate, after which the
/// path itself is taken to be slower.
const UNANSWERED_ROUNDS: u32 = 2;
/// Rounds in which the round-trip time does not change and bulk gets its fair part, after which the path itself is
/// taken to be longer: there is no queue.
const FLAT_ROUNDS: u32 = 6;
/// A part of the path that is less than this part of what is fair raises a doubt about its rate.
const MIN_FAIR_PART: f64 = 0.9;
/// While the path's rate is unknown, the round trip may become that much longer. Where it has, what bulk has in flight may grow
/// by this factor each round, as long as its rate does too: the tests show what the path carries only if they change enough.
const MAX_QUEUE_GROWTH: u32 = 2;
const QUEUED_GROWTH: f64 = 1.125;
/// Fewer packets in flight show nothing: a bound of none would stay one.
const MIN_IN_FLIGHT_PACKETS: f64 = 4.0;

/// What a round trip showed, while sharing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRound {
    pub(crate) now: Instant,
    /// The minimum round-trip time of the path and of this round.
    pub(crate) base: Duration,
    pub(crate) rtt: Duration,
    /// A queue up to this length counts as none.
    pub(crate) threshold: Duration,
    pub(crate) rate: f64,
    pub(crate) in_flight: f64,
    pub(crate) mss: u32,
}

impl SharedRound {
    fn queue(&self) -> Duration {
        self.rtt.saturating_sub(self.base)
    }

    /// Returns what is in flight, or a few packets if that is less.
    fn countable_in_flight(&self) -> f64 {
        self.in_flight.max(MIN_IN_FLIGHT_PACKETS * f64::from(self.mss))
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

#[derive(Debug)]
pub(crate) struct Sharing {
    rounds: u32,
    short_rounds: u32,
    unanswered_rounds: u32,
    flat_rounds: u32,
    flat_range: (Duration, Duration),
    max_queue: Duration,
    /// The highest rate of a round, since [`Self::forget`].
    highest_rate: f64,
    /// The queue at the beginning.
    first_queue: Duration,
    /// While the path's rate is unknown: what bulk may have in flight.
    most_in_flight: f64,
    growth: RateGrowth,
    /// The bound in flight during the last round.
    last_bound: f64,
    tests: RateTests,
}

impl Sharing {
    pub(crate) fn new(
        now: Instant,
        queue: Duration,
        first_test: Duration,
        experience: Experience,
    ) -> Self {
        Self {
            rounds: 0,
            short_rounds: 0,
            unanswered_rounds: 0,
            flat_rounds: 0,
            flat_range: (Duration::MAX, Duration::ZERO),
            max_queue: queue,
            highest_rate: 0.0,
            first_queue: queue,
            most_in_flight: f64::INFINITY,
            growth: RateGrowth::default(),
            last_bound: f64::INFINITY,
            tests: RateTests::new(now, first_test, experience),
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
            max_in_flight = max_in_flight.min(self.most_in_flight);
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
        self.limit_in_flight(round);
        // While the path's rate is unknown, a small share of a fast path would pass for a slow path, on which a few packets
        // are a long queue.
        let threshold = if alone.value() > 0.0 { round.threshold } else { MIN_SHORT_QUEUE };
        let short = threshold.max(round.base / 8).max(self.max_queue / 8);
        self.short_rounds = if round.queue() <= short { self.short_rounds + 1 } else { 0 };
        if self.short_rounds >= SHORT_ROUNDS {
            // A queue that a test drains was bulk's, and its rate nearly the path's.
            let is_tested = self.tests.may_show(self.rounds);
            let shown = self.path_rate().filter(|_| !is_tested);
            let carried = shown.unwrap_or(self.highest_rate);
            if carried > alone.value() || (is_tested && !alone.is_certain()) {
                // At least this much the path has carried.
                alone.reset(round.now, carried);
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
        if self.is_flat(round, alone.value()) && fair.is_some_and(|fair| round.rate > fair * 0.93) {
            return Verdict::LongerPath(self.flat_range.0);
        }
        self.advance_test(round, alone);
        self.last_bound = self.bounds(round.now, round.base, alone, probe).1;
        Verdict::Share
    }

    /// Others filled the queue to about what it was. What is more, bulk adds; but what others have added since is no reason to
    /// have less, nor is a test.
    fn limit_in_flight(&mut self, round: &SharedRound) {
        if round.rate <= 0.0 {
            return;
        }
        let is_tested = self.tests.may_show(self.rounds);
        if !is_tested {
            self.growth.on_round(round);
        }
        let most = (round.base + self.first_queue) * MAX_QUEUE_GROWTH;
        if round.rtt <= most && !is_tested {
            self.most_in_flight = round.rate * most.as_secs_f64();
        } else if self.most_in_flight == f64::INFINITY {
            self.most_in_flight = round.countable_in_flight();
        } else if round.in_flight > self.last_bound / 2.0
            && !is_tested
            && self.growth.allows(self.most_in_flight)
        {
            // In a queue that others make longer, as many bytes would be an ever smaller share.
            self.most_in_flight *= QUEUED_GROWTH;
        }
    }

    /// Beside others, more in flight is a larger share. Where it is not, the path itself is slower.
    fn note_answer(&mut self, round: &SharedRound, fair: f64, alone: &mut AloneRate) {
        if self.tests.may_show(self.rounds) {
            // It has less by itself.
            self.unanswered_rounds = 0;
            return;
        }
        let fills = round.in_flight > self.last_bound * 0.85;
        let is_unanswered = fills && round.rate < fair / 2.0;
        self.unanswered_rounds = if is_unanswered { self.unanswered_rounds + 1 } else { 0 };
        if self.unanswered_rounds >= UNANSWERED_ROUNDS {
            alone.reset(round.now, round.rate);
            self.forget(round.rate);
        }
    }

    /// Forgets what the path has carried before, and what tests have shown.
    fn forget(&mut self, rate: f64) {
        self.highest_rate = rate;
        self.tests.forget();
    }

    /// A queue that others fill changes; a path does not.
    fn is_flat(&mut self, round: &SharedRound, rate: f64) -> bool {
        if self.tests.is_running() {
            return false;
        }
        let (low, high) = self.flat_range;
        self.flat_range = (low.min(round.rtt), high.max(round.rtt));
        self.flat_rounds += 1;
        let three_packets = 3.0 * f64::from(round.mss) / rate.max(round.rate).max(1.0);
        let tolerance = Duration::from_secs_f64(three_packets.clamp(0.001, 1.0));
        if self.flat_range.1 - self.flat_range.0 > tolerance {
            self.flat_range = (round.rtt, round.rtt);
            self.flat_rounds = 0;
        }
        self.flat_rounds >= FLAT_ROUNDS
    }

    /// Returns whether the path's rate is unknown, or probably less than what was guessed: bulk does not get its part of that, and the
    /// queue has become much longer than others filled it.
    fn is_rate_doubtful(&self, round: &SharedRound, alone: &AloneRate) -> bool {
        let Some(fair) = alone.fair_share(round.now) else { return true };
        let is_long = round.queue() > self.first_queue * MAX_QUEUE_GROWTH + round.base;
        !alone.is_certain() && is_long && round.rate < fair * MIN_FAIR_PART
    }

    fn advance_test(&mut self, round: &SharedRound, alone: &mut AloneRate) {
        let is_doubtful = self.is_rate_doubtful(round, alone);
        if self.tests.on_round(self.rounds, round, is_doubtful)
            && self.tests.are_enough()
            && let Some(rate) = self.path_rate()
        {
            alone.reset(round.now, rate);
        }
    }

    /// Returns the rate of the whole path as far as is known.
    fn path_rate(&self) -> Option<f64> {
        self.tests.path_rate(self.highest_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);

    #[test]
    fn a_path_that_has_slowed_down_is_not_taken_for_what_it_was() {
        let at = |round: u64| Instant::from_nanos(round * 100_000_000);
        let mut alone = AloneRate::new(at(0));
        alone.reset(at(0), 1_250_000.0);
        let mut sharing = Sharing::new(at(0), BASE, Duration::from_secs(2), Experience::default());
        let mut probe = AloneProbe::new(at(0));
        let mut end_round = |number, queue, rate, in_flight| {
            let threshold = Duration::from_millis(10);
            let (now, rtt) = (at(number), BASE + queue);
            let round = SharedRound { now, base: BASE, rtt, threshold, rate, in_flight, mss: 1448 };
            sharing.on_round(&round, &mut alone, &mut probe)
        };
        assert_eq!(end_round(1, BASE, 600_000.0, 20_000.0), Verdict::Share);
        // As much in flight as allowed gives no larger share any more.
        assert_eq!(end_round(2, BASE, 125_000.0, 90_000.0), Verdict::Share);
        assert_eq!(end_round(3, BASE, 125_000.0, 90_000.0), Verdict::Share);
        let verdicts: Vec<_> =
            (4..7).map(|number| end_round(number, Duration::ZERO, 125_000.0, 6_000.0)).collect();
        assert_eq!(verdicts[2], Verdict::Alone { were_others: false });
        assert!(alone.value() < 130_000.0, "{}", alone.value());
    }

    /// Ends rounds of 100 ms with this round trip, rate and bytes in flight; returns the last bound in flight.
    fn bound_after(
        sharing: &mut Sharing,
        alone: &mut AloneRate,
        probe: &mut AloneProbe,
        numbers: std::ops::Range<u64>,
        round_of: impl Fn(f64) -> (u64, f64, f64),
    ) -> f64 {
        let mut bound = f64::INFINITY;
        for number in numbers {
            let (millis, rate, in_flight) = round_of(bound);
            let round = SharedRound {
                now: Instant::from_nanos(number * 100_000_000),
                base: BASE,
                // A path that does not change would have no queue.
                rtt: Duration::from_millis(millis + number % 3 * 10),
                threshold: Duration::from_millis(10),
                rate,
                in_flight,
                mss: 1448,
            };
            assert_eq!(sharing.on_round(&round, alone, probe), Verdict::Share);
            bound = sharing.bounds(round.now, BASE, alone, probe).1;
        }
        bound
    }

    #[test]
    fn a_queue_that_others_make_longer_does_not_shrink_bulk_to_nothing() {
        let now = Instant::from_nanos(0);
        let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
        let queue = Duration::from_millis(60);
        let first_test = Duration::from_millis(500);
        let mut sharing = Sharing::new(now, queue, first_test, Experience::default());
        // 650 ms instead of 110: three times what bulk may at most make of it. A test halves what is in flight, and shows nothing.
        let mut in_flight = 60_000.0;
        for number in 1..400 {
            let is_testing = sharing.is_testing();
            let bound =
                bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, |_| {
                    (650, in_flight / 0.7, in_flight)
                });
            in_flight = bound.min(60_000.0) / if is_testing { 2.0 } else { 1.0 };
        }
        assert!(in_flight >= 30_000.0, "{in_flight}");
    }

    #[test]
    fn a_share_of_a_long_queue_grows_until_tests_can_show_something() {
        let now = Instant::from_nanos(0);
        let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
        let first_test = Duration::from_millis(500);
        let queue = Duration::from_millis(60);
        let mut sharing = Sharing::new(now, queue, first_test, Experience::default());
        // 650 ms instead of 110 from the first round on, with ten packets in flight. Here no test shortens the queue.
        let mut in_flight = 15_000.0;
        for number in 1..600 {
            let is_testing = sharing.is_testing();
            let bound =
                bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, |_| {
                    (650, in_flight / 0.65, in_flight)
                });
            in_flight = bound.min(200_000.0) / if is_testing { 2.0 } else { 1.0 };
        }
        assert!(in_flight > 60_000.0, "{in_flight}");
    }

    #[test]
    fn a_slower_path_is_not_what_tests_have_shown_before() {
        let at = |round: u64| Instant::from_nanos(round * 100_000_000);
        let (mut alone, mut probe) = (AloneRate::new(at(0)), AloneProbe::new(at(0)));
        alone.reset(at(0), 1_250_000.0);
        let mut experience = Experience::default();
        experience.add(200_000.0, 0.16);
        let mut sharing = Sharing::new(at(0), BASE, Duration::from_secs(1000), experience);
        bound_after(&mut sharing, &mut alone, &mut probe, 1..6, |_| (150, 60_000.0, 1e9));
        assert!(alone.value() < 70_000.0, "{}", alone.value());
        assert_eq!(sharing.path_rate(), None);
    }

    #[test]
    fn a_rate_that_is_not_known_for_certain_is_not_probed_for() {
        let now = Instant::from_nanos(0);
        let (mut alone, mut probe) = (AloneRate::new(now), AloneProbe::new(now));
        alone.update(now, 1_250_000.0);
        let mut sharing = Sharing::new(now, BASE, Duration::from_secs(1000), Experience::default());
        // Its fair part is 687,500: for certain, it is probed for.
        let fair = |_| (100, 680_000.0, 68_000.0);
        let mut probes = 0;
        for number in 1..100 {
            bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, fair);
            probes += u32::from(probe.is_running());
        }
        assert!(probes > 0);
        // A share of a fifth resets what is known, and ends a probe.
        let share = |_| (100, 250_000.0, 1e9);
        bound_after(&mut sharing, &mut alone, &mut probe, 100..110, share);
        assert!(alone.value() < 300_000.0);
        for number in 110..400 {
            bound_after(&mut sharing, &mut alone, &mut probe, number..number + 1, share);
            assert!(!probe.is_running());
        }
    }
}
