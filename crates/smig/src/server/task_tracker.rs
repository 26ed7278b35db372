//! What a worker waits for before it ends: the tasks of its connections, and connections that handlers have taken over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Counts the tasks and connections that a worker waits for before it ends.
#[derive(Debug, Default)]
pub(super) struct TaskTracker {
    count: AtomicUsize,
    idle_notify: Notify,
}

impl TaskTracker {
    /// Waits until the count is zero.
    pub(super) async fn wait(&self) {
        loop {
            let idle = self.idle_notify.notified();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// Counts a task of the worker, or a connection that a handler has taken over, until it is dropped.
#[derive(Debug)]
pub(super) struct TaskToken(Arc<TaskTracker>);

impl TaskToken {
    pub(super) fn new(tracker: &Arc<TaskTracker>) -> Self {
        tracker.count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(tracker))
    }
}

impl Drop for TaskToken {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle_notify.notify_waiters();
        }
    }
}
