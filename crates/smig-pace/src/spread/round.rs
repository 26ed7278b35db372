//! What one round trip of a connection showed of its window.

use std::time::Duration;

use smig_proto::Instant;

use crate::sample::{ConnSample, USUAL_MSS};

/// A round ends after this number of round-trip times even if what was in flight at its beginning is not acknowledged.
const MAX_ROUND_RTTS: u32 = 3;
/// Samples that are further apart than this, and than such a round, belong to different ones.
const MIN_GAP: Duration = Duration::from_millis(200);
/// A window counts as full with this part of it in flight, and two packets less.
const FULL_NUMERATOR: u64 = 3;
const FULL_DENOMINATOR: u64 = 4;
/// Retransmissions in a round that are no random losses: as many as this, and more than this part of the window.
const MIN_HEAVY_LOSS: u64 = 4;
const HEAVY_LOSS_DIVISOR: u64 = 4;
/// Besides one, retransmissions up to this part of the window are few.
const LIGHT_LOSS_DIVISOR: u64 = 16;
/// The queue below which a path counts as empty: a part of the least round trip, and at least this time, which delayed
/// acknowledgements take as well.
const EMPTY_QUEUE_DIVISOR: u32 = 4;
const MIN_EMPTY_QUEUE: Duration = Duration::from_millis(4);

/// What limits a connection that has more to send, as its owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// It has nothing more to send.
    None,
    /// It sends as much as its window allows.
    Window,
    /// It sends no more than what bounds bulk allows.
    Paced,
}

/// What a round trip showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRound {
    /// How long it took.
    pub duration: Duration,
    /// Bytes that were acknowledged in it.
    pub delivered: u64,
    /// Packets that were retransmitted in it.
    pub retransmitted: u64,
    /// The smoothed round-trip time at its end.
    pub rtt: Duration,
    /// The longest queue, as time: the smoothed round-trip time beyond the least of the connection.
    pub max_queue: Duration,
    /// The least round-trip time of the connection.
    pub base: Duration,
    /// The most bytes in flight.
    pub in_flight: u64,
    /// Whether something arrived, there was more to send all the time, and window or pacing were what prevented it.
    pub is_limited: bool,
    /// Whether what bounds bulk prevented it, at any time, and the congestion window is larger than what is in flight.
    pub is_paced: bool,
}

impl WindowRound {
    /// Returns the rate of deliveries in bytes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.delivered as f64 / self.duration.as_secs_f64().max(1e-6)
    }

    /// Returns whether so much was lost that what was sent was probably too much, as at a policer, which has no queue.
    #[must_use]
    pub const fn has_heavy_loss(&self) -> bool {
        self.retransmitted >= MIN_HEAVY_LOSS
            && self.retransmitted * HEAVY_LOSS_DIVISOR > self.packets()
    }

    /// Returns whether so little was lost that a queue was hardly overrun.
    pub(super) const fn has_light_loss(&self) -> bool {
        self.retransmitted <= 1 + self.packets() / LIGHT_LOSS_DIVISOR
    }

    /// Returns the most packets in flight, about.
    pub(super) const fn packets(&self) -> u64 {
        self.in_flight / USUAL_MSS as u64
    }

    /// Returns whether nothing waited on the path: neither what this connection sends nor what others do.
    #[must_use]
    pub fn has_empty_queue(&self) -> bool {
        self.max_queue <= empty_queue(self.base)
    }

    /// Returns whether even what would hardly count as a queue was not there.
    pub(super) fn has_no_queue_at_all(&self) -> bool {
        self.max_queue <= (empty_queue(self.base) / 2).max(MIN_EMPTY_QUEUE)
    }
}

/// Returns the longest queue of a path that counts as empty.
pub(super) fn empty_queue(base: Duration) -> Duration {
    (base / EMPTY_QUEUE_DIVISOR).max(MIN_EMPTY_QUEUE)
}

/// Divides the samples of a connection into rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundMeter {
    current: Option<Current>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    start: Instant,
    sampled_at: Instant,
    /// The round has ended when so many bytes are acknowledged.
    end: u64,
    acknowledged: u64,
    retransmitted: u64,
    max_queue: Duration,
    in_flight: u64,
    samples: u32,
    full_samples: u32,
    has_paused: bool,
    is_paced: bool,
}

impl Current {
    fn new(now: Instant, sample: &ConnSample) -> Self {
        Self {
            start: now,
            sampled_at: now,
            end: sample.acknowledged + sample.in_flight.max(1),
            acknowledged: sample.acknowledged,
            retransmitted: sample.retransmitted,
            max_queue: Duration::ZERO,
            in_flight: 0,
            samples: 0,
            full_samples: 0,
            has_paused: false,
            is_paced: false,
        }
    }
}

impl RoundMeter {
    pub(super) const fn new() -> Self {
        Self { current: None }
    }

