//! A waker that remains with a connection while the tasks that use it change.
//!
//! A connection is polled by the exchange that uses it, and has no task of its own. Wake-ups during a poll (its
//! parts wake each other) cause another polling round and wake no task.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// No poll is in progress.
const RESTING: u8 = 0;
/// No poll is in progress, and the waker was called since the last one.
const CALLED: u8 = 1;
const POLLING: u8 = 2;
/// A poll is in progress, and the waker was called during it.
const AGAIN: u8 = 3;

/// Wakes the task that polled last.
#[derive(Debug, Default)]
pub(super) struct SharedWaker {
    state: AtomicU8,
    user: Mutex<Option<Waker>>,
}

impl SharedWaker {
    fn user(&self) -> MutexGuard<'_, Option<Waker>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts polling on behalf of `user`.
    pub(super) fn begin(&self, user: &Waker) {
        let mut present = self.user();
        match &mut *present {
            Some(present) => present.clone_from(user),
            none => *none = Some(user.clone()),
        }
        drop(present);
        self.state.store(POLLING, Ordering::Release);
    }

    /// Starts polling without a task: the last one is no longer woken.
    pub(super) fn begin_detached(&self) {
        *self.user() = None;
        self.state.store(POLLING, Ordering::Release);
    }

    /// Returns whether the waker was called since the last call or the start of polling.
    pub(super) fn take_repoll(&self) -> bool {
        self.state.swap(POLLING, Ordering::AcqRel) == AGAIN
    }

    /// Ends polling; wakes the task if the waker was called since the last round.
    pub(super) fn end(&self) {
        if self.state.swap(RESTING, Ordering::AcqRel) == AGAIN
            && let Some(user) = &*self.user()
        {
            user.wake_by_ref();
        }
    }

    /// Ends polling without waking the task; a call of the waker is remembered.
    pub(super) fn end_unnotified(&self) {
        if self.state.swap(RESTING, Ordering::AcqRel) == AGAIN {
            self.state.store(CALLED, Ordering::Release);
        }
    }

    /// Returns whether the waker was called since the last completed round.
    pub(super) fn is_called(&self) -> bool {
        self.state.load(Ordering::Acquire) == CALLED
    }
}

impl Wake for SharedWaker {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        // The bit that distinguishes RESTING from CALLED, and POLLING from AGAIN.
        let before = self.state.fetch_or(CALLED, Ordering::AcqRel);
        if before < POLLING
            && let Some(user) = &*self.user()
        {
            user.wake_by_ref();
        }
    }
}
