//! The sessions of one worker, in the order in which they came: how the worker, and those who look at
//! the server, reach them.
//!
//! Touched when a session begins and when it ends, by the worker's thread mostly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::Command;
use crate::driver::Mailbox;

#[derive(Debug, Default)]
pub(super) struct Roll(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    sessions: BTreeMap<usize, Arc<Mailbox<Command>>>,
    next: usize,
}

impl Roll {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins; the number that strikes it out.
    pub(super) fn enter(&self, mailbox: &Arc<Mailbox<Command>>) -> usize {
        let mut list = self.lock();
        let number = list.next;
        list.next += 1;
        list.sessions.insert(number, Arc::clone(mailbox));
        number
    }

    /// A session has ended.
    pub(super) fn strike(&self, number: usize) {
        self.lock().sessions.remove(&number);
    }

    /// Every session, the youngest first.
    pub(super) fn all(&self) -> Vec<Arc<Mailbox<Command>>> {
        self.lock().sessions.values().rev().map(Arc::clone).collect()
    }
}
