//! A seeded generator of links that vary like a cellular link.
//!
//! The model is that of Sprout (Winstein, Sivaraman, Balakrishnan, NSDI 2013):
//! packets leave as a Poisson process whose rate is a random walk with sticky
//! outages. Here the rate also reverts to a mean, so that a link has one. The
//! result is not a recording of a network; recordings are used as trace files.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::random::{Purpose, SplitMix64};
use super::trace::OPPORTUNITY_BYTES;
use super::{Rate, Trace};

/// Standard deviation of the rate's change over one second, as a share of the
/// mean (Sprout: 200 of 1,000 packets).
const VOLATILITY: f64 = 0.2;
/// Time constant of the reversion to the mean. With the volatility it gives a
/// standard deviation of 0.4 of the mean.
const REVERSION_SECONDS: f64 = 8.0;
/// Maximum rate, as a multiple of the mean, before the trace is scaled to it.
const MAX_RELATIVE_RATE: f64 = 3.0;
/// Mean length of an outage.
const MEAN_OUTAGE_SECONDS: f64 = 1.0;
/// The rate after an outage, as a share of the mean. At 0, the next outage would follow at once.
const RATE_AFTER_OUTAGE: f64 = 0.25;
const TICK_SECONDS: f64 = 1e-3;

/// Parameters of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LteSpec {
    /// The same seed gives the same link; if absent, each run derives its link from the run's seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The mean rate.
    pub mean: Rate,
    /// The period after which the trace repeats.
    #[serde(rename = "seconds")]
    pub period_s: u32,
}

impl Default for LteSpec {
    /// 12 Mbit/s for five minutes.
    fn default() -> Self {
        Self { seed: None, mean: Rate::mbit(12), period_s: 300 }
    }
}

impl LteSpec {
    /// Generates the delivery opportunities for the run with the seed `run_seed`.
    #[must_use]
    pub fn generate(&self, run_seed: u64) -> Trace {
        let ticks = u64::from(self.period_s.max(1)) * 1_000;
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        let mut random = self
            .seed
            .map_or_else(|| SplitMix64::for_purpose(run_seed, Purpose::Rate), SplitMix64::new);
        let relative_rates = draw_relative_rates(&mut random, ticks);
        // Outages, bounds and chance move the mean of the relative rates away from 1.
        let mean_relative_rate = relative_rates.iter().sum::<f64>() / f64::from(ticks);
        let packets_per_second =
            self.mean.as_bits_per_second() as f64 / (OPPORTUNITY_BYTES * 8) as f64;
        let scale = packets_per_second * TICK_SECONDS / mean_relative_rate.max(1e-9);
        let mut millis = Vec::new();
        for (tick, rate) in (1..=ticks).zip(relative_rates) {
            let packets = random.poisson(rate * scale);
            millis.extend((0..packets).map(|_| tick));
        }
        // The trace must have the requested length even if it ends in an outage.
        if millis.last() != Some(&ticks) {
            millis.push(ticks);
        }
        Trace::new(millis).expect("ticks increase from 1")
    }

    /// Returns the length of the trace.
    #[must_use]
    pub const fn period(&self) -> Duration {
        Duration::from_secs(self.period_s as u64)
    }
}

/// Returns the rate in each tick, relative to the mean.
fn draw_relative_rates(random: &mut SplitMix64, ticks: u32) -> Vec<f64> {
    let step = VOLATILITY * TICK_SECONDS.sqrt();
    let (mut rate, mut outage) = (1.0_f64, false);
    let next_rate = |_| {
        if outage {
            outage = !random.bernoulli(TICK_SECONDS / MEAN_OUTAGE_SECONDS);
            rate = RATE_AFTER_OUTAGE;
            return 0.0;
        }
        rate += (1.0 - rate) * (TICK_SECONDS / REVERSION_SECONDS) + step * random.normal();
        rate = rate.clamp(0.0, MAX_RELATIVE_RATE);
        outage = rate == 0.0;
        rate
    };
    (0..ticks).map(next_rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_trace() {
        let per_run = LteSpec { period_s: 20, ..LteSpec::default() };
        assert_eq!(per_run.generate(1), per_run.generate(1));
        assert_ne!(per_run.generate(1), per_run.generate(2));
        let fixed = LteSpec { seed: Some(2), ..per_run };
        assert_eq!(fixed.generate(1), fixed.generate(2));
        assert_ne!(fixed.generate(1), LteSpec { seed: Some(3), ..fixed }.generate(1));
        assert_eq!(per_run.generate(1).length(), per_run.period());
    }

    #[test]
    fn the_rate_varies_around_the_mean() {
        for seed in 0..10 {
            let mean = LteSpec::default().generate(seed).mean().as_mbit();
            assert!((11.9..12.1).contains(&mean), "seed {seed}: {mean}");
        }

        let trace = LteSpec::default().generate(1);
        let mut packets_in_second = vec![0_u32; 300];
        for at in trace.times_ms() {
            packets_in_second[(*at as usize - 1) / 1_000] += 1;
        }
        let (min, max) = (packets_in_second.iter().min(), packets_in_second.iter().max());
        assert!(min < Some(&500) && max > Some(&1_500), "{min:?} to {max:?} packets/s");
    }

    #[test]
    fn outages_end() {
        let longest = |seed| {
            let trace = LteSpec { period_s: 120, ..LteSpec::default() }.generate(seed);
            trace.times_ms().windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
        };
        let worst = (0..60).map(longest).max().unwrap_or(0);
        assert!((300..12_000).contains(&worst), "of 60 links the longest outage: {worst} ms");
    }

    #[test]
    fn slow_and_fast_links_are_generated() {
        for (mean, low, high) in [(Rate::kbit(300), 0.28, 0.32), (Rate::mbit(500), 499.0, 501.0)] {
            let trace = LteSpec { mean, period_s: 60, seed: None }.generate(3);
            assert!((low..high).contains(&trace.mean().as_mbit()), "{mean}: {}", trace.mean());
        }
    }
}
