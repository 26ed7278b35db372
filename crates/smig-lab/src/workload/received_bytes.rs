//! Bytes received by the client's host, from the counters of its devices.

use smig_testbed::netns::device_counts;

use super::run::now_ns;

/// Returns the IP bytes that all devices of the calling thread's host, except the loopback, have
/// received.
pub(super) fn total_received_bytes() -> u64 {
    // The device table always exists.
    let devices = device_counts().unwrap_or_default();
    devices.iter().filter(|device| device.name != "lo").map(|device| device.received_bytes).sum()
}

/// Follows the counter until no more bytes arrive.
#[derive(Debug)]
pub(super) struct ReceivedBytes {
    start_bytes: u64,
    last_bytes: u64,
    last_change_ns: u64,
}

impl ReceivedBytes {
    pub(super) fn start() -> Self {
        let count = total_received_bytes();
        Self { start_bytes: count, last_bytes: count, last_change_ns: now_ns() }
    }

    /// Reads the counter; returns the nanoseconds since it last changed.
    pub(super) fn poll(&mut self) -> u64 {
        let (now, count) = (now_ns(), total_received_bytes());
        if count != self.last_bytes {
            (self.last_bytes, self.last_change_ns) = (count, now);
        }
        now.saturating_sub(self.last_change_ns)
    }

    /// Returns the bytes received since the start.
    pub(super) const fn bytes(&self) -> u64 {
        self.last_bytes.saturating_sub(self.start_bytes)
    }

    /// Returns when the last of them arrived.
    pub(super) const fn last_change_ns(&self) -> u64 {
        self.last_change_ns
    }
}
