//! What a link is asked to be.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Rate;
use crate::millis;

/// The bound of a drop-tail queue. The packet on the wire is not counted.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSpec {
    /// How fast bits of IP packets go onto the wire.
    #[serde(rename = "rate_bits_per_s")]
    pub rate: Rate,
    /// From the last bit onto the wire to the packet's arrival.
    #[serde(with = "millis", rename = "delay_ms")]
    pub delay: Duration,
    /// What may wait before the wire.
    pub queue: QueueLimit,
}

/// Both directions of a link between a server and a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
        let direction = DirectionSpec { rate, delay: half, queue };
        Self { to_client: direction, to_server: direction }
    }

    /// The round-trip time of an empty packet through empty queues.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.to_client.delay + self.to_server.delay
    }
}

/// One line for people: what the big direction carries, the round trip and the queue.
impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let down = &self.to_client;
        write!(f, "{}", down.rate)?;
        if self.to_server.rate != down.rate {
            write!(f, " down, {} up", self.to_server.rate)?;
        }
        write!(f, ", {} ms round trip, ", millis::of(self.round_trip()))?;
        write!(f, "queue of {} packets", down.queue.packets)
    }
}
