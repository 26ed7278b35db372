//! A waker that remains with a connection while the tasks that use it change.
//!
//! A connection is polled by the exchange that uses it, and has no task of its own. Wake-ups during a poll (its
//! parts wake each other) cause another polling round and wake no task.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// No poll is in progress.
const IDLE: u8 = 0;
/// No poll is in progress, and the waker was called since the last one.
const NOTIFIED: u8 = 1;
const POLLING: u8 = 2;
/// A poll is in progress, and the waker was called since its last round.
const REPOLL: u8 = 3;

/// Wakes the task that polled last.
#[derive(Debug, Default)]
pub(super) struct SharedWaker {
    state: AtomicU8,
    task_waker: Mutex<Option<Waker>>,
}

impl SharedWaker {
    fn task_waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task_waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts polling on behalf of the task of `task_waker`.
    pub(super) fn begin(&self, task_waker: &Waker) {
        let mut stored_waker = self.task_waker();
        match &mut *stored_waker {
            Some(waker) => waker.clone_from(task_waker),
            none => *none = Some(task_waker.clone()),
        }
        drop(stored_waker);
        self.state.store(POLLING, Ordering::Release);
    }

    /// Starts polling without a task: the last one is no longer woken.
    pub(super) fn begin_detached(&self) {
        *self.task_waker() = None;
        self.state.store(POLLING, Ordering::Release);
    }

    /// Returns whether the waker was called since the last call or the start of polling.
    pub(super) fn take_repoll(&self) -> bool {
        self.state.swap(POLLING, Ordering::AcqRel) == REPOLL
    }

    /// Ends polling; wakes the task if the waker was called since the last round.
    pub(super) fn end(&self) {
        if self.state.swap(IDLE, Ordering::AcqRel) == REPOLL
            && let Some(task_waker) = &*self.task_waker()
        {
            task_waker.wake_by_ref();
        }
    }

    /// Ends polling without waking the task; records whether the waker was called.
    pub(super) fn end_without_wake(&self) {
        if self.state.swap(IDLE, Ordering::AcqRel) == REPOLL {
            self.state.store(NOTIFIED, Ordering::Release);
        }
    }

    /// Returns whether the waker was called since the last completed round.
    pub(super) fn is_notified(&self) -> bool {
        self.state.load(Ordering::Acquire) == NOTIFIED
    }
}

impl Wake for SharedWaker {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        // The bit that distinguishes IDLE from NOTIFIED, and POLLING from REPOLL.
        let before = self.state.fetch_or(NOTIFIED, Ordering::AcqRel);
        if before < POLLING
            && let Some(task_waker) = &*self.task_waker()
        {
            task_waker.wake_by_ref();
        }
    }
}
