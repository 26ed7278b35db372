//! The sessions of one worker, in order of their start, for the worker and for snapshots of the server.
//!
//! Accessed when a session begins and when it ends, mostly by the worker's thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::Command;
use crate::mailbox::Mailbox;

#[derive(Debug, Default)]
pub(super) struct SessionList(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    sessions: BTreeMap<usize, Arc<Mailbox<Command>>>,
    next_number: usize,
}

impl SessionList {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session. Returns the number by which to remove it.
    pub(super) fn insert(&self, mailbox: &Arc<Mailbox<Command>>) -> usize {
        let mut list = self.lock();
        let number = list.next_number;
        list.next_number += 1;
        list.sessions.insert(number, Arc::clone(mailbox));
        number
    }

    /// Removes a session.
    pub(super) fn remove(&self, number: usize) {
        self.lock().sessions.remove(&number);
    }

    /// Requests every session to finish its streams and to accept no new ones.
    pub(super) fn drain(&self) {
        for mailbox in self.mailboxes() {
            // A closed mailbox belongs to a session that is ending already.
            drop(mailbox.send(Command::Drain));
        }
    }

    /// Returns every session, the youngest first.
    pub(super) fn mailboxes(&self) -> Vec<Arc<Mailbox<Command>>> {
        self.lock().sessions.values().rev().map(Arc::clone).collect()
    }
}
