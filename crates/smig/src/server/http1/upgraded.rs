//! A client's connection after its switch from HTTP/1.1 to another protocol.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::upgrade::Upgraded;

use super::io::Http1Io;

/// A client's connection that has switched from HTTP/1.1 to another protocol, by CONNECT or Upgrade: the I/O of a
/// [`Server`](crate::Server)'s request after `hyper::upgrade::on`.
#[derive(Debug)]
pub struct UpgradedIo(Http1Io);

impl UpgradedIo {
    /// Extracts the connection, and the bytes that were read after the request. `None` if it is not a connection
    /// of a [`Server`](crate::Server).
    #[must_use]
    pub fn from_upgraded(upgraded: Upgraded) -> Option<(Self, Bytes)> {
        let parts = upgraded.downcast::<Http1Io>().ok()?;
        Some((Self(parts.io), parts.read_buf))
    }

    /// Makes the next close an RST, so that the client detects a truncation. Unsent bytes are then dropped.
    pub fn reset_on_close(&mut self) {
        self.0.reset_on_close();
    }
}

impl Read for UpgradedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for UpgradedIo {
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
