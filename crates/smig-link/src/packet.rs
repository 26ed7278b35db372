//! The properties of a packet that a link uses: size, flow and ports.

use super::random::mix;

/// A packet, as far as a link needs it.
pub trait Packet {
    /// Returns the size in bytes, IP header included: it determines the
    /// serialisation time.
    fn wire_size(&self) -> usize;

    /// Returns a hash that is equal for all packets of a flow. Which flows
    /// collide depends on `perturbation`.
    fn flow_hash(&self, perturbation: u64) -> u64 {
        perturbation
    }

    /// Returns whether it is a TCP acknowledgement with no data, SACK block or other flag: a later one of
    /// its flow says all that it says.
    fn is_bare_ack(&self) -> bool {
        false
    }

    /// Returns the ports, which identify connections in a log.
    fn ports(&self) -> Ports {
        Ports::default()
    }
}

/// Source and destination port; 0 for packets without ports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub struct Ports {
    pub source: u16,
    pub destination: u16,
}

/// An IP packet. ACKs are told apart in IPv4 only.
impl Packet for Vec<u8> {
    fn wire_size(&self) -> usize {
        self.len()
    }

    fn flow_hash(&self, perturbation: u64) -> u64 {
        flow_hash(self, perturbation)
    }

    fn ports(&self) -> Ports {
        let both = five_tuple(self).map_or(0, |key| key.packed_ports);
        Ports { source: (both >> 16) as u16, destination: both as u16 }
    }

    fn is_bare_ack(&self) -> bool {
        tcp_segment(self).is_some_and(is_bare_ack)
    }
}

/// Returns the TCP header and data of an unfragmented IPv4 packet.
fn tcp_segment(packet: &[u8]) -> Option<&[u8]> {
    let is_tcp = packet.first()? >> 4 == 4 && *packet.get(9)? == 6;
    let unfragmented = packet[6] & 0x3f == 0 && packet[7] == 0;
    let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    packet.get(header_bytes..total).filter(|_| is_tcp && unfragmented)
}

/// Returns whether a TCP segment (RFC 9293, section 3.1) has only the flag ACK, no data, and of the options only
/// padding and timestamps.
fn is_bare_ack(segment: &[u8]) -> bool {
    const ACK: u8 = 0x10;
    let (Some(&offset), Some(&flags)) = (segment.get(12), segment.get(13)) else { return false };
    let header_bytes = usize::from(offset >> 4) * 4;
    if flags != ACK || header_bytes != segment.len() {
        return false;
    }
    let mut options = segment.get(20..).unwrap_or_default();
    loop {
        options = match options {
            [] | [0, ..] => return true,
            [1, rest @ ..] => rest,
            [8, 10, rest @ ..] => rest.get(8..).unwrap_or_default(),
            _ => return false,
        };
    }
}

/// Hashes addresses, protocol and, if present, ports.
fn flow_hash(packet: &[u8], perturbation: u64) -> u64 {
    let Some(key) = five_tuple(packet) else { return mix(perturbation) };
    let FiveTuple { addresses, protocol, packed_ports: ports } = key;
    let mut state = mix(perturbation ^ u64::from(protocol));
    for chunk in addresses.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word));
    }
    mix(state ^ u64::from(ports))
}

#[derive(Debug, PartialEq, Eq)]
struct FiveTuple<'a> {
    /// Source, then destination.
    addresses: &'a [u8],
    protocol: u8,
    /// Source and destination; 0 for fragments and for protocols without ports.
    packed_ports: u32,
}

fn five_tuple(packet: &[u8]) -> Option<FiveTuple<'_>> {
    match packet.first()? >> 4 {
        4 => parse_ipv4(packet),
        6 => parse_ipv6(packet),
        _ => None,
    }
}

/// Parses an IPv4 header (RFC 791, section 3.1).
fn parse_ipv4(packet: &[u8]) -> Option<FiveTuple<'_>> {
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    let protocol = *packet.get(9)?;
    let addresses = packet.get(12..20)?;
    // A fragment has the more-fragments flag or an offset. Only the first one has ports, so the
    // ports of fragments are not used.
    let unfragmented = packet[6] & 0x3f == 0 && packet[7] == 0;
    let ports = if unfragmented { parse_ports(packet, header_bytes, protocol) } else { 0 };
    Some(FiveTuple { addresses, protocol, packed_ports: ports })
}

/// Parses an IPv6 header and its extension headers (RFC 8200, sections 3 and 4).
fn parse_ipv6(packet: &[u8]) -> Option<FiveTuple<'_>> {
    let addresses = packet.get(8..40)?;
    let (mut protocol, mut at) = (packet[6], 40);
    // Hop-by-hop options, routing, destination options.
    while matches!(protocol, 0 | 43 | 60)
        && let Some([next, length]) = packet.get(at..at + 2)
    {
        (protocol, at) = (*next, at + (usize::from(*length) + 1) * 8);
    }
    Some(FiveTuple { addresses, protocol, packed_ports: parse_ports(packet, at, protocol) })
}

/// Returns both ports of TCP, UDP, DCCP, SCTP or UDP-Lite.
fn parse_ports(packet: &[u8], at: usize, protocol: u8) -> u32 {
    let bytes = packet.get(at..at + 4).filter(|_| matches!(protocol, 6 | 17 | 33 | 132 | 136));
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0];
        packet.extend([10, 99, 0, 1, 10, 99, 0, 2]);
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.resize(40, 0);
        packet
    }

    fn ipv6(protocol: u8, extension: &[u8], ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
        packet.extend([0x20; 16]);
        packet.extend([0x21; 16]);
        packet.extend(extension);
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet
    }

    #[test]
    fn ports_distinguish_flows() {
        let packet = ipv4(6, [443, 50_000]);
        assert_eq!(packet.flow_hash(7), ipv4(6, [443, 50_000]).flow_hash(7));
        assert_ne!(packet.flow_hash(7), ipv4(6, [443, 50_001]).flow_hash(7));
        assert_ne!(packet.flow_hash(7), ipv4(17, [443, 50_000]).flow_hash(7));
        assert_ne!(packet.flow_hash(7), packet.flow_hash(8), "another perturbation");
        assert_ne!(ipv6(6, &[], [443, 1]).flow_hash(7), ipv6(6, &[], [443, 2]).flow_hash(7));
    }

    #[test]
    fn a_fragment_has_no_ports() {
        let mut fragment = ipv4(17, [1, 2]);
        fragment[7] = 185; // offset 1480
        assert_eq!(five_tuple(&fragment).map(|key| key.packed_ports), Some(0));
    }

    #[test]
    fn extension_headers_are_skipped() {
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        let packet = ipv6(0, &options, [443, 7]);
        let key = five_tuple(&packet).unwrap();
        assert_eq!((key.protocol, key.packed_ports), (17, 443 << 16 | 7));
        assert_eq!(packet.ports(), Ports { source: 443, destination: 7 });
    }

    #[test]
    fn truncated_packets_do_not_panic() {
        for packet in [ipv4(6, [1, 2]), ipv6(0, &[0, 255, 0, 0, 0, 0, 0, 0], [1, 2])] {
            for length in 0..packet.len() {
                let _ = packet[..length].to_vec().flow_hash(1);
            }
        }
        assert_eq!(vec![0_u8; 60].flow_hash(3), vec![1_u8; 9].flow_hash(3));
    }
}
