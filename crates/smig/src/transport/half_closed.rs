//! A transport after its own half is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use super::{Transport, scratch};
use crate::limits::OpenPermit;

/// A TCP connection that is kept only so that the peer receives what was sent. Its TLS state and its input
/// are freed; it counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct HalfClosedTransport {
    tcp: TcpStream,
    _permit: Option<OpenPermit>,
}

impl Transport {
    /// Frees all but the socket. This end must have closed its half before.
    pub(crate) fn into_half_closed(self) -> HalfClosedTransport {
        HalfClosedTransport { tcp: self.tcp, _permit: self.permit }
    }
}

impl HalfClosedTransport {
    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Reads once and discards the input. Returns its length in bytes, zero if the peer has closed.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        scratch::with(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut read))?;
            Poll::Ready(Ok(read.filled().len()))
        })
    }
}
