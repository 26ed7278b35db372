//! The response body of this crate.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use smig::{BoxError, ErrorCode, Incoming, Reset, throttled};
use smig_proxy::conn_pool::Lease;
use smig_proxy::grpc::MessageTracker;
use smig_proxy::head::validate_response_frame;
use smig_proxy::is_cancel;
use smig_proxy::upload::WeakUpload;
use tokio::time::{Instant, Sleep};

use crate::upstream::ActiveRequest;

/// A response's body: from an upstream, forwarded as the client reads it, or the gateway's own. A failure of an
/// upstream's body is an error, which resets the stream or closes the connection, and never a regular end.
#[derive(Default)]
pub struct Body(BodyKind);

#[derive(Default)]
enum BodyKind {
    #[default]
    Empty,
    Text(Bytes),
    Http1(Http1Body),
    Http2(Http2Body),
    Boxed(Pin<Box<dyn http_body::Body<Data = Bytes, Error = BoxError>>>),
}

/// A body received over HTTP/1.1, and its connection.
struct Http1Body {
    incoming: hyper::body::Incoming,
    /// `None` once the connection is checked in, or was closed after a failure.
    lease: Option<Lease>,
    active_request: ActiveRequest,
    /// What may remain of the request.
    weak_upload: WeakUpload,
    /// `None`: it may idle without limit.
    idle_timeout: Option<Duration>,
    /// The last poll was pending: the timeout is running.
    is_waiting: bool,
}

/// A body received by the HTTP/2 client.
struct Http2Body {
    incoming: Incoming,
    /// `None` only while being dropped.
    active_request: Option<ActiveRequest>,
    /// What may remain of the request, even after the response has ended.
    weak_upload: WeakUpload,
    /// `None`: it may idle without limit.
    idle_timeout: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
    /// The messages, if it is a gRPC call's.
    messages: Option<MessageTracker>,
}

/// The upstream sent nothing for too long.
#[derive(Debug, thiserror::Error)]
#[error("the upstream sent nothing for {} s", .0.as_secs_f32())]
struct StalledError(Duration);

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            BodyKind::Empty => "Body(empty)",
            BodyKind::Text(_) => "Body(text)",
            BodyKind::Http1(_) => "Body(HTTP/1.1)",
            BodyKind::Http2(_) => "Body(HTTP/2)",
            BodyKind::Boxed(_) => "Body(other)",
        })
    }
}

impl Body {
    /// An empty body.
    #[must_use]
    pub const fn empty() -> Self {
        Self(BodyKind::Empty)
    }

    /// A body with this text.
    #[must_use]
    pub fn text(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        Self(if text.is_empty() { BodyKind::Empty } else { BodyKind::Text(text) })
    }

    /// Returns the text, if the gateway generated it.
    pub(crate) fn generated_text(&self) -> Option<&Bytes> {
        match &self.0 {
            BodyKind::Text(text) => Some(text),
            BodyKind::Empty | BodyKind::Http1(_) | BodyKind::Http2(_) | BodyKind::Boxed(_) => None,
        }
    }

    /// Wraps another body in a box.
    #[must_use]
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = BoxError> + 'static,
    {
        Self(BodyKind::Boxed(Box::pin(body)))
    }

    pub(super) fn http1(
        incoming: hyper::body::Incoming,
        lease: Lease,
        active_request: ActiveRequest,
        weak_upload: WeakUpload,
        idle_timeout: Option<Duration>,
    ) -> Self {
        let lease = Some(lease);
        Self(BodyKind::Http1(Http1Body {
            incoming,
            lease,
            active_request,
            weak_upload,
            idle_timeout,
            is_waiting: false,
        }))
    }

    pub(super) fn http2(
        incoming: Incoming,
        active_request: ActiveRequest,
        weak_upload: WeakUpload,
        idle_timeout: Option<Duration>,
    ) -> Self {
        let (active_request, timer, is_waiting) = (Some(active_request), None, false);
        Self(BodyKind::Http2(Http2Body {
            incoming,
            active_request,
            weak_upload,
            idle_timeout,
            timer,
            is_waiting,
            messages: None,
        }))
    }

    /// Makes the size hint of a gRPC call's body at least what is left of its current message, so that a large
    /// one is bulk from its beginning.
    pub(super) fn with_grpc_messages(mut self) -> Self {
        if let BodyKind::Http2(body) = &mut self.0 {
            body.messages = Some(MessageTracker::default());
        }
        self
    }
}

type PollFrame = Poll<Option<Result<Frame<Bytes>, BoxError>>>;

