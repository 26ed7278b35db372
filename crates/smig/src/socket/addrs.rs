//! The two addresses of a connection.

use std::net::SocketAddr;

/// A connection by its two addresses: no other connection of this machine has the same pair while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct ConnectionAddrs {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}
