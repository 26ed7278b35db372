//! Queries the kernel's state of TCP connections: `NETLINK_SOCK_DIAG`.
//!
//! Owns the request and the decoder. One walk through the table returns the connections of both
//! address families in the network namespace in which the socket was created. Implemented here
//! because the existing libraries decode a `tcp_info` without the fields of the last ten years,
//! which the lab needs. No length in a message is trusted.

mod decode;
mod fields;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use decode::{DumpStatus, decode_datagram};
pub use decode::{TcpState, decode_connections};

/// linux/inet_diag.h: the request for both address families at once.
const TCPDIAG_GETSOCK: u16 = 18;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
/// INET_DIAG_INFO and INET_DIAG_CONG as a bit mask; bit 0 stands for 1.
const EXTENSION_MASK: u8 = 1 << (2 - 1) | 1 << (4 - 1);
/// All states (net/tcp_states.h) except LISTEN and TIME_WAIT, whose sockets carry no data.
const STATE_MASK: u32 = 0xfff & !(1 << 10) & !(1 << 6);

/// Client for repeated queries.
#[derive(Debug)]
pub(super) struct SockDiag {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

impl SockDiag {
    /// Creates a client for the calling thread's network namespace.
    pub(super) fn new() -> io::Result<Self> {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self { socket, buffer: vec![0; 1 << 16], sequence: 0 })
    }

    /// Returns the current state of all TCP connections.
    pub(super) fn query(&mut self) -> io::Result<Vec<TcpState>> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.socket, &request(self.sequence), SendFlags::empty())?;
        let mut states = Vec::new();
        loop {
            let (length, _) = recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            match decode_datagram(&self.buffer[..length], self.sequence, &mut states)? {
                DumpStatus::More => {}
                DumpStatus::Done => return Ok(states),
            }
        }
    }
}

/// Builds a netlink header and an `inet_diag_req`.
fn request(sequence: u32) -> Vec<u8> {
    const REQUEST_BYTES: u32 = 16 + 60;
    let mut message = REQUEST_BYTES.to_ne_bytes().to_vec();
    message.extend(TCPDIAG_GETSOCK.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes()); // from: filled in by the kernel
    message.extend([2, 0, 0, EXTENSION_MASK]); // AF_INET, no prefixes
    message.extend([0; 48]); // no specific connection
    message.extend(STATE_MASK.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes()); // tables: those of TCP
    message
}
