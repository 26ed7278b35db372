//! The body of a response: memory, a range of a file, or several of both.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use crate::range::ByteRange;
use crate::reader::{OpenFile, Reader};

/// The content of a response.
///
/// Its [`size_hint`](Body::size_hint) is always exact. It yields exactly that many bytes, in data frames
/// of at most 64 KB (content in memory is one frame, or one for each range), or an error: if the file was
/// truncated, was overwritten, or could not be read. After an error the server must abort the
/// response, since its length is not the one announced.
///
/// Polled outside of a tokio runtime it reads on the calling thread and blocks.
pub struct FileBody {
    source: BodySource,
    /// Bytes not yet yielded.
    remaining_bytes: u64,
    shared_headers: Option<Arc<HeaderMap>>,
}

enum BodySource {
    Done,
    Memory(Bytes),
    /// Boxed, since most bodies are small and all are moved.
    Pieces(Box<Pieces>),
}

struct Pieces {
    reader: Option<Reader>,
    queue: VecDeque<Piece>,
}

/// A part of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Memory(Bytes),
    File(Arc<OpenFile>, ByteRange),
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(_, range) => range.len(),
        }
    }
}

impl FileBody {
    fn new(source: BodySource, remaining_bytes: u64) -> Self {
        Self { source, remaining_bytes, shared_headers: None }
    }

    pub(crate) fn with_shared_headers(self, headers: Arc<HeaderMap>) -> Self {
        Self { shared_headers: Some(headers), ..self }
    }

    /// Returns the header fields of the response, if they are not in its head
    /// ([`Files::with_shared_headers`](crate::Files::with_shared_headers)). content-length among them is the length of this
    /// body.
    #[must_use]
    pub fn shared_headers(&self) -> Option<&Arc<HeaderMap>> {
        self.shared_headers.as_ref()
    }

    pub(crate) fn empty() -> Self {
        Self::new(BodySource::Done, 0)
    }

    pub(crate) fn full(bytes: Bytes) -> Self {
        let length = bytes.len() as u64;
        Self::new(BodySource::Memory(bytes), length)
    }

    pub(crate) fn file(file: Arc<OpenFile>, range: ByteRange) -> Self {
        let reader = Some(Reader::new(file, range));
        let pieces = Pieces { reader, queue: VecDeque::new() };
        Self::new(BodySource::Pieces(Box::new(pieces)), range.len())
    }

    pub(crate) fn pieces(queue: VecDeque<Piece>) -> Self {
        let remaining_bytes = queue.iter().map(Piece::len).sum();
        Self::new(BodySource::Pieces(Box::new(Pieces { reader: None, queue })), remaining_bytes)
    }
}

impl Pieces {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            if let Some(reader) = &mut self.reader {
                if let Some(chunk) = ready!(reader.poll_chunk(cx)) {
                    return Poll::Ready(Some(chunk));
                }
                self.reader = None;
            }
            match self.queue.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Memory(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Some(Piece::File(file, range)) => self.reader = Some(Reader::new(file, range)),
            }
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.remaining_bytes == 0 {
            this.source = BodySource::Done;
            return Poll::Ready(None);
        }
        let chunk = match &mut this.source {
            BodySource::Done => None,
            BodySource::Memory(bytes) => Some(Ok(std::mem::take(bytes))),
            BodySource::Pieces(pieces) => ready!(pieces.poll_chunk(cx)),
        };
        let result = chunk.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
        match &result {
            Ok(bytes) => {
                this.remaining_bytes = this.remaining_bytes.saturating_sub(bytes.len() as u64)
            }
            Err(_) => this.remaining_bytes = 0,
        }
        if this.remaining_bytes == 0 {
            // Close the file even if the caller retains the consumed body.
            this.source = BodySource::Done;
        }
        Poll::Ready(Some(result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining_bytes)
    }
}

impl fmt::Debug for FileBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FileBody")
            .field("remaining", &self.remaining_bytes)
            .finish_non_exhaustive()
    }
}
