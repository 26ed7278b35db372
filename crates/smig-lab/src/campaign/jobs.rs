//! How many trials run at the same time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::scenario::{Scenario, Trial};
use crate::trial::{estimated_duration, estimated_load};

/// Share of the processors that trials may keep busy on average: the link of one must not wait for another.
const BUSY_SHARE: f64 = 0.6;

/// Maximum number of trials per processor, however little each does.
const MAX_PER_PROCESSOR: usize = 10;

/// Interval at which a waiting trial looks whether the campaign was stopped.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How many trials run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// This number.
    Number(usize),
    /// As many as keep this number of processors busy in part, by an estimate of each trial's load: few over fast links, many over slow
    /// ones.
    ByLoad {
        /// Number of processors.
        processors: usize,
    },
}

impl Jobs {
    /// Returns as many as the machine's processors can carry.
    #[must_use]
    pub fn by_load() -> Self {
        Self::ByLoad { processors: thread::available_parallelism().map_or(1, usize::from) }
    }

    /// Returns the number that is never exceeded.
    #[must_use]
    pub fn max(self) -> usize {
        match self {
            Self::Number(number) => number.max(1),
            Self::ByLoad { processors } => processors.max(1) * MAX_PER_PROCESSOR,
        }
    }

    /// Returns the part of the limit that a trial takes: 1 if it runs alone.
    fn share(self, scenario: &Scenario) -> f64 {
        let by_number = 1.0 / self.max() as f64;
        match self {
            Self::Number(_) => by_number,
            Self::ByLoad { processors } => {
                let limit = processors.max(1) as f64 * BUSY_SHARE;
                (estimated_load(scenario) / limit).clamp(by_number, 1.0)
            }
        }
    }

    /// Estimates what a trial adds to the duration of a campaign.
    #[must_use]
    pub fn estimated_time(self, scenario: &Scenario) -> Duration {
        let seconds = estimated_duration(scenario).as_secs_f64() * self.share(scenario);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Estimates the duration of a campaign.
    #[must_use]
    pub fn total_time<'a>(self, trials: impl IntoIterator<Item = &'a Trial>) -> Duration {
        let times = trials.into_iter().map(|trial| self.estimated_time(&trial.scenario));
        times.fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// Holds trials back while others take the whole limit.
pub(super) struct Gate {
    jobs: Jobs,
    taken: Mutex<f64>,
    freed: Condvar,
}

/// A running trial's part of the limit.
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    share: f64,
}

impl Gate {
    pub(super) const fn new(jobs: Jobs) -> Self {
        Self { jobs, taken: Mutex::new(0.0), freed: Condvar::new() }
    }

    /// Waits until the trial fits beside those that run; `None` if the campaign is stopped before.
    pub(super) fn enter(&self, scenario: &Scenario, stop: &CancellationToken) -> Option<Pass<'_>> {
        let share = self.jobs.share(scenario);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Sums of fractions are not exact.
        while *taken > 1e-6 && *taken + share > 1.0 + 1e-6 {
            if stop.is_cancelled() {
                return None;
            }
            let waited = self.freed.wait_timeout(taken, STOP_POLL_INTERVAL);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += share;
        Some(Pass { gate: self, share })
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *self.gate.taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.share;
        self.gate.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    fn scenario(link: &str) -> Scenario {
        let text = format!(
            "link = '{link}'\n[servers.s]\nkind = 'smig'\n[clients.c]\nkind = 'smig'\n\
             [workload]\nsettle = '0'\npages.p = {{ tiles = {{ objects = 6, total = '40kB' }} }}\n"
        );
        let campaign = parse(&text, "test", std::path::Path::new("/"), &|_| Ok(())).unwrap();
        campaign.conditions[0].scenario.clone()
    }

    /// Returns how many trials enter before the next one would wait.
    fn fitting(jobs: Jobs, scenario: &Scenario) -> usize {
        let (gate, stop) = (Gate::new(jobs), CancellationToken::new());
        stop.cancel();
        let mut passes = Vec::new();
        while let Some(pass) = gate.enter(scenario, &stop) {
            passes.push(pass);
        }
        assert!(passes.len() <= jobs.max());
        // What ends makes room for as much again.
        drop(passes.pop());
        assert!(gate.enter(scenario, &stop).is_some());
        passes.len() + 1
    }

    #[test]
    fn more_trials_fit_over_slow_links_and_never_more_than_the_maximum() {
        let (fast, slow) = (scenario("fiber"), scenario("slowdown"));
        let by_load = Jobs::ByLoad { processors: 2 };
        assert_eq!((fitting(by_load, &fast), fitting(by_load, &slow)), (2, 20));
        assert_eq!(fitting(Jobs::ByLoad { processors: 8 }, &fast), 8);
        assert_eq!(by_load.max(), 20);
        for number in [1, 3, 12] {
            assert_eq!(fitting(Jobs::Number(number), &fast), number);
        }
        assert_eq!(fitting(Jobs::Number(0), &fast), 1);
    }

    #[test]
    fn the_time_of_a_campaign_is_that_of_what_runs_side_by_side() {
        let slow = scenario("slowdown");
        let alone = estimated_duration(&slow).as_secs_f64();
        let part = |jobs: Jobs| jobs.estimated_time(&slow).as_secs_f64() / alone;
        assert!((part(Jobs::Number(4)) - 0.25).abs() < 1e-6);
        assert!((part(Jobs::ByLoad { processors: 2 }) - 0.05).abs() < 1e-6);
        let fast = scenario("fiber");
        let times = [Jobs::ByLoad { processors: 2 }, Jobs::ByLoad { processors: 4 }]
            .map(|jobs| jobs.estimated_time(&fast).as_secs_f64());
        assert!((times[0] - 2.0 * times[1]).abs() < 1e-6, "{times:?}");
    }
}
