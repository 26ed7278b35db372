//! The limits of the connections to one server, which the pools of all workers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smig::ConnectionLimit;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections to a server may be open, and how many requests may wait for one.
#[derive(Debug)]
pub struct ConnLimits {
    /// One permit per connection.
    permits: Arc<Semaphore>,
    max_connections: usize,
    /// Requests that wait for a connection.
    pending_requests: AtomicUsize,
    max_pending_requests: usize,
}

impl ConnLimits {
    /// Creates the limits of a server: at least one connection.
    #[must_use]
    pub fn new(max_connections: usize, max_pending_requests: usize) -> Arc<Self> {
        let max_connections = max_connections.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(max_connections)),
            max_connections,
            pending_requests: AtomicUsize::new(0),
            max_pending_requests,
        })
    }

    /// Returns the same limit on connections, for a [`smig::Client`].
    #[must_use]
    pub fn connection_limit(&self) -> ConnectionLimit {
        ConnectionLimit::from_semaphore(Arc::clone(&self.permits))
    }

    /// Returns the number of connections that are open or being established.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.max_connections.saturating_sub(self.permits.available_permits())
    }

    /// Returns the number of requests that wait for a connection, at all workers.
    #[must_use]
    pub fn pending_requests(&self) -> usize {
        self.pending_requests.load(Ordering::Relaxed)
    }

    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Waits for a permit; `None` if the semaphore was closed.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).acquire_owned().await.ok()
    }

    /// Returns whether more requests wait than may, including the caller if it is counted.
    pub(super) fn exceeds_queue_limit(&self) -> bool {
        self.pending_requests() > self.max_pending_requests
    }

    pub(super) fn add_pending_request(&self) {
        self.pending_requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_pending_request(&self) {
        self.pending_requests.fetch_sub(1, Ordering::Relaxed);
    }
}
