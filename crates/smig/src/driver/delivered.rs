//! What a path delivered lately: octets acknowledged over a window of time.
//!
//! Pure. A window must span a round trip or more: acknowledgements come in lumps, and what is sent
//! comes back a round trip later.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

/// Readings kept at most; the oldest go.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Delivered {
    readings: VecDeque<(Instant, u64)>,
}

impl Delivered {
    /// So many octets were acknowledged up to now, since any fixed moment.
    pub(super) fn on_reading(&mut self, now: Instant, acknowledged: u64) {
        if self.readings.len() == KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back((now, acknowledged));
    }

    /// What was before no longer counts.
    pub(super) fn forget(&mut self) {
        self.readings.clear();
    }

    /// Octets a second over the last `window`, or a little more; `None` while readings do not
    /// reach back so far.
    pub(super) fn rate(&self, window: Duration) -> Option<u64> {
        let &(now, total) = self.readings.back()?;
        let reaches = |at: Instant| now.saturating_duration_since(at) >= window;
        let &(then, before) = self.readings.iter().rev().find(|(at, _)| reaches(*at))?;
        let micros = now.saturating_duration_since(then).as_micros().max(1);
        let octets = u128::from(total.saturating_sub(before));
        u64::try_from(octets * 1_000_000 / micros).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_window_is_measured_whole() {
        let mut delivered = Delivered::default();
        assert_eq!(delivered.rate(Duration::from_millis(1)), None);
        for step in 0..=10 {
            delivered.on_reading(at(step * 10), if step < 5 { 0 } else { (step - 5) * 1000 });
        }
        assert_eq!(delivered.rate(Duration::from_millis(50)), Some(100_000));
        assert_eq!(delivered.rate(Duration::from_millis(100)), Some(50_000));
        assert_eq!(delivered.rate(Duration::from_millis(101)), None);
        delivered.forget();
        assert_eq!(delivered.rate(Duration::from_millis(10)), None);
    }
}
