//! Sessions by AppID, for all workers of a server.
//!
//! Accessed when a session gets its key, when it ends, and when a connection requests to join.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smig_proto::AppId;

use super::session::Command;
use crate::mailbox::Mailbox;

const SHARD_COUNT: usize = 16;

/// Clients choose their AppIDs, so the map's hash is keyed against collisions.
type Shard = HashMap<AppId, Arc<Mailbox<Command>>>;

/// Result of [`Registry::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registration {
    Registered,
    /// Another open session has it: usually a connection that starts a session and then requests to join.
    Taken,
}

#[derive(Debug, Default)]
pub(super) struct Registry([Mutex<Shard>; SHARD_COUNT]);

impl Registry {
    fn shard(&self, app: AppId) -> Option<MutexGuard<'_, Shard>> {
        // AppIDs are random, so any byte distributes them. Clients that choose others only wait for one lock.
        let index = usize::from(app.to_bytes()[7]) % SHARD_COUNT;
        self.0.get(index).map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers a session. An AppID stays with its session until that has ended.
    pub(super) fn insert(&self, app: AppId, mailbox: &Arc<Mailbox<Command>>) -> Registration {
        let Some(mut shard) = self.shard(app) else { return Registration::Taken };
        let current = shard.entry(app).or_insert_with(|| Arc::clone(mailbox));
        if current.is_closed() {
            *current = Arc::clone(mailbox);
        }
        if Arc::ptr_eq(current, mailbox) { Registration::Registered } else { Registration::Taken }
    }

    /// Returns the mailbox of a session's task.
    pub(super) fn find(&self, app: AppId) -> Option<Arc<Mailbox<Command>>> {
        self.shard(app)?.get(&app).cloned()
    }

    /// Removes a session, if the AppID is still its own.
    pub(super) fn remove(&self, app: AppId, mailbox: &Arc<Mailbox<Command>>) {
        let Some(mut shard) = self.shard(app) else { return };
        if shard.get(&app).is_some_and(|current| Arc::ptr_eq(current, mailbox)) {
            shard.remove(&app);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_id_stays_with_its_session_while_that_is_open() {
        let registry = Registry::default();
        let app = AppId::new(7);
        let (first, second) = (Mailbox::new(), Mailbox::new());
        assert_eq!(registry.insert(app, &first), Registration::Registered);
        assert_eq!(registry.insert(app, &second), Registration::Taken);
        assert!(Arc::ptr_eq(&registry.find(app).unwrap(), &first));
        registry.remove(app, &second);
        assert!(registry.find(app).is_some());
        drop(first.close());
        registry.insert(app, &second);
        assert!(Arc::ptr_eq(&registry.find(app).unwrap(), &second));
        registry.remove(app, &second);
        assert!(registry.find(app).is_none());
    }
}
