//! A request's body, forwarded to an upstream, and the timeouts of waiting for the response.

use std::any::Any;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use smig::{BoxError, Incoming};

use crate::ProxyError;
use crate::head::validate_request_frame;

/// How long to wait for a 100 (Continue) of the server before the body is sent anyway (RFC 9110
/// section 10.1.1).
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// Effectively unlimited, and within the range of timers.
const UNBOUNDED_TIMEOUT: Duration = Duration::from_secs(1 << 30);

/// A request's body. Cheap to clone: the clones share one body, which a retry may send if the first
/// attempt has read nothing of it.
#[derive(Clone, Debug, Default)]
pub struct Upload(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    source: Mutex<Source>,
    /// Bytes passed to an upstream.
    forwarded_bytes: AtomicU64,
    /// Data, trailers or the end were passed to an upstream.
    is_touched: AtomicBool,
    /// The last poll waited for the client.
    is_awaiting_client: AtomicBool,
    has_ended: AtomicBool,
    /// The announced length: over HTTP/1.1 the body is not polled for its end after the last byte.
    announced_length: Option<u64>,
    /// The client's body failed. Outlives the body.
    has_failed: Arc<AtomicBool>,
    /// Dropped when nothing more of the request may be sent.
    guard: Mutex<Option<Box<dyn Any + Send>>>,
}

/// A weak reference to a request's body, which may still be sent while the response is received.
#[derive(Debug, Default)]
pub struct WeakUpload {
    shared: Weak<Shared>,
    /// `None`: there was no body.
    has_failed: Option<Arc<AtomicBool>>,
}

#[derive(Debug)]
struct Source {
    body: SourceBody,
    gate: Gate,
}

/// The source of the bytes.
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

/// Whether the body may be sent.
#[derive(Debug)]
enum Gate {
    Open,
    /// Not before a 100 (Continue) of the server.
    Closed(Option<Waker>),
}

impl Upload {
    /// Wraps the body from a client, with its length if announced. If the client expects 100 (Continue), the gate is
    /// closed until [`Self::open_gate`].
    pub fn new(body: Incoming, announced_length: Option<u64>, expects_continue: bool) -> Self {
        if body.is_end_stream() {
            return Self(None);
        }
        let gate = if expects_continue { Gate::Closed(None) } else { Gate::Open };
        Self::from_source(SourceBody::Client(body), announced_length, gate)
    }

    /// One direction of a tunnel.
    pub fn tunnel<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static,
    {
        Self::from_source(SourceBody::Tunnel(Box::pin(body)), None, Gate::Open)
    }

    fn from_source(body: SourceBody, announced_length: Option<u64>, gate: Gate) -> Self {
        Self(Some(Arc::new(Shared {
            source: Mutex::new(Source { body, gate }),
            forwarded_bytes: AtomicU64::new(0),
            is_touched: AtomicBool::new(false),
            is_awaiting_client: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            announced_length,
            has_failed: Arc::default(),
            guard: Mutex::default(),
        })))
    }

    /// Returns whether an attempt has read from the body: then no other can send it.
    pub fn is_touched(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.is_touched.load(Ordering::Relaxed))
    }

    /// Returns whether the client's side of it failed.
    pub fn has_failed(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.has_failed.load(Ordering::Relaxed))
    }

    /// Allows the body to be sent. Returns whether the gate was closed before.
    pub fn open_gate(&self) -> bool {
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

    /// Returns a weak reference to the body.
    pub fn downgrade(&self) -> WeakUpload {
        let shared = self.0.as_ref();
        WeakUpload {
            shared: shared.map_or_else(Weak::new, Arc::downgrade),
            has_failed: shared.map(|shared| Arc::clone(&shared.has_failed)),
        }
    }

    /// Returns whether there never was a body.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn is_gate_closed(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| matches!(shared.source().gate, Gate::Closed(_)))
    }
}

impl WeakUpload {
    /// Keeps `guard`, which counts the request as active, until nothing more of the request may be
    /// sent, even after its response has ended. Drops it at once if nothing remains.
    pub fn hold_guard(&self, guard: impl Send + 'static) {
        if let Some(shared) = self.shared.upgrade() {
            *shared.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(guard));
        }
    }

    /// Returns whether the client's side of the request failed: then the response does not reflect
    /// on the server.
    pub fn has_failed(&self) -> bool {
        self.has_failed.as_ref().is_some_and(|failed| failed.load(Ordering::Relaxed))
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
        shared.is_awaiting_client.store(polled.is_pending(), Ordering::Relaxed);
        let Poll::Ready(frame) = polled else { return Poll::Pending };
        shared.is_touched.store(true, Ordering::Relaxed);
        let frame = match frame {
            None => {
                shared.has_ended.store(true, Ordering::Relaxed);
                return Poll::Ready(None);
            }
            Some(frame) => frame.and_then(validate_request_frame),
        };
        match &frame {
            Err(_) => shared.has_failed.store(true, Ordering::Relaxed),
            Ok(frame) => {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                shared.forwarded_bytes.fetch_add(len, Ordering::Relaxed);
            }
        }
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        let Some(shared) = &self.0 else { return true };
        let is_end = match &shared.source().body {
            SourceBody::Client(body) => body.is_end_stream(),
            SourceBody::Tunnel(body) => body.is_end_stream(),
        };
        if is_end {
            shared.has_ended.store(true, Ordering::Relaxed);
        }
        is_end
    }

    fn size_hint(&self) -> SizeHint {
        let Some(shared) = &self.0 else { return SizeHint::with_exact(0) };
        match &shared.source().body {
            SourceBody::Client(body) => body.size_hint(),
            SourceBody::Tunnel(_) => SizeHint::default(),
        }
    }
}

