//! Informational responses (1xx, RFC 9110 section 15.2) from handlers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, StatusCode};
use smig_proto::{ResponseHead, StreamKey};

use super::http1::Http1Informational;
use crate::driver::TurnCx;
use crate::mailbox::{Notifier, Slot};

/// Sends informational responses, such as 103 (Early Hints), while a request is handled. A request that may have
/// informational responses carries one as an extension.
#[derive(Clone, Debug)]
pub struct InformationalSender(InformationalSink);

#[derive(Clone, Debug)]
enum InformationalSink {
    Stream { informational: Arc<PendingInformational>, stream: StreamKey, slot: Slot },
    Http1(Arc<Http1Informational>),
}

impl InformationalSender {
    pub(super) const fn stream(
        informational: Arc<PendingInformational>,
        stream: StreamKey,
        slot: Slot,
    ) -> Self {
        Self(InformationalSink::Stream { informational, stream, slot })
    }

    pub(super) const fn http1(asides: Arc<Http1Informational>) -> Self {
        Self(InformationalSink::Http1(asides))
    }

    /// Sends an informational response. Does nothing if the final response has been started, or if the status is not
    /// informational; 100 is sent when the request's body is read, and 101 is a final response.
    pub fn send(&self, status: StatusCode, headers: HeaderMap) {
        if !status.is_informational() {
            return;
        }
        let (informational, stream, slot) = match &self.0 {
            InformationalSink::Http1(asides) => return asides.send(status, &headers),
            InformationalSink::Stream { informational, stream, slot } => {
                (informational, *stream, *slot)
            }
        };
        informational.queue().push((stream, ResponseHead { status, headers }));
        informational.any.store(true, Ordering::Release);
        // The stream is called, since its handler may wait for something else.
        informational.notifier.wake_slot(slot);
    }
}

/// The queued informational responses of a session.
#[derive(Debug)]
pub(super) struct PendingInformational {
    any: AtomicBool,
    queue: Mutex<Vec<(StreamKey, ResponseHead)>>,
    notifier: Arc<Notifier>,
}

impl PendingInformational {
    pub(super) fn new(notifier: Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self { any: AtomicBool::new(false), queue: Mutex::default(), notifier })
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Vec<(StreamKey, ResponseHead)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the queued responses.
    pub(super) fn send(&self, turn: &mut TurnCx<'_>) {
        if !self.any.swap(false, Ordering::AcqRel) {
            return;
        }
        for (stream, head) in core::mem::take(&mut *self.queue()) {
            if let Err(error) = turn.session.send_informational(stream, &head) {
                tracing::debug!(?error, status = %head.status, "informational response not sent");
            }
        }
    }
}
