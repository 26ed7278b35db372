//! How much a path varies by itself: from round trip to round trip, and within one.

use std::time::Duration;

use smig_proto::Instant;

use super::sample::RateSample;

/// Relative change of the rate from round to round that granularity alone causes.
const USUAL_RATE_CHANGE: f64 = 0.03;
/// Aggregation is forgotten after five to ten rounds (BBR's extra_acked).
const AGGREGATION_ROUNDS: u32 = 5;
/// Packets that are acknowledged together on an ordinary path.
const USUAL_BURST_PACKETS: f64 = 3.0;
/// What every path varies by: this part of the round-trip time, what the process's timer causes, and this number of packets.
const USUAL_RTT_CHANGE_DIVISOR: u32 = 20;
const TIMER_NOISE: Duration = Duration::from_micros(1500);
const USUAL_PACKETS: u32 = 2;
/// This part of the rounds has less than the usual delay.
const SHORT_SHARE: f64 = 0.2;
/// In a round, the estimate of the usual delay changes by this part of the round trip at most.
const DELAY_STEP: f64 = 0.02;
/// Jitter is this multiple of the usual delay, and at most that of the change from round to round.
const DELAY_GAIN: f64 = 1.3;
const CHANGE_GAIN: u32 = 4;
/// Above this share of lost packets, loss shows the path's rate as a queue does (a policer, or a short queue).
const MAX_LOSS: f64 = 0.04;
/// Loss that lasts for so many rounds although bulk sends less is not the path's answer to its rate. From then on only this multiple
/// of it is.
const RANDOM_LOSS_ROUNDS: u32 = 24;
const RANDOM_LOSS_MARGIN: f64 = 1.5;

