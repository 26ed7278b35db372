//! A request's body on its way to an upstream, and how long its response is waited for.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use smig::{BoxError, Incoming};

use super::Failure;
use super::head::check_trailers;
use crate::upstream::Timeouts;

/// How long a server that was asked to say 100 is waited for until the body is sent anyway
/// (RFC 9110 section 10.1.1).
const CONTINUE: Duration = Duration::from_secs(1);

/// Longer than anything lasts, and within what timers can do.
const ENDLESS: Duration = Duration::from_secs(1 << 30);

/// A request's body. Cheap to clone: the clones are one body, which a second attempt may send if the
/// first did not touch it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upload(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    source: Mutex<Source>,
    /// Octets given to an upstream.
    octets: AtomicU64,
    /// Something was given to an upstream.
    touched: AtomicBool,
    /// The client is waited for.
    starved: AtomicBool,
    ended: AtomicBool,
    /// The client's body failed.
    failed: AtomicBool,
}

#[derive(Debug)]
struct Source {
    body: SourceBody,
    gate: Gate,
}

/// Where the octets come from.
enum SourceBody {
    Client(Incoming),
    Tunnel(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError> + Send>>),
}

impl std::fmt::Debug for SourceBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Client",
            Self::Tunnel(_) => "Tunnel",
        })
    }
}

/// Whether the body may be sent yet.
#[derive(Debug)]
enum Gate {
    Open,
    /// The server is to say 100 first.
    Closed(Option<Waker>),
}

impl Upload {
    /// The body that a client sends; closed until [`Self::open_gate`] if the client wants to hear the
    /// server's opinion first.
    pub(crate) fn new(body: Incoming, expects_continue: bool) -> Self {
        if body.is_end_stream() {
            return Self(None);
        }
        let gate = if expects_continue { Gate::Closed(None) } else { Gate::Open };
        Self::of(SourceBody::Client(body), gate)
    }

    /// One direction of a tunnel.
    pub(crate) fn tunnel<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static,
    {
        Self::of(SourceBody::Tunnel(Box::pin(body)), Gate::Open)
    }

    fn of(body: SourceBody, gate: Gate) -> Self {
        Self(Some(Arc::new(Shared {
            source: Mutex::new(Source { body, gate }),
            octets: AtomicU64::new(0),
            touched: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        })))
    }

    /// Whether an attempt has taken something from it: then no other can send it.
    pub(crate) fn is_touched(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.touched.load(Ordering::Relaxed))
    }

    /// Whether the client's side of it failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.failed.load(Ordering::Relaxed))
    }

    /// Lets the body be sent. `true` if it was closed before.
    pub(crate) fn open_gate(&self) -> bool {
        let Some(shared) = &self.0 else { return false };
        let gate = std::mem::replace(&mut shared.source().gate, Gate::Open);
        match gate {
            Gate::Open => false,
            Gate::Closed(waiting) => {
                if let Some(waker) = waiting {
                    waker.wake();
                }
                true
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| matches!(shared.source().gate, Gate::Closed(_)))
    }
}

impl Shared {
    fn source(&self) -> std::sync::MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SourceBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Client(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Tunnel(body) => body.as_mut().poll_frame(cx),
        }
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(shared) = &self.0 else { return Poll::Ready(None) };
        let mut source = shared.source();
        if let Gate::Closed(waiting) = &mut source.gate {
            *waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let polled = source.body.poll_frame(cx);
        drop(source);
        shared.starved.store(polled.is_pending(), Ordering::Relaxed);
        let Poll::Ready(frame) = polled else { return Poll::Pending };
        shared.touched.store(true, Ordering::Relaxed);
        let frame = match frame {
            None => {
                shared.ended.store(true, Ordering::Relaxed);
                return Poll::Ready(None);
            }
            Some(frame) => frame.and_then(|frame| match frame.trailers_ref().map(check_trailers) {
                Some(Err(why)) => Err(why.into()),
                Some(Ok(())) | None => Ok(frame),
            }),
        };
        match &frame {
            Err(_) => shared.failed.store(true, Ordering::Relaxed),
            Ok(frame) => {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                shared.octets.fetch_add(len, Ordering::Relaxed);
            }
        }
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        let Some(shared) = &self.0 else { return true };
        let end = match &shared.source().body {
            SourceBody::Client(body) => body.is_end_stream(),
            SourceBody::Tunnel(body) => body.is_end_stream(),
        };
        if end {
            shared.ended.store(true, Ordering::Relaxed);
        }
        end
    }

    fn size_hint(&self) -> SizeHint {
        let Some(shared) = &self.0 else { return SizeHint::with_exact(0) };
        match &shared.source().body {
            SourceBody::Client(body) => body.size_hint(),
            SourceBody::Tunnel(_) => SizeHint::default(),
        }
    }
}

/// How long a response's head is waited for: as long as the request's body goes on, or the client is
/// the one who is slow, and then a while.
#[derive(Debug)]
pub(crate) struct Patience {
    upload: Upload,
    head: Duration,
    stall: Duration,
    octets: u64,
}

impl Patience {
    pub(crate) fn new(upload: &Upload, limits: &Timeouts) -> Self {
        let stall = limits.stall.unwrap_or(ENDLESS);
        Self { upload: upload.clone(), head: limits.head, stall, octets: 0 }
    }

    /// For what has its own time limits.
    pub(crate) fn endless(upload: &Upload) -> Self {
        Self { upload: upload.clone(), head: ENDLESS, stall: ENDLESS, octets: 0 }
    }

    /// The first time limit.
    pub(crate) fn first(&self) -> Duration {
        match &self.upload.0 {
            None => self.head,
            Some(_) if self.upload.is_closed() => CONTINUE,
            Some(_) => self.head.min(self.stall),
        }
    }

    /// The next time limit when one has run out.
    pub(crate) fn next(&mut self) -> Result<Duration, Failure> {
        let Some(shared) = &self.upload.0 else { return Err(Failure::ResponseTimeout) };
        if self.upload.open_gate() {
            return Ok(self.head.min(self.stall));
        }
        let ended = shared.ended.load(Ordering::Relaxed);
        let starved = shared.starved.load(Ordering::Relaxed) && !ended;
        let octets = shared.octets.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.octets, octets) != octets || starved {
            return Ok(if ended { self.head } else { self.stall });
        }
        Err(if ended { Failure::ResponseTimeout } else { Failure::WriteTimeout })
    }
}
