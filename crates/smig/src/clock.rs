//! Real time in the engine's unit: nanoseconds since the first call in this process.
//!
//! The engine reads no clock: all times that are passed to it are from this module.

use std::cell::Cell;
use std::sync::OnceLock;

use smig_proto::Instant;
use tokio::time::Instant as TokioInstant;

fn origin() -> TokioInstant {
    static ORIGIN: OnceLock<TokioInstant> = OnceLock::new();
    *ORIGIN.get_or_init(TokioInstant::now)
}

/// Returns the current time.
pub(crate) fn now() -> Instant {
    from_tokio(TokioInstant::now())
}

thread_local! {
    /// The beginning of the turn that runs on this thread.
    static TURN: Cell<Option<TokioInstant>> = const { Cell::new(None) };
}

/// Returns the current time, for a handler that uses it for each request: HTTP/2 requests that are handled together, without
/// waiting, get the same, for one reading of the clock, which may lie before one that the caller has made meanwhile. Everywhere
/// else it is the time of tokio's clock.
#[must_use]
pub fn turn_time() -> std::time::Instant {
    TURN.get().unwrap_or_else(TokioInstant::now).into_std()
}

/// Turns of a session's task: [`turn_time`] is the time of the last one until this is dropped.
#[derive(Debug)]
pub(crate) struct TurnClock(());

impl TurnClock {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Begins a turn; returns the current time.
    pub(crate) fn begin_turn(&self) -> Instant {
        let now = TokioInstant::now();
        TURN.set(Some(now));
        from_tokio(now)
    }
}

impl Drop for TurnClock {
    fn drop(&mut self) {
        TURN.set(None);
    }
}

fn from_tokio(at: TokioInstant) -> Instant {
    let since = at.saturating_duration_since(origin());
    Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Converts a point in the engine's time to tokio's, for timers.
pub(crate) fn to_tokio(at: Instant) -> TokioInstant {
    origin() + at.saturating_duration_since(Instant::from_nanos(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_turn_is_that_of_its_beginning_and_ends_with_it() {
        let before = std::time::Instant::now();
        let clock = TurnClock::new();
        let first = (clock.begin_turn(), turn_time());
        while std::time::Instant::now() == first.1 {}
        assert_eq!(turn_time(), first.1);
        let second = (clock.begin_turn(), turn_time());
        assert!(before <= first.1 && first < second);
        drop(clock);
        while std::time::Instant::now() == second.1 {}
        assert!(turn_time() > second.1);
    }
}
