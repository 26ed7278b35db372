//! What the client's host took in, by its devices' own count.

use std::fs;

use super::run::now_ns;

/// IP octets that all devices but the loopback of the calling thread's host have taken in.
pub(super) fn bytes_taken_in() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    taken_in(&text)
}

fn taken_in(text: &str) -> u64 {
    let devices = text.lines().filter_map(|line| line.trim().split_once(':'));
    devices
        .filter(|(name, _)| *name != "lo")
        .filter_map(|(_, counts)| counts.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_devices_but_the_loopback_count() {
        let text = "Inter-|   Receive                |  Transmit\n \
             face |bytes packets errs drop fifo frame compressed multicast|bytes ...\n    \
             lo:     900       0    0    7    0     0          0         0        0       0    0    1    0     0       0          0\n  \
             link:   100       2    0    3    0     0          0         0      200       4    0    5    0     0       0          0\n  \
             link2:   11       2    0    3    0     0          0         0      200       4    0    5    0     0       0          0\n";
        assert_eq!(taken_in(text), 111);
    }
}
