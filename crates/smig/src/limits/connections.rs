//! Limits for open connections: per endpoint, and shared by several clients of an application.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client_quota::ClientPermit;
use crate::observer::{EventSink, ObserverEvent};
use crate::socket::ConnectionAddrs;

/// A connection's permit to be open; released on drop.
#[derive(Debug)]
pub(crate) struct OpenPermit {
    open_count: Arc<AtomicUsize>,
    /// At a server: its permit of the client's address.
    client_permit: Option<ClientPermit>,
    events: Arc<EventSink>,
    /// For the observer, if there is one. Boxed: there is one permit for each connection.
    addrs: Option<Box<ConnectionAddrs>>,
    /// Its permit of a [`ConnectionLimit`], if the application set one.
    limit_permit: Option<ConnectionPermit>,
}

impl OpenPermit {
    /// Returns a permit if fewer than `max` connections are open.
    pub(crate) fn try_acquire(
        open_count: &Arc<AtomicUsize>,
        max: usize,
        events: &Arc<EventSink>,
        addrs: impl FnOnce() -> Option<ConnectionAddrs>,
    ) -> Option<Self> {
        if open_count.fetch_add(1, Ordering::Relaxed) >= max {
            open_count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let addrs = events.addrs(addrs);
        events.on_event(&ObserverEvent::ConnectionOpened { addrs });
        let (open_count, events) = (Arc::clone(open_count), Arc::clone(events));
        Some(Self {
            open_count,
            client_permit: None,
            events,
            addrs: addrs.map(Box::new),
            limit_permit: None,
        })
    }

    /// Adds a permit of a [`ConnectionLimit`], released together with this one.
    pub(crate) fn with_limit_permit(mut self, limit_permit: Option<ConnectionPermit>) -> Self {
        self.limit_permit = limit_permit;
        self
    }

    /// Adds the permit of the client's address, released together with this one.
    pub(crate) fn with_client_permit(mut self, client_permit: ClientPermit) -> Self {
        self.client_permit = Some(client_permit);
        self
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        self.open_count.fetch_sub(1, Ordering::Relaxed);
        self.events
            .on_event(&ObserverEvent::ConnectionClosed { addrs: self.addrs.as_deref().copied() });
    }
}

/// Maximum number of open connections. Clones share the limit, as do all clients that were built with it.
#[derive(Clone, Debug)]
pub struct ConnectionLimit(Arc<SharedLimit>);

#[derive(Debug)]
struct SharedLimit {
    permits: Arc<Semaphore>,
    waiters: AtomicUsize,
}

/// A connection's permit of a [`ConnectionLimit`]; released on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    /// Creates a limit of `connections`, at least one.
    #[must_use]
    pub fn new(connections: usize) -> Self {
        Self::from_semaphore(Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Creates a limit that shares its permits with other users of the semaphore.
    #[must_use]
    pub fn from_semaphore(permits: Arc<Semaphore>) -> Self {
        Self(Arc::new(SharedLimit { permits, waiters: AtomicUsize::new(0) }))
    }

    /// Acquires a permit, if one is available.
    #[must_use]
    pub fn try_acquire(&self) -> Option<ConnectionPermit> {
        let permit = Arc::clone(&self.0.permits).try_acquire_owned().ok()?;
        Some(ConnectionPermit { _permit: permit })
    }

    /// Waits for a permit, first come, first served. Cancel safe: dropping the future leaves the queue.
    pub async fn acquire(&self) -> ConnectionPermit {
        struct WaitGuard<'a>(&'a AtomicUsize);
        impl Drop for WaitGuard<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if let Some(permit) = self.try_acquire() {
            return permit;
        }
        self.0.waiters.fetch_add(1, Ordering::Relaxed);
        let _guard = WaitGuard(&self.0.waiters);
        match Arc::clone(&self.0.permits).acquire_owned().await {
            Ok(permit) => ConnectionPermit { _permit: permit },
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns whether a caller waits because no permit is available.
    #[must_use]
    pub fn has_waiters(&self) -> bool {
        self.0.waiters.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn a_waiting_caller_is_counted_until_it_is_dropped() {
        let limit = ConnectionLimit::new(1);
        let permit = limit.acquire().await;
        assert!(limit.try_acquire().is_none() && !limit.has_waiters());
        let mut waiter = Box::pin(limit.acquire());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiter.as_mut().poll(&mut cx).is_pending());
        assert!(limit.has_waiters());
        drop(waiter);
        assert!(!limit.has_waiters());
        drop(permit);
        assert!(limit.try_acquire().is_some());
    }
}
