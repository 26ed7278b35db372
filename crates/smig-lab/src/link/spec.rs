//! What a link is asked to be, as it stands in a file and in the code.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

use super::delays::JitterSpec;
use super::trace::TraceError;
use super::wire::Wire;
use super::{Discipline, LossSpec, Profile, Rate, RateSpec};
use crate::millis;

/// The largest IP packet of a link, in bytes, unless it says otherwise.
pub const USUAL_MTU: u32 = 1_500;

/// How much may wait for the wire. The packet on the wire is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLimit {
    /// Packets that may wait.
    pub packets: usize,
    /// Bytes that may wait; no bound when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl QueueLimit {
    /// A bound in packets alone.
    #[must_use]
    pub const fn packets(packets: usize) -> Self {
        Self { packets, bytes: None }
    }
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSpec {
    /// How fast bits of IP packets go onto the wire.
    #[serde(alias = "rate_bits_per_s")]
    pub rate: RateSpec,
    /// From the last bit onto the wire to the packet's arrival.
    #[serde(with = "millis", rename = "delay_ms")]
    pub delay: Duration,
    /// How that changes; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterSpec>,
    /// What gets lost on the wire; nothing when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossSpec>,
    /// How much may wait before the wire.
    pub queue: QueueLimit,
    /// In which order, and who gives way.
    #[serde(default, skip_serializing_if = "Discipline::is_default")]
    pub discipline: Discipline,
    /// The largest IP packet that passes, in bytes.
    #[serde(default = "usual_mtu", skip_serializing_if = "is_usual_mtu")]
    pub mtu: u32,
}

const fn usual_mtu() -> u32 {
    USUAL_MTU
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_usual_mtu(mtu: &u32) -> bool {
    *mtu == USUAL_MTU
}

impl DirectionSpec {
    /// A constant rate and delay before a drop-tail queue, without loss.
    #[must_use]
    pub const fn new(rate: Rate, delay: Duration, queue: QueueLimit) -> Self {
        Self {
            rate: RateSpec::Constant(rate),
            delay,
            jitter: None,
            loss: None,
            queue,
            discipline: Discipline::DropTail,
            mtu: USUAL_MTU,
        }
    }

    /// Checks the values, reads the trace or makes that of the run with this seed.
    pub(super) fn wire(&self, seed: u64) -> Result<Wire, SpecError> {
        if !(68..=65_535).contains(&self.mtu) {
            let text = format!("mtu = {} is not from 68 to 65535 bytes", self.mtu);
            return Err(SpecError::Value(text));
        }
        self.jitter.as_ref().map_or(Ok(()), JitterSpec::check)?;
        self.loss.as_ref().map_or(Ok(()), LossSpec::check)?;
        self.discipline.check()?;
        match (&self.rate, self.rate.trace(seed)?) {
            (_, Some(trace)) => Ok(Wire::trace(trace)),
            (RateSpec::Steps(steps), None) => {
                steps.check()?;
                Ok(Wire::steps(steps.clone()))
            }
            (rate, None) => Ok(Wire::constant(Rate::bits_per_second(rate.as_bits_per_second()))),
        }
    }
}

/// Both directions of a link between a server and a client.
///
/// In files: the name of a [`Profile`], or a table with `to_client` and
/// `to_server`, or with `both` for a direction that is not there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkSpec {
    /// From the server to the client.
    pub to_client: DirectionSpec,
    /// From the client to the server.
    pub to_server: DirectionSpec,
}

impl LinkSpec {
    /// The wired link of the SMig paper: 10 Mbit/s, 50 ms round trip, a queue
    /// of 75 packets each way.
    #[must_use]
    pub const fn paper_wired() -> Self {
        Self::symmetric(Rate::mbit(10), Duration::from_millis(50), QueueLimit::packets(75))
    }

    /// The same both ways; half of `round_trip` is the delay of each.
    #[must_use]
    pub const fn symmetric(rate: Rate, round_trip: Duration, queue: QueueLimit) -> Self {
        let half = Duration::from_nanos(round_trip.as_nanos() as u64 / 2);
        Self {
            to_client: DirectionSpec::new(rate, half, queue),
            to_server: DirectionSpec::new(rate, half, queue),
        }
    }

    /// The round-trip time of an empty packet through empty queues, without jitter.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.to_client.delay + self.to_server.delay
    }

    /// The same link, its trace files looked for in `folder` where their paths are relative.
    #[must_use]
    pub fn relative_to(mut self, folder: &Path) -> Self {
        self.to_client.rate.relative_to(folder);
        self.to_server.rate.relative_to(folder);
        self
    }

    /// Whether a link can be made of it. Reads the trace files.
    ///
    /// # Errors
    /// The first value that makes no sense, or what is wrong with a trace file.
    pub fn check(&self) -> Result<(), SpecError> {
        self.to_client.wire(0).map_err(|error| error.of("to_client"))?;
        self.to_server.wire(0).map_err(|error| error.of("to_server"))?;
        Ok(())
    }
}

/// Why a link cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// A value makes no sense; the text names the key.
    #[error("{0}")]
    Value(String),
    /// A trace file cannot be read.
    #[error("cannot read the trace {}: {cause}", file.display())]
    TraceFile {
        /// Its path.
        file: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// A trace file is no trace.
    #[error("the trace {} is not in Mahimahi's format: {cause}", file.display())]
    Trace {
        /// Its path.
        file: PathBuf,
        /// What is wrong with it.
        cause: TraceError,
    },
}

impl SpecError {
    fn of(self, direction: &str) -> Self {
        match self {
            Self::Value(text) => Self::Value(format!("{direction}.{text}")),
            file => file,
        }
    }
}

/// One line for people: what the big direction carries, the round trip and the queue.
impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (down, up) = (&self.to_client, &self.to_server);
        write!(f, "{}", down.rate)?;
        if up.rate != down.rate {
            write!(f, " down, {} up", up.rate)?;
        }
        write!(f, ", {} ms round trip", millis::of(self.round_trip()))?;
        match down.jitter.or(up.jitter) {
            Some(JitterSpec::Slowdown(_)) => f.write_str(" and growing")?,
            Some(_) => f.write_str(" and jitter")?,
            None => {}
        }
        if let Some(loss) = down.loss.or(up.loss) {
            write!(f, ", {} % loss", (loss.share() * 1e6).round() / 1e4)?;
        }
        write!(f, ", queue of {} packets", down.queue.packets)?;
        if !down.discipline.is_default() {
            write!(f, " ({})", down.discipline)?;
        }
        Ok(())
    }
}

/// The table form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    both: Option<DirectionSpec>,
    to_client: Option<DirectionSpec>,
    to_server: Option<DirectionSpec>,
}

impl<'de> Deserialize<'de> for LinkSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LinkVisitor)
    }
}

struct LinkVisitor;

impl<'de> Visitor<'de> for LinkVisitor {
    type Value = LinkSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a profile's name, or a table with to_client and to_server, or with both")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<LinkSpec, E> {
        match Profile::named(name) {
            Some(profile) => Ok(profile.spec),
            None => {
                let names: Vec<_> = Profile::all().iter().map(|profile| profile.name).collect();
                let names = names.join(", ");
                Err(E::custom(format!("{name:?} is not the name of a link; there are {names}")))
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LinkSpec, A::Error> {
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        let missing = || Error::custom("a link needs to_client and to_server, or both");
        let both = table.both;
        let to_client = table.to_client.or_else(|| both.clone()).ok_or_else(missing)?;
        let to_server = table.to_server.or(both).ok_or_else(missing)?;
        Ok(LinkSpec { to_client, to_server })
    }
}
