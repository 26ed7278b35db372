//! A page's clock and this process's.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::devtools::DevTools;
use crate::error::BrowserError;
use crate::tab::Tab;

/// Number of readings, of which the one with the shortest round trip counts.
const READINGS: u32 = 5;
/// A page's clock is not finer.
const RESOLUTION: Duration = Duration::from_micros(100);

/// An instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockReading {
    /// What the page's clock said, in ms since the epoch: `performance.timeOrigin + performance.now()`.
    pub page_ms: f64,
    /// The same instant here.
    pub at: Instant,
    /// How far it may be off: half of the round trip in which the page said it.
    pub error: Duration,
}

impl ClockReading {
    /// Reads the clock of the page that a tab shows.
    ///
    /// # Errors
    /// Those of [`Tab::evaluate`]; the page has no clock.
    pub fn read<W: Write>(devtools: &mut DevTools<W>, tab: &Tab) -> Result<Self, BrowserError> {
        let mut best: Option<Self> = None;
        for _ in 0..READINGS {
            let before = Instant::now();
            let page_ms = tab.evaluate(devtools, "performance.timeOrigin + performance.now()")?;
            let half = before.elapsed() / 2;
            let page_ms = page_ms.as_f64();
            let page_ms =
                page_ms.ok_or_else(|| BrowserError::unexpected_response("no clock in the page"))?;
            let reading = Self { page_ms, at: before + half, error: half + RESOLUTION };
            if best.is_none_or(|best| reading.error < best.error) {
                best = Some(reading);
            }
        }
        best.ok_or_else(|| BrowserError::unexpected_response("no clock in the page"))
    }

    /// Returns the instant here of a time of the page, in ms since the epoch; the reading's own if it is too far away for this clock.
    #[must_use]
    pub fn instant_of(&self, page_ms: f64) -> Instant {
        let since = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default();
        let later_ms = page_ms - self.page_ms;
        let instant = if later_ms < 0.0 {
            self.at.checked_sub(since(-later_ms))
        } else {
            self.at.checked_add(since(later_ms))
        };
        instant.unwrap_or(self.at)
    }

    /// Returns how far times between two readings may be off: the larger error of both, and by how much one clock went faster.
    #[must_use]
    pub fn error_since(&self, earlier: &Self) -> Duration {
        let here_ms = self.at.saturating_duration_since(earlier.at).as_secs_f64() * 1e3;
        let drift_ms = ((self.page_ms - earlier.page_ms) - here_ms).abs();
        let drift = Duration::try_from_secs_f64(drift_ms / 1e3).unwrap_or(Duration::MAX);
        self.error.max(earlier.error).saturating_add(drift)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn a_page_time_is_an_instant_here() {
        let at = Instant::now() + Duration::from_secs(100);
        let reading = ClockReading { page_ms: 5_000.0, at, error: Duration::from_micros(300) };
        assert_eq!(reading.instant_of(4_000.0), at - Duration::from_secs(1));
        assert_eq!(reading.instant_of(5_500.0), at + Duration::from_millis(500));
        assert_eq!(reading.instant_of(f64::NAN), at);
        assert_eq!(reading.instant_of(-1e300), at);
        let later = ClockReading {
            page_ms: 6_002.0,
            at: at + Duration::from_secs(1),
            error: Duration::from_micros(100),
        };
        let error_us = later.error_since(&reading).as_micros();
        assert!((2_299..=2_301).contains(&error_us), "{error_us}");
    }

    #[test]
    fn the_shortest_round_trip_counts_and_a_page_without_a_clock_is_an_error() {
        let devtools = |value: serde_json::Value| {
            let answer = |id| json!({"id": id, "result": {"result": {"value": value}}});
            let input: String = (1..=5).map(|id| format!("{}\0", answer(id))).collect();
            let stop = CancellationToken::default();
            DevTools::new(Vec::new(), Cursor::new(input.into_bytes()), stop).unwrap()
        };
        let tab = Tab::with_session("S");
        let before = Instant::now();
        let reading = ClockReading::read(&mut devtools(json!(1.5)), &tab).unwrap();
        assert_eq!(reading.page_ms, 1.5);
        assert!(
            reading.error >= RESOLUTION && reading.at >= before && reading.at <= Instant::now()
        );
        assert!(ClockReading::read(&mut devtools(json!("late")), &tab).is_err());
    }
}
