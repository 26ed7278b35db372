//! What the driver measures.

use std::time::Duration;

/// A measurement of a session's sockets.
#[derive(Clone, Copy, Debug)]
pub struct RateSample {
    /// Bytes acknowledged on all connections since any fixed time.
    pub acknowledged: u64,
    /// Bytes sent on all connections since the same time.
    pub sent: u64,
    /// The smoothed round-trip time of bulk, used while samples are too few to show the latest one.
    pub rtt: Duration,
    /// Bytes of bulk in flight.
    pub in_flight: u64,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
    /// The minimum round-trip time of all connections.
    pub min_rtt: Duration,
    /// Packets retransmitted on all connections since any fixed time.
    pub retransmitted: u64,
    /// Bytes per packet.
    pub mss: u32,
}
