//! The body that applications read: a request's at the server, a response's at the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use smig_proto::Processed;

use super::body_rest::BodyRest;
use super::http1_recv::Http1RecvProgress;
use super::info::{Segment, StreamInfo};
use super::shared::SharedStream;
use crate::error::{Error, ErrorKind};

/// A body received from the peer. Reading it gives the peer credit to send more; dropping it before
/// its end cancels the stream.
#[derive(Debug, Default)]
pub struct Incoming(BodySource);

#[derive(Debug, Default)]
enum BodySource {
    #[default]
    Empty,
    Stream(StreamGuard),
    /// The rest of the stream's body.
    Rest(Arc<SharedStream>, Box<BodyRest>),
    Http1(Http1Body),
}

/// A body over HTTP/1.1; at a server with the receive progress that it shares with the connection.
#[derive(Debug)]
struct Http1Body {
    body: hyper::body::Incoming,
    progress: Option<Arc<Http1RecvProgress>>,
}

impl Http1Body {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(progress) = &self.progress {
            match &polled {
                Poll::Pending => progress.on_wait(),
                Poll::Ready(Some(Ok(frame))) => {
                    progress.on_data(frame.data_ref().map_or(0, Bytes::len));
                    if self.body.is_end_stream() {
                        progress.on_end();
                    }
                }
                Poll::Ready(None | Some(Err(_))) => progress.on_end(),
            }
        }
        polled
            .map_err(|source| Error::new(ErrorKind::Http1 { source, processed: Processed::Maybe }))
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.on_end();
        }
    }
}

/// Releases the stream on drop.
#[derive(Debug)]
struct StreamGuard(Arc<SharedStream>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Incoming {
    /// Returns an empty body.
    #[must_use]
    pub const fn empty() -> Self {
        Self(BodySource::Empty)
    }

    pub(crate) const fn stream(shared: Arc<SharedStream>) -> Self {
        Self(BodySource::Stream(StreamGuard(shared)))
    }

    pub(crate) const fn http1(body: hyper::body::Incoming) -> Self {
        Self(BodySource::Http1(Http1Body { body, progress: None }))
    }

    /// Like [`http1`](Self::http1), but reports progress to `progress`.
    pub(crate) const fn http1_with_progress(
        body: hyper::body::Incoming,
        progress: Arc<Http1RecvProgress>,
    ) -> Self {
        Self(BodySource::Http1(Http1Body { body, progress: Some(progress) }))
    }

    /// Returns a handle of the stream; `None` if the body is empty or was received over HTTP/1.1.
    #[must_use]
    pub fn stream_info(&self) -> Option<StreamInfo> {
        match &self.0 {
            BodySource::Stream(handle) => Some(StreamInfo::new(Arc::clone(&handle.0))),
            BodySource::Rest(stream, _) => Some(StreamInfo::new(Arc::clone(stream))),
            BodySource::Empty | BodySource::Http1(_) => None,
        }
    }

    /// Returns which bytes have arrived on which connection so far.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        self.stream_info().map(|info| info.segments()).unwrap_or_default()
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let BodySource::Stream(handle) = &mut self.0 {
            let frame = ready!(handle.0.poll_frame(cx));
            let None = frame else { return Poll::Ready(frame) };
            let Some(rest) = handle.0.take_rest() else { return Poll::Ready(None) };
            self.0 = BodySource::Rest(Arc::clone(&handle.0), rest);
        }
        match &mut self.0 {
            BodySource::Empty | BodySource::Stream(_) => Poll::Ready(None),
            BodySource::Rest(_, rest) => rest.poll_frame(cx),
            BodySource::Http1(http1) => http1.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Empty => true,
            BodySource::Stream(handle) => handle.0.is_end(),
            BodySource::Rest(_, rest) => rest.is_end(),
            BodySource::Http1(http1) => http1.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Empty => SizeHint::with_exact(0),
            BodySource::Stream(handle) => {
                handle.0.remaining().map_or_else(SizeHint::new, SizeHint::with_exact)
            }
            BodySource::Rest(_, rest) => SizeHint::with_exact(rest.remaining_bytes()),
            BodySource::Http1(http1) => http1.body.size_hint(),
        }
    }
}
