//! What a relay asks of each of its two sides.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;

/// One side of a tunnel. Dropping it before both directions have ended in order resets it.
pub trait End {
    /// The next octets from the peer; none at all when the peer has ended its direction.
    ///
    /// # Errors
    /// The peer reset the tunnel, or the way to it broke.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>>;

    /// Takes octets from the front of `data`, which is not empty: at least one.
    ///
    /// # Errors
    /// The peer takes no more.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &mut Bytes) -> Poll<io::Result<()>>;

    /// Sends what was taken and is held back. Called when there is nothing more to write for now.
    ///
    /// # Errors
    /// The peer takes no more.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ends our direction in order.
    ///
    /// # Errors
    /// The peer takes no more.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready when the peer has reset the tunnel, where that shows without reading from it.
    fn poll_gone(&mut self, _cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }
}
