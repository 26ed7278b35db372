//! Limits for open connections: of an endpoint, and of an application for several clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client_quota::ClientPermit;
use crate::observer::{Counters, ObserverEvent};
use crate::socket::ConnectionAddrs;

/// A connection's place in the count of open connections; released when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    open: Arc<AtomicUsize>,
    /// At a server: its place in the count for the client's address.
    client: Option<ClientPermit>,
    counters: Arc<Counters>,
    /// For the observer, if there is one. Boxed: there is one permit for each connection.
    ends: Option<Box<ConnectionAddrs>>,
    /// Its place in a [`ConnectionLimit`], if the application set one.
    place: Option<ConnectionPlace>,
}

impl Permit {
    /// Returns a permit if fewer than `max` connections are open.
    pub(crate) fn take(
        open: &Arc<AtomicUsize>,
        max: usize,
        counters: &Arc<Counters>,
        ends: impl FnOnce() -> Option<ConnectionAddrs>,
    ) -> Option<Self> {
        if open.fetch_add(1, Ordering::Relaxed) >= max {
            open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let ends = counters.ends(ends);
        counters.on_event(&ObserverEvent::ConnectionOpened { ends });
        let (open, counters) = (Arc::clone(open), Arc::clone(counters));
        Some(Self { open, client: None, counters, ends: ends.map(Box::new), place: None })
    }

    /// Adds a place that is released together with the permit.
    pub(crate) fn with(mut self, place: Option<ConnectionPlace>) -> Self {
        self.place = place;
        self
    }

    /// Adds the place in the count for the client's address, released together with the permit.
    pub(crate) fn with_client(mut self, client: ClientPermit) -> Self {
        self.client = Some(client);
        self
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.counters
            .on_event(&ObserverEvent::ConnectionClosed { ends: self.ends.as_deref().copied() });
    }
}

/// Maximum number of open connections. Clones share the limit, as do all clients that were built with it.
#[derive(Clone, Debug)]
pub struct ConnectionLimit(Arc<Connections>);

#[derive(Debug)]
struct Connections {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A connection's slot; released on drop.
#[derive(Debug)]
pub struct ConnectionPlace {
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    /// Creates a limit of `connections`, at least one.
    #[must_use]
    pub fn new(connections: usize) -> Self {
        Self::sharing(Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Creates a limit whose slots other users of the semaphore may take as well.
    #[must_use]
    pub fn sharing(places: Arc<Semaphore>) -> Self {
        Self(Arc::new(Connections { places, waiting: AtomicUsize::new(0) }))
    }

    /// Takes a slot, if one is free.
    #[must_use]
    pub fn try_take(&self) -> Option<ConnectionPlace> {
        let permit = Arc::clone(&self.0.places).try_acquire_owned().ok()?;
        Some(ConnectionPlace { _permit: permit })
    }

    /// Waits for a slot, first come, first served. Cancel safe: dropping the future leaves the line.
    pub async fn take(&self) -> ConnectionPlace {
        struct Waits<'a>(&'a AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if let Some(place) = self.try_take() {
            return place;
        }
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.0.waiting);
        match Arc::clone(&self.0.places).acquire_owned().await {
            Ok(permit) => ConnectionPlace { _permit: permit },
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Returns whether a caller waits because no slot is free.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_connection_is_seen() {
        let limit = ConnectionLimit::new(1);
        let place = limit.take().await;
        assert!(limit.try_take().is_none() && !limit.is_wanted());
        let mut waiting = Box::pin(limit.take());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
        assert!(limit.is_wanted());
        drop(waiting);
        assert!(!limit.is_wanted());
        drop(place);
        assert!(limit.try_take().is_some());
    }
}
