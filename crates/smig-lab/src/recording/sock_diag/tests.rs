//! Tests the decoder with built and real responses, and truncations at every offset.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::decode::{DumpStatus, decode_datagram};
use super::*;

/// A response with one connection and the final message.
fn dump() -> Vec<u8> {
    let mut datagram = message(TCPDIAG_GETSOCK, &connection());
    datagram.extend(message(3, &0_u32.to_ne_bytes()));
    datagram
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 16).unwrap();
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend(2_u16.to_ne_bytes()); // flags: more than one message
    message.extend(7_u32.to_ne_bytes());
    message.extend(1_234_u32.to_ne_bytes());
    message.extend(body);
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(value.len() + 4).unwrap().to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Built from the header files: an `inet_diag_msg`, the congestion control, a `tcp_info` of 232
/// bytes.
fn connection() -> Vec<u8> {
    let mut body = vec![2, 1, 0, 0];
    body.extend(443_u16.to_be_bytes());
    body.extend(41_230_u16.to_be_bytes());
    body.extend([10, 99, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    body.extend([10, 99, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    body.extend(0_u32.to_ne_bytes());
    body.extend(0xfeed_u64.to_ne_bytes());
    for number in [0_u32, 0, 60_000, 0, 4_711] {
        body.extend(number.to_ne_bytes());
    }
    let mut info = vec![0_u8; 232];
    info[0] = 1;
    let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    for (at, value) in [(16, 1_448_u32), (68, 51_000), (76, 0x7fff_ffff), (80, 10), (144, 15_000)] {
        put(at, &value.to_ne_bytes());
    }
    put(148, &u32::MAX.to_ne_bytes());
    put(228, &65_535_u32.to_ne_bytes());
    for (at, value) in [(104, u64::MAX), (120, 1_000_000), (160, 1_250_000), (208, 2_896)] {
        put(at, &value.to_ne_bytes());
    }
    body.extend(attribute(4, b"cubic\0"));
    body.extend(attribute(2, &info));
    body
}

#[test]
fn fields_are_where_the_headers_say() {
    let state = decode_connections(&dump()).unwrap().remove(0);
    assert_eq!(state.local, "10.99.0.1:443".parse().unwrap());
    assert_eq!(state.remote, "10.99.0.2:41230".parse().unwrap());
    assert_eq!((state.cookie, state.congestion_control.as_str()), (0xfeed, "cubic"));
    assert_eq!((state.state, state.mss, state.cwnd_segments), (1, 1_448, 10));
    assert_eq!((state.unsent_bytes, state.unacked_bytes), (15_000, 45_000));
    assert_eq!((state.ssthresh_segments, state.min_rtt_us, state.pacing_bytes_per_s), (0, 0, 0));
    assert_eq!((state.acked_bytes, state.delivery_bytes_per_s), (1_000_000, 1_250_000));
    assert_eq!((state.retransmitted_bytes, state.send_window_bytes), (2_896, 65_535));
}

#[test]
fn mapped_addresses_become_ipv4() {
    let mut body = connection();
    body[0] = 10;
    for offset in [8, 24] {
        let address: [u8; 4] = body[offset..offset + 4].try_into().unwrap();
        body[offset..offset + 16].copy_from_slice(&[0; 16]);
        body[offset + 10..offset + 12].fill(0xff);
        body[offset + 12..offset + 16].copy_from_slice(&address);
    }
    let state = decode_connections(&message(20, &body)).unwrap().remove(0);
    assert_eq!(state.remote, "10.99.0.2:41230".parse().unwrap());
}

#[test]
fn a_truncated_message_is_an_error_and_never_a_panic() {
    let datagram = dump();
    let final_message_start = datagram.len() - 20; // start of the final message
    for length in 0..datagram.len() {
        let decoded = decode_connections(&datagram[..length]);
        if length == 0 {
            assert_eq!(decoded.unwrap(), []);
        } else if length < final_message_start {
            assert!(decoded.is_err(), "{length}");
        }
    }
}

#[test]
fn invalid_lengths_are_not_trusted() {
    let datagram = dump();
    // Every 16-bit word of the response, with invalid lengths.
    for offset in (0..datagram.len() - 1).step_by(2) {
        for value in [0_u16, 1, 3, 4, 15, 17, 0x7fff, 0xffff] {
            let mut bytes = datagram.clone();
            bytes[offset..offset + 2].copy_from_slice(&value.to_ne_bytes());
            if let Ok(states) = decode_connections(&bytes) {
                assert!(states.len() <= 1);
            }
        }
    }
}

#[test]
fn a_short_tcp_info_has_zeros_and_a_shorter_one_is_skipped() {
    let body = connection();
    let info_at = body.len() - 236;
    let with_info = |length: usize| {
        let mut shortened_body = body[..info_at].to_vec();
        shortened_body.extend(attribute(2, &body[info_at + 4..info_at + 4 + length]));
        decode_connections(&message(20, &shortened_body)).unwrap()
    };
    assert_eq!(with_info(168)[0].delivery_bytes_per_s, 1_250_000);
    assert_eq!(with_info(168)[0].retransmitted_bytes, 0);
    assert_eq!(with_info(167), []);
}

#[test]
fn other_sequence_numbers_are_skipped_and_kernel_errors_are_returned() {
    let mut states = Vec::new();
    assert_eq!(decode_datagram(&dump(), 8, &mut states).unwrap(), DumpStatus::More);
    assert_eq!(states, []);
    let error_message = message(2, &(-libc::EPERM).to_ne_bytes());
    let error = decode_connections(&error_message).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
}

#[test]
fn the_running_kernel_reports_a_loopback_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, peer) = listener.accept().unwrap();
    client.write_all(&[1; 5_000]).unwrap();
    server.read_exact(&mut [0; 5_000]).unwrap();
    // The acknowledgement of the data that was read arrives before the reply, or with it.
    server.write_all(&[2]).unwrap();
    client.read_exact(&mut [0]).unwrap();
    let mut sock_diag = SockDiag::new().unwrap();
    for _ in 0..2 {
        let states = sock_diag.query().unwrap();
        let state_at = |local| states.iter().find(|state| state.local == local).unwrap();
        let (sender, receiver) = (state_at(peer), state_at(listener.local_addr().unwrap()));
        assert_eq!(receiver.remote, peer);
        assert_eq!(receiver.received_bytes, 5_000);
        assert_eq!((sender.sent_bytes, sender.state), (5_000, 1));
        // The kernel counts the SYN as an acknowledged byte.
        assert!((5_000..=5_001).contains(&sender.acked_bytes), "{sender:?}");
        assert_eq!((sender.unacked_bytes, sender.unsent_bytes), (0, 0));
        assert!(
            sender.cwnd_segments > 0 && sender.mss > 0 && !sender.congestion_control.is_empty()
        );
        assert_ne!(sender.cookie, receiver.cookie);
    }
}
