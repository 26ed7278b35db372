//! Packet captures at one end of a link, for tcpdump and Wireshark.
//!
//! The format is pcap with nanosecond timestamps, of raw IP packets. Times are
//! `CLOCK_MONOTONIC`, as in the link's log: not the time of day, but the same
//! clock in all files of a run. No crate is used: the format is one header, and the spool must own
//! the file.

use std::io;
use std::path::Path;

use smig_link::Time;

use super::spool::{Spool, WriterResult};

/// pcap with nanosecond timestamps.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
/// `LINKTYPE_RAW`: the packet begins with the IP header.
const LINKTYPE_RAW: u32 = 101;
/// Bytes per chunk.
const CHUNK_BYTES: usize = 64 * 1024;

/// Writes the packets of one end of a link.
#[derive(Debug)]
pub(super) struct Capture {
    spool: Spool<u8>,
    snaplen: usize,
}

impl Capture {
    /// Creates a file; at most `snaplen` bytes of each packet are recorded.
    pub(super) fn create(path: &Path, snaplen: usize) -> io::Result<(Self, WriterResult)> {
        let mut header = MAGIC.to_ne_bytes().to_vec();
        header.extend(VERSION.iter().flat_map(|part| part.to_ne_bytes()));
        header.extend([0; 8]); // time zone and accuracy: always zero
        header.extend(u32::try_from(snaplen).unwrap_or(u32::MAX).to_ne_bytes());
        header.extend(LINKTYPE_RAW.to_ne_bytes());
        let format = |bytes: &[u8], output: &mut Vec<u8>| output.extend_from_slice(bytes);
        let (spool, outcome) = Spool::create(path, &header, format)?;
        Ok((Self { spool: spool.with_chunks_of(CHUNK_BYTES), snaplen }, outcome))
    }

    pub(super) fn record(&mut self, at: Time, packet: &[u8]) {
        let captured_packet = &packet[..packet.len().min(self.snaplen)];
        let nanos = at.as_nanos();
        let header = [
            (nanos / 1_000_000_000) as u32,
            (nanos % 1_000_000_000) as u32,
            captured_packet.len() as u32,
            packet.len() as u32,
        ];
        let header = header.iter().flat_map(|word| word.to_ne_bytes());
        self.spool.extend(header.chain(captured_packet.iter().copied()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_a_pcap() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("end.pcap");
        let (mut capture, outcome) = Capture::create(&path, 64).unwrap();
        capture.record(Time::from_nanos(5_000_000_007), &[0x45; 40]);
        capture.record(Time::from_nanos(6_000_000_000), &[0x45; 1_500]);
        drop(capture);
        outcome.take().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(16), word(20)], [MAGIC, 64, 101]);
        assert_eq!([word(24), word(28), word(32), word(36)], [5, 7, 40, 40]);
        let second_offset = 24 + 16 + 40;
        assert_eq!(
            [word(second_offset), word(second_offset + 8), word(second_offset + 12)],
            [6, 64, 1_500]
        );
        assert_eq!(bytes.len(), second_offset + 16 + 64);
    }
}
