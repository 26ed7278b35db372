//! A waker that stays with a connection while the tasks that use it change.
//!
//! A connection is polled by the exchange that uses it, and has no task of its own. What wakes it
//! while it is polled (its own parts wake each other) makes for another round and wakes nobody.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// Nobody polls.
const RESTING: u8 = 0;
/// The same, and a part has called since.
const CALLED: u8 = 1;
const POLLING: u8 = 2;
/// The same, and a part has called meanwhile.
const AGAIN: u8 = 3;

/// Wakes who polled last.
#[derive(Debug, Default)]
pub(super) struct Relay {
    state: AtomicU8,
    user: Mutex<Option<Waker>>,
}

impl Relay {
    fn user(&self) -> MutexGuard<'_, Option<Waker>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to poll for `user`.
    pub(super) fn begin(&self, user: &Waker) {
        let mut present = self.user();
        match &mut *present {
            Some(present) => present.clone_from(user),
            none => *none = Some(user.clone()),
        }
        drop(present);
        self.state.store(POLLING, Ordering::Release);
    }

    /// Begins to poll for nobody: who used it last is forgotten.
    pub(super) fn begin_alone(&self) {
        *self.user() = None;
        self.state.store(POLLING, Ordering::Release);
    }

    /// Whether a part asked for another round since the last time.
    pub(super) fn again(&self) -> bool {
        self.state.swap(POLLING, Ordering::AcqRel) == AGAIN
    }

    /// Ends polling.
    pub(super) fn end(&self) {
        if self.state.swap(RESTING, Ordering::AcqRel) == AGAIN
            && let Some(user) = &*self.user()
        {
            user.wake_by_ref();
        }
    }

    /// Ends polling, and nobody wants to hear of it.
    pub(super) fn end_silently(&self) {
        if self.state.swap(RESTING, Ordering::AcqRel) == AGAIN {
            self.state.store(CALLED, Ordering::Release);
        }
    }

    /// Whether a part has called since polling ended.
    pub(super) fn is_called(&self) -> bool {
        self.state.load(Ordering::Acquire) == CALLED
    }
}

impl Wake for Relay {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        // The bit that tells the two states of each kind apart.
        let before = self.state.fetch_or(CALLED, Ordering::AcqRel);
        if before < POLLING
            && let Some(user) = &*self.user()
        {
            user.wake_by_ref();
        }
    }
}
