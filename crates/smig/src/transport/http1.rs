//! [`Transport`] as hyper's I/O, for peers that speak HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::Write as _;
use tokio::io::AsyncWrite as _;

use super::{Channel, ReceiveOutcome, Transport};

/// Bytes that one write may seal before the socket has to take them.
const MAX_SEALED_BYTES: usize = 64 << 10;

impl Transport {
    /// Waits for input; returns none when the peer has closed its half.
    pub(crate) fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        while self.input.is_empty() && !self.received_close_notify {
            if ready!(self.poll_receive(cx))? == ReceiveOutcome::End {
                break;
            }
        }
        // A body that is delimited by close must not appear complete after a truncation (RFC 9112 section 9.8).
        if self.input.is_empty() && self.is_truncated() {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(&self.input))
    }

    /// Moves the first `count` bytes of the input into `buf`.
    pub(crate) fn move_input(&mut self, count: usize, buf: &mut ReadBufCursor<'_>) {
        buf.put_slice(self.input.get(..count).unwrap_or_default());
        self.input.advance(count);
        self.release_idle_memory();
    }
}

impl Read for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let count = ready!(this.poll_input(cx))?.len().min(buf.remaining());
        this.move_input(count, &mut buf);
        Poll::Ready(Ok(()))
    }
}

impl Write for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if matches!(this.channel, Channel::Cleartext) {
            return Pin::new(&mut this.tcp).poll_write(cx, buf);
        }
        ready!(this.poll_flush_sealed(cx))?;
        let Channel::Tls(tls) = &mut this.channel else { return Poll::Ready(Ok(0)) };
        let buf = buf.get(..buf.len().min(MAX_SEALED_BYTES)).unwrap_or(buf);
        let written = tls.writer().write(buf)?;
        // If the socket is full now, the records wait for the next write or flush.
        if let Poll::Ready(Err(error)) = this.poll_flush_sealed(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_flush_sealed(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.queue_close_notify();
        ready!(this.poll_flush_sealed(cx))?;
        this.poll_close_write(cx)
    }
}
