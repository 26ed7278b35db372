//! A request's body on its way to an upstream, and the timeouts of waiting for the response.

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

/// How long to wait for a 100 (Continue) of the server before the body is sent anyway (RFC 9110 section 10.1.1).
const CONTINUE: Duration = Duration::from_secs(1);

/// Effectively unlimited, and within the range of timers.
const UNBOUNDED: Duration = Duration::from_secs(1 << 30);

/// A request's body. Cheap to clone: the clones are one body, which a retry may send if the first attempt did not
/// touch it.
#[derive(Clone, Debug, Default)]
pub struct Upload(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    source: Mutex<Source>,
    /// Bytes passed to an upstream.
    bytes: AtomicU64,
    /// Something, or the end, was passed to an upstream.
    touched: AtomicBool,
    /// The last poll waited for the client.
    awaiting_client: AtomicBool,
    ended: AtomicBool,
    /// The announced length: over HTTP/1.1 the body is not polled for its end after the last byte.
    announced: Option<u64>,
    /// The client's body failed. Outlives the body.
    failed: Arc<AtomicBool>,
    /// What the caller holds for as long as something of the request may be sent.
    guard: Mutex<Option<Box<dyn Any + Send>>>,
}

/// What may remain of a request while its response is received, and afterwards. Does not keep the body alive.
#[derive(Debug, Default)]
pub struct UploadRest {
    shared: Weak<Shared>,
    /// `None`: there was no body.
    failed: Option<Arc<AtomicBool>>,
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
    pub fn new(body: Incoming, announced: Option<u64>, expects_continue: bool) -> Self {
        if body.is_end_stream() {
            return Self(None);
        }
        let gate = if expects_continue { Gate::Closed(None) } else { Gate::Open };
        Self::of(SourceBody::Client(body), announced, gate)
    }

    /// One direction of a tunnel.
    pub fn tunnel<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = BoxError> + Send + 'static,
    {
        Self::of(SourceBody::Tunnel(Box::pin(body)), None, Gate::Open)
    }

    fn of(body: SourceBody, announced: Option<u64>, gate: Gate) -> Self {
        Self(Some(Arc::new(Shared {
            source: Mutex::new(Source { body, gate }),
            bytes: AtomicU64::new(0),
            touched: AtomicBool::new(false),
            awaiting_client: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            announced,
            failed: Arc::default(),
            guard: Mutex::default(),
        })))
    }

    /// Returns whether an attempt has taken something from the body: then no other can send it.
    pub fn is_touched(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.touched.load(Ordering::Relaxed))
    }

    /// Returns whether the client's side of it failed.
    pub fn has_failed(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.failed.load(Ordering::Relaxed))
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

    /// Returns a handle to what an attempt may leave of the body.
    pub fn rest(&self) -> UploadRest {
        let shared = self.0.as_ref();
        UploadRest {
            shared: shared.map_or_else(Weak::new, Arc::downgrade),
            failed: shared.map(|shared| Arc::clone(&shared.failed)),
        }
    }

    /// Returns whether there never was a body.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn is_closed(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| matches!(shared.source().gate, Gate::Closed(_)))
    }
}

