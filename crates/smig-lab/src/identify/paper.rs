//! The paper's Table 1, for an MTU of 500 bytes and a round trip of 100 ms.

use super::sender::Sender;

/// The longest queue of a sender in the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PaperQueue {
    /// Packets, to the nearest ten.
    pub(crate) packets: u32,
    /// Seconds until the queue was so long.
    pub(crate) at_s: f64,
}

const OBJECT_BYTES: [u64; 4] = [40_000, 80_000, 160_000, 320_000];
const SENDERS: [(&str, [(u32, f64); 4]); 5] = [
    ("bbr", [(20, 0.3), (20, 0.7), (20, 0.7), (30, 0.8)]),
    ("cubic", [(40, 0.8), (90, 1.3), (100, 1.4), (100, 1.5)]),
    ("yeah", [(40, 0.8), (80, 1.2), (90, 1.3), (90, 1.3)]),
    ("illinois", [(40, 0.8), (80, 1.2), (100, 1.5), (100, 1.4)]),
    ("cubic-hystart", [(20, 0.8), (20, 0.8), (30, 3.0), (80, 6.4)]),
];

/// Returns what the paper has for a sender and an object, where its MTU was 500 bytes.
#[must_use]
pub(crate) fn paper_queue(sender: &Sender, object_bytes: u64, mtu: u32) -> Option<PaperQueue> {
    let index =
        OBJECT_BYTES.iter().position(|bytes| *bytes == object_bytes).filter(|_| mtu == 500)?;
    let (_, row) = SENDERS.iter().find(|(name, _)| sender.to_string() == *name)?;
    let (packets, at_s) = row[index];
    Some(PaperQueue { packets, at_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_found_by_name_and_size() {
        let cell = |name: &str, bytes, mtu| paper_queue(&name.parse().unwrap(), bytes, mtu);
        let hystart = Some(PaperQueue { packets: 80, at_s: 6.4 });
        assert_eq!(cell("cubic-hystart", 320_000, 500), hystart);
        assert_eq!(cell("cubic-hystart", 320_000, 1_500), None);
        assert_eq!(cell("reno", 320_000, 500), None);
        assert_eq!(cell("bbr", 41_000, 500), None);
    }
}
