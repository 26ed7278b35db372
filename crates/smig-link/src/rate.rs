//! Rate of a direction as configured in files: a constant, steps, a trace, or
//! the generator.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{LteSpec, Rate, SpecError, Trace};
use crate::millis;

/// Rate of a wire, in bits of IP packets.
///
/// In files: a [`Rate`], or a table with one of `steps`, `trace` and `lte`.
#[derive(Debug, Clone, PartialEq)]
pub enum RateSpec {
    /// A constant rate.
    Constant(Rate),
    /// A rate that changes at given times.
    Steps(RateSteps),
    /// A Mahimahi trace file.
    Trace(PathBuf),
    /// A generated trace.
    Lte(LteSpec),
}

/// A rate that changes at given times after the start of the link.
#[derive(Debug, Clone, PartialEq)]
pub struct RateSteps {
    /// The steps in order of time; the first is at 0.
    pub steps: Vec<RateStep>,
    /// Period after which they repeat; if absent, the last step lasts forever.
    pub period: Option<Duration>,
}

/// A step of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// Time since the start of the link.
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// The rate from then on.
    pub rate: Rate,
}

impl RateSpec {
    /// Returns the average rate: of the steps over one period, or else the last
    /// step's, or the generator's mean. `None` for a trace file, which is not read here.
    #[must_use]
    pub fn mean(&self) -> Option<Rate> {
        match self {
            Self::Constant(rate) => Some(*rate),
            Self::Steps(steps) => steps.mean(),
            Self::Trace(_) => None,
            Self::Lte(lte) => Some(lte.mean),
        }
    }

    /// Returns the average bits per second. That of a trace file is read from the file; it is 1 if the file cannot be
    /// read, for which a link with it is refused.
    #[must_use]
    pub fn mean_bits_per_second(&self) -> u64 {
        let of_trace = || Some(self.load_or_generate_trace(0).ok()??.mean());
        self.mean().or_else(of_trace).map_or(1, Rate::as_bits_per_second)
    }

    /// Returns the average megabits per second, as [`mean_bits_per_second`](Self::mean_bits_per_second).
    #[must_use]
    pub fn mean_mbit(&self) -> f64 {
        self.mean_bits_per_second() as f64 / 1e6
    }

    /// Resolves a relative path of the trace file, if there is one, against `directory`.
    pub(super) fn resolve_trace_path(&mut self, directory: &Path) {
        if let Self::Trace(file) = self {
            *file = directory.join(&*file);
        }
    }

    /// Reads the trace file, or generates the trace of the run with this seed; `None` for other rates.
    pub(super) fn load_or_generate_trace(&self, seed: u64) -> Result<Option<Trace>, SpecError> {
        match self {
            Self::Constant(_) | Self::Steps(_) => Ok(None),
            Self::Lte(lte) => Ok(Some(lte.generate(seed))),
            Self::Trace(file) => {
                let text = fs::read_to_string(file)
                    .map_err(|cause| SpecError::TraceFile { file: file.clone(), cause })?;
                let trace = text.parse();
                trace.map(Some).map_err(|cause| SpecError::Trace { file: file.clone(), cause })
            }
        }
    }
}

impl RateSteps {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        if self.steps.first().is_none_or(|first| !first.at.is_zero()) {
            return Err(SpecError::Value("rate.steps: the first step must be at_ms = 0".into()));
        }
        if let Some(pair) = self.steps.windows(2).find(|pair| pair[0].at >= pair[1].at) {
            let at = millis::of(pair[1].at);
            return Err(SpecError::Value(format!(
                "rate.steps: the step at {at} ms must be later than the one before it"
            )));
        }
        let last = self.steps.last().map_or(Duration::ZERO, |step| step.at);
        if self.period.is_some_and(|repeat| repeat <= last) {
            return Err(SpecError::Value("rate.repeat_ms must be after the last step".into()));
        }
        Ok(())
    }

    fn mean(&self) -> Option<Rate> {
        let Some(repeat) = self.period else { return self.steps.last().map(|step| step.rate) };
        let ends = self.steps.iter().skip(1).map(|step| step.at).chain([repeat]);
        let bits: f64 = (self.steps.iter().zip(ends))
            .map(|(step, end)| {
                step.rate.as_bits_per_second() as f64 * end.saturating_sub(step.at).as_secs_f64()
            })
            .sum();
        Some(Rate::bits_per_second((bits / repeat.as_secs_f64().max(1e-9)) as u64))
    }
}

impl From<Rate> for RateSpec {
    fn from(rate: Rate) -> Self {
        Self::Constant(rate)
    }
}

impl PartialEq<Rate> for RateSpec {
    fn eq(&self, other: &Rate) -> bool {
        matches!(self, Self::Constant(rate) if rate == other)
    }
}

impl fmt::Display for RateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(rate) => write!(f, "{rate}"),
            Self::Steps(steps) => {
                let rates = || steps.steps.iter().map(|step| step.rate);
                match (rates().min(), rates().max()) {
                    (Some(min), Some(max)) => write!(f, "{min} to {max} in steps"),
                    _ => f.write_str("no rate"),
                }
            }
            Self::Trace(file) => write!(f, "trace {}", file.display()),
            Self::Lte(LteSpec { mean, seed: Some(seed), .. }) => {
                write!(f, "about {mean}, LTE-like (seed {seed})")
            }
            Self::Lte(lte) => write!(f, "about {}, LTE-like", lte.mean),
        }
    }
}

/// The table form.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<RateStep>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lte: Option<LteSpec>,
}

impl Serialize for RateSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let table = match self {
            Self::Constant(rate) => return rate.serialize(serializer),
            Self::Steps(RateSteps { steps, period: repeat }) => Table {
                steps: steps.clone(),
                repeat_ms: repeat.map(millis::of),
                ..Table::default()
            },
            Self::Trace(file) => Table { trace: Some(file.clone()), ..Table::default() },
            Self::Lte(lte) => Table { lte: Some(*lte), ..Table::default() },
        };
        table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RateSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RateSpecVisitor)
    }
}

struct RateSpecVisitor;

impl<'de> Visitor<'de> for RateSpecVisitor {
    type Value = RateSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate like \"10 Mbit/s\", or a table with steps, trace or lte")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RateSpec, E> {
        text.parse().map(RateSpec::Constant).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, bits: u64) -> Result<RateSpec, E> {
        match bits {
            0 => Err(E::custom("a rate must be more than 0")),
            bits => Ok(RateSpec::Constant(Rate::bits_per_second(bits))),
        }
    }

    fn visit_i64<E: Error>(self, bits: i64) -> Result<RateSpec, E> {
        let bits = u64::try_from(bits);
        bits.map_or_else(|_| Err(E::custom("rate must be positive")), |bits| self.visit_u64(bits))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RateSpec, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        let repeat = table.repeat_ms.map(|repeat| Duration::try_from_secs_f64(repeat / 1e3));
        let repeat =
            repeat.transpose().map_err(|_| Error::custom("repeat_ms is not a duration"))?;
        match table {
            Table { steps, trace: None, lte: None, .. } if !steps.is_empty() => {
                Ok(RateSpec::Steps(RateSteps { steps, period: repeat }))
            }
            _ if repeat.is_some() => Err(Error::custom("repeat_ms applies only to steps")),
            Table { steps, trace: Some(file), lte: None, .. } if steps.is_empty() => {
                Ok(RateSpec::Trace(file))
            }
            Table { steps, trace: None, lte: Some(lte), .. } if steps.is_empty() => {
                Ok(RateSpec::Lte(lte))
            }
            _ => Err(Error::custom("a rate is one of steps, trace and lte")),
        }
    }
}
