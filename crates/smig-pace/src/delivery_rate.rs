//! Delivery rate and round-trip time of a path, from counts of bytes sent and acknowledged over time.
//!
//! No I/O. A window must span a round trip or more: ACKs arrive in bursts, and what is sent is acknowledged
//! a round trip later.

use std::collections::VecDeque;
use std::time::Duration;

use smig_proto::Instant;

use super::rate::rate_of;

/// Maximum number of samples; the oldest are dropped. At the shortest interval they span two and a half seconds.
const MAX_SAMPLES: usize = 512;

/// Packets without which a rate is one of the clock: where a window has fewer, it is made longer, up to so many times.
const MIN_RATE_PACKETS: u64 = 4;
const MAX_WINDOW_FACTOR: u32 = 8;
/// Samples further apart do not show when a byte between them was sent.
const MAX_INTERPOLATED: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, Debug)]
struct DeliverySample {
    at: Instant,
    acknowledged: u64,
    sent: u64,
    /// How long the byte that was acknowledged last had been in flight.
    round_trip: Option<Duration>,
    /// What was in flight when that byte was sent, with it.
    in_flight: u64,
}

#[derive(Debug, Default)]
pub(crate) struct DeliveryRate {
    samples: VecDeque<DeliverySample>,
    /// Bytes of a packet.
    packet: u32,
}

impl DeliveryRate {
    /// Adds a sample: bytes acknowledged and sent up to now, both since the same fixed time, in packets of this size.
    pub(crate) fn on_sample(&mut self, at: Instant, acknowledged: u64, sent: u64, packet: u32) {
        if self.samples.len() == MAX_SAMPLES {
            self.samples.pop_front();
        }
        self.packet = packet;
        // When a connection closes, its bytes in flight disappear from the sum.
        let sent = self.samples.back().map_or(sent, |last| last.sent.max(sent));
        // Without new acknowledgements there is no round-trip sample, and a receiver delays that of a single packet (RFC
        // 9293 section 3.8.6.3): at startup, that passed for a queue.
        let min_acknowledged = |last: &DeliverySample| last.acknowledged + u64::from(packet);
        let is_prompt =
            self.samples.back().is_some_and(|last| min_acknowledged(last) < acknowledged);
        let then = self.sent_at(acknowledged).filter(|_| is_prompt);
        let round_trip = then.map(|then| at.saturating_duration_since(then));
        let in_flight =
            then.map_or(0, |then| acknowledged.saturating_sub(self.acknowledged_at(then)));
        self.samples.push_back(DeliverySample { at, acknowledged, sent, round_trip, in_flight });
    }

