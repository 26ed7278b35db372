//! The bodies that are sent: a part of the pool in chunks of random size, and one chunk that a
//! future provides.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use smig::{BoxError, StreamInfo};

use crate::census::LiveGuard;
use crate::plan::Framing;
use crate::rng::Rng;

/// The trailer that carries a body's hash.
pub(crate) const HASH_TRAILER: &str = "x-soak-sha256";

/// A body that sends a part of the pool.
#[derive(Debug)]
pub(crate) struct PoolBody {
    pub(crate) remaining: Bytes,
    pub(crate) framing: Framing,
    pub(crate) hash: String,
    pub(crate) rng: Rng,
    /// Number of bytes sent so far, shared with the transfer's progress.
    pub(crate) sent_bytes: Arc<AtomicU64>,
    /// Offsets at which migrations are requested through `info`.
    pub(crate) migrate_at: Vec<u64>,
    pub(crate) info: Option<StreamInfo>,
    pub(crate) was_pending: bool,
    pub(crate) trailers_sent: bool,
    pub(crate) _live_guard: LiveGuard,
}

impl PoolBody {
    /// Requests a migration if any are due; several that are due at once count as one.
    fn request_due_migrations(&mut self) {
        let Some(info) = &self.info else { return };
        let sent = self.sent_bytes.load(Ordering::Relaxed);
        let due = self.migrate_at.iter().take_while(|&&at| at <= sent).count();
        if due > 0 {
            self.migrate_at.drain(..due);
            info.migrate();
        }
    }

    fn take_trailers(&mut self) -> Option<Frame<Bytes>> {
        if self.framing != Framing::Trailers || self.trailers_sent {
            return None;
        }
        self.trailers_sent = true;
        let mut trailers = HeaderMap::new();
        if let Ok(hash) = HeaderValue::from_str(&self.hash) {
            trailers.insert(HASH_TRAILER, hash);
        }
        Some(Frame::trailers(trailers))
    }
}

impl Body for PoolBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.request_due_migrations();
        if self.remaining.is_empty() {
            return Poll::Ready(self.take_trailers().map(Ok));
        }
        // Occasionally return pending once.
        if !self.was_pending && self.rng.chance(4) {
            self.was_pending = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.was_pending = false;
        let max_chunk = self.rng.one_of(64 << 10, &[16 << 10, 16 << 10, 1 << 10, 200 << 10]);
        let size = self.rng.within(1..max_chunk) as usize;
        let size = size.min(self.remaining.len());
        let chunk = self.remaining.split_to(size);
        self.sent_bytes.fetch_add(size as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining.is_empty() && (self.framing != Framing::Trailers || self.trailers_sent)
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::ContentLength => SizeHint::with_exact(self.remaining.len() as u64),
            Framing::EndStream | Framing::Trailers => SizeHint::new(),
        }
    }
}

/// A body of one chunk, sent when a future resolves to it.
pub(crate) struct DeferredBody<F>(Option<Pin<Box<F>>>);

impl<F> DeferredBody<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<F: Future<Output = Result<Bytes, BoxError>>> Body for DeferredBody<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(future) = &mut self.0 else { return Poll::Ready(None) };
        let result = ready!(future.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(Some(result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