/// The timeouts for a response's header section, not started: [`Self::start`] makes a running
/// [`ResponseClock`] of them when the request is sent.
#[derive(Clone, Debug)]
pub struct ResponseTimeouts {
    upload: Upload,
    head_timeout: Duration,
    stall_timeout: Duration,
}

/// The timeouts of a request that is being sent: they are extended while the request's body makes
/// progress or waits for the client, and run from then on.
#[derive(Debug)]
pub struct ResponseClock {
    timeouts: ResponseTimeouts,
    last_bytes: u64,
    had_ended: bool,
    /// Time without progress.
    stalled_for: Duration,
}

impl ResponseTimeouts {
    /// Creates timeouts: `head_timeout` from the end of the request to the response's header
    /// section, and `stall_timeout` while the server accepts nothing more of the request; `None`: no
    /// limit. Until the server has accepted the first byte, the shorter of the two applies.
    pub fn new(upload: &Upload, head_timeout: Duration, stall_timeout: Option<Duration>) -> Self {
        Self::with_limits(upload, head_timeout, stall_timeout.unwrap_or(UNBOUNDED_TIMEOUT))
    }

    /// Creates timeouts without limits, for exchanges that have their own.
    pub fn unlimited(upload: &Upload) -> Self {
        Self::with_limits(upload, UNBOUNDED_TIMEOUT, UNBOUNDED_TIMEOUT)
    }

    fn with_limits(upload: &Upload, head_timeout: Duration, stall_timeout: Duration) -> Self {
        // Whether another attempt waited for the client does not matter to this one.
        if let Some(shared) = &upload.0 {
            shared.is_awaiting_client.store(false, Ordering::Relaxed);
        }
        Self { upload: upload.clone(), head_timeout, stall_timeout }
    }

    /// Returns the interval between checks of the upload: at most the timeout for the header
    /// section, since that starts at the end of the upload, of which there is no notification.
    fn check_interval(&self) -> Duration {
        self.head_timeout.min(self.stall_timeout)
    }

    /// Returns the first timeout of a clock that starts now. Until then, callers check at this
    /// interval whether the request was sent, so that no timeout is noticed late.
    pub fn first_timeout(&self) -> Duration {
        match &self.upload.0 {
            None => self.head_timeout,
            Some(_) if self.upload.is_gate_closed() => CONTINUE_TIMEOUT,
            Some(_) => self.check_interval(),
        }
    }

    /// Starts to wait for the server: the request has a connection, and over HTTP/2 a stream.
    pub const fn start(self) -> ResponseClock {
        ResponseClock {
            timeouts: self,
            last_bytes: 0,
            had_ended: false,
            stalled_for: Duration::ZERO,
        }
    }
}

impl ResponseClock {
    /// Returns the first timeout.
    pub fn first_timeout(&self) -> Duration {
        self.timeouts.first_timeout()
    }

