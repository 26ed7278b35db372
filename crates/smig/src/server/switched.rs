//! A client's connection that has done with HTTP/1.1 and speaks something else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::upgrade::Upgraded;

use super::line::Line;

/// The connection of a client that has changed from HTTP/1.1 to something else, by CONNECT or Upgrade:
/// what is left of a [`Server`](super::Server)'s request when `hyper::upgrade::on` has given it.
#[derive(Debug)]
pub struct Switched(Line);

impl Switched {
    /// Takes it out, with octets that came behind the request. `None` if it is no connection of a
    /// [`Server`](super::Server).
    #[must_use]
    pub fn of(upgraded: Upgraded) -> Option<(Self, Bytes)> {
        let parts = upgraded.downcast::<Line>().ok()?;
        Some((Self(parts.io), parts.read_buf))
    }

    /// Makes the close that follows a TCP reset: the client sees that something is missing. What is
    /// unsent then is dropped.
    pub fn reset_on_close(&mut self) {
        self.0.reset_on_close();
    }
}

impl Read for Switched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Switched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
