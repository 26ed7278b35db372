//! Numbers for connections: 1 for the first that anything came by, and so on.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smig::{ConnId, Observed, Observer, Segment};

use super::result::{ConnectionBytes, ConnectionSeen};

/// What tells a connection from all others of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// One of a session's; sessions are numbered.
    Session(u32, ConnId),
    /// One of HTTP/1.1, by its own end.
    Address(SocketAddr),
}

/// The numbers given so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Vec<Key>>>);

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Vec<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection's number.
    pub(super) fn number(&self, key: Key) -> u32 {
        let mut seen = self.lock();
        let at = seen.iter().position(|&other| other == key).unwrap_or_else(|| {
            seen.push(key);
            seen.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }

    /// All that have a number, as far as `address` knows them.
    pub(super) fn seen(&self, address: impl Fn(Key) -> Option<SocketAddr>) -> Vec<ConnectionSeen> {
        let numbered = (1..).zip(self.lock().clone());
        let seen =
            numbered.map(|(number, key)| Some(ConnectionSeen { number, client: address(key)? }));
        seen.flatten().collect()
    }

    /// What came by each of a session's connections.
    pub(super) fn totals(&self, session: u32, segments: &[Segment]) -> Vec<ConnectionBytes> {
        let mut totals: BTreeMap<u32, u64> = BTreeMap::new();
        for segment in segments {
            let number = self.number(Key::Session(session, segment.connection));
            *totals.entry(number).or_default() += segment.end - segment.start;
        }
        totals
            .into_iter()
            .map(|(connection, bytes)| ConnectionBytes { connection, bytes })
            .collect()
    }
}

/// The own ends of a session's connections, as its client tells them.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// The connection that the session began with.
    first: Option<SocketAddr>,
    joined: BTreeMap<ConnId, SocketAddr>,
}

impl Addresses {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The own end of a connection.
    pub(super) fn of(&self, connection: ConnId) -> Option<SocketAddr> {
        let told = self.lock();
        told.joined.get(&connection).copied().or(told.first)
    }
}

impl Observer for Addresses {
    fn on(&self, what: &Observed) {
        match what {
            Observed::ConnectionOpened { ends: Some(ends) } => {
                self.lock().first.get_or_insert(ends.local);
            }
            Observed::Joined { conn, ends: Some(ends) } => {
                self.lock().joined.insert(*conn, ends.local);
            }
            _ => {}
        }
    }
}
