//! A response's body on its way to hyper. It reports its state to the connection, if it may be delimited by
//! close.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::conn_state::Http1ConnState;
use super::timeouts::Http1Timeouts;

pin_project! {
    /// Reports to the connection when it begins, fails and ends.
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: B,
        conn_state: Option<Arc<Http1ConnState>>,
        timeouts: Arc<Http1Timeouts>,
    }

    impl<B> PinnedDrop for TrackedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(conn_state) = this.conn_state {
                conn_state.on_body_dropped();
            }
            this.timeouts.on_body_dropped();
        }
    }
}

impl<B: Body> TrackedBody<B> {
    /// Wraps a body; `conn_state` is set if the body may be delimited by close.
    pub(super) fn new(
        body: B,
        conn_state: Option<&Arc<Http1ConnState>>,
        timeouts: &Arc<Http1Timeouts>,
    ) -> Self {
        let conn_state = conn_state.filter(|_| !body.is_end_stream()).cloned();
        if let Some(conn_state) = &conn_state {
            conn_state.on_body_begun();
        }
        Self { body, conn_state, timeouts: Arc::clone(timeouts) }
    }
}

impl<B: Body> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        if let (Some(Err(_)), Some(conn_state)) = (&frame, this.conn_state) {
            conn_state.on_body_failed();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
