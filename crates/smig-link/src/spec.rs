//! Configuration of a link, in files and in code.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::delays::JitterSpec;
use super::transmitter::Transmitter;
use super::{LossSpec, Qdisc, Rate, RateSpec, SpecError};
use crate::millis;

/// Default MTU of a link, in bytes of an IP packet.
pub const DEFAULT_MTU: u32 = 1_500;

/// Limit of a queue. The packet on the wire is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueLimit {
    /// Maximum number of queued packets.
    pub packets: usize,
    /// Maximum number of queued bytes; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl QueueLimit {
    /// Creates a limit in packets only.
    #[must_use]
    pub const fn packets(packets: usize) -> Self {
        Self { packets, bytes: None }
    }
}

/// One direction of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSpec {
    /// Rate of the wire, in bits of IP packets.
    #[serde(alias = "rate_bits_per_s")]
    pub rate: RateSpec,
    /// Propagation delay: from the departure of the last bit to the packet's arrival.
    #[serde(with = "millis", rename = "delay_ms")]
    pub delay: Duration,
    /// Variation of the delay; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterSpec>,
    /// Loss on the wire; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossSpec>,
    /// Limit of the queue in front of the wire.
    pub queue: QueueLimit,
    /// Queue discipline.
    #[serde(default, skip_serializing_if = "Qdisc::is_default")]
    pub discipline: Qdisc,
    /// The MTU in bytes: larger IP packets are dropped.
    #[serde(default = "default_mtu", skip_serializing_if = "is_default_mtu")]
    pub mtu: u32,
}

const fn default_mtu() -> u32 {
    DEFAULT_MTU
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_default_mtu(mtu: &u32) -> bool {
    *mtu == DEFAULT_MTU
}

impl DirectionSpec {
    /// Creates a direction with a constant rate and delay and a drop-tail queue, without loss.
    #[must_use]
    pub const fn new(rate: Rate, delay: Duration, queue: QueueLimit) -> Self {
        Self {
            rate: RateSpec::Constant(rate),
            delay,
            jitter: None,
            loss: None,
            queue,
            discipline: Qdisc::DropTail,
            mtu: DEFAULT_MTU,
        }
    }

    /// Validates the values and creates the transmitter: reads the trace file, or generates the
    /// trace from the run's seed.
    pub(super) fn build_transmitter(&self, seed: u64) -> Result<Transmitter, SpecError> {
        if !(68..=65_535).contains(&self.mtu) {
            let text = format!("mtu = {} is not from 68 to 65535 bytes", self.mtu);
            return Err(SpecError::Value(text));
        }
        self.jitter.as_ref().map_or(Ok(()), JitterSpec::check)?;
        self.loss.as_ref().map_or(Ok(()), LossSpec::check)?;
        self.discipline.check()?;
        match (&self.rate, self.rate.load_or_generate_trace(seed)?) {
            (_, Some(trace)) => Ok(Transmitter::trace(trace)),
            (RateSpec::Steps(steps), None) => {
                steps.check()?;
                Ok(Transmitter::steps(steps.clone()))
            }
            (rate, None) => {
                Ok(Transmitter::constant(Rate::bits_per_second(rate.mean_bits_per_second())))
            }
        }
    }
}

/// Both directions of a link between a server and a client.
///
/// In files: the name of a [`Profile`](crate::Profile), or a table with `to_client` and
/// `to_server`, or with `both` in place of an absent direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkSpec {
    /// From the server to the client.
    pub to_client: DirectionSpec,
    /// From the client to the server.
    pub to_server: DirectionSpec,
}

impl LinkSpec {
    /// Returns the wired link of the SMig paper: 10 Mbit/s, 50 ms round trip, a
    /// queue of 75 packets in each direction.
    #[must_use]
    pub const fn paper_wired() -> Self {
        Self::symmetric(Rate::mbit(10), Duration::from_millis(50), QueueLimit::packets(75))
    }

    /// Creates a symmetric link; the delay of each direction is half of `round_trip`.
    #[must_use]
    pub const fn symmetric(rate: Rate, round_trip: Duration, queue: QueueLimit) -> Self {
        let half = Duration::from_nanos(round_trip.as_nanos() as u64 / 2);
        Self {
            to_client: DirectionSpec::new(rate, half, queue),
            to_server: DirectionSpec::new(rate, half, queue),
        }
    }

    /// Returns the round-trip propagation delay, without jitter.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.to_client.delay + self.to_server.delay
    }

    /// Resolves relative paths of trace files against `directory`.
    #[must_use]
    pub fn resolve_trace_paths(mut self, directory: &Path) -> Self {
        self.to_client.rate.resolve_trace_path(directory);
        self.to_server.rate.resolve_trace_path(directory);
        self
    }

    /// Validates both directions. Reads the trace files.
    ///
    /// # Errors
    /// The first invalid value, or the error of a trace file.
    pub fn check(&self) -> Result<(), SpecError> {
        self.to_client.build_transmitter(0).map_err(|error| error.in_direction("to_client"))?;
        self.to_server.build_transmitter(0).map_err(|error| error.in_direction("to_server"))?;
        Ok(())
    }
}

/// Formats a one-line summary: rates, round-trip time, jitter, loss, and the queue to the client.
impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (down, up) = (&self.to_client, &self.to_server);
        write!(f, "{}", down.rate)?;
        if up.rate != down.rate {
            write!(f, " down, {} up", up.rate)?;
        }
        write!(f, ", {} ms round trip", millis::of(self.round_trip()))?;
        match down.jitter.or(up.jitter) {
            Some(JitterSpec::Ramp(_)) => f.write_str(" and growing")?,
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
