//! Type-erased request bodies, and what is left of a request that was not sent.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::error::BoxError;
use crate::limits::QueuePermit;

type BoxedBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// A request body.
#[derive(Default)]
pub(crate) struct RequestBody(Option<BoxedBody>);

impl RequestBody {
    pub(crate) fn new<B>(body: B) -> Self
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        Self((!body.is_end_stream()).then(|| Box::pin(ErasedBody { body }) as BoxedBody))
    }

    /// Returns whether the body is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// What a retry needs of a request that was not sent.
#[derive(Debug)]
pub(crate) struct UnsentRequest {
    pub(crate) body: RequestBody,
    /// The queue permit, if the request goes back to the queue.
    pub(crate) permit: Option<QueuePermit>,
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "RequestBody(empty)" } else { "RequestBody" })
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Some(body) => body.as_mut().poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |body| body.size_hint())
    }
}

pin_project! {
    struct ErasedBody<B> {
        #[pin]
        body: B,
    }
}

impl<B> Body for ErasedBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.project().body.poll_frame(cx).map(|frame| {
            frame.map(|frame| {
                frame
                    .map(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
                    .map_err(Into::into)
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
