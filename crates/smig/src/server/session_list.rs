//! The sessions of one worker, in order of their start, for the worker and for snapshots of the server.
//!
//! Accessed when a session begins and when it ends, mostly by the worker's thread. Each worker has its own list, to
//! drain it; the numbers are those of the server, so that a snapshot can order the sessions of all workers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::Command;
use crate::mailbox::Mailbox;

type Sessions = BTreeMap<usize, Arc<Mailbox<Command>>>;

#[derive(Debug, Default)]
pub(super) struct SessionList {
    sessions: Mutex<Sessions>,
    /// The number of the server's next session.
    next_number: Arc<AtomicUsize>,
}

impl SessionList {
    /// Creates a list whose sessions get their numbers from `next_number`, which all workers of a server share.
    pub(super) fn numbered_by(next_number: &Arc<AtomicUsize>) -> Self {
        Self { sessions: Mutex::default(), next_number: Arc::clone(next_number) }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session. Returns the number by which to remove it.
    pub(super) fn insert(&self, mailbox: &Arc<Mailbox<Command>>) -> usize {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::clone(mailbox));
        number
    }

    /// Removes a session.
    pub(super) fn remove(&self, number: usize) {
        self.lock().remove(&number);
    }

    /// Requests every session to finish its streams and to accept no new ones.
    pub(super) fn drain(&self) {
        let mailboxes: Vec<_> = self.lock().values().map(Arc::clone).collect();
        for mailbox in mailboxes {
            // A closed mailbox belongs to a session that is ending already.
            drop(mailbox.send(Command::Drain));
        }
    }
}

/// Returns the sessions of all workers of a server, the youngest first.
pub(super) fn youngest_first(lists: &[Arc<SessionList>]) -> Vec<Arc<Mailbox<Command>>> {
    let mut sessions = Vec::new();
    for list in lists {
        sessions.extend(list.lock().iter().map(|(&number, mailbox)| (number, Arc::clone(mailbox))));
    }
    sessions.sort_by_key(|(number, _)| Reverse(*number));
    sessions.into_iter().map(|(_, mailbox)| mailbox).collect()
}
