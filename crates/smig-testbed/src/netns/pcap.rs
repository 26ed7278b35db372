//! Packet captures at one end of a link, for tcpdump and Wireshark.
//!
//! The format is pcap with nanosecond timestamps, of raw IP packets. Times are
//! `CLOCK_MONOTONIC`, as in the link's log: not the time of day, but the same
//! clock in all files of a run. Written here: it is one header, and the spool must own the file.

use std::io;
use std::path::Path;

use smig_link::Time;

use super::spool::{Outcome, Spool};

/// pcap with nanosecond timestamps.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// `LINKTYPE_RAW`: the packet begins with the IP header.
const RAW_IP: u32 = 101;
/// Bytes per chunk.
const CHUNK: usize = 64 * 1024;

/// Writes the packets of one end of a link.
#[derive(Debug)]
pub(super) struct Capture {
    spool: Spool<u8>,
    most: usize,
}

impl Capture {
    /// Creates a file; of each packet at most `most` bytes are recorded.
    pub(super) fn create(path: &Path, most: usize) -> io::Result<(Self, Outcome)> {
        let mut head = MAGIC.to_ne_bytes().to_vec();
        head.extend(VERSION.iter().flat_map(|part| part.to_ne_bytes()));
        head.extend([0; 8]); // time zone and accuracy: always zero
        head.extend(u32::try_from(most).unwrap_or(u32::MAX).to_ne_bytes());
        head.extend(RAW_IP.to_ne_bytes());
        let format = |bytes: &[u8], to: &mut Vec<u8>| to.extend_from_slice(bytes);
        let (spool, outcome) = Spool::create(path, &head, format)?;
        Ok((Self { spool: spool.with_chunks_of(CHUNK), most }, outcome))
    }

    pub(super) fn record(&mut self, at: Time, packet: &[u8]) {
        let kept = &packet[..packet.len().min(self.most)];
        let nanos = at.as_nanos();
        let head = [
            (nanos / 1_000_000_000) as u32,
            (nanos % 1_000_000_000) as u32,
            kept.len() as u32,
            packet.len() as u32,
        ];
        let head = head.iter().flat_map(|word| word.to_ne_bytes());
        self.spool.extend(head.chain(kept.iter().copied()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_a_pcap() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("end.pcap");
        let (mut capture, outcome) = Capture::create(&path, 64).unwrap();
        capture.record(Time::from_nanos(5_000_000_007), &[0x45; 40]);
        capture.record(Time::from_nanos(6_000_000_000), &[0x45; 1_500]);
        drop(capture);
        outcome.take().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(16), word(20)], [MAGIC, 64, 101]);
        assert_eq!([word(24), word(28), word(32), word(36)], [5, 7, 40, 40]);
        let second = 24 + 16 + 40;
        assert_eq!([word(second), word(second + 8), word(second + 12)], [6, 64, 1_500]);
        assert_eq!(bytes.len(), second + 16 + 64);
    }
}
