//! Request bodies: empty, or the content of an upload.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::content::Content;

/// Size of the frames of an upload in bytes.
const FRAME_BYTES: usize = 16 << 10;

/// A body of [`Content`], generated as it is sent.
#[derive(Debug)]
pub(super) struct Upload {
    content: Content,
    remaining_bytes: u64,
}

impl Upload {
    pub(super) const fn new(size: u64) -> Self {
        Self { content: Content::new(), remaining_bytes: size }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.remaining_bytes == 0 {
            return Poll::Ready(None);
        }
        let length = FRAME_BYTES.min(usize::try_from(self.remaining_bytes).unwrap_or(FRAME_BYTES));
        self.remaining_bytes -= length as u64;
        Poll::Ready(Some(Ok(Frame::data(self.content.next_bytes(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining_bytes)
    }
}
