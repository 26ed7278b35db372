//! The addresses that a server listens at, each with an id of its own.

use std::net::SocketAddr;

/// An address that a server listens at, from when it is opened until it is closed. No other has this id, and none
/// that is opened at the same address before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(u64);

/// Where a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Whom to [close](super::Server::close), and what requests that came by it know
    /// ([`ConnectionInfo::listener`](crate::ConnectionInfo::listener)).
    pub id: ListenerId,
    /// The address, its port filled in.
    pub addr: SocketAddr,
}

/// Gives ids, each once.
#[derive(Debug, Default)]
pub(super) struct Ids(u64);

impl Ids {
    pub(super) const fn next(&mut self) -> ListenerId {
        let id = ListenerId(self.0);
        self.0 += 1;
        id
    }
}

/// What is open.
#[derive(Debug, Default)]
pub(super) struct Open {
    all: Vec<Listening>,
    /// The same, for those who want addresses only.
    addrs: Vec<SocketAddr>,
}

impl Open {
    pub(super) fn add(&mut self, listening: Listening) {
        self.all.push(listening);
        self.addrs.push(listening.addr);
    }

    pub(super) fn remove(&mut self, id: ListenerId) {
        self.all.retain(|known| known.id != id);
        self.addrs = self.all.iter().map(|known| known.addr).collect();
    }

    pub(super) fn all(&self) -> &[Listening] {
        &self.all
    }

    pub(super) fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }
}
