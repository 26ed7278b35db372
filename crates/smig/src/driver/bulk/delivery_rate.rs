//! Delivery rate and round-trip time of a path, from counts of bytes sent and acknowledged over time.
//!
//! Pure. A window must span a round trip or more: ACKs arrive in bursts, and what is sent is acknowledged
//! a round trip later.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

/// Maximum number of readings; the oldest are dropped. They span a round trip and a half through a queue of
/// two seconds.
const MAX_READINGS: usize = 512;

#[derive(Clone, Copy, Debug)]
struct Count {
    at: Instant,
    acknowledged: u64,
    sent: u64,
    /// How long the byte that was acknowledged last had been in flight.
    round_trip: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct DeliveryRate {
    counts: VecDeque<Count>,
}

impl DeliveryRate {
    /// Adds a reading: bytes acknowledged and sent up to now, both since one fixed moment.
    pub(super) fn on_reading(&mut self, at: Instant, acknowledged: u64, sent: u64) {
        if self.counts.len() == MAX_READINGS {
            self.counts.pop_front();
        }
        // When a connection closes, its bytes in flight disappear from the sum.
        let sent = self.counts.back().map_or(sent, |last| last.sent.max(sent));
        // Without new acknowledgements there is no round-trip sample.
        let news = self.counts.back().is_some_and(|last| last.acknowledged < acknowledged);
        let then = self.sent_at(acknowledged).filter(|_| news);
        let round_trip = then.map(|then| at.saturating_duration_since(then));
        self.counts.push_back(Count { at, acknowledged, sent, round_trip });
    }

    /// Discards all readings.
    pub(super) fn forget(&mut self) {
        self.counts.clear();
    }

    /// Returns bytes acknowledged per second over the last `window`, or slightly more; `None` while readings
    /// do not reach back that far.
    pub(super) fn rate(&self, window: Duration) -> Option<u64> {
        let last = self.counts.back()?;
        let first = self.before(last.at, window)?;
        Some(rate(last.acknowledged - first.acknowledged.min(last.acknowledged), first.at, last.at))
    }

    /// Returns bytes sent per second over a `window` that ended `ago` before the last reading.
    pub(super) fn sent(&self, window: Duration, ago: Duration) -> Option<u64> {
        let last = self.before(self.counts.back()?.at, ago)?;
        let first = self.before(last.at, window)?;
        Some(rate(last.sent - first.sent.min(last.sent), first.at, last.at))
    }

    /// Returns the shortest round trip in the readings of the last `window`: not smoothed, and without the time
    /// by which ACK aggregation delayed the others. `None` while it is not known.
    pub(super) fn round_trip(&self, window: Duration) -> Option<Duration> {
        let now = self.counts.back()?.at;
        let recent = |count: &&Count| now.saturating_duration_since(count.at) < window;
        self.counts.iter().rev().take_while(recent).filter_map(|count| count.round_trip).min()
    }

    /// Returns when the byte with this number was sent.
    fn sent_at(&self, number: u64) -> Option<Instant> {
        let index = self.counts.partition_point(|count| count.sent < number);
        let after = self.counts.get(index)?;
        let before = self.counts.get(index.checked_sub(1)?)?;
        // Linear interpolation between two readings.
        let step = after.at.saturating_duration_since(before.at);
        let part = (number - before.sent) as f64 / (after.sent - before.sent) as f64;
        Some(before.at + step.mul_f64(part))
    }

    /// Returns the newest reading that is at least `by` older than `at`.
    fn before(&self, at: Instant, by: Duration) -> Option<&Count> {
        let reaches = |count: &&Count| at.saturating_duration_since(count.at) >= by;
        self.counts.iter().rev().find(reaches)
    }
}

/// Returns bytes per second.
fn rate(bytes: u64, from: Instant, to: Instant) -> u64 {
    let micros = to.saturating_duration_since(from).as_micros().max(1);
    u64::try_from(u128::from(bytes) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_window_is_measured_whole() {
        let mut delivery = DeliveryRate::default();
        assert_eq!(delivery.rate(Duration::from_millis(1)), None);
        for step in 0..=10 {
            let acknowledged = if step < 5 { 0 } else { (step - 5) * 1000 };
            delivery.on_reading(at(step * 10), acknowledged, step * 1000);
        }
        assert_eq!(delivery.rate(Duration::from_millis(50)), Some(100_000));
        assert_eq!(delivery.rate(Duration::from_millis(100)), Some(50_000));
        assert_eq!(delivery.rate(Duration::from_millis(101)), None);
        assert_eq!(
            delivery.sent(Duration::from_millis(30), Duration::from_millis(50)),
            Some(100_000)
        );
        assert_eq!(delivery.round_trip(Duration::from_millis(20)), Some(Duration::from_millis(50)));
        delivery.forget();
        assert_eq!(delivery.rate(Duration::from_millis(10)), None);
    }
}
