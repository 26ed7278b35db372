//! Limit for the requests that wait in a client. Further ones wait in `poll_ready` or are refused, so that no queue
//! grows without bound.

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

/// A request's permit to wait. Released when the request is sent, or on drop.
#[derive(Debug)]
pub(crate) struct QueuePermit {
    /// When the request first waited for a stream. A session that closes returns the request for the next one, where
    /// it continues to wait.
    queued_at: Option<Instant>,
    _permit: OwnedSemaphorePermit,
}

impl QueuePermit {
    const fn new(permit: OwnedSemaphorePermit) -> Self {
        Self { queued_at: None, _permit: permit }
    }

    /// Records that the request is queued at a session, unless it was queued before.
    pub(crate) fn start_wait(&mut self, now: Instant) {
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

    /// Returns the number of available permits.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        self.0.available_permits()
    }

    pub(crate) fn try_acquire(&self) -> Option<QueuePermit> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(QueuePermit::new(permit))
    }
}

type AcquireFuture = Pin<Box<dyn Future<Output = Option<QueuePermit>> + Send + Sync>>;

/// The permit that a handle has reserved in `poll_ready`. It belongs to the handle: a clone has none.
#[derive(Default)]
pub(crate) enum QueueReservation {
    #[default]
    None,
    Waiting(AcquireFuture),
    Permit(QueuePermit),
}

impl QueueReservation {
    /// Waits for a permit, first come, first served. Dropping the reservation leaves the queue.
    pub(crate) fn poll(&mut self, limit: &QueueLimit, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::Permit(_) => return Poll::Ready(()),
                Self::Waiting(acquiring) => {
                    *self = ready!(acquiring.as_mut().poll(cx)).map_or(Self::None, Self::Permit);
                }
                Self::None => {
                    let limit = Arc::clone(&limit.0);
                    *self = Self::Waiting(Box::pin(async move {
                        // The semaphore is never closed.
                        let permit = limit.acquire_owned().await.ok()?;
                        Some(QueuePermit::new(permit))
                    }));
                }
            }
        }
    }

    pub(crate) fn take(&mut self) -> Option<QueuePermit> {
        match core::mem::take(self) {
            Self::Permit(permit) => Some(permit),
            Self::None | Self::Waiting(_) => None,
        }
    }
}

impl Clone for QueueReservation {
    fn clone(&self) -> Self {
        Self::None
    }
}

impl fmt::Debug for QueueReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Waiting(_) => "Waiting",
            Self::Permit(_) => "Permit",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_permit_is_waited_for_and_released() {
        let limit = QueueLimit::new(1);
        let mut cx = Context::from_waker(Waker::noop());
        let (mut first_handle, mut second_handle) =
            (QueueReservation::default(), QueueReservation::default());
        assert!(first_handle.poll(&limit, &mut cx).is_ready());
        assert!(first_handle.clone().take().is_none(), "a clone has no permit");
        assert!(second_handle.poll(&limit, &mut cx).is_pending());
        assert!(second_handle.take().is_none() && limit.try_acquire().is_none());
        drop(first_handle.take());
        assert!(second_handle.poll(&limit, &mut cx).is_ready());
        // A handle that is dropped with an unused permit releases it as well.
        drop(second_handle);
        assert_eq!(limit.available_permits(), 1);
    }

    #[test]
    fn a_request_that_returns_to_the_queue_keeps_its_start_time() {
        let mut permit = QueueLimit::new(1).try_acquire().unwrap();
        let (first, second) = (Instant::from_nanos(1), Instant::from_nanos(2));
        permit.start_wait(first);
        permit.start_wait(second);
        assert_eq!(permit.queued_at(), Some(first));
    }
}
