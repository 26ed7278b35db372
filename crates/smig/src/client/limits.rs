//! Limits that requests and connections wait at, rather than in a queue that grows.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many requests may wait at once for a connection, or for a stream that the server allows. Clones
/// share it, and so do the clients that it is given to.
#[derive(Clone, Debug)]
pub struct QueueLimit(Arc<Semaphore>);

/// A request's place in the queue; given back when it is on its way, or dropped.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    _permit: OwnedSemaphorePermit,
}

impl QueueLimit {
    /// For so many requests; one at least.
    #[must_use]
    pub fn new(requests: usize) -> Self {
        Self(Arc::new(Semaphore::new(requests.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Places that are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.available_permits()
    }

    pub(crate) fn try_take(&self) -> Option<QueuePlace> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(QueuePlace { _permit: permit })
    }
}

type Taking = Pin<Box<dyn Future<Output = Option<QueuePlace>> + Send + Sync>>;

/// The place that a handle has waited for until it is ready. It belongs to the handle: a clone has none.
#[derive(Default)]
pub(crate) enum Reserved {
    #[default]
    None,
    Waiting(Taking),
    Place(QueuePlace),
}

impl Reserved {
    /// Waits for a place, in the order of asking. Who does not go on leaves the line.
    pub(crate) fn poll(&mut self, limit: &QueueLimit, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::Place(_) => return Poll::Ready(()),
                Self::Waiting(taking) => {
                    *self = ready!(taking.as_mut().poll(cx)).map_or(Self::None, Self::Place);
                }
                Self::None => {
                    let limit = Arc::clone(&limit.0);
                    *self = Self::Waiting(Box::pin(async move {
                        // Nobody closes it.
                        let permit = limit.acquire_owned().await.ok()?;
                        Some(QueuePlace { _permit: permit })
                    }));
                }
            }
        }
    }

    pub(crate) fn take(&mut self) -> Option<QueuePlace> {
        match core::mem::take(self) {
            Self::Place(place) => Some(place),
            Self::None | Self::Waiting(_) => None,
        }
    }
}

impl Clone for Reserved {
    fn clone(&self) -> Self {
        Self::None
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Waiting(_) => "Waiting",
            Self::Place(_) => "Place",
        })
    }
}

/// How many connections may be open at once. Clones share it, and so do the clients that it is given to.
#[derive(Clone, Debug)]
pub struct ConnectionLimit(Arc<Connections>);

#[derive(Debug)]
struct Connections {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    /// For so many connections; one at least.
    #[must_use]
    pub fn new(connections: usize) -> Self {
        Self::sharing(Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// A limit whose places are also taken elsewhere.
    #[must_use]
    pub fn sharing(places: Arc<Semaphore>) -> Self {
        Self(Arc::new(Connections { places, waiting: AtomicUsize::new(0) }))
    }

    /// A place, if one is free.
    #[must_use]
    pub fn try_take(&self) -> Option<ConnectionPlace> {
        let permit = Arc::clone(&self.0.places).try_acquire_owned().ok()?;
        Some(ConnectionPlace { _permit: permit })
    }

    /// Waits for a place, in the order of asking. Dropped, it leaves the line.
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
            // Nobody closes it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Whether somebody waits because all places are taken.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_place_is_waited_for_and_given_back() {
        let limit = QueueLimit::new(1);
        let mut cx = Context::from_waker(Waker::noop());
        let (mut one, mut other) = (Reserved::default(), Reserved::default());
        assert!(one.poll(&limit, &mut cx).is_ready());
        assert!(one.clone().take().is_none(), "a clone has no place of its own");
        assert!(other.poll(&limit, &mut cx).is_pending());
        assert!(other.take().is_none() && limit.try_take().is_none());
        drop(one.take());
        assert!(other.poll(&limit, &mut cx).is_ready());
        // Who has a place and does not use it gives it back as well.
        drop(other);
        assert_eq!(limit.free(), 1);
    }

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
