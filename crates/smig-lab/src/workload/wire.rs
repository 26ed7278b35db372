//! What the client's host took in, by its devices' own count.

use super::run::now_ns;
use crate::netns::device_counts;

/// IP octets that all devices but the loopback of the calling thread's host have taken in.
pub(super) fn bytes_taken_in() -> u64 {
    // There is always a table to read.
    let devices = device_counts().unwrap_or_default();
    devices.iter().filter(|device| device.name != "lo").map(|device| device.received_bytes).sum()
}

/// Follows the count until nothing comes any more.
#[derive(Debug)]
pub(super) struct Trickle {
    first: u64,
    last: u64,
    last_ns: u64,
}

impl Trickle {
    pub(super) fn start() -> Self {
        let count = bytes_taken_in();
        Self { first: count, last: count, last_ns: now_ns() }
    }

    /// Looks again; nanoseconds since the last octet.
    pub(super) fn look(&mut self) -> u64 {
        let (now, count) = (now_ns(), bytes_taken_in());
        if count != self.last {
            (self.last, self.last_ns) = (count, now);
        }
        now.saturating_sub(self.last_ns)
    }

    /// Octets since the start.
    pub(super) const fn bytes(&self) -> u64 {
        self.last.saturating_sub(self.first)
    }

    /// When the last of them came.
    pub(super) const fn last_ns(&self) -> u64 {
        self.last_ns
    }
}
