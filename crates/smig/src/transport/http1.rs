//! A transport as hyper's I/O, for peers that speak HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::Write as _;
use tokio::io::AsyncWrite as _;

use super::{Channel, Received, Transport};

/// Octets that may be sealed and unsent before a writer has to wait.
const MAX_SEALED: usize = 64 << 10;

impl Read for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.input.is_empty() && !this.said_goodbye {
            if ready!(this.poll_receive(cx))? == Received::End {
                break;
            }
        }
        if this.input.is_empty() {
            // What goes on until the connection's end must not seem whole (RFC 9112 section 9.8).
            return Poll::Ready(match this.is_cut() {
                true => Err(io::ErrorKind::UnexpectedEof.into()),
                false => Ok(()),
            });
        }
        let take = this.input.len().min(buf.remaining());
        buf.put_slice(this.input.get(..take).unwrap_or_default());
        this.input.advance(take);
        this.release_idle_memory();
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
        if matches!(this.channel, Channel::Clear) {
            return Pin::new(&mut this.tcp).poll_write(cx, buf);
        }
        ready!(this.poll_sealed(cx))?;
        let Channel::Tls(tls) = &mut this.channel else { return Poll::Ready(Ok(0)) };
        let buf = buf.get(..buf.len().min(MAX_SEALED)).unwrap_or(buf);
        let written = tls.writer().write(buf)?;
        // The records wait for the next write or flush if the socket is full now.
        if let Poll::Ready(Err(error)) = this.poll_sealed(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_sealed(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.queue_close();
        ready!(this.poll_sealed(cx))?;
        this.poll_close_write(cx)
    }
}
