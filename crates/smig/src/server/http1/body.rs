//! A response's body on its way to hyper. It reports its state to the connection, if it may be delimited by
//! close.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::io::Http1Informational;
use super::timeouts::Vigil;

pin_project! {
    /// Reports to the connection when it begins, fails and ends.
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: B,
        line: Option<Arc<Http1Informational>>,
        vigil: Arc<Vigil>,
    }

    impl<B> PinnedDrop for TrackedBody<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(line) = this.line {
                line.end_body();
            }
            this.vigil.on_taken();
        }
    }
}

impl<B: Body> TrackedBody<B> {
    /// Wraps a body; `line` is the connection to report to, if it needs to know.
    pub(super) fn new(body: B, line: Option<&Arc<Http1Informational>>, vigil: &Arc<Vigil>) -> Self {
        let line = line.filter(|_| !body.is_end_stream()).cloned();
        if let Some(line) = &line {
            line.begin_body();
        }
        Self { body, line, vigil: Arc::clone(vigil) }
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
        if let (Some(Err(_)), Some(line)) = (&frame, this.line) {
            line.break_body();
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
