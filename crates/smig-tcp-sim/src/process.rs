//! When the server's process runs: an acknowledgement does not wake it.

use std::time::Duration;

use smig_link::Time;

/// A process that does not always run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// It runs this long...
    pub run: Duration,
    /// ...of each such period.
    pub period: Duration,
}

/// The resolution of its timer, as of tokio's.
const TIMER_TICK: Duration = Duration::from_millis(1);

/// A process that waits for events and for its timer.
#[derive(Debug)]
pub(crate) struct Process {
    schedule: Option<Schedule>,
    timer: Option<Time>,
}

impl Process {
    pub(crate) const fn new(schedule: Option<Schedule>) -> Self {
        Self { schedule, timer: None }
    }

    /// Returns when it runs next: at once for an event, otherwise by its timer; in either case only while it is
    /// scheduled.
    pub(crate) fn next_run(&self, now: Time, has_event: bool) -> Option<Time> {
        let at = if has_event { now } else { self.timer?.max(now) };
        let Some(Schedule { run, period }) = self.schedule else { return Some(at) };
        let offset = at.as_nanos() % period.as_nanos() as u64;
        let wait =
            if offset < run.as_nanos() as u64 { 0 } else { period.as_nanos() as u64 - offset };
        Some(Time::from_nanos(at.as_nanos() + wait))
    }

    /// Begins a run if one is due: disarms the timer if it has fired. Returns whether it runs now.
    pub(crate) fn begin_run(&mut self, now: Time, has_event: bool) -> bool {
        let runs = self.next_run(now, has_event).is_some_and(|at| at <= now);
        if runs && self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
        }
        runs
    }

    /// Arms the timer, unless it fires sooner anyhow: as in the driver, a deadline that moves later does not reset it.
    /// It waits for whole ticks, from now until the first one that is not before the deadline.
    pub(crate) fn arm(&mut self, now: Time, deadline: Option<Time>) {
        let Some(deadline) = deadline else { return };
        let tick = TIMER_TICK.as_nanos() as u64;
        let ticks = deadline.max(now).as_nanos().div_ceil(tick) - now.as_nanos() / tick;
        let at = Time::from_nanos(now.as_nanos() + ticks * tick);
        self.timer = Some(self.timer.map_or(at, |armed| armed.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_us(micros: u64) -> Time {
        Time::from_nanos(micros * 1000)
    }

    #[test]
    fn it_runs_for_an_event_and_by_its_timer() {
        let mut process = Process::new(None);
        assert_eq!(process.next_run(at_us(100), false), None);
        assert!(!process.begin_run(at_us(100), false));
        assert!(process.begin_run(at_us(100), true));
        // The next tick after the deadline, and the part of a tick that has passed when the timer is armed.
        process.arm(at_us(300), Some(at_us(1_500)));
        assert_eq!(process.next_run(at_us(300), false), Some(at_us(2_300)));
        process.arm(at_us(400), Some(at_us(9_000)));
        assert_eq!(process.next_run(at_us(400), false), Some(at_us(2_300)), "not reset");
        assert!(!process.begin_run(at_us(2_299), false));
        assert!(process.begin_run(at_us(2_300), false));
        assert!(!process.begin_run(at_us(2_300), false), "it has fired");
    }

    #[test]
    fn it_runs_only_while_it_is_scheduled() {
        let ms = Duration::from_millis;
        let mut process = Process::new(Some(Schedule { run: ms(10), period: ms(100) }));
        assert!(process.begin_run(at_us(109_000), true));
        assert!(!process.begin_run(at_us(110_000), true));
        assert_eq!(process.next_run(at_us(110_000), true), Some(at_us(200_000)));
        process.arm(at_us(105_000), Some(at_us(150_000)));
        assert_eq!(process.next_run(at_us(106_000), false), Some(at_us(200_000)));
    }
}
