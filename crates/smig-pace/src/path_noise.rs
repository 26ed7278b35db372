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
/// Above this share of lost packets, loss shows the path's rate as a queue does (a policer, or a short queue).
const MAX_LOSS: f64 = 0.04;

#[derive(Debug, Default)]
pub(crate) struct PathNoise {
    /// Mean change of the minimum round-trip time, and mean relative change of the rate, from round to round.
    rtt_change: Duration,
    rate_change: f64,
    last_rtt: Option<Duration>,
    last_rate: Option<f64>,
    /// Share of packets retransmitted, and the counts at the last round.
    loss: f64,
    counts: Option<Counts>,
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
    /// Takes a sample of a path that carries `capacity` bytes per second.
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

    /// Returns the minimum round-trip time of the last round.
    pub(crate) const fn last_rtt(&self) -> Option<Duration> {
        self.last_rtt
    }

    pub(crate) const fn rtt_change(&self) -> Duration {
        self.rtt_change
    }

    /// Returns the relative change of the rate beyond what every path shows.
    pub(crate) fn rate_change(&self) -> f64 {
        (self.rate_change - USUAL_RATE_CHANGE).max(0.0)
    }

    pub(crate) fn is_lossy(&self) -> bool {
        self.loss > MAX_LOSS
    }

    /// Returns how many bytes more than usual are acknowledged at once.
    pub(crate) fn aggregation(&self, mss: u32) -> f64 {
        let extra = self.extra_acked[0].max(self.extra_acked[1]);
        (extra - USUAL_BURST_PACKETS * f64::from(mss)).max(0.0)
    }
}
