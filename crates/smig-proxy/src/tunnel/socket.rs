//! A socket as one end of a tunnel.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use smig::UpgradedIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::end::TunnelEndpoint;

/// Buffer space that is reserved for a read, bytes.
const READ_BUFFER_BYTES: usize = 64 << 10;
/// Chunks up to this size are copied, so that a short pending one does not hold a whole read buffer.
const MAX_COPIED_BYTES: usize = 4 << 10;

thread_local! {
    // Shared by all sockets of a thread: an idle one holds no buffer.
    static BUFFER: RefCell<BytesMut> = RefCell::default();
}

/// A transport that can close with a reset instead of an orderly end.
pub trait ResetOnClose {
    /// Turns the following close into a reset.
    fn reset_on_close(&mut self);
}

impl ResetOnClose for TcpStream {
    fn reset_on_close(&mut self) {
        // Without it the peer would receive a FIN. The socket may be closed already.
        let _ = socket2::SockRef::from(&*self).set_linger(Some(Duration::ZERO));
    }
}

impl ResetOnClose for UnixStream {
    /// Unix sockets have no reset: the peer reads an end of file.
    fn reset_on_close(&mut self) {}
}

impl ResetOnClose for TokioIo<UpgradedIo> {
    fn reset_on_close(&mut self) {
        self.inner_mut().reset_on_close();
    }
}

/// A connected socket, or another transport with the same interface.
#[derive(Debug)]
pub struct Socket<T: ResetOnClose> {
    io: T,
    /// Bytes that were read before the tunnel started.
    prefix: Bytes,
    received_eof: bool,
    sent_eof: bool,
}

impl<T: ResetOnClose> Socket<T> {
    /// Creates an endpoint from which nothing was read yet.
    pub const fn new(io: T) -> Self {
        Self { io, prefix: Bytes::new(), received_eof: false, sent_eof: false }
    }

    /// Creates an endpoint from which `prefix` was already read.
    pub fn with_prefix(io: T, prefix: Bytes) -> Self {
        // Even when empty it would hold the buffer that the bytes were read into.
        let prefix = if prefix.is_empty() { Bytes::new() } else { prefix };
        Self { io, prefix, received_eof: false, sent_eof: false }
    }

    /// The socket.
    pub const fn get_ref(&self) -> &T {
        &self.io
    }
}

impl Socket<TokioIo<UpgradedIo>> {
    /// The client's end of a tunnel over HTTP/1.1.
    ///
    /// # Errors
    /// `upgraded` is not a connection of a [`smig::Server`].
    pub fn of_client(upgraded: Upgraded) -> io::Result<Self> {
        let (io, prefix) = UpgradedIo::from_upgraded(upgraded).ok_or(io::ErrorKind::Unsupported)?;
        Ok(Self::with_prefix(TokioIo::new(io), prefix))
    }
}

impl<T: ResetOnClose> Drop for Socket<T> {
    fn drop(&mut self) {
        if !(self.received_eof && self.sent_eof) {
            self.io.reset_on_close();
        }
    }
}

impl<T: AsyncRead + AsyncWrite + ResetOnClose + Unpin> TunnelEndpoint for Socket<T> {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        if !self.prefix.is_empty() {
            return Poll::Ready(Ok(std::mem::take(&mut self.prefix)));
        }
        let data = ready!(poll_read_bytes(Pin::new(&mut self.io), cx))?;
        self.received_eof |= data.is_empty();
        Poll::Ready(Ok(data))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &mut Bytes) -> Poll<io::Result<()>> {
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, data))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        data.advance(written.min(data.len()));
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
        self.sent_eof = true;
        Poll::Ready(Ok(()))
    }
}

/// Reads the available bytes; empty at the end.
fn poll_read_bytes<T: AsyncRead>(io: Pin<&mut T>, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    // Taken out of the cell: a nested call on this thread allocates a buffer of its own.
    let mut buffer = BUFFER.take();
    buffer.reserve(READ_BUFFER_BYTES);
    let polled = tokio_util::io::poll_read_buf(io, cx, &mut buffer);
    let data = match polled {
        Poll::Ready(Ok(read)) if read <= MAX_COPIED_BYTES => {
            let data = Bytes::copy_from_slice(&buffer);
            buffer.clear();
            Poll::Ready(Ok(data))
        }
        Poll::Ready(Ok(_)) => Poll::Ready(Ok(buffer.split().freeze())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        Poll::Pending => Poll::Pending,
    };
    BUFFER.replace(buffer);
    data
}