#[derive(Debug, Default)]
pub(crate) struct PathNoise {
    /// Mean change of the minimum round-trip time, and mean relative change of the rate, from round to round.
    rtt_change: Duration,
    rate_change: f64,
    last_rtt: Option<Duration>,
    /// By how much the round-trip time exceeds its minimum in all but [`SHORT_SHARE`] of the rounds.
    usual_delay: Duration,
    last_rate: Option<f64>,
    /// Share of packets retransmitted, and the counts at the last round.
    loss: f64,
    counts: Option<Counts>,
    /// Consecutive rounds with too much, and the share that has been found to be random.
    lossy_rounds: u32,
    random_loss: f64,
    /// Bytes acknowledged sooner than at the path's rate: the most of these rounds, and of those before.
    extra_acked: [f64; 2],
    rounds: u32,
    epoch: Option<(Instant, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Counts {
    acknowledged: u64,
    retransmitted: u64,
}

impl PathNoise {
    /// Records a sample of a path that carries `capacity` bytes per second.
    pub(crate) fn on_sample(&mut self, now: Instant, sample: &RateSample, capacity: f64) {
        let (start, acknowledged) = *self.epoch.get_or_insert((now, sample.acknowledged));
        let expected = capacity * now.saturating_duration_since(start).as_secs_f64();
        let extra = sample.acknowledged.saturating_sub(acknowledged) as f64 - expected;
        if extra > 0.0 {
            self.extra_acked[0] = self.extra_acked[0].max(extra);
        } else {
            self.epoch = Some((now, sample.acknowledged));
        }
    }

    /// Ends a round with this minimum round-trip time. `rate` is absent if others had a part in it.
    pub(crate) fn on_round(
        &mut self,
        sample: &RateSample,
        rtt: Option<Duration>,
        rate: Option<f64>,
    ) {
        self.rounds += 1;
        if self.rounds.is_multiple_of(AGGREGATION_ROUNDS) {
            self.extra_acked = [0.0, self.extra_acked[0]];
        }
        let counts =
            Counts { acknowledged: sample.acknowledged, retransmitted: sample.retransmitted };
        if let Some(last) = self.counts.replace(counts) {
            let acknowledged = counts.acknowledged.saturating_sub(last.acknowledged);
            let packets = counts.retransmitted.saturating_sub(last.retransmitted);
            let lost = packets * u64::from(sample.mss);
            let share = lost as f64 / (acknowledged + lost).max(1) as f64;
            self.loss += (share - self.loss) / 8.0;
            self.note_loss();
        }
        if let Some(rtt) = rtt {
            let change = self.last_rtt.map_or(Duration::ZERO, |last| last.abs_diff(rtt));
            self.rtt_change = (self.rtt_change * 7 + change) / 8;
            self.last_rtt = Some(rtt);
        }
        if let (Some(rate), Some(last)) = (rate, self.last_rate) {
            let change = (rate - last).abs() / rate.max(last).max(1.0);
            self.rate_change += (change - self.rate_change) / 16.0;
        }
        self.last_rate = rate;
    }

    fn note_loss(&mut self) {
        if self.is_lossy() {
            self.lossy_rounds += 1;
            if self.lossy_rounds >= RANDOM_LOSS_ROUNDS {
                (self.random_loss, self.lossy_rounds) = (self.loss, 0);
            }
        } else {
            (self.random_loss, self.lossy_rounds) = (self.random_loss.min(self.loss), 0);
        }
    }

    /// Returns the minimum round-trip time of the last round.
    pub(crate) const fn last_rtt(&self) -> Option<Duration> {
        self.last_rtt
    }

    /// Ends a round in which bulk was alone, with this delay beyond the minimum round-trip time `base`.
    pub(crate) fn on_delay(&mut self, delay: Duration, base: Duration) {
        let step = base.mul_f64(DELAY_STEP);
        if delay > self.usual_delay {
            self.usual_delay += step.mul_f64(SHORT_SHARE);
        } else {
            self.usual_delay = self.usual_delay.saturating_sub(step.mul_f64(1.0 - SHORT_SHARE));
        }
    }

    /// Returns by how much the round-trip time varies without a queue, where a packet takes `packet`: a minimum of ten
    /// seconds is then a rare event. Where only the queue varies, as on a cellular path, it is often empty, and the usual
    /// delay short.
    pub(crate) fn jitter(&self, base: Duration, packet: Duration) -> Duration {
        let excess = self.rtt_change.saturating_sub(base / USUAL_RTT_CHANGE_DIVISOR);
        let usual_change =
            (base / USUAL_RTT_CHANGE_DIVISOR).max(TIMER_NOISE).max(packet * USUAL_PACKETS);
        let most = self.rtt_change.saturating_sub(usual_change) * CHANGE_GAIN;
        excess.max(self.usual_delay.mul_f64(DELAY_GAIN).min(most))
    }

    /// Returns the relative change of the rate beyond what every path shows.
    pub(crate) fn rate_change(&self) -> f64 {
        (self.rate_change - USUAL_RATE_CHANGE).max(0.0)
    }

    /// Returns whether so many packets are lost that bulk's rate may be the cause.
    pub(crate) fn is_lossy(&self) -> bool {
        self.loss > MAX_LOSS.max(self.random_loss * RANDOM_LOSS_MARGIN)
    }

    /// Returns how many bytes more than usual are acknowledged at once.
    pub(crate) fn aggregation(&self, mss: u32) -> f64 {
        let extra = self.extra_acked[0].max(self.extra_acked[1]);
        (extra - USUAL_BURST_PACKETS * f64::from(mss)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);
    const PACKET: Duration = Duration::from_millis(1);
    const SAMPLE: RateSample = RateSample {
        acknowledged: 0,
        sent: 0,
        min_rtt: BASE,
        rtt: BASE,
        rtt_deviation: Duration::ZERO,
        in_flight: 0,
        retransmitted: 0,
        mss: 1448,
    };

    /// Passes rounds with these delays, in ms, over and over.
    fn after(delays_ms: &[u64]) -> PathNoise {
        let mut noise = PathNoise::default();
        for &delay in delays_ms.iter().cycle().take(200) {
            let delay = Duration::from_millis(delay);
            noise.on_round(&SAMPLE, Some(BASE + delay), None);
            noise.on_delay(delay, BASE);
        }
        noise
    }

    #[test]
    fn delays_that_vary_and_are_seldom_short_are_jitter() {
        let jitter = after(&[0, 12, 6, 14, 8, 13, 7, 15, 9, 12]).jitter(BASE, PACKET);
        assert!(jitter >= Duration::from_millis(7), "{jitter:?}");
    }

    #[test]
    fn loss_that_lasts_is_random_until_it_ends() {
        let mut noise = PathNoise::default();
        let (mut acknowledged, mut retransmitted) = (0, 0);
        let mut lossy_rounds = |noise: &mut PathNoise, lost: u64, rounds: u64| {
            let mut count = 0;
            for _ in 0..rounds {
                (acknowledged, retransmitted) = (acknowledged + 100 * 1448, retransmitted + lost);
                noise.on_round(&RateSample { acknowledged, retransmitted, ..SAMPLE }, None, None);
                count += u64::from(noise.is_lossy());
            }
            count
        };
        let rounds = lossy_rounds(&mut noise, 7, 1000);
        assert!((20..60).contains(&rounds), "{rounds}");
        assert!(lossy_rounds(&mut noise, 40, 20) > 10, "more than that is an answer again");
        lossy_rounds(&mut noise, 0, 100);
        assert!(lossy_rounds(&mut noise, 7, 20) > 10, "what was random is forgotten");
    }

    #[test]
    fn a_queue_that_is_often_empty_or_steady_is_not() {
        let often_empty = after(&[0, 8, 0, 14, 6, 0, 12, 0, 9, 0]);
        let excess = often_empty.rtt_change - BASE / USUAL_RTT_CHANGE_DIVISOR;
        assert_eq!(often_empty.jitter(BASE, PACKET), excess);
        assert_eq!(after(&[12, 13, 12, 11]).jitter(BASE, PACKET), Duration::ZERO);
    }
}
