//! The addresses that a server listens at, each with its own id.

use std::net::SocketAddr;

use crate::connection::ListenerId;

/// A listener of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerInfo {
    /// Its id, for [`Server::close`](super::Server::close) and in the requests that arrive through it
    /// ([`ConnectionInfo::listener`](crate::ConnectionInfo::listener)).
    pub id: ListenerId,
    /// The address, with the actual port.
    pub addr: SocketAddr,
}

/// Allocates ids.
#[derive(Debug, Default)]
pub(super) struct ListenerIds(u64);

impl ListenerIds {
    pub(super) const fn next(&mut self) -> ListenerId {
        let id = ListenerId::new(self.0);
        self.0 += 1;
        id
    }
}

/// The open listeners.
#[derive(Debug, Default)]
pub(super) struct OpenListeners {
    infos: Vec<ListenerInfo>,
    /// Their addresses, which the API returns as a slice.
    addrs: Vec<SocketAddr>,
}

impl OpenListeners {
    pub(super) fn add(&mut self, info: ListenerInfo) {
        self.infos.push(info);
        self.addrs.push(info.addr);
    }

    pub(super) fn remove(&mut self, id: ListenerId) {
        self.infos.retain(|info| info.id != id);
        self.addrs = self.infos.iter().map(|info| info.addr).collect();
    }

    pub(super) fn infos(&self) -> &[ListenerInfo] {
        &self.infos
    }

    pub(super) fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }
}
