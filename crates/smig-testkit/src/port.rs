//! Reserves a port of the loopback interface for one test.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// Holds a port without a listener: connections to it are refused, and the kernel assigns it to no other socket. A
/// process that sets `SO_REUSEADDR`, as servers do, can listen on it meanwhile; with `SO_REUSEPORT`, on several
/// sockets.
#[derive(Debug)]
pub struct ReservedPort(Socket);

impl ReservedPort {
    /// Reserves a port of 127.0.0.1.
    ///
    /// # Panics
    /// If no port or no socket is available.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it reserves a port of the machine")]
    pub fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("SO_REUSEADDR");
        socket.set_reuse_port(true).expect("SO_REUSEPORT");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
        Self(socket)
    }

    /// Returns 127.0.0.1 and the port.
    ///
    /// # Panics
    /// Never: a bound socket has an address.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.0.local_addr().expect("a bound socket").as_socket().expect("an IPv4 socket")
    }
}

/// Formats [`addr`](Self::addr).
impl fmt::Display for ReservedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr().fmt(f)
    }
}
