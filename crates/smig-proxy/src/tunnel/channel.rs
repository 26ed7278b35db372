//! A streaming body and its writer.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use smig::{BoxError, ErrorCode, Reset};

/// Number of bytes buffered in a body from which on the writer waits; its last chunk may exceed it.
const BUFFER_HIGH_WATERMARK_BYTES: usize = 64 << 10;

/// Creates a writer and the body that sends what it writes. An idle pair holds no buffer.
#[must_use]
pub fn channel() -> (BodySender, ChannelBody) {
    let shared = Arc::new(Shared::default());
    (BodySender(Arc::clone(&shared)), ChannelBody(shared))
}

/// The writing side of a [`ChannelBody`]. If it is dropped before [`BodySender::finish`], the body fails, and its
/// stream is reset.
#[derive(Debug)]
pub struct BodySender(Arc<Shared>);

/// A body of a request or response that a [`BodySender`] writes.
#[derive(Debug)]
pub struct ChannelBody(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Bytes>,
    buffered_bytes: usize,
    writer_state: WriterState,
    /// The body was dropped, with its buffered data.
    is_body_dropped: bool,
    /// The wakers of the writer and of the body.
    wakers: [Option<Waker>; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WriterState {
    #[default]
    Open,
    Finished,
    /// The writer was dropped before the end.
    Dropped,
}

const WRITER: usize = 0;
const BODY: usize = 1;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn register_waker(&mut self, side: usize, cx: &Context<'_>) {
        match self.wakers.get_mut(side) {
            Some(Some(waker)) => waker.clone_from(cx.waker()),
            Some(none) => *none = Some(cx.waker().clone()),
            None => {}
        }
    }
}

/// Wakes one side, after releasing the lock.
fn wake(mut state: MutexGuard<'_, State>, side: usize) {
    let waker = state.wakers.get_mut(side).and_then(Option::take);
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl BodySender {
    /// Ready when the body has room.
    ///
    /// # Errors
    /// The body was dropped: its stream is closed. Or the body has its end.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.is_body_dropped {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.writer_state != WriterState::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.buffered_bytes < BUFFER_HIGH_WATERMARK_BYTES {
            return Poll::Ready(Ok(()));
        }
        state.register_waker(WRITER, cx);
        Poll::Pending
    }

    /// Appends data to the body. Data after the end, or after the body was dropped, is discarded.
    pub fn push(&mut self, data: Bytes) {
        let mut state = self.0.lock();
        if data.is_empty() || state.is_body_dropped || state.writer_state != WriterState::Open {
            return;
        }
        state.buffered_bytes += data.len();
        state.chunks.push_back(data);
        wake(state, BODY);
    }

    /// Completes the body.
    pub fn finish(&mut self) {
        self.end(WriterState::Finished);
    }

    /// Ready when the body was dropped before all of it was sent.
    pub fn poll_dropped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.is_body_dropped
            && (state.writer_state == WriterState::Open || state.buffered_bytes > 0)
        {
            return Poll::Ready(());
        }
        state.register_waker(WRITER, cx);
        Poll::Pending
    }

    fn end(&mut self, writer_state: WriterState) {
        let mut state = self.0.lock();
        if state.writer_state == WriterState::Open {
            state.writer_state = writer_state;
            wake(state, BODY);
        }
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.end(WriterState::Dropped);
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut state = self.0.lock();
        if state.writer_state == WriterState::Dropped {
            // RFC 9113 section 8.5: a TCP connection error is signaled as CONNECT_ERROR.
            return Poll::Ready(Some(Err(Reset(ErrorCode::ConnectError).into())));
        }
        if let Some(data) = state.chunks.pop_front() {
            let was_full = state.buffered_bytes >= BUFFER_HIGH_WATERMARK_BYTES;
            state.buffered_bytes -= data.len();
            if was_full && state.buffered_bytes < BUFFER_HIGH_WATERMARK_BYTES {
                wake(state, WRITER);
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if state.writer_state == WriterState::Finished {
            return Poll::Ready(None);
        }
        state.register_waker(BODY, cx);
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.lock();
        state.chunks.is_empty() && state.writer_state == WriterState::Finished
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for ChannelBody {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_body_dropped = true;
        state.chunks = VecDeque::new();
        wake(state, WRITER);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn frame(body: &mut ChannelBody) -> Poll<Option<Result<Bytes, BoxError>>> {
        let polled = Pin::new(body).poll_frame(&mut cx());
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())))
    }

    #[test]
    fn a_full_body_is_not_ready() {
        let (mut sender, mut body) = channel();
        let chunk = Bytes::from(vec![0; BUFFER_HIGH_WATERMARK_BYTES / 4]);
        let mut pushed_bytes = 0;
        while sender.poll_ready(&mut cx()).is_ready() {
            sender.push(chunk.clone());
            pushed_bytes += chunk.len();
        }
        assert_eq!(pushed_bytes, BUFFER_HIGH_WATERMARK_BYTES);
        assert!(matches!(frame(&mut body), Poll::Ready(Some(Ok(data))) if data == chunk));
        assert!(sender.poll_ready(&mut cx()).is_ready());
    }

    #[test]
    fn the_body_ends_after_its_data() {
        let (mut sender, mut body) = channel();
        assert!(frame(&mut body).is_pending());
        sender.push(Bytes::from_static(b"a"));
        sender.finish();
        drop(sender);
        assert!(!body.is_end_stream());
        assert!(matches!(frame(&mut body), Poll::Ready(Some(Ok(_)))));
        assert!(body.is_end_stream());
        assert!(matches!(frame(&mut body), Poll::Ready(None)));
    }

    #[test]
    fn a_dropped_writer_resets_the_stream() {
        let (mut sender, mut body) = channel();
        sender.push(Bytes::from_static(b"a"));
        drop(sender);
        let Poll::Ready(Some(Err(error))) = frame(&mut body) else { panic!("no error") };
        assert_eq!(error.downcast_ref(), Some(&Reset(ErrorCode::ConnectError)));
    }

    #[test]
    fn a_dropped_body_is_reported_to_the_writer() {
        let (mut sender, body) = channel();
        assert!(sender.poll_dropped(&mut cx()).is_pending());
        drop(body);
        assert!(sender.poll_dropped(&mut cx()).is_ready());
        assert!(matches!(sender.poll_ready(&mut cx()), Poll::Ready(Err(_))));
    }
}