impl Http1Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PollFrame {
        let Some(connection) = self.lease.as_mut().and_then(Lease::get) else {
            return Pin::new(&mut self.incoming).poll_frame(cx).map_err(Into::into);
        };
        let incoming = &mut self.incoming;
        match connection.drive(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx)) {
            Poll::Ready(Some(Ok(frame))) => {
                self.is_waiting = false;
                let frame = match validate_response_frame(frame) {
                    Ok(frame) => frame,
                    Err(why) => return self.fail(why),
                };
                if self.incoming.is_end_stream() {
                    self.release();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.release();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => self.fail(error.into()),
            Poll::Pending => {
                let Some(idle_timeout) = self.idle_timeout else { return Poll::Pending };
                let starts_waiting = !std::mem::replace(&mut self.is_waiting, true);
                match connection.poll_timeout(cx, idle_timeout, starts_waiting) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => self.fail(StalledError(idle_timeout).into()),
                }
            }
        }
    }

    /// Checks in the connection for the next request.
    fn release(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.release();
        }
    }

    fn fail(&mut self, error: BoxError) -> PollFrame {
        self.lease = None;
        record_body_failure(&self.active_request, &self.weak_upload, &error);
        Poll::Ready(Some(Err(error)))
    }
}

impl Http2Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PollFrame {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            let Some(idle_timeout) = self.idle_timeout else { return Poll::Pending };
            let deadline = Instant::now() + idle_timeout;
            let starts_waiting = !std::mem::replace(&mut self.is_waiting, true);
            let timer = match &mut self.timer {
                Some(timer) => timer,
                none => none.insert(Box::pin(tokio::time::sleep_until(deadline))),
            };
            if starts_waiting {
                timer.as_mut().reset(deadline);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.incoming = Incoming::empty();
            let error = StalledError(idle_timeout).into();
            self.record_failure(&error);
            return Poll::Ready(Some(Err(error)));
        };
        self.is_waiting = false;
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(BoxError::from).and_then(validate_response_frame);
            if let (Some(messages), Ok(frame)) = (&mut self.messages, &frame)
                && let Some(data) = frame.data_ref()
            {
                messages.on_data(data);
            }
            frame.map_err(|error| {
                self.record_failure(&error);
                downstream_error(error)
            })
        }))
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.incoming.size_hint();
        if let Some(messages) = &self.messages
            && hint.upper().is_none()
        {
            hint.set_lower(messages.remaining_bytes().into());
        }
        hint
    }

    fn record_failure(&self, error: &BoxError) {
        if let Some(active_request) = &self.active_request {
            record_body_failure(active_request, &self.weak_upload, error);
        }
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        if let Some(active_request) = self.active_request.take() {
            self.weak_upload.hold_guard(active_request);
        }
    }
}

/// Records that a response's body failed; the client receives a reset. If the request's body failed before, the
/// exchange was aborted for that reason, and the server is not at fault.
fn record_body_failure(active_request: &ActiveRequest, weak_upload: &WeakUpload, error: &BoxError) {
    if weak_upload.has_failed() {
        tracing::debug!(%error, "response aborted with its request");
        return;
    }
    if error.downcast_ref().is_some_and(is_cancel) {
        tracing::debug!(%error, "the server cancelled a response");
        return;
    }
    if let Some(server) = active_request.server() {
        throttled!(warn, "broken response", server = %server.url(), %error, "response aborted");
        server.on_failure();
    }
}

/// Returns the error for the client: the server's CANCEL stays CANCEL, which gRPC clients
/// distinguish from a failure.
fn downstream_error(error: BoxError) -> BoxError {
    match error.downcast_ref().is_some_and(is_cancel) {
        true => Reset(ErrorCode::Cancel).into(),
        false => error,
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PollFrame {
        match &mut self.0 {
            BodyKind::Empty => Poll::Ready(None),
            BodyKind::Text(text) => {
                let text = std::mem::take(text);
                self.0 = BodyKind::Empty;
                Poll::Ready(Some(Ok(Frame::data(text))))
            }
            BodyKind::Http1(body) => body.poll_frame(cx),
            BodyKind::Http2(body) => body.poll_frame(cx),
            BodyKind::Boxed(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Empty => true,
            BodyKind::Text(_) => false,
            BodyKind::Http1(body) => body.incoming.is_end_stream(),
            BodyKind::Http2(body) => body.incoming.is_end_stream(),
            BodyKind::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Empty => SizeHint::with_exact(0),
            BodyKind::Text(text) => SizeHint::with_exact(text.len() as u64),
            BodyKind::Http1(body) => body.incoming.size_hint(),
            BodyKind::Http2(body) => body.size_hint(),
            BodyKind::Boxed(body) => body.size_hint(),
        }
    }
}
