//! The link of a probe.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smig_link::{LinkSpec, QueueLimit, Rate};

/// Packets that the queue holds.
pub(super) const QUEUE_PACKETS: u16 = 100;
/// Segments of an initial window (RFC 6928), which fill a round trip.
const INITIAL_WINDOW: u64 = 10;
/// Round trips are made longer, to the next multiple of the first, and to the second at least.
const RTT_STEP_MS: u64 = 50;
const MIN_RTT_MS: u64 = 100;
/// TCP's and IP's header, with timestamps.
const HEADER_BYTES: u64 = 52;
/// Packets by which slow start, its losses, the recovery from them, and what follows have been seen.
const LONG_PROBE_PACKETS: u64 = 1_600;
const MTU_STEP: u64 = 50;
/// Rate in the direction of ACKs.
const UPLINK: Rate = Rate::mbit(100);

/// An object, and the link that it is fetched over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSpec {
    /// Size of the object in bytes.
    pub object_bytes: u64,
    /// MTU of the link in bytes. Small packets fill a queue sooner.
    pub mtu: u32,
    /// Round-trip time without a queue, in ms.
    pub rtt_ms: u64,
    /// Whether the client says which packets it has (SACK, RFC 2018). Igor switches it off; with it, a sender recovers within some round
    /// trips, and shows how it goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sack: bool,
}

impl ProbeSpec {
    /// Returns Igor's link for an object of this size on a server at this distance: an MTU of 500 bytes, 100 for less than 100 KB,
    /// 1,500 for more than 1 MB; a round trip of at least 100 ms, and a multiple of 50.
    #[must_use]
    pub fn new(object_bytes: u64, measured_rtt: Duration) -> Self {
        let mtu = match object_bytes {
            ..100_000 => 100,
            100_000..=1_000_000 => 500,
            _ => 1_500,
        };
        let millis = u64::try_from(measured_rtt.as_millis()).unwrap_or(u64::MAX / 2);
        let rtt_ms = millis.next_multiple_of(RTT_STEP_MS).max(MIN_RTT_MS);
        Self { object_bytes, mtu, rtt_ms, sack: false }
    }

    /// Returns a link over which a sender also shows how it goes on after its first losses: with SACK, and with so small packets that the object has
    /// 1,600 of them, as far as MTUs of 100 to 1,500 bytes, multiples of 50, allow. The round trip is Igor's.
    #[must_use]
    pub fn with_sack(object_bytes: u64, measured_rtt: Duration) -> Self {
        let mtu = (object_bytes / LONG_PROBE_PACKETS + HEADER_BYTES) / MTU_STEP * MTU_STEP;
        let mtu = u32::try_from(mtu).unwrap_or(u32::MAX).clamp(100, 1_500);
        Self { mtu, sack: true, ..Self::new(object_bytes, measured_rtt) }
    }

    /// Returns the time that the object takes on the link at least.
    #[must_use]
    pub fn least_time(&self) -> Duration {
        let bits = self.packets().saturating_mul(u64::from(self.mtu) * 8);
        Duration::from_secs(bits / self.rate().as_bits_per_second().max(1))
    }

    /// Returns the number of packets of the object, each sent once.
    pub(super) fn packets(&self) -> u64 {
        self.object_bytes.div_ceil(u64::from(self.mtu).saturating_sub(HEADER_BYTES).max(1))
    }

    fn rate(&self) -> Rate {
        Rate::bits_per_second(INITIAL_WINDOW * u64::from(self.mtu) * 8 * 1_000 / self.rtt_ms.max(1))
    }

    /// Returns the link.
    #[must_use]
    pub fn link(&self) -> LinkSpec {
        let round_trip = Duration::from_millis(self.rtt_ms);
        let queue = QueueLimit::packets(usize::from(QUEUE_PACKETS));
        let mut link = LinkSpec::symmetric(self.rate(), round_trip, queue);
        link.to_server.rate = smig_link::RateSpec::Constant(UPLINK);
        link.to_client.mtu = self.mtu;
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initial_window_fills_a_round_trip() {
        let spec = ProbeSpec::new(320_000, Duration::from_millis(30));
        assert_eq!(spec, ProbeSpec { object_bytes: 320_000, mtu: 500, rtt_ms: 100, sack: false });
        let link = spec.link();
        assert_eq!(link.to_client.rate.mean(), Some(Rate::kbit(400)));
        let slow = ProbeSpec { object_bytes: 50_000, mtu: 100, rtt_ms: 900, sack: false };
        assert_eq!(slow.link().to_client.rate.mean(), Some(Rate::bits_per_second(8_888)));
        assert_eq!((spec.least_time().as_secs(), slow.least_time().as_secs()), (7, 93));
        assert_eq!((link.to_client.mtu, link.to_client.queue.packets), (500, 100));
    }

    #[test]
    fn with_sack_an_object_has_many_packets() {
        let mtu = |bytes| {
            let spec = ProbeSpec::with_sack(bytes, Duration::from_millis(120));
            assert!(spec.sack && spec.rtt_ms == 150);
            spec.mtu
        };
        assert_eq!([80_000, 320_000, 1_000_000].map(mtu), [100, 250, 650]);
        assert_eq!([1, 10_000_000, u64::MAX].map(mtu), [100, 1_500, 1_500]);
    }

    #[test]
    fn small_objects_have_small_packets_and_round_trips_are_multiples_of_50_ms() {
        let at = |bytes, millis| ProbeSpec::new(bytes, Duration::from_millis(millis));
        assert_eq!((at(99_999, 0).mtu, at(100_000, 0).mtu), (100, 500));
        assert_eq!((at(1_000_000, 0).mtu, at(1_000_001, 0).mtu), (500, 1_500));
        assert_eq!((at(1, 113).rtt_ms, at(1, 150).rtt_ms, at(1, 151).rtt_ms), (150, 150, 200));
    }
}