impl UploadRest {
    /// Holds `guard`, which counts the request as active, after its response has ended, until nothing more of the
    /// request is to be sent. Drops it at once if nothing is.
    pub fn hold(&self, guard: impl Send + 'static) {
        if let Some(shared) = self.shared.upgrade() {
            *shared.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(guard));
        }
    }

    /// Returns whether the client's side of the request failed: then the server's response does not reflect on the
    /// server.
    pub fn has_failed(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.load(Ordering::Relaxed))
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
        shared.awaiting_client.store(polled.is_pending(), Ordering::Relaxed);
        let Poll::Ready(frame) = polled else { return Poll::Pending };
        shared.touched.store(true, Ordering::Relaxed);
        let frame = match frame {
            None => {
                shared.ended.store(true, Ordering::Relaxed);
                return Poll::Ready(None);
            }
            Some(frame) => frame.and_then(validate_request_frame),
        };
        match &frame {
            Err(_) => shared.failed.store(true, Ordering::Relaxed),
            Ok(frame) => {
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                shared.bytes.fetch_add(len, Ordering::Relaxed);
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

/// The timeouts for a response's header section. They do not run: nothing that only has these can time out. A
/// [`ResponseClock`] runs, and there is none before the request is sent.
#[derive(Clone, Debug)]
pub struct ResponseDeadline {
    upload: Upload,
    head: Duration,
    stall: Duration,
}

/// The timeouts of a request that is being sent: waits as long as the request's body makes progress or the client is
/// the slow side, and from then on for the configured time.
#[derive(Debug)]
pub struct ResponseClock {
    deadline: ResponseDeadline,
    bytes: u64,
    ended: bool,
    /// Time without progress.
    quiet: Duration,
}

impl ResponseDeadline {
    /// Creates one: `head` from the end of the request to the response's header section, and `stall` while the server
    /// accepts nothing of the request; `None`: no limit.
    pub fn new(upload: &Upload, head: Duration, stall: Option<Duration>) -> Self {
        Self::with_limits(upload, head, stall.unwrap_or(UNBOUNDED))
    }

    /// Creates one without limits, for exchanges that have their own.
    pub fn endless(upload: &Upload) -> Self {
        Self::with_limits(upload, UNBOUNDED, UNBOUNDED)
    }

    fn with_limits(upload: &Upload, head: Duration, stall: Duration) -> Self {
        // Whether another attempt waited for the client does not matter to this one.
        if let Some(shared) = &upload.0 {
            shared.awaiting_client.store(false, Ordering::Relaxed);
        }
        Self { upload: upload.clone(), head, stall }
    }

    /// Returns the interval between checks of the upload. At most the timeout for the header section, whatever the
    /// limit on stalls: the end of the upload is not notified, and that timeout starts there.
    fn window(&self) -> Duration {
        self.head.min(self.stall)
    }

    /// Returns the first timeout of a clock that starts now. Before, it is the interval of checks whether the request was
    /// sent: then no timeout is noticed late.
    pub fn first(&self) -> Duration {
        match &self.upload.0 {
            None => self.head,
            Some(_) if self.upload.is_closed() => CONTINUE,
            Some(_) => self.window(),
        }
    }

    /// Starts to wait for the server: the request has a connection, and over HTTP/2 a stream.
    pub const fn start(self) -> ResponseClock {
        ResponseClock { deadline: self, bytes: 0, ended: false, quiet: Duration::ZERO }
    }
}

impl ResponseClock {
    /// Returns the first timeout.
    pub fn first(&self) -> Duration {
        self.deadline.first()
    }

    /// Checks for progress after a timeout has expired: returns the next timeout, or the failure.
    pub fn check_progress(&mut self) -> Result<Duration, ProxyError> {
        let ResponseDeadline { upload, head, stall } = &self.deadline;
        let Some(shared) = &upload.0 else { return Err(ProxyError::ResponseTimeout) };
        let window = self.deadline.window();
        if upload.open_gate() {
            return Ok(window);
        }
        let bytes = shared.bytes.load(Ordering::Relaxed);
        let starved = shared.awaiting_client.load(Ordering::Relaxed);
        // A poll beyond the announced length waits for the client's END_STREAM.
        let whole = !starved && shared.announced.is_some_and(|announced| bytes >= announced);
        let ended = whole || shared.ended.load(Ordering::Relaxed);
        let starved = starved && !ended;
        let moved = std::mem::replace(&mut self.bytes, bytes) != bytes;
        if moved || starved || std::mem::replace(&mut self.ended, ended) != ended {
            self.quiet = Duration::ZERO;
            self.ended = ended;
            return Ok(if ended { *head } else { window });
        }
        if ended {
            return Err(ProxyError::ResponseTimeout);
        }
        self.quiet += window;
        if bytes == 0 || self.quiet >= *stall {
            return Err(ProxyError::WriteTimeout);
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _};
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    const HEAD: Duration = Duration::from_secs(2);

    #[tokio::test]
    async fn the_time_for_a_head_begins_when_the_upload_ends_however_long_that_took() {
        let pieces = [Ok(Frame::data(Bytes::from_static(b"piece")))];
        let mut upload = Upload::tunnel(StreamBody::new(futures_util::stream::iter(pieces)));
        let mut clock = ResponseDeadline::with_limits(&upload, HEAD, UNBOUNDED).start();
        assert_eq!(clock.first(), HEAD);
        upload.frame().await.unwrap().unwrap();
        // Checked again although stalls are not limited.
        assert_eq!(clock.check_progress().ok(), Some(HEAD));
        assert_eq!(clock.check_progress().ok(), Some(HEAD));
        assert!(upload.frame().await.is_none());
        assert_eq!(clock.check_progress().ok(), Some(HEAD));
        assert!(matches!(clock.check_progress(), Err(ProxyError::ResponseTimeout)));
    }

    #[tokio::test]
    async fn what_was_announced_is_the_end_unless_more_is_asked_for() {
        let pieces = [Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"piece")))];
        let pieces = futures_util::stream::iter(pieces).chain(futures_util::stream::pending());
        let body = SourceBody::Tunnel(Box::pin(StreamBody::new(pieces)));
        let mut upload = Upload::of(body, Some(5), Gate::Open);
        let mut clock = ResponseDeadline::with_limits(&upload, HEAD, UNBOUNDED).start();
        upload.frame().await.unwrap().unwrap();
        // Over HTTP/1.1 the body is complete, and the server has it: the timeout for the header section runs.
        let mut asked_again = ResponseDeadline::with_limits(&upload, HEAD, UNBOUNDED).start();
        assert_eq!(clock.check_progress().ok(), Some(HEAD));
        assert!(matches!(clock.check_progress(), Err(ProxyError::ResponseTimeout)));
        // Over HTTP/2 the end is awaited, which the client does not send.
        assert!(upload.frame().now_or_never().is_none());
        for _ in 0..3 {
            assert_eq!(asked_again.check_progress().ok(), Some(HEAD));
        }
    }

    #[tokio::test]
    async fn another_attempt_begins_without_what_the_first_waited_for() {
        let body = StreamBody::new(futures_util::stream::pending());
        let body = SourceBody::Tunnel(Box::pin(body));
        let mut upload = Upload::of(body, Some(0), Gate::Open);
        assert!(upload.frame().now_or_never().is_none());
        // Over HTTP/1.1 a body of zero bytes is not polled.
        let mut clock = ResponseDeadline::with_limits(&upload, HEAD, UNBOUNDED).start();
        assert_eq!(clock.check_progress().ok(), Some(HEAD));
        assert!(matches!(clock.check_progress(), Err(ProxyError::ResponseTimeout)));
    }

    #[test]
    fn a_request_is_under_way_as_long_as_something_of_it_may_be_sent() {
        let active = Arc::new(());
        let load = || Arc::strong_count(&active) - 1;
        let upload = Upload::tunnel(http_body_util::Empty::new().map_err(|never| match never {}));
        let (sent, rest) = (upload.clone(), upload.rest());
        rest.hold(Arc::clone(&active));
        drop(upload);
        assert_eq!(load(), 1);
        drop(sent);
        assert_eq!(load(), 0);
        // Nothing remained.
        rest.hold(Arc::clone(&active));
        assert_eq!(load(), 0);
    }

    #[tokio::test]
    async fn a_server_that_takes_no_more_has_as_long_as_a_stall_may_take() {
        let pieces = (0..9).map(|_| Ok(Frame::data(Bytes::from_static(b"piece"))));
        let mut upload = Upload::tunnel(StreamBody::new(futures_util::stream::iter(pieces)));
        let mut clock = ResponseDeadline::with_limits(&upload, HEAD, HEAD * 3).start();
        upload.frame().await.unwrap().unwrap();
        for _ in 0..3 {
            assert_eq!(clock.check_progress().ok(), Some(HEAD));
        }
        assert!(matches!(clock.check_progress(), Err(ProxyError::WriteTimeout)));
    }
}
