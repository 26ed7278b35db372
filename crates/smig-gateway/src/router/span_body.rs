//! A body that holds its request's span until its end; for HTTP/1.1, which has no streams to hold
//! it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body as _, Frame, SizeHint};
use smig::BoxError;
use smig_admin::spans::RequestSpan;

use crate::exchange::Body;

/// Extends the span to the end of the response's body, unless the span lasts as long as the stream.
pub(super) fn extend_span(response: Response<Body>, span: RequestSpan) -> Response<Body> {
    if span.has_stream() || !span.is_enabled() || response.body().is_end_stream() {
        return response;
    }
    response.map(|body| Body::new(SpanBody { body, span, bytes: 0 }))
}

struct SpanBody {
    body: Body,
    span: RequestSpan,
    bytes: u64,
}

impl http_body::Body for SpanBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let polled = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => this.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => this.span.set_error("reset"),
            None => {}
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for SpanBody {
    fn drop(&mut self) {
        self.span.record_end(None, self.bytes, None);
    }
}
