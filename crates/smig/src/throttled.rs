//! Log lines that a peer can cause: at most one per second of each kind, with the number of occurrences. A
//! peer must not be able to fill a disk. Metrics count every occurrence.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest interval between two lines of a kind.
const MIN_LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Identifies a line: the module that writes it, and a name within that module.
type LineKind = (&'static str, &'static str);

/// Writes a line through [`tracing`], unless one of its kind was written within the last second:
/// `throttled!(warn, "the kind", fields, "the message")`. Kinds are local to a module. The field `times` is the
/// number of occurrences since the last line. `times = N` before other fields counts N occurrences.
#[macro_export]
#[doc(hidden)]
macro_rules! throttled {
    ($level:ident, $kind:expr, times = $times:expr, $($line:tt)+) => {
        if let Some(times) = $crate::throttled::record_occurrences((module_path!(), $kind), $times) {
            ::tracing::$level!(times, $($line)+);
        }
    };
    ($level:ident, $kind:expr, $($line:tt)+) => {
        $crate::throttled!($level, $kind, times = 1, $($line)+)
    };
}

/// One per process: all connections share its log.
static THROTTLE: Throttle = Throttle::new();

/// Counts `times` occurrences of a kind. Returns the number of occurrences since the last line if a line is
/// due.
#[must_use]
pub fn record_occurrences(kind: LineKind, times: u64) -> Option<u64> {
    THROTTLE.record_occurrences(kind, times, Instant::now())
}

/// When each kind was last written. The number of kinds is bounded: one per call site or limit.
#[derive(Debug)]
struct Throttle(Mutex<Vec<LineState>>);

#[derive(Debug)]
struct LineState {
    kind: LineKind,
    last_written: Instant,
    unreported_count: u64,
}

impl Throttle {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn record_occurrences(&self, kind: LineKind, times: u64, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(line) = lines.iter_mut().find(|line| line.kind == kind) else {
            lines.push(LineState { kind, last_written: now, unreported_count: 0 });
            return Some(times);
        };
        line.unreported_count = line.unreported_count.saturating_add(times);
        if now.saturating_duration_since(line.last_written) < MIN_LINE_INTERVAL {
            return None;
        }
        line.last_written = now;
        Some(std::mem::take(&mut line.unreported_count))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    const RESETS: LineKind = ("server", "resets");

    #[test]
    fn a_flood_writes_one_line_per_second_with_the_count() {
        let (throttle, start) = (Throttle::new(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let hits: Vec<_> =
            (0..3000).filter_map(|n| throttle.record_occurrences(RESETS, 1, at(n))).collect();
        assert_eq!(hits, [1, 1000, 1000]);
        assert_eq!(throttle.record_occurrences(RESETS, 5, at(3000)), Some(1004));
        assert_eq!(throttle.record_occurrences(RESETS, 1, at(60_000)), Some(1));
    }

    #[test]
    fn kinds_are_limited_independently() {
        let (throttle, now) = (Throttle::new(), Instant::now());
        assert_eq!(throttle.record_occurrences(RESETS, 1, now), Some(1));
        assert_eq!(throttle.record_occurrences(("server", "migrations"), 1, now), Some(1));
        assert_eq!(throttle.record_occurrences(("client", "resets"), 1, now), Some(1));
        assert_eq!(throttle.record_occurrences(RESETS, 1, now), None);
    }

    /// Collects the field `times` of each line.
    #[derive(Default)]
    struct Lines(Arc<Mutex<Vec<u64>>>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut Times(&self.0));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    struct Times<'a>(&'a Mutex<Vec<u64>>);

    impl Visit for Times<'_> {
        fn record_u64(&mut self, field: &Field, value: u64) {
            if field.name() == "times" {
                self.0.lock().unwrap().push(value);
            }
        }
        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    #[test]
    fn the_macro_writes_at_most_one_line_per_second() {
        let (lines, start) = (Lines::default(), Instant::now());
        let counts = Arc::clone(&lines.0);
        tracing::subscriber::with_default(lines, || {
            for _ in 0..5000 {
                throttled!(warn, "a kind of this test", limit = "none", "limit hit");
            }
        });
        let counts = counts.lock().unwrap();
        let max_lines = 1 + start.elapsed().as_secs();
        assert!(!counts.is_empty() && counts.len() as u64 <= max_lines, "{counts:?}");
    }
}
