//! The two bodies of an HTTP stream as one end of a tunnel, or as an asynchronous socket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::Body;
use smig::{BoxError, Incoming};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use super::channel::BodySender;
use super::end::TunnelEndpoint;

/// A body to read and a body to write: the two directions of one HTTP stream.
#[derive(Debug)]
pub struct Stream<B = Incoming> {
    incoming: B,
    /// Data that was received and not yet read.
    unread_data: Bytes,
    sender: BodySender,
}

impl<B> Stream<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// Combines the body received from the peer with the writer of the body sent to it.
    pub const fn new(incoming: B, sender: BodySender) -> Self {
        Self { incoming, unread_data: Bytes::new(), sender }
    }

    /// The body received from the peer.
    pub const fn incoming(&self) -> &B {
        &self.incoming
    }

    /// Fills `unread_data`, which remains empty at the end of the body.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.unread_data.is_empty() {
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => break,
                Some(Err(error)) => {
                    let error = io::Error::new(io::ErrorKind::ConnectionReset, error);
                    return Poll::Ready(Err(error));
                }
                Some(Ok(frame)) => {
                    // A tunnel has no trailers (RFC 9113 section 8.5).
                    if let Ok(data) = frame.into_data() {
                        self.unread_data = data;
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<B> TunnelEndpoint for Stream<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        ready!(self.poll_fill(cx))?;
        Poll::Ready(Ok(std::mem::take(&mut self.unread_data)))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, data: &mut Bytes) -> Poll<io::Result<()>> {
        ready!(self.sender.poll_ready(cx))?;
        self.sender.push(std::mem::take(data));
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_finish(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.finish();
        Poll::Ready(Ok(()))
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.sender.poll_dropped(cx).map(|()| io::ErrorKind::ConnectionReset.into())
    }
}

impl<B> AsyncBufRead for Stream<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_fill(cx))?;
        Poll::Ready(Ok(&this.unread_data))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        let amount = amount.min(self.unread_data.len());
        self.unread_data.advance(amount);
        if self.unread_data.is_empty() {
            self.unread_data = Bytes::new();
        }
    }
}

impl<B> AsyncRead for Stream<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_fill(cx))?;
        let len = self.unread_data.len().min(buf.remaining());
        buf.put_slice(&self.unread_data.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl<B> AsyncWrite for Stream<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.sender.poll_ready(cx))?;
        self.sender.push(Bytes::copy_from_slice(data));
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.finish();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel::channel;
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test]
    async fn nothing_can_be_written_after_a_shutdown() {
        let ((_peer, incoming), (sender, _body)) = (channel(), channel());
        let mut stream = Stream::new(incoming, sender);
        assert_eq!(stream.write(b"a").await.unwrap(), 1);
        stream.shutdown().await.unwrap();
        assert_eq!(stream.write(b"b").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        stream.shutdown().await.unwrap();
    }
}
