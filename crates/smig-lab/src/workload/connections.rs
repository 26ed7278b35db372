//! Numbers for connections: 1 for the first that anything came by, and so on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use smig::{ConnId, Segment};

use super::result::ConnectionBytes;

/// What tells a connection from all others of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// One of a session's; sessions are numbered.
    Session(u32, ConnId),
    /// One of HTTP/1.1, by its local port.
    Port(u16),
}

/// The numbers given so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<Vec<Key>>>);

impl Connections {
    /// The connection's number.
    pub(super) fn number(&self, key: Key) -> u32 {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = seen.iter().position(|&other| other == key).unwrap_or_else(|| {
            seen.push(key);
            seen.len() - 1
        });
        u32::try_from(at + 1).unwrap_or(u32::MAX)
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
