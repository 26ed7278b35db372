//! What the path carries, where that is not known: for a few rounds bulk sends at half of its rate.
//!
//! If that drains the queue, it was bulk's. Otherwise others feed it. Their windows stay as they are for a few round trips, so
//! the queue shrinks by what bulk has less in it: that shows the rate of the whole path.

use std::time::Duration;

use smig_proto::Instant;

use super::{SHORT_ROUNDS, SharedRound};
use crate::sample::USUAL_MSS;

/// Rounds of a test, and the time between tests.
const ROUNDS: u32 = 3;
const MIN_INTERVAL: Duration = Duration::from_secs(2);
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// Tests after which what they have shown together counts as the path's rate: where others' windows fall during one of them,
/// its result alone is too low.
const MIN_RESULTS: u32 = 3;
/// The least that bulk has less in flight for a result.
const MIN_LESS_PACKETS: f64 = 4.0;
/// A smaller difference of the round trip may be the process's timer, or that of a few packets on a slow path.
const MIN_SHORTER_S: f64 = 0.004;
const MIN_SHORTER_PACKETS: f64 = 3.0;

/// The tests of the path's rate, while bulk shares it.
#[derive(Debug)]
pub(super) struct RateTests {
    running: Option<Running>,
    /// What the tests have shown, and how many have shown something, since [`Self::forget`].
    experience: Experience,
    results: u32,
    /// The last round that may still show what a test has changed.
    last_shown: u32,
    next: Instant,
    interval: Duration,
}

/// What there was when a test began.
#[derive(Clone, Copy, Debug)]
struct Running {
    rate: f64,
    queue: Duration,
    in_flight: f64,
    rounds: u32,
}

impl RateTests {
    /// Begins with what is known already; the first test is due after this time.
    pub(super) fn new(now: Instant, first_test: Duration, experience: Experience) -> Self {
        Self {
            running: None,
            experience,
            results: 0,
            last_shown: 0,
            next: now + first_test,
            interval: MIN_INTERVAL,
        }
    }

    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the rate of bulk while a test runs.
    pub(super) fn rate(&self) -> Option<f64> {
        self.running.map(|test| test.rate / 2.0)
    }

    /// Returns whether the round of this number may show what a test has changed.
    pub(super) const fn may_show(&self, number: u32) -> bool {
        self.running.is_some() || number <= self.last_shown
    }

    /// Returns whether there are enough results for a rate.
    pub(super) const fn are_enough(&self) -> bool {
        self.results >= MIN_RESULTS
    }

    pub(super) fn forget(&mut self) {
        (self.experience, self.results) = (Experience::default(), 0);
    }

    /// Ends the round of this number. `is_doubtful`: the path's rate is worth a test. Returns whether one has ended
    /// with a result.
    pub(super) fn on_round(&mut self, number: u32, round: &SharedRound, is_doubtful: bool) -> bool {
        match &mut self.running {
            None if round.now >= self.next && is_doubtful => {
                let (rate, in_flight) = (round.rate, round.in_flight);
                self.running = Some(Running { rate, queue: round.queue(), in_flight, rounds: 0 });
                false
            }
            Some(test) if test.rounds + 1 < ROUNDS => {
                test.rounds += 1;
                false
            }
            Some(test) => {
                let test = *test;
                self.end(number, round, test)
            }
            None => false,
        }
    }

    fn end(&mut self, number: u32, round: &SharedRound, test: Running) -> bool {
        self.running = None;
        self.last_shown = number + SHORT_ROUNDS;
        self.next = round.now + self.interval;
        self.interval = (self.interval * 2).min(MAX_INTERVAL);
        let less = test.in_flight - round.in_flight;
        if less < MIN_LESS_PACKETS * f64::from(round.mss) {
            return false;
        }
        self.experience.add(less, test.queue.as_secs_f64() - round.queue().as_secs_f64());
        self.results += 1;
        true
    }

    /// Returns the rate of the whole path, bytes per second, as far as is known, where bulk had at most `highest`.
    pub(super) fn path_rate(&self, highest: f64) -> Option<f64> {
        let packets = MIN_SHORTER_PACKETS * f64::from(USUAL_MSS) / highest.max(1.0);
        Some(self.experience.path_rate(packets)?.max(highest))
    }
}

/// By how much the round trip became shorter when bulk had less in flight: that shows the rate of the whole path, while others' windows
/// stay as they are. They do not quite, so all of it counts together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Experience {
    less: f64,
    shorter: f64,
}

impl Experience {
    /// Adds bytes, and seconds.
    pub(crate) fn add(&mut self, less: f64, shorter: f64) {
        self.less += less;
        self.shorter += shorter;
    }

    /// Returns bytes per second, if the round trip became shorter by more than so many seconds.
    pub(crate) fn path_rate(&self, min_shorter: f64) -> Option<f64> {
        (self.shorter > MIN_SHORTER_S.max(min_shorter)).then(|| self.less / self.shorter)
    }
}
