//! Queue disciplines as configured in files: the order of packets, and which are dropped.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::SpecError;
use crate::millis;

/// The queue discipline of one direction.
///
/// In files: a name, `drop-tail`, `drop-head`, `codel` or `fq_codel` (written as `fq`), or a table
/// with the parameters of the last two.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Qdisc {
    /// First in, first out; a packet that finds the queue full is dropped.
    #[default]
    DropTail,
    /// First in, first out; a packet that finds the queue full displaces the oldest.
    DropHead,
    /// First in, first out, kept short by `CoDel` (RFC 8289).
    CoDel(CoDelSpec),
    /// One queue per flow, each kept short by `CoDel` (RFC 8290).
    FqCodel(FqCodelSpec),
}

/// Parameters of `CoDel` (RFC 8289, sections 4.3 and 4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoDelSpec {
    /// The acceptable standing queueing delay.
    #[serde(with = "millis", rename = "target_ms")]
    pub target: Duration,
    /// How long `target` may be exceeded: about the round-trip time of most flows.
    #[serde(with = "millis", rename = "interval_ms")]
    pub interval: Duration,
}

impl Default for CoDelSpec {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// Parameters of `fq_codel` (RFC 8290, section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FqCodelSpec {
    /// `CoDel`'s target.
    #[serde(with = "millis", rename = "target_ms")]
    pub target: Duration,
    /// `CoDel`'s interval.
    #[serde(with = "millis", rename = "interval_ms")]
    pub interval: Duration,
    /// Number of queues that flows are hashed to.
    pub flows: usize,
    /// Bytes that a flow may send in one round.
    pub quantum: u32,
}

impl Default for FqCodelSpec {
    fn default() -> Self {
        let CoDelSpec { target, interval } = CoDelSpec::default();
        Self { target, interval, flows: 1_024, quantum: 1_514 }
    }
}

impl FqCodelSpec {
    pub(super) const fn codel(&self) -> CoDelSpec {
        CoDelSpec { target: self.target, interval: self.interval }
    }
}

impl Qdisc {
    /// Returns `CoDel` with the parameters that RFC 8289 recommends.
    #[must_use]
    pub fn codel() -> Self {
        Self::CoDel(CoDelSpec::default())
    }

    /// Returns `fq_codel` with the parameters that RFC 8290 recommends.
    #[must_use]
    pub fn fq_codel() -> Self {
        Self::FqCodel(FqCodelSpec::default())
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        match self {
            Self::FqCodel(spec) if !(1..=65_536).contains(&spec.flows) => {
                Err(SpecError::Value("discipline.fq.flows must be from 1 to 65536".into()))
            }
            Self::FqCodel(spec) if spec.quantum < 64 => {
                Err(SpecError::Value("discipline.fq.quantum must be 64 bytes or more".into()))
            }
            Self::CoDel(CoDelSpec { interval, .. })
            | Self::FqCodel(FqCodelSpec { interval, .. })
                if interval.is_zero() =>
            {
                Err(SpecError::Value("discipline: interval_ms must be more than 0".into()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Formats the name, as in files.
impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DropTail => "drop-tail",
            Self::DropHead => "drop-head",
            Self::CoDel(_) => "codel",
            Self::FqCodel(_) => "fq",
        })
    }
}

/// The table form.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    #[serde(skip_serializing_if = "Option::is_none")]
    codel: Option<CoDelSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "fq", alias = "fq_codel")]
    fq_codel: Option<FqCodelSpec>,
}

impl Serialize for Qdisc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::CoDel(codel) if codel != CoDelSpec::default() => {
                Table { codel: Some(codel), fq_codel: None }.serialize(serializer)
            }
            Self::FqCodel(spec) if spec != FqCodelSpec::default() => {
                Table { codel: None, fq_codel: Some(spec) }.serialize(serializer)
            }
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Qdisc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QdiscVisitor)
    }
}

struct QdiscVisitor;

impl<'de> Visitor<'de> for QdiscVisitor {
    type Value = Qdisc;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"drop-tail\", \"drop-head\", \"codel\", \"fq\", or a table with codel or fq")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Qdisc, E> {
        match name {
            "drop-tail" => Ok(Qdisc::DropTail),
            "drop-head" => Ok(Qdisc::DropHead),
            "codel" => Ok(Qdisc::codel()),
            // Files that are written have "fq", which the hashes of published trials contain.
            "fq" | "fq_codel" => Ok(Qdisc::fq_codel()),
            _ => Err(E::unknown_variant(name, &["drop-tail", "drop-head", "codel", "fq"])),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Qdisc, A::Error> {
        match Table::deserialize(MapAccessDeserializer::new(map))? {
            Table { codel: Some(codel), fq_codel: None } => Ok(Qdisc::CoDel(codel)),
            Table { codel: None, fq_codel: Some(spec) } => Ok(Qdisc::FqCodel(spec)),
            _ => Err(Error::custom("a table for discipline has either codel or fq")),
        }
    }
}