    /// Checks for progress after a timeout has expired: returns the next timeout, or the failure.
    pub fn check_progress(&mut self) -> Result<Duration, ProxyError> {
        let ResponseTimeouts { upload, head_timeout, stall_timeout } = &self.timeouts;
        let Some(shared) = &upload.0 else { return Err(ProxyError::ResponseTimeout) };
        let check_interval = self.timeouts.check_interval();
        if upload.open_gate() {
            return Ok(check_interval);
        }
        let bytes = shared.forwarded_bytes.load(Ordering::Relaxed);
        let awaiting_client = shared.is_awaiting_client.load(Ordering::Relaxed);
        // A poll beyond the announced length waits for the client's END_STREAM.
        let is_complete =
            !awaiting_client && shared.announced_length.is_some_and(|announced| bytes >= announced);
        let has_ended = is_complete || shared.has_ended.load(Ordering::Relaxed);
        let awaiting_client = awaiting_client && !has_ended;
        let has_progressed = std::mem::replace(&mut self.last_bytes, bytes) != bytes;
        if has_progressed
            || awaiting_client
            || std::mem::replace(&mut self.had_ended, has_ended) != has_ended
        {
            self.stalled_for = Duration::ZERO;
            self.had_ended = has_ended;
            return Ok(if has_ended { *head_timeout } else { check_interval });
        }
        if has_ended {
            return Err(ProxyError::ResponseTimeout);
        }
        self.stalled_for += check_interval;
        if bytes == 0 || self.stalled_for >= *stall_timeout {
            return Err(ProxyError::WriteTimeout);
        }
        Ok(check_interval)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

    #[tokio::test]
    async fn the_head_timeout_starts_at_the_end_of_the_upload() {
        let pieces = [Ok(Frame::data(Bytes::from_static(b"piece")))];
        let mut upload = Upload::tunnel(StreamBody::new(futures_util::stream::iter(pieces)));
        let mut clock =
            ResponseTimeouts::with_limits(&upload, HEAD_TIMEOUT, UNBOUNDED_TIMEOUT).start();
        assert_eq!(clock.first_timeout(), HEAD_TIMEOUT);
        upload.frame().await.unwrap().unwrap();
        // Checked again although the stall timeout is unlimited.
        assert_eq!(clock.check_progress().ok(), Some(HEAD_TIMEOUT));
        assert_eq!(clock.check_progress().ok(), Some(HEAD_TIMEOUT));
        assert!(upload.frame().await.is_none());
        assert_eq!(clock.check_progress().ok(), Some(HEAD_TIMEOUT));
        assert!(matches!(clock.check_progress(), Err(ProxyError::ResponseTimeout)));
    }

    #[tokio::test]
    async fn the_announced_length_ends_the_upload_unless_it_is_polled_again() {
        let pieces = [Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"piece")))];
        let pieces = futures_util::stream::iter(pieces).chain(futures_util::stream::pending());
        let body = SourceBody::Tunnel(Box::pin(StreamBody::new(pieces)));
        let mut upload = Upload::from_source(body, Some(5), Gate::Open);
        let mut clock =
            ResponseTimeouts::with_limits(&upload, HEAD_TIMEOUT, UNBOUNDED_TIMEOUT).start();
        upload.frame().await.unwrap().unwrap();
        // Over HTTP/1.1 the body is complete, and the server has it: the timeout for the header section runs.
        let mut polled_clock =
            ResponseTimeouts::with_limits(&upload, HEAD_TIMEOUT, UNBOUNDED_TIMEOUT).start();
        assert_eq!(clock.check_progress().ok(), Some(HEAD_TIMEOUT));
        assert!(matches!(clock.check_progress(), Err(ProxyError::ResponseTimeout)));
        // Over HTTP/2 the body is polled for its end, which the client does not send.
        assert!(upload.frame().now_or_never().is_none());
        for _ in 0..3 {
            assert_eq!(polled_clock.check_progress().ok(), Some(HEAD_TIMEOUT));
        }
    }

    #[tokio::test]
    async fn another_attempt_does_not_inherit_awaiting_client() {
        let body = StreamBody::new(futures_util::stream::pending());
        let body = SourceBody::Tunnel(Box::pin(body));
        let mut upload = Upload::from_source(body, Some(0), Gate::Open);
        assert!(upload.frame().now_or_never().is_none());
        // Over HTTP/1.1 a body of zero bytes is not polled.
        let mut clock =
            ResponseTimeouts::with_limits(&upload, HEAD_TIMEOUT, UNBOUNDED_TIMEOUT).start();
        assert_eq!(clock.check_progress().ok(), Some(HEAD_TIMEOUT));
        assert!(matches!(clock.check_progress(), Err(ProxyError::ResponseTimeout)));
    }

    #[test]
    fn a_guard_is_held_until_the_upload_is_dropped() {
        let guard = Arc::new(());
        let held_guards = || Arc::strong_count(&guard) - 1;
        let upload = Upload::tunnel(http_body_util::Empty::new().map_err(|never| match never {}));
        let (attempt, weak) = (upload.clone(), upload.downgrade());
        weak.hold_guard(Arc::clone(&guard));
        drop(upload);
        assert_eq!(held_guards(), 1);
        drop(attempt);
        assert_eq!(held_guards(), 0);
        // Nothing remained.
        weak.hold_guard(Arc::clone(&guard));
        assert_eq!(held_guards(), 0);
    }

    #[tokio::test]
    async fn a_stalled_upload_fails_after_the_stall_timeout() {
        let pieces = (0..9).map(|_| Ok(Frame::data(Bytes::from_static(b"piece"))));
        let mut upload = Upload::tunnel(StreamBody::new(futures_util::stream::iter(pieces)));
        let mut clock =
            ResponseTimeouts::with_limits(&upload, HEAD_TIMEOUT, HEAD_TIMEOUT * 3).start();
        upload.frame().await.unwrap().unwrap();
        for _ in 0..3 {
            assert_eq!(clock.check_progress().ok(), Some(HEAD_TIMEOUT));
        }
        assert!(matches!(clock.check_progress(), Err(ProxyError::WriteTimeout)));
    }
}