    /// Records a sample; returns the round that it ends.
    pub(super) fn on_sample(
        &mut self,
        now: Instant,
        sample: &ConnSample,
        backlog: Backlog,
    ) -> Option<WindowRound> {
        if sample.rtt.is_zero() || sample.min_rtt.is_zero() || sample.mss == 0 {
            return None;
        }
        let max_gap = (sample.rtt * MAX_ROUND_RTTS).max(MIN_GAP);
        let is_recent =
            |current: &Current| now.saturating_duration_since(current.sampled_at) <= max_gap;
        // A pause is no round.
        self.current = self.current.filter(is_recent);
        let current = self.current.get_or_insert_with(|| Current::new(now, sample));
        current.sampled_at = now;
        current.max_queue = current.max_queue.max(sample.rtt.saturating_sub(sample.min_rtt));
        current.in_flight = current.in_flight.max(sample.in_flight);
        current.samples += 1;
        let two_packets = 2 * u64::from(sample.mss);
        let full = sample.congestion_window / FULL_DENOMINATOR * FULL_NUMERATOR;
        match backlog {
            Backlog::None => current.has_paused = true,
            Backlog::Paced => {
                current.full_samples += 1;
                // A window grows no further than what is sent, so it is not far from that: only a full one is the limit.
                current.is_paced |= sample.in_flight + two_packets < sample.congestion_window;
            }
            Backlog::Window => {
                let is_full = sample.in_flight + two_packets >= full;
                current.full_samples += u32::from(is_full);
            }
        }
        let elapsed = now.saturating_duration_since(current.start);
        let is_over = sample.acknowledged >= current.end || elapsed >= sample.rtt * MAX_ROUND_RTTS;
        if !is_over || elapsed.is_zero() {
            return None;
        }
        let delivered = sample.acknowledged.saturating_sub(current.acknowledged);
        let is_full = !current.has_paused && current.full_samples * 2 >= current.samples;
        let round = WindowRound {
            duration: elapsed,
            delivered,
            retransmitted: sample.retransmitted.saturating_sub(current.retransmitted),
            rtt: sample.rtt,
            max_queue: current.max_queue,
            base: sample.min_rtt,
            in_flight: current.in_flight,
            // A dead path limits by no window.
            is_limited: is_full && delivered > 0,
            is_paced: current.is_paced,
        };
        self.current = Some(Current::new(now, sample));
        Some(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: ConnSample = ConnSample {
        acknowledged: 0,
        in_flight: 14_480,
        outstanding: 20_000,
        rtt: Duration::from_millis(40),
        rtt_deviation: Duration::ZERO,
        min_rtt: Duration::from_millis(40),
        retransmitted: 0,
        congestion_window: 14_480,
        delivery_rate: 0,
        mss: 1448,
    };

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_round_ends_when_what_was_in_flight_has_arrived() {
        let mut meter = RoundMeter::default();
        assert_eq!(meter.on_sample(at(1), &SAMPLE, Backlog::Window), None);
        let half = ConnSample { acknowledged: 7_000, rtt: Duration::from_millis(43), ..SAMPLE };
        assert_eq!(meter.on_sample(at(20), &half, Backlog::Window), None);
        let whole = ConnSample { acknowledged: 14_480, retransmitted: 2, ..SAMPLE };
        let round = meter.on_sample(at(41), &whole, Backlog::Window).unwrap();
        assert_eq!((round.delivered, round.retransmitted), (14_480, 2));
        assert_eq!(round.max_queue, Duration::from_millis(3));
        assert!(round.is_limited && round.has_empty_queue());
        assert!((round.rate() - 362_000.0).abs() < 1.0, "{}", round.rate());
    }

    #[test]
    fn a_round_without_deliveries_ends_too() {
        let mut meter = RoundMeter::default();
        assert_eq!(meter.on_sample(at(1), &SAMPLE, Backlog::Window), None);
        assert_eq!(meter.on_sample(at(100), &SAMPLE, Backlog::Window), None);
        let round = meter.on_sample(at(121), &SAMPLE, Backlog::Window).unwrap();
        assert!(round.delivered == 0 && !round.is_limited, "a dead path is no small window");
    }

    #[test]
    fn a_pause_is_no_round() {
        let mut meter = RoundMeter::default();
        assert_eq!(meter.on_sample(at(1), &SAMPLE, Backlog::Window), None);
        let later = ConnSample { acknowledged: 14_480, ..SAMPLE };
        assert_eq!(meter.on_sample(at(10_000), &later, Backlog::Window), None);
        let end = ConnSample { acknowledged: 28_960, ..SAMPLE };
        let round = meter.on_sample(at(10_040), &end, Backlog::Window).unwrap();
        assert_eq!((round.delivered, round.duration), (14_480, Duration::from_millis(40)));
    }

    #[test]
    fn only_what_has_more_to_send_is_limited_by_its_window() {
        let is_limited = |in_flight, backlog| {
            let mut meter = RoundMeter::default();
            let sample = ConnSample { in_flight, ..SAMPLE };
            meter.on_sample(at(1), &sample, backlog);
            let end = ConnSample { acknowledged: in_flight, ..sample };
            meter.on_sample(at(41), &end, backlog).unwrap().is_limited
        };
        assert!(is_limited(14_480, Backlog::Window));
        assert!(!is_limited(2_000, Backlog::Window), "the peer's window, or a late process");
        assert!(is_limited(2_000, Backlog::Paced));
        let mut meter = RoundMeter::default();
        meter.on_sample(at(1), &SAMPLE, Backlog::Paced);
        let end = ConnSample { acknowledged: 14_480, ..SAMPLE };
        let round = meter.on_sample(at(41), &end, Backlog::Paced).unwrap();
        assert!(round.is_limited && !round.is_paced, "the window is full all the time");
        assert!(!is_limited(14_480, Backlog::None));
    }
}
