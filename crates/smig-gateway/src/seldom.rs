//! What may happen often and is said once a second, with how often it happened.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Milliseconds between two times that it is said.
const INTERVAL: u64 = 1000;

/// One thing to say.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    /// When it was said last, in milliseconds; 0: never.
    said: AtomicU64,
    unsaid: AtomicU64,
}

impl Seldom {
    pub(crate) const fn new() -> Self {
        Self { said: AtomicU64::new(0), unsaid: AtomicU64::new(0) }
    }

    /// It happened `times` more. `Some`: it is to be said, with how often it happened since it was said last.
    pub(crate) fn due(&self, times: u64) -> Option<u64> {
        static START: OnceLock<Instant> = OnceLock::new();
        let now = START.get_or_init(Instant::now).elapsed().as_millis();
        self.due_at(u64::try_from(now).unwrap_or(u64::MAX).saturating_add(INTERVAL), times)
    }

    fn due_at(&self, now: u64, times: u64) -> Option<u64> {
        self.unsaid.fetch_add(times, Ordering::Relaxed);
        let said = self.said.load(Ordering::Relaxed);
        if now.saturating_sub(said) < INTERVAL {
            return None;
        }
        // Of several at once one says it.
        self.said.compare_exchange(said, now, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(self.unsaid.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_a_second_with_a_count() {
        let seldom = Seldom::new();
        assert_eq!(seldom.due_at(INTERVAL, 1), Some(1));
        assert!((1..INTERVAL).all(|later| seldom.due_at(INTERVAL + later, 2).is_none()));
        assert_eq!(seldom.due_at(2 * INTERVAL, 1), Some(2 * INTERVAL - 1));
    }
}
