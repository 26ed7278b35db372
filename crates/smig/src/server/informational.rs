//! Informational responses (1xx, RFC 9110 section 15.2) from handlers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, StatusCode};
use smig_proto::{ResponseHead, StreamKey};

use super::http1::Http1ConnState;
use crate::driver::TurnCx;
use crate::mailbox::{Notifier, Slot};

/// Sends informational responses, such as 103 (Early Hints), while a request is handled. A request carries one as an
/// extension, unless it is of HTTP/1.0, which has no informational responses, or of HTTP/2 with
/// [`RequestExtensions::Protocol`](crate::RequestExtensions::Protocol).
#[derive(Clone, Debug)]
pub struct InformationalSender(InformationalSink);

#[derive(Clone, Debug)]
enum InformationalSink {
    Stream { pending_informational: Arc<PendingInformational>, stream: StreamKey, slot: Slot },
    Http1(Arc<Http1ConnState>),
}

impl InformationalSender {
    pub(super) const fn stream(
        pending_informational: Arc<PendingInformational>,
        stream: StreamKey,
        slot: Slot,
    ) -> Self {
        Self(InformationalSink::Stream { pending_informational, stream, slot })
    }

    pub(super) const fn http1(conn_state: Arc<Http1ConnState>) -> Self {
        Self(InformationalSink::Http1(conn_state))
    }

    /// Sends an informational response. Does nothing if the final response has been started, or if the status is not
    /// informational; 100 is sent when the request's body is read, and 101 is a final response.
    pub fn send(&self, status: StatusCode, headers: HeaderMap) {
        if !status.is_informational()
            || matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS)
        {
            return;
        }
        let (pending_informational, stream, slot) = match &self.0 {
            InformationalSink::Http1(conn_state) => {
                return conn_state.queue_informational(status, &headers);
            }
            InformationalSink::Stream { pending_informational: informational, stream, slot } => {
                (informational, *stream, *slot)
            }
        };
        pending_informational.queue().push((stream, ResponseHead { status, headers }));
        pending_informational.has_queued.store(true, Ordering::Release);
        // The stream's slot is woken, since its handler may wait for something else.
        pending_informational.notifier.wake_slot(slot);
    }
}

/// The queued informational responses of a session.
#[derive(Debug)]
pub(super) struct PendingInformational {
    has_queued: AtomicBool,
    queue: Mutex<Vec<(StreamKey, ResponseHead)>>,
    notifier: Arc<Notifier>,
}

impl PendingInformational {
    pub(super) fn new(notifier: Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self { has_queued: AtomicBool::new(false), queue: Mutex::default(), notifier })
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Vec<(StreamKey, ResponseHead)>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the queued responses.
    pub(super) fn send(&self, turn: &mut TurnCx<'_>) {
        if !self.has_queued.swap(false, Ordering::AcqRel) {
            return;
        }
        for (stream, head) in core::mem::take(&mut *self.queue()) {
            if let Err(error) = turn.session.send_informational(stream, &head) {
                tracing::debug!(?error, status = %head.status, "informational response not sent");
            }
        }
    }
}