    /// Discards all samples.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
    }

    /// Returns bytes acknowledged per second over the last `window`, or slightly more, and much more where that has hardly a packet; `None`
    /// while samples do not reach back that far. A round trip through a queue of seconds is longer than all samples that are kept: their
    /// rate is the best there is.
    pub(crate) fn rate(&self, window: Duration) -> Option<u64> {
        let last = self.samples.back()?;
        let oldest_kept = self.samples.front().filter(|_| self.samples.len() == MAX_SAMPLES);
        let first = self.sample_before(last.at, window).or(oldest_kept)?;
        let first = self.with_packets(first, last, window);
        let bytes = last.acknowledged - first.acknowledged.min(last.acknowledged);
        Some(rate_of(bytes, last.at.saturating_duration_since(first.at)))
    }

    /// Returns `first`, or an earlier sample since which some packets were acknowledged.
    fn with_packets<'a>(
        &'a self,
        first: &'a DeliverySample,
        last: &DeliverySample,
        window: Duration,
    ) -> &'a DeliverySample {
        let least = MIN_RATE_PACKETS * u64::from(self.packet);
        let has_packets = |sample: &DeliverySample| {
            last.acknowledged.saturating_sub(sample.acknowledged) >= least
        };
        if has_packets(first) {
            return first;
        }
        let longest = window * MAX_WINDOW_FACTOR;
        let is_near =
            |sample: &&DeliverySample| last.at.saturating_duration_since(sample.at) <= longest;
        let near = self.samples.iter().rev().take_while(is_near);
        let earlier = near.filter(|sample| sample.at < first.at);
        earlier
            .clone()
            .find(|sample| has_packets(sample))
            .or_else(|| earlier.last())
            .unwrap_or(first)
    }

    /// Returns the shortest round trip in the samples of the last `window`: not smoothed, and without the time
    /// by which ACK aggregation delayed the others. `None` without a measured round trip.
    pub(crate) fn min_round_trip(&self, window: Duration) -> Option<Duration> {
        let now = self.samples.back()?.at;
        let recent = |sample: &&DeliverySample| now.saturating_duration_since(sample.at) < window;
        self.samples.iter().rev().take_while(recent).filter_map(|sample| sample.round_trip).min()
    }

    /// Returns the latest round trip, and what was in flight at its beginning, if the last sample shows it.
    pub(crate) fn trip(&self) -> Option<(Duration, u64)> {
        let last = self.samples.back()?;
        Some((last.round_trip?, last.in_flight))
    }

    /// Returns the bytes acknowledged at that time: by linear interpolation.
    fn acknowledged_at(&self, at: Instant) -> u64 {
        let index = self.samples.partition_point(|sample| sample.at <= at);
        let before = index.checked_sub(1).and_then(|index| self.samples.get(index));
        let (Some(before), Some(after)) = (before, self.samples.get(index)) else {
            return before.map_or(0, |before| before.acknowledged);
        };
        let step = after.at.saturating_duration_since(before.at).as_secs_f64();
        let part = at.saturating_duration_since(before.at).as_secs_f64() / step;
        let more = after.acknowledged.saturating_sub(before.acknowledged) as f64;
        before.acknowledged + (more * part) as u64
    }

    /// Returns when the byte with this number was sent.
    fn sent_at(&self, number: u64) -> Option<Instant> {
        let index = self.samples.partition_point(|sample| sample.sent < number);
        let after = self.samples.get(index)?;
        let before = self.samples.get(index.checked_sub(1)?)?;
        // Linear interpolation between two samples.
        let step = after.at.saturating_duration_since(before.at);
        if step > MAX_INTERPOLATED {
            return None;
        }
        let part = (number - before.sent) as f64 / (after.sent - before.sent) as f64;
        Some(before.at + step.mul_f64(part))
    }

    /// Returns the newest sample that is at least `by` older than `at`.
    fn sample_before(&self, at: Instant, by: Duration) -> Option<&DeliverySample> {
        let reaches = |sample: &&DeliverySample| at.saturating_duration_since(sample.at) >= by;
        self.samples.iter().rev().find(reaches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_rate_needs_samples_that_span_the_window() {
        let mut delivery = DeliveryRate::default();
        assert_eq!(delivery.rate(Duration::from_millis(1)), None);
        for step in 0..=10 {
            let acknowledged = if step < 5 { 0 } else { (step - 5) * 1000 };
            delivery.on_sample(at(step * 10), acknowledged, step * 1000, 500);
        }
        assert_eq!(delivery.rate(Duration::from_millis(50)), Some(100_000));
        assert_eq!(delivery.rate(Duration::from_millis(100)), Some(50_000));
        assert_eq!(delivery.rate(Duration::from_millis(101)), None);
        assert_eq!(
            delivery.min_round_trip(Duration::from_millis(20)),
            Some(Duration::from_millis(50))
        );
        delivery.clear();
        assert_eq!(delivery.rate(Duration::from_millis(10)), None);
    }

    #[test]
    fn a_window_that_is_longer_than_all_samples_that_are_kept_has_their_rate() {
        let mut delivery = DeliveryRate::default();
        let window = Duration::from_secs(60);
        for step in 0..MAX_SAMPLES as u64 + 100 {
            delivery.on_sample(at(step * 5), step * 500, step * 500, 100);
            let is_full = step + 1 >= MAX_SAMPLES as u64;
            assert_eq!(delivery.rate(window), is_full.then_some(100_000), "{step}");
        }
    }

    #[test]
    fn a_window_with_hardly_a_packet_is_made_longer() {
        let mut delivery = DeliveryRate::default();
        // A packet of 1000 bytes each 24 ms; the last sample is that of an acknowledgement.
        for step in 0..=48 {
            delivery.on_sample(at(step * 5), step * 5 / 24 * 1000, step * 5 / 24 * 1000, 1000);
        }
        let rate = delivery.rate(Duration::from_millis(15)).unwrap();
        assert!((35_000..56_000).contains(&rate), "{rate}, where the path carries 41,667");
        // Whatever the window, a silence is seen within eight of it.
        for step in 49..=80 {
            delivery.on_sample(at(step * 5), 10_000, 10_000, 1000);
        }
        assert_eq!(delivery.rate(Duration::from_millis(15)), Some(0));
    }

    #[test]
    fn the_acknowledgement_of_a_single_packet_shows_no_round_trip() {
        let mut delivery = DeliveryRate::default();
        let window = Duration::from_secs(1);
        for step in 0..5 {
            delivery.on_sample(at(step * 10), 0, step * 3000, 1000);
        }
        delivery.on_sample(at(90), 1000, 12_000, 1000);
        assert_eq!(delivery.min_round_trip(window), None, "delayed, perhaps");
        delivery.on_sample(at(100), 3000, 12_000, 1000);
        assert_eq!(delivery.min_round_trip(window), Some(Duration::from_millis(90)));
    }
}
