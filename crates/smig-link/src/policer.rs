//! A policer: a token bucket without a queue, which drops what exceeds its rate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Rate, SpecError, Time};

/// Configuration of a policer in front of a direction's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicerSpec {
    /// Rate at which the bucket fills, in bits of IP packets.
    pub rate: Rate,
    /// Size of the bucket: the bytes that may pass at once after a pause.
    pub burst_bytes: u64,
}

impl PolicerSpec {
    pub(super) fn check(&self, mtu: u32) -> Result<(), SpecError> {
        if self.burst_bytes < u64::from(mtu) {
            let text = format!("policer.burst_bytes must be at least the mtu, {mtu} bytes");
            return Err(SpecError::Value(text));
        }
        Ok(())
    }
}

/// State of a policer, as the time by which its bucket will be full.
#[derive(Debug)]
pub(super) struct Policer {
    bits_per_second: u64,
    /// Time in which an empty bucket fills.
    depth: Duration,
    full_at: Time,
}

impl Policer {
    pub(super) fn new(spec: PolicerSpec) -> Self {
        let bits_per_second = spec.rate.as_bits_per_second().max(1);
        let depth = fill_time(spec.burst_bytes, bits_per_second);
        Self { bits_per_second, depth, full_at: Time::ZERO }
    }

    /// Takes a packet's tokens from the bucket; returns whether there were enough.
    pub(super) fn conforms(&mut self, now: Time, bytes: u64) -> bool {
        let full_at = self.full_at.max(now) + fill_time(bytes, self.bits_per_second);
        let conforms = full_at.since(now) <= self.depth;
        if conforms {
            self.full_at = full_at;
        }
        conforms
    }
}

fn fill_time(bytes: u64, bits_per_second: u64) -> Duration {
    Duration::from_nanos(bytes.saturating_mul(8_000_000_000) / bits_per_second)
}
