//! Limit for the requests that wait in a client; further ones wait at the limit itself, so that no queue grows without
//! bound.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use smig_proto::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of requests that wait at once for a connection, or for a stream that the server allows.
/// Clones share the limit, as do all clients that were built with it.
#[derive(Clone, Debug)]
pub struct QueueLimit(Arc<Semaphore>);

/// A request's queue slot. Released when the request is sent, or on drop.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    /// When the request first waited for a stream. A session that closes returns the request for the next one, where
    /// the wait goes on.
    queued_at: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

impl QueuePlace {
    const fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { queued_at: None, _permit: permit }
    }

    /// Records that the request is queued at a session, unless it was queued before.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.queued_at.get_or_insert(now);
    }

    pub(crate) const fn queued_at(&self) -> Option<Instant> {
        self.queued_at
    }
}

impl QueueLimit {
    /// Creates a limit of `requests`, at least one.
    #[must_use]
    pub fn new(requests: usize) -> Self {
        Self(Arc::new(Semaphore::new(requests.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Returns the number of free slots.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.available_permits()
    }

    pub(crate) fn try_take(&self) -> Option<QueuePlace> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(QueuePlace::new(permit))
    }
}

type Taking = Pin<Box<dyn Future<Output = Option<QueuePlace>> + Send + Sync>>;

/// The slot that a handle has reserved in `poll_ready`. It belongs to the handle: a clone has none.
#[derive(Default)]
pub(crate) enum Reserved {
    #[default]
    None,
    Waiting(Taking),
    Place(QueuePlace),
}

impl Reserved {
    /// Waits for a slot, first come, first served. Dropping it leaves the line.
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
                        // The semaphore is never closed.
                        let permit = limit.acquire_owned().await.ok()?;
                        Some(QueuePlace::new(permit))
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
        // A handle that drops its slot unused releases it as well.
        drop(other);
        assert_eq!(limit.free(), 1);
    }

    #[test]
    fn a_request_that_returns_to_the_queue_does_not_wait_anew() {
        let mut place = QueueLimit::new(1).try_take().unwrap();
        let (first, second) = (Instant::from_nanos(1), Instant::from_nanos(2));
        place.begin(first);
        place.begin(second);
        assert_eq!(place.queued_at(), Some(first));
    }
}
