//! A local client's socket, and its response bodies. A response or tunnel that fails or is cancelled resets
//! the connection, so that a client that reads to the end does not take a truncated response for a complete
//! one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use smig::{BoxError, Incoming, StreamInfo};
use smig_admin::spans::RequestSpan;
use smig_proxy::tunnel::ResetOnClose;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::uplink::Uplink;

/// Whether a connection's current response or tunnel is complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseState(Arc<AtomicU8>);

/// No response or tunnel is in progress, or it has reached its end.
const COMPLETE: u8 = 0;
/// A response's body, or a tunnel, has not reached its end.
const IN_PROGRESS: u8 = 1;
/// It failed and will not reach its end.
const FAILED: u8 = 2;

impl ResponseState {
    pub(crate) fn begin(&self) {
        self.0.store(IN_PROGRESS, Ordering::Relaxed);
    }

    fn fail(&self) {
        self.0.store(FAILED, Ordering::Relaxed);
    }

    /// Marks it as complete, unless it failed.
    pub(crate) fn end(&self) {
        // It may have failed, or, for a body without content, never have begun.
        let _ =
            self.0.compare_exchange(IN_PROGRESS, COMPLETE, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn is_complete(&self) -> bool {
        self.0.load(Ordering::Relaxed) == COMPLETE
    }
}

/// An accepted socket. If it is dropped before a response or tunnel is complete, it is reset.
#[derive(Debug)]
pub(crate) struct LocalSocket {
    tcp: TcpStream,
    /// Bytes that were read to detect the protocol, and not yet returned.
    first_bytes: Bytes,
    state: ResponseState,
    /// All written bytes were passed to the kernel.
    is_flushed: bool,
}

impl LocalSocket {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp, first_bytes: Bytes::new(), state: ResponseState::default(), is_flushed: true }
    }

    pub(crate) fn state(&self) -> ResponseState {
        self.state.clone()
    }

    /// Reads until it is certain whether the client's first bytes are `preface`. The bytes are buffered and
    /// returned again by the next read. A preface that is incomplete after `timeout`, end of file and errors count as
    /// a mismatch.
    pub(crate) async fn detect_preface(&mut self, preface: &[u8], timeout: Duration) -> bool {
        let mut first_bytes = BytesMut::with_capacity(preface.len());
        let deadline = Instant::now() + timeout;
        while preface.starts_with(&first_bytes) && first_bytes.len() < preface.len() {
            match timeout_at(deadline, self.tcp.read_buf(&mut first_bytes)).await {
                Ok(Ok(1..)) => {}
                _ => break,
            }
        }
        self.first_bytes = first_bytes.freeze();
        self.first_bytes.starts_with(preface)
    }
}

impl ResetOnClose for LocalSocket {
    fn reset_on_close(&mut self) {
        self.tcp.reset_on_close();
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        if !(self.is_flushed && self.state.is_complete()) {
            self.reset_on_close();
        }
    }
}

impl AsyncRead for LocalSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first_bytes.is_empty() {
            return Pin::new(&mut self.tcp).poll_read(cx, buf);
        }
        let len = self.first_bytes.len().min(buf.remaining());
        buf.put_slice(&self.first_bytes.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LocalSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.tcp).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.state.is_complete() {
            // Do not send FIN: the client would take a truncated response for a complete one.
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut self.tcp).poll_shutdown(cx))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_flushed = false;
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

/// A response's body for a local client.
#[derive(Debug)]
pub(crate) enum LocalBody {
    /// A response that the agent generates.
    Text(Full<Bytes>),
    /// A body received over the session.
    Session { body: Incoming, body_guard: BodyGuard, uplink: Arc<Uplink>, span_guard: SpanGuard },
}

/// Marks the connection's response as complete when dropped, unless it failed: hyper drops a body that was read
/// to its end, or that failed.
#[derive(Debug)]
pub(crate) struct BodyGuard(ResponseState);

impl Drop for BodyGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Records the received bytes in the span when the body is dropped.
#[derive(Debug)]
pub(crate) struct SpanGuard {
    span: RequestSpan,
    stream: Option<StreamInfo>,
    received_bytes: u64,
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        self.span.record_end(None, self.received_bytes, self.stream.as_ref());
    }
}

impl LocalBody {
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Full::new(text.into()))
    }

    pub(crate) fn session(
        body: Incoming,
        state: ResponseState,
        uplink: Arc<Uplink>,
        span: RequestSpan,
    ) -> Self {
        let span_guard = SpanGuard { span, stream: body.stream_info(), received_bytes: 0 };
        if !body.is_end_stream() {
            state.begin();
        }
        Self::Session { body, body_guard: BodyGuard(state), uplink, span_guard }
    }
}

impl Body for LocalBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Text(text) => Pin::new(text).poll_frame(cx).map_err(|never| match never {}),
            Self::Session { body, body_guard, uplink, span_guard } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if let Some(Ok(frame)) = &frame {
                    span_guard.received_bytes +=
                        frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                Poll::Ready(frame.map(|frame| {
                    frame.map_err(|error| {
                        body_guard.0.fail();
                        span_guard.span.set_error("reset");
                        if error.is_transport() {
                            uplink.request_check();
                        }
                        error.into()
                    })
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_end_stream(),
            Self::Session { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => text.size_hint(),
            Self::Session { body, .. } => body.size_hint(),
        }
    }
}
