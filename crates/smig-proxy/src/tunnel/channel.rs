//! A streaming body and its writer.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use smig::{BoxError, ErrorCode, Reset};

/// Maximum number of bytes buffered in a body; the writer then waits.
const ROOM: usize = 64 << 10;

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
    buffered: usize,
    writer: Writer,
    /// The body was dropped, with its buffered data.
    is_dropped: bool,
    /// The wakers of the writer and of the body.
    waiting: [Option<Waker>; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Writer {
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
    fn wait(&mut self, who: usize, cx: &Context<'_>) {
        match self.waiting.get_mut(who) {
            Some(Some(waker)) => waker.clone_from(cx.waker()),
            Some(none) => *none = Some(cx.waker().clone()),
            None => {}
        }
    }
}

/// Wakes one side, after releasing the lock.
fn wake(mut state: MutexGuard<'_, State>, who: usize) {
    let waker = state.waiting.get_mut(who).and_then(Option::take);
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl BodySender {
    /// Ready when the body has room.
    ///
    /// # Errors
    /// The body was dropped: its stream is closed.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.is_dropped {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.buffered < ROOM {
            return Poll::Ready(Ok(()));
        }
        state.wait(WRITER, cx);
        Poll::Pending
    }

    /// Appends data to the body. Data after the end, or after the body was dropped, is discarded.
    pub fn push(&mut self, data: Bytes) {
        let mut state = self.0.lock();
        if data.is_empty() || state.is_dropped || state.writer != Writer::Open {
            return;
        }
        state.buffered += data.len();
        state.chunks.push_back(data);
        wake(state, BODY);
    }

    /// Completes the body.
    pub fn finish(&mut self) {
        self.end(Writer::Finished);
    }

    /// Ready when the body was dropped before all of it was sent.
    pub fn poll_dropped(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.is_dropped && (state.writer == Writer::Open || state.buffered > 0) {
            return Poll::Ready(());
        }
        state.wait(WRITER, cx);
        Poll::Pending
    }

    fn end(&mut self, how: Writer) {
        let mut state = self.0.lock();
        if state.writer == Writer::Open {
            state.writer = how;
            wake(state, BODY);
        }
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.end(Writer::Dropped);
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
        if state.writer == Writer::Dropped {
            // RFC 9113 section 8.5: a TCP connection error is signaled as CONNECT_ERROR.
            return Poll::Ready(Some(Err(Reset(ErrorCode::ConnectError).into())));
        }
        if let Some(data) = state.chunks.pop_front() {
            let was_full = state.buffered >= ROOM;
            state.buffered -= data.len();
            if was_full && state.buffered < ROOM {
                wake(state, WRITER);
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if state.writer == Writer::Finished {
            return Poll::Ready(None);
        }
        state.wait(BODY, cx);
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.lock();
        state.chunks.is_empty() && state.writer == Writer::Finished
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for ChannelBody {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_dropped = true;
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
    fn a_body_that_is_not_sent_takes_no_more() {
        let (mut sender, mut body) = channel();
        let piece = Bytes::from(vec![0; ROOM / 4]);
        let mut taken = 0;
        while sender.poll_ready(&mut cx()).is_ready() {
            sender.push(piece.clone());
            taken += piece.len();
        }
        assert_eq!(taken, ROOM);
        assert!(matches!(frame(&mut body), Poll::Ready(Some(Ok(data))) if data == piece));
        assert!(sender.poll_ready(&mut cx()).is_ready());
    }

    #[test]
    fn an_end_comes_behind_the_bytes() {
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
    fn a_writer_that_goes_away_is_no_end() {
        let (mut sender, mut body) = channel();
        sender.push(Bytes::from_static(b"a"));
        drop(sender);
        let Poll::Ready(Some(Err(error))) = frame(&mut body) else { panic!("no error") };
        assert_eq!(error.downcast_ref(), Some(&Reset(ErrorCode::ConnectError)));
    }

    #[test]
    fn a_body_that_goes_away_is_seen() {
        let (mut sender, body) = channel();
        assert!(sender.poll_dropped(&mut cx()).is_pending());
        drop(body);
        assert!(sender.poll_dropped(&mut cx()).is_ready());
        assert!(matches!(sender.poll_ready(&mut cx()), Poll::Ready(Err(_))));
    }
}
