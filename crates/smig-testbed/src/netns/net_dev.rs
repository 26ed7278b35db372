//! The kernel's counters of a host's devices (`/proc/net/dev`).

use std::fs;
use std::io;

/// One device's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Name of the device.
    pub name: String,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets dropped, in either direction.
    pub drops: u64,
}

/// Returns the counters of all devices of the calling thread's host.
///
/// # Errors
/// When the kernel's table cannot be read.
pub fn device_counts() -> io::Result<Vec<DeviceCounts>> {
    Ok(parse(&fs::read_to_string("/proc/thread-self/net/dev")?))
}

/// Parses the table; other lines are skipped.
fn parse(text: &str) -> Vec<DeviceCounts> {
    let device = |line: &str| {
        let (name, counters) = line.trim().split_once(':')?;
        let fields: Vec<u64> =
            counters.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // Received: bytes packets errs drop ...; sent: the same, from the ninth field on.
        Some(DeviceCounts {
            name: name.to_owned(),
            received_bytes: *fields.first()?,
            drops: fields.get(3)? + fields.get(11)?,
        })
    };
    text.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let text = "Inter-|   Receive                |  Transmit\n \
             face |bytes packets errs drop fifo frame compressed multicast|bytes ...\n    \
             lo:     900       9    0    7    0     0          0         0      900       9    0    1    0     0       0          0\n  \
             link0:  100       2    0    3    0     0          0         0      200       4    0    5    0     0       0          0\n  \
             link1:   11       2    0\n";
        let counts = |name: &str, received_bytes, drops| DeviceCounts {
            name: name.into(),
            received_bytes,
            drops,
        };
        assert_eq!(parse(text), [counts("lo", 900, 8), counts("link0", 100, 8)]);
        assert_eq!(parse("nothing"), []);
    }
}
