//! Interim responses (1xx, RFC 9110 section 15.2) from handlers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, StatusCode};
use smig_proto::{ResponseHead, StreamKey};

use super::line::Asides;
use crate::driver::{Notifier, Slot, Turn};

/// Sends interim responses, such as 103 (Early Hints), while a request is handled. A request that may have
/// interim responses carries one as an extension.
#[derive(Clone, Debug)]
pub struct Interim(Way);

#[derive(Clone, Debug)]
enum Way {
    Stream { early: Arc<Early>, stream: StreamKey, slot: Slot },
    Http1(Arc<Asides>),
}

impl Interim {
    pub(super) const fn stream(early: Arc<Early>, stream: StreamKey, slot: Slot) -> Self {
        Self(Way::Stream { early, stream, slot })
    }

    pub(super) const fn http1(asides: Arc<Asides>) -> Self {
        Self(Way::Http1(asides))
    }

    /// Sends an interim response. Does nothing if the final response has been started, or if the status is not
    /// informational; 100 is sent when the request's body is read, and 101 is a final response.
    pub fn send(&self, status: StatusCode, headers: HeaderMap) {
        if !status.is_informational() {
            return;
        }
        let (early, stream, slot) = match &self.0 {
            Way::Http1(asides) => return asides.send(status, &headers),
            Way::Stream { early, stream, slot } => (early, *stream, *slot),
        };
        early.queue().push((stream, ResponseHead { status, headers }));
        early.any.store(true, Ordering::Release);
        // The stream is called, since its handler may wait for something else.
        early.notifier.call(slot);
    }
}

/// The queued interim responses of a session.
#[derive(Debug)]
pub(super) struct Early {
    any: AtomicBool,
    queue: Mutex<Vec<(StreamKey, ResponseHead)>>,
    notifier: Arc<Notifier>,
}

impl Early {
    pub(super) fn new(notifier: Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self { any: AtomicBool::new(false), queue: Mutex::default(), notifier })
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Vec<(StreamKey, ResponseHead)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the queued responses.
    pub(super) fn send(&self, turn: &mut Turn<'_>) {
        if !self.any.swap(false, Ordering::AcqRel) {
            return;
        }
        for (stream, head) in core::mem::take(&mut *self.queue()) {
            if let Err(error) = turn.session.send_informational(stream, &head) {
                tracing::debug!(?error, status = %head.status, "interim response not sent");
            }
        }
    }
}
