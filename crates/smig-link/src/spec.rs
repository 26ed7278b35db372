//! Configuration of a link, in files and in code.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ack_thinning::AckThinningSpec;
use super::aggregation::AggregationSpec;
use super::delays::JitterSpec;
use super::policer::PolicerSpec;
use super::transmitter::Transmitter;
use super::{LossSpec, Outage, Qdisc, Rate, RateSpec, SpecError};
use crate::millis;

/// Default MTU of a link, in bytes of an IP packet.
pub const DEFAULT_MTU: u32 = 1_500;

/// Minimum of a queue whose limit is in bandwidth-delay products, in packets.
const MIN_BDP_QUEUE_PACKETS: usize = 5;

/// Limit of a queue. The packet on the wire is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "QueueFile")]
pub struct QueueLimit {
    /// Maximum number of queued packets.
    pub packets: usize,
    /// Maximum number of queued bytes; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// In files, instead of `packets`: the limit in bandwidth-delay products. A [`LinkSpec`] that was read has
    /// the packets instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bdp: Option<f64>,
}

/// The limit as files have it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueFile {
    packets: Option<usize>,
    bytes: Option<u64>,
    bdp: Option<f64>,
}

impl TryFrom<QueueFile> for QueueLimit {
    type Error = &'static str;

    fn try_from(file: QueueFile) -> Result<Self, Self::Error> {
        let QueueFile { packets, bytes, bdp } = file;
        match (packets, bdp) {
            (Some(packets), None) => Ok(Self { packets, bytes, bdp }),
            (None, Some(products)) if products > 0.0 && products <= 1_000.0 => {
                Ok(Self { packets: 0, bytes, bdp })
            }
            (None, Some(_)) => Err("bdp must be more than 0, and at most 1000"),
            _ => Err("a queue needs packets = N, or bdp = N in bandwidth-delay products"),
        }
    }
}

impl QueueLimit {
    /// Creates a limit in packets only.
    #[must_use]
    pub const fn packets(packets: usize) -> Self {
        Self { packets, bytes: None, bdp: None }
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
    /// Times in which nothing arrives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Arrival in bursts; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation: Option<AggregationSpec>,
    /// A policer in front of the queue; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policer: Option<PolicerSpec>,
    /// Thinning of acknowledgements in front of the queue; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_thinning: Option<AckThinningSpec>,
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
            outages: Vec::new(),
            aggregation: None,
            policer: None,
            ack_thinning: None,
            queue,
            discipline: Qdisc::DropTail,
            mtu: DEFAULT_MTU,
        }
    }

    /// Replaces a queue limit in bandwidth-delay products by packets. `None` if the rate is that of a file.
    pub(super) fn resolve_queue(&mut self, round_trip: Duration) -> Option<()> {
        if let Some(products) = self.queue.bdp.take() {
            let bits = self.rate.mean()?.as_bits_per_second() as f64 * round_trip.as_secs_f64();
            let packets = (products * bits / 8.0 / f64::from(self.mtu)).ceil() as usize;
            self.queue.packets = packets.max(MIN_BDP_QUEUE_PACKETS);
        }
        Some(())
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
        Outage::check_all(&self.outages)?;
        self.aggregation.as_ref().map_or(Ok(()), AggregationSpec::check)?;
        self.policer.as_ref().map_or(Ok(()), |policer| policer.check(self.mtu))?;
        self.ack_thinning.as_ref().map_or(Ok(()), AckThinningSpec::check)?;
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

    /// Returns the same once delays that grow with time have grown.
    #[must_use]
    pub fn grown_round_trip(&self) -> Duration {
        let growth = |direction: &DirectionSpec| match direction.jitter {
            Some(JitterSpec::Ramp(ramp)) => ramp.max_added,
            _ => Duration::ZERO,
        };
        let growth = growth(&self.to_client).saturating_add(growth(&self.to_server));
        self.round_trip().saturating_add(growth)
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
        if !(down.outages.is_empty() && up.outages.is_empty()) {
            f.write_str(", with outages")?;
        }
        if down.aggregation.or(up.aggregation).is_some() {
            f.write_str(", in bursts")?;
        }
        if let Some(policer) = down.policer.or(up.policer) {
            write!(f, ", policed at {}", policer.rate)?;
        }
        if up.ack_thinning.or(down.ack_thinning).is_some() {
            f.write_str(", thinned ACKs")?;
        }
        write!(f, ", queue of {} packets", down.queue.packets)?;
        if !down.discipline.is_default() {
            write!(f, " ({})", down.discipline)?;
        }
        Ok(())
    }
}
