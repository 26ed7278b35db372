//! What the owner measures.

use std::time::Duration;

/// Bytes per packet, where the kernel's is not known.
pub(crate) const USUAL_MSS: u32 = 1448;
/// A window that is this much more than what was delivered is not confirmed by that.
const CONFIRMED_GAIN: f64 = 2.5;

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
    /// Packets retransmitted since any fixed time, on all connections whose peers acknowledge.
    pub retransmitted: u64,
    /// Bytes per packet.
    pub mss: u32,
}

impl RateSample {
    /// Returns the bytes in flight of bulk and all else.
    pub(crate) const fn all_in_flight(&self) -> u64 {
        self.sent.saturating_sub(self.acknowledged)
    }
}

/// A measurement of one connection's socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnSample {
    /// Bytes acknowledged so far, including those SACKed.
    pub acknowledged: u64,
    /// Bytes sent, and neither acknowledged nor SACKed.
    pub in_flight: u64,
    /// Bytes framed and not acknowledged: in flight, unsent in the socket, or not written to it yet.
    pub outstanding: u64,
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
    /// The minimum round-trip time; zero if it is not known.
    pub min_rtt: Duration,
    /// Packets retransmitted so far.
    pub retransmitted: u64,
    /// The congestion window in bytes.
    pub congestion_window: u64,
    /// The latest delivery rate in bytes per second; zero if it is not known.
    pub delivery_rate: u64,
    /// Bytes per packet.
    pub mss: u32,
}

impl ConnSample {
    /// Returns the rate at which congestion control may send in the next round trip, in bytes per second, as far as deliveries have
    /// confirmed it: a window may hold a queue, or be older than the path.
    pub fn confirmed_rate(&self) -> f64 {
        let round_trip = self.rtt.max(self.min_rtt).as_secs_f64();
        if round_trip <= 0.0 {
            return 0.0;
        }
        let window_rate = self.congestion_window as f64 / round_trip;
        window_rate.min(self.delivery_rate as f64 * CONFIRMED_GAIN)
    }
}

/// What a session with this connection alone learns.
impl From<ConnSample> for RateSample {
    fn from(sample: ConnSample) -> Self {
        Self {
            acknowledged: sample.acknowledged,
            sent: sample.acknowledged + sample.in_flight,
            rtt: sample.rtt,
            in_flight: sample.in_flight,
            rtt_deviation: sample.rtt_deviation,
            min_rtt: sample.min_rtt,
            retransmitted: sample.retransmitted,
            mss: sample.mss,
        }
    }
}
