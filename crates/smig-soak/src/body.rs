//! The bodies that are sent: a part of the pool in chunks of random size, and a verdict that is sent
//! when it is known.

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
use crate::dice::Rng;
use crate::plan::Framing;

/// The trailer that carries a body's hash.
pub(crate) const HASH: &str = "x-soak-sha256";

/// A body that sends a part of the pool.
#[derive(Debug)]
pub(crate) struct Pieces {
    pub(crate) left: Bytes,
    pub(crate) framing: Framing,
    pub(crate) hash: String,
    pub(crate) dice: Rng,
    /// Number of bytes sent so far, for the watcher.
    pub(crate) sent: Arc<AtomicU64>,
    /// Offsets at which it requests migrations through `info`.
    pub(crate) moves: Vec<u64>,
    pub(crate) info: Option<StreamInfo>,
    pub(crate) rested: bool,
    pub(crate) trailers_sent: bool,
    pub(crate) _alive: LiveGuard,
}

impl Pieces {
    /// Requests the migrations that are due.
    fn ask(&mut self) {
        let Some(info) = &self.info else { return };
        let sent = self.sent.load(Ordering::Relaxed);
        let due = self.moves.iter().take_while(|&&at| at <= sent).count();
        if due > 0 {
            self.moves.drain(..due);
            info.migrate();
        }
    }

    fn end(&mut self) -> Option<Frame<Bytes>> {
        if self.framing != Framing::Trailers || self.trailers_sent {
            return None;
        }
        self.trailers_sent = true;
        let mut trailers = HeaderMap::new();
        if let Ok(hash) = HeaderValue::from_str(&self.hash) {
            trailers.insert(HASH, hash);
        }
        Some(Frame::trailers(trailers))
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.ask();
        if self.left.is_empty() {
            return Poll::Ready(self.end().map(Ok));
        }
        // Occasionally return pending once.
        if !self.rested && self.dice.percent(4) {
            self.rested = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.rested = false;
        let most = self.dice.one_of(64 << 10, &[16 << 10, 16 << 10, 1 << 10, 200 << 10]);
        let size = self.dice.within(1..most) as usize;
        let size = size.min(self.left.len());
        let piece = self.left.split_to(size);
        self.sent.fetch_add(size as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty() && (self.framing != Framing::Trailers || self.trailers_sent)
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Announced => SizeHint::with_exact(self.left.len() as u64),
            Framing::Open | Framing::Trailers => SizeHint::new(),
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
        let verdict = ready!(future.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(Some(verdict.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
