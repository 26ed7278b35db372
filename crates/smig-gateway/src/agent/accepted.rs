//! A local client's socket, and response bodies for it: what breaks, or is given up in the middle, resets
//! the connection, so that a client that reads to the end does not take a part for the whole.

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
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::gateway::Gateway;
use crate::admin::span::RequestSpan;
use crate::tunnel::Abort;

/// How far a connection is with what its client waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

/// The client has, or is about to get, all that there is for it.
const WHOLE: u8 = 0;
/// A response's body, or a tunnel, is not at its end.
const UNDER_WAY: u8 = 1;
/// It will never be.
const BROKEN: u8 = 2;

impl Progress {
    pub(super) fn begin(&self) {
        self.0.store(UNDER_WAY, Ordering::Relaxed);
    }

    fn break_off(&self) {
        self.0.store(BROKEN, Ordering::Relaxed);
    }

    /// It is at its end, unless it broke.
    pub(super) fn end(&self) {
        // Only who began it ends or breaks it.
        let _ = self.0.compare_exchange(UNDER_WAY, WHOLE, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WHOLE
    }
}

/// A socket that was accepted. Dropped in the middle of something it is reset.
#[derive(Debug)]
pub(super) struct Accepted {
    tcp: TcpStream,
    /// Octets that were read to see what is spoken.
    first: Bytes,
    progress: Progress,
    /// The system has all that was written.
    flushed: bool,
}

impl Accepted {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Self { tcp, first: Bytes::new(), progress: Progress::default(), flushed: true }
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Reads as much as is needed to see whether the client begins with `preface`. What was read is read
    /// again. Silence for `patience`, an end and an error mean that it does not.
    pub(super) async fn begins_with(&mut self, preface: &[u8], patience: Duration) -> bool {
        let mut first = BytesMut::with_capacity(preface.len());
        let until = Instant::now() + patience;
        while preface.starts_with(&first) && first.len() < preface.len() {
            match timeout_at(until, self.tcp.read_buf(&mut first)).await {
                Ok(Ok(1..)) => {}
                _ => break,
            }
        }
        self.first = first.freeze();
        self.first.starts_with(preface)
    }
}

impl Abort for Accepted {
    fn abort(&mut self) {
        self.tcp.abort();
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        if !(self.flushed && self.progress.is_whole()) {
            self.abort();
        }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.tcp).poll_read(cx, buf);
        }
        let len = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.flushed = false;
        Pin::new(&mut self.tcp).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.progress.is_whole() {
            // An end in order is just what must not be said.
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut self.tcp).poll_shutdown(cx))?;
        self.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.flushed = false;
        Pin::new(&mut self.tcp).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}

/// A response's body for a local client.
#[derive(Debug)]
pub(super) enum LocalBody {
    /// An answer of the agent's own.
    Text(Full<Bytes>),
    /// What comes by the session.
    Session { body: Incoming, sending: Sending, gateway: Arc<Gateway>, told: Told },
}

/// Tells a connection of its response's body: hyper lets go of one that it has all of, or that failed.
#[derive(Debug)]
pub(super) struct Sending(Progress);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Tells a span what came, when the body is dropped.
#[derive(Debug)]
pub(super) struct Told {
    span: RequestSpan,
    stream: Option<StreamInfo>,
    octets: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.span.ended(None, self.octets, self.stream.as_ref());
    }
}

impl LocalBody {
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Full::new(text.into()))
    }

    pub(super) fn session(
        body: Incoming,
        progress: Progress,
        gateway: Arc<Gateway>,
        span: RequestSpan,
    ) -> Self {
        let told = Told { span, stream: body.stream_info(), octets: 0 };
        if !body.is_end_stream() {
            progress.begin();
        }
        Self::Session { body, sending: Sending(progress), gateway, told }
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
            Self::Session { body, sending, gateway, told } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if let Some(Ok(frame)) = &frame {
                    told.octets += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                Poll::Ready(frame.map(|frame| {
                    frame.map_err(|error| {
                        sending.0.break_off();
                        told.span.broke("reset");
                        if error.is_transport() {
                            gateway.on_broken();
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
