//! What a carried link tells about itself after a run.

use serde::{Deserialize, Serialize};

use super::log::DropReason;
use crate::lateness::LatenessSummary;

/// How the thread that carries packets is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// Before all ordinary threads of the machine.
    RealTime,
    /// As an ordinary thread: the right to more was not there. A busy machine
    /// makes the link late.
    Ordinary,
}

/// What one direction of a link did so far.
///
/// Every packet offered was delivered, dropped, or is still on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Packets that came to the link.
    #[serde(default)]
    pub offered_packets: u64,
    /// Packets handed out at the far end.
    pub delivered_packets: u64,
    /// Bytes of those.
    pub delivered_bytes: u64,
    /// Packets that never arrive, for whatever reason.
    pub dropped_packets: u64,
    /// Of those: what found the queue full, or gave way in it.
    #[serde(default)]
    pub dropped_full: u64,
    /// Of those: what `CoDel` dropped.
    #[serde(default)]
    pub dropped_codel: u64,
    /// Of those: what got lost on the wire.
    #[serde(default)]
    pub lost_packets: u64,
    /// The longest the queue was, in packets.
    pub longest_queue: usize,
}

impl LinkCounters {
    pub(super) const fn count_drop(&mut self, reason: DropReason) {
        self.dropped_packets += 1;
        match reason {
            DropReason::Full | DropReason::PushedOut => self.dropped_full += 1,
            DropReason::CoDel => self.dropped_codel += 1,
            DropReason::Lost => self.lost_packets += 1,
            DropReason::TooBig => {}
        }
    }
}

/// What the link did so far, and how punctually.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// From the server to the client.
    pub to_client: LinkCounters,
    /// From the client to the server.
    pub to_server: LinkCounters,
    /// Both directions together.
    pub lateness: LatenessSummary,
    /// How the carrying thread is scheduled.
    pub scheduling: Scheduling,
}
