//! Propagation delay that varies over time without reordering packets.
//!
//! The delay is the path's, not a single packet's: a packet that would overtake
//! the one before it arrives at the same time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::aggregation::{Aggregation, AggregationSpec};
use super::random::{Purpose, SplitMix64, mix};
use super::{SpecError, Time};
use crate::millis;

/// How the delay of a direction varies around, or above, its constant part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum JitterSpec {
    /// The delay is redrawn from a normal distribution with the constant part
    /// as its mean; negative values become zero.
    Normal(NormalJitter),
    /// The delay is redrawn from a uniform distribution centred on the constant
    /// part; negative values become zero.
    Uniform(UniformJitter),
    /// The delay starts at the constant part and grows with time.
    #[serde(rename = "slowdown")]
    Ramp(DelayRamp),
}

/// Parameters of [`JitterSpec::Normal`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormalJitter {
    /// The standard deviation.
    #[serde(with = "millis", rename = "sd_ms")]
    pub deviation: Duration,
    /// How long a drawn delay is used; 0 draws one for each packet.
    #[serde(with = "millis", rename = "every_ms", default = "default_redraw_interval")]
    pub redraw_interval: Duration,
}

/// Parameters of [`JitterSpec::Uniform`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UniformJitter {
    /// The difference between the largest and the smallest delay.
    #[serde(with = "millis", rename = "width_ms")]
    pub width: Duration,
    /// How long a drawn delay is used; 0 draws one for each packet.
    #[serde(with = "millis", rename = "every_ms", default = "default_redraw_interval")]
    pub redraw_interval: Duration,
}

/// Parameters of [`JitterSpec::Ramp`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayRamp {
    /// The delay added in each step.
    #[serde(with = "millis", rename = "add_ms")]
    pub step_increment: Duration,
    /// The time between steps.
    #[serde(with = "millis", rename = "every_ms")]
    pub step_interval: Duration,
    /// The maximum added delay.
    #[serde(with = "millis", rename = "up_to_ms")]
    pub max_added: Duration,
}

/// Default time for which a drawn delay is used.
const fn default_redraw_interval() -> Duration {
    Duration::from_millis(100)
}

impl JitterSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        match self {
            Self::Ramp(slowdown) if slowdown.step_interval.is_zero() => {
                Err(SpecError::Value("jitter.slowdown.every_ms must be more than 0".into()))
            }
            _ => Ok(()),
        }
    }
}

/// The delay of one direction over time.
#[derive(Debug)]
pub(super) struct Delays {
    base: Duration,
    jitter: Option<JitterSpec>,
    aggregation: Option<Aggregation>,
    seed: u64,
    per_packet_random: SplitMix64,
    origin: Time,
    /// Number of the interval that `interval_delay` was drawn for.
    interval_index: Option<u64>,
    interval_delay: Duration,
    last_arrival: Time,
}

impl Delays {
    pub(super) fn new(
        base: Duration,
        jitter: Option<JitterSpec>,
        aggregation: Option<AggregationSpec>,
        seed: u64,
    ) -> Self {
        let aggregation = aggregation.map(|spec| Aggregation::new(spec, seed));
        let per_packet_random = SplitMix64::for_purpose(seed, Purpose::Jitter);
        let seed = per_packet_random.clone().next_u64();
        let (origin, last_arrival) = (Time::ZERO, Time::ZERO);
        Self {
            base,
            jitter,
            aggregation,
            seed,
            per_packet_random,
            origin,
            interval_index: None,
            interval_delay: base,
            last_arrival,
        }
    }

    pub(super) const fn start_at(&mut self, origin: Time) {
        self.origin = origin;
        self.interval_index = None;
    }

    /// Returns the arrival time of a packet whose last bit left at `departure`.
    #[inline]
    pub(super) fn arrival(&mut self, departure: Time) -> Time {
        let delay = match self.jitter {
            None => self.base,
            Some(jitter) => self.delay_at(jitter, departure),
        };
        let released = match &mut self.aggregation {
            None => departure,
            Some(aggregation) => aggregation.release(departure),
        };
        self.last_arrival = self.last_arrival.max(released + delay);
        self.last_arrival
    }

    fn delay_at(&mut self, jitter: JitterSpec, departure: Time) -> Duration {
        let age = departure.since(self.origin);
        match jitter {
            JitterSpec::Ramp(DelayRamp {
                step_increment: add,
                step_interval: every,
                max_added: up_to,
            }) => {
                let step_count = age.as_nanos() / every.as_nanos().max(1);
                let step_count = u32::try_from(step_count).unwrap_or(u32::MAX);
                self.base + add.saturating_mul(step_count).min(up_to)
            }
            JitterSpec::Normal(NormalJitter { deviation, redraw_interval: every }) => self
                .draw_per_interval(age, every, |base, random| {
                    base + deviation.as_secs_f64() * random.normal()
                }),
            JitterSpec::Uniform(UniformJitter { width, redraw_interval: every }) => self
                .draw_per_interval(age, every, |base, random| {
                    base + width.as_secs_f64() * (random.next_f64() - 0.5)
                }),
        }
    }

    /// Draws once per interval of length `every`, or per packet if that is zero. An interval's value
    /// depends on the seed alone, not on packets in other intervals.
    fn draw_per_interval(
        &mut self,
        age: Duration,
        every: Duration,
        draw: impl Fn(f64, &mut SplitMix64) -> f64,
    ) -> Duration {
        let base = self.base.as_secs_f64();
        let bounded = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.0, 3_600.0));
        if every.is_zero() {
            return bounded(draw(base, &mut self.per_packet_random));
        }
        let interval_index = u64::try_from(age.as_nanos() / every.as_nanos()).unwrap_or(u64::MAX);
        if self.interval_index != Some(interval_index) {
            self.interval_index = Some(interval_index);
            let mut random = SplitMix64::new(mix(self.seed ^ mix(interval_index)));
            self.interval_delay = bounded(draw(base, &mut random));
        }
        self.interval_delay
    }
}
