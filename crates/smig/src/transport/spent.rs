//! What is left of a transport whose own half has ended.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use super::{Transport, scratch};
use crate::connection::Permit;

/// A TCP connection of which nothing is wanted any more but that its peer takes what was sent. TLS and what was
/// read are gone; it counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Spent {
    tcp: TcpStream,
    _permit: Option<Permit>,
}

impl Transport {
    /// Lets go of everything but the socket. Our half must have ended before.
    pub(crate) fn spend(self) -> Spent {
        Spent { tcp: self.tcp, _permit: self.permit }
    }
}

impl Spent {
    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Reads once and throws it away: how many bytes, none at the peer's end.
    pub(crate) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        scratch::with(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut read))?;
            Poll::Ready(Ok(read.filled().len()))
        })
    }
}
