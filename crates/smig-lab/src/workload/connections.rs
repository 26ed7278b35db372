//! Connection numbers: assigned in the order of first use, from 1.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smig::{ConnId, Observer, ObserverEvent, Segment};

use super::result::{ConnectionBytes, ConnectionRecord};

/// Identifies a connection within a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConnectionKey {
    /// A connection of a session; sessions are numbered.
    Session(u32, ConnId),
    /// An HTTP/1.1 connection of a pool, by its local address; pools are numbered with the sessions.
    Address(u32, SocketAddr),
}

/// The numbers assigned so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionNumbers(Arc<Mutex<BTreeMap<ConnectionKey, u32>>>);

impl ConnectionNumbers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConnectionKey, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection's number; assigns one on first use.
    pub(super) fn get_or_assign(&self, key: ConnectionKey) -> u32 {
        let mut numbers = self.lock();
        let next = u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX);
        *numbers.entry(key).or_insert(next)
    }

    /// Returns the numbered connections for which `address` returns an address.
    pub(super) fn records(
        &self,
        address: impl Fn(ConnectionKey) -> Option<SocketAddr>,
    ) -> Vec<ConnectionRecord> {
        let numbers = self.lock();
        let mut records: Vec<_> = numbers
            .iter()
            .filter_map(|(&key, &number)| Some(ConnectionRecord { number, client: address(key)? }))
            .collect();
        records.sort_by_key(|record| record.number);
        records
    }

    /// Returns the address of each numbered connection for which `address` returns one.
    pub(super) fn addresses(
        &self,
        address: impl Fn(ConnectionKey) -> Option<SocketAddr>,
    ) -> Vec<(ConnectionKey, SocketAddr)> {
        self.lock().keys().filter_map(|&key| Some((key, address(key)?))).collect()
    }

    /// Sums the bytes that arrived on each of a session's connections.
    pub(super) fn totals(&self, session: u32, segments: &[Segment]) -> Vec<ConnectionBytes> {
        let mut totals: BTreeMap<u32, u64> = BTreeMap::new();
        for segment in segments {
            let number = self.get_or_assign(ConnectionKey::Session(session, segment.connection));
            *totals.entry(number).or_default() += segment.end - segment.start;
        }
        totals
            .into_iter()
            .map(|(connection, bytes)| ConnectionBytes { connection, bytes })
            .collect()
    }
}

/// Local addresses of a session's connections, as reported by its client.
#[derive(Debug, Default)]
pub(super) struct SessionAddrs(Mutex<KnownAddrs>);

#[derive(Debug, Default)]
struct KnownAddrs {
    /// The first connection of the session.
    first_addr: Option<SocketAddr>,
    joined_addrs: BTreeMap<ConnId, SocketAddr>,
}

impl SessionAddrs {
    fn lock(&self) -> MutexGuard<'_, KnownAddrs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the local address of a connection; of one that has not joined, that of the session's first connection.
    pub(super) fn of(&self, connection: ConnId) -> Option<SocketAddr> {
        let known = self.lock();
        known.joined_addrs.get(&connection).copied().or(known.first_addr)
    }
}

impl Observer for SessionAddrs {
    fn on_event(&self, event: &ObserverEvent) {
        match event {
            ObserverEvent::ConnectionOpened { addrs: Some(addrs) } => {
                self.lock().first_addr.get_or_insert(addrs.local);
            }
            ObserverEvent::Joined { conn, addrs: Some(addrs) } => {
                self.lock().joined_addrs.insert(*conn, addrs.local);
            }
            _ => {}
        }
    }
}
