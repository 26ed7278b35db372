//! The interface of a relay to each of its two ends.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;

/// One end of a tunnel. Dropping it before both directions have completed resets it.
pub trait TunnelEndpoint {
    /// Reads the next bytes from the peer; empty at the end of the peer's direction.
    ///
    /// # Errors
    /// The peer reset the tunnel, or the connection to it failed.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>>;

    /// Takes bytes from the front of `data`, which must not be empty: at least one byte when it is ready.
    ///
    /// # Errors
    /// The peer accepts no more data.
    fn poll_write(&mut self, cx: &mut Context<'_>, data: &mut Bytes) -> Poll<io::Result<()>>;

    /// Sends buffered bytes. Called when there is nothing more to write for now.
    ///
    /// # Errors
    /// The peer accepts no more data.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Completes our direction (half-close).
    ///
    /// # Errors
    /// The peer accepts no more data.
    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready when the peer has reset the tunnel, where that is detected without reading.
    fn poll_reset(&mut self, _cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }
}
