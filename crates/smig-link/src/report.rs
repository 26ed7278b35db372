//! Counters and timing of an emulated link.

use serde::{Deserialize, Serialize};

use super::log::DropReason;
use crate::lateness::LatenessSummary;

/// Scheduling policy of the thread that forwards packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// Real-time: before all ordinary threads of the machine.
    RealTime,
    /// As an ordinary thread, because the process may not use real-time scheduling.
    /// A busy machine delays the link.
    Ordinary,
}

/// Counters of one direction of a link.
///
/// Every offered packet was delivered or dropped, or is still in the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DirectionCounters {
    /// Packets offered to the link.
    #[serde(default)]
    pub offered_packets: u64,
    /// Packets delivered at the far end.
    pub delivered_packets: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets dropped or lost, for any reason.
    pub dropped_packets: u64,
    /// Those dropped because the queue was full: new packets and displaced ones.
    #[serde(default)]
    #[serde(rename = "dropped_full")]
    pub dropped_queue_full: u64,
    /// Those dropped by `CoDel`.
    #[serde(default)]
    pub dropped_codel: u64,
    /// Those lost on the wire.
    #[serde(default)]
    pub lost_packets: u64,
    /// Those that left the wire during an outage.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outage_packets: u64,
    /// Those that exceeded the policer's rate.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub policed_packets: u64,
    /// Acknowledgements that a later one superseded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thinned_acks: u64,
    /// Maximum queue length, in packets.
    #[serde(rename = "longest_queue")]
    pub max_queue_packets: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl DirectionCounters {
    pub(super) const fn count_drop(&mut self, reason: DropReason) {
        self.dropped_packets += 1;
        match reason {
            DropReason::Full | DropReason::PushedOut => self.dropped_queue_full += 1,
            DropReason::CoDel => self.dropped_codel += 1,
            DropReason::Lost => self.lost_packets += 1,
            DropReason::Outage => self.outage_packets += 1,
            DropReason::Policed => self.policed_packets += 1,
            DropReason::Thinned => self.thinned_acks += 1,
            DropReason::TooBig => {}
        }
    }
}

/// Counters of a link, and how punctual it was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// From the server to the client.
    pub to_client: DirectionCounters,
    /// From the client to the server.
    pub to_server: DirectionCounters,
    /// Lateness of deliveries, both directions together.
    pub lateness: LatenessSummary,
    /// Scheduling policy of the forwarding thread.
    pub scheduling: Scheduling,
}
