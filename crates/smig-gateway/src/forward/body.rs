//! What an origin sends, on its way to the client.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use smig::{BoxError, ErrorCode, Reset};

use crate::proxy::head::check_trailers;

/// An origin's response body. One that breaks is a reset, never an end.
#[derive(Debug)]
pub(super) struct OriginBody(pub(super) Incoming);

impl Body for OriginBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "an origin's response broke");
                return Poll::Ready(Some(Err(Reset(ErrorCode::InternalError).into())));
            }
        };
        if let Some(Err(why)) = frame.trailers_ref().map(check_trailers) {
            return Poll::Ready(Some(Err(why.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
