//! What travels over the links: segments, acknowledgements, requests, and datagrams of cross traffic.

use smig_link::Packet;

/// Payload bytes of a full segment.
pub const MSS: u64 = 1448;
/// IP and TCP header with the timestamp option.
const HEADER_BYTES: usize = 52;
/// SACK blocks in an acknowledgement (RFC 2018: three beside timestamps).
pub(crate) const MAX_SACK_BLOCKS: usize = 3;

/// A range of bytes of a stream: from the first number to before the second.
pub(crate) type ByteRange = (u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// All bytes before this number have arrived.
    pub(crate) cumulative: u64,
    /// Ranges beyond it, the latest first. An empty range is none.
    pub(crate) sacks: [ByteRange; MAX_SACK_BLOCKS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Segment(ByteRange),
    Ack(Ack),
    /// A request for the response with this number.
    Request {
        id: usize,
    },
    /// Traffic without congestion control.
    Datagram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SimPacket {
    /// The connection's number (`usize::MAX` for a datagram, which has none).
    pub(crate) flow: usize,
    pub(crate) payload: Payload,
}

impl Packet for SimPacket {
    fn wire_size(&self) -> usize {
        match self.payload {
            Payload::Segment((start, end)) => HEADER_BYTES + (end - start) as usize,
            Payload::Ack(_) => HEADER_BYTES,
            Payload::Request { .. } => HEADER_BYTES + 60,
            Payload::Datagram => 1250,
        }
    }

    fn flow_hash(&self, perturbation: u64) -> u64 {
        let word =
            (self.flow as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ perturbation;
        (word ^ (word >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
    }
}
