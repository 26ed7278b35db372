//! A local client's socket, and response bodies for it: one that breaks resets the connection, so that a
//! client that reads to the end does not take a part for the whole.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use smig::{BoxError, Incoming, StreamInfo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::gateway::Gateway;
use crate::admin::span::RequestSpan;
use crate::tunnel::Abort;

/// Whether a connection must end with a reset.
#[derive(Clone, Debug, Default)]
pub(super) struct BrokenFlag(Arc<AtomicBool>);

/// A socket that was accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    tcp: TcpStream,
    /// Octets that were read to see what is spoken.
    first: Bytes,
    broken: BrokenFlag,
}

impl Accepted {
    pub(super) fn new(tcp: TcpStream, first: Bytes) -> Self {
        Self { tcp, first, broken: BrokenFlag::default() }
    }

    pub(super) fn broken(&self) -> BrokenFlag {
        self.broken.clone()
    }
}

impl Abort for Accepted {
    fn abort(&mut self) {
        self.tcp.abort();
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        if self.broken.0.load(Ordering::Relaxed) {
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
        Pin::new(&mut self.tcp).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.broken.0.load(Ordering::Relaxed) {
            // An end in order is just what must not be said.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
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
    Session { body: Incoming, broken: BrokenFlag, gateway: Arc<Gateway>, told: Told },
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
        broken: BrokenFlag,
        gateway: Arc<Gateway>,
        span: RequestSpan,
    ) -> Self {
        let told = Told { span, stream: body.stream_info(), octets: 0 };
        Self::Session { body, broken, gateway, told }
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
            Self::Session { body, broken, gateway, told } => {
                let frame = ready!(Pin::new(body).poll_frame(cx));
                if let Some(Ok(frame)) = &frame {
                    told.octets += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                Poll::Ready(frame.map(|frame| {
                    frame.map_err(|error| {
                        broken.0.store(true, Ordering::Relaxed);
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
