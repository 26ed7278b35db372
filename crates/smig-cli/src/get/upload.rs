//! Request bodies: text, a file, or standard input; the latter two are read on a thread of their own.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::exit::{CliError, Exit};

const CHUNK_BYTES: usize = 64 << 10;
/// Chunks read ahead of sending.
const MAX_CHUNKS_AHEAD: usize = 4;

/// Value of `--data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Upload {
    Empty,
    Text(Bytes),
    File(PathBuf),
    Stdin,
}

impl Upload {
    pub(super) fn parse(data: Option<&str>) -> Self {
        match data {
            None => Self::Empty,
            Some("@-") => Self::Stdin,
            Some(data) => match data.strip_prefix('@') {
                Some(path) => Self::File(path.into()),
                None => Self::Text(Bytes::copy_from_slice(data.as_bytes())),
            },
        }
    }

    /// Returns the default Content-Type.
    pub(super) const fn media_type(&self) -> Option<&'static str> {
        match self {
            Self::Empty => None,
            Self::Text(_) => Some("application/x-www-form-urlencoded"),
            Self::File(_) | Self::Stdin => Some("application/octet-stream"),
        }
    }

    /// Returns whether the body can be sent again. A FIFO or a terminal is read once.
    pub(super) fn is_repeatable(&self) -> bool {
        match self {
            Self::Empty | Self::Text(_) => true,
            Self::File(path) => path.metadata().is_ok_and(|metadata| metadata.is_file()),
            Self::Stdin => false,
        }
    }

    /// Returns the body from its beginning.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn body(&self) -> Result<UploadBody, CliError> {
        match self {
            Self::Empty => Ok(UploadBody::from_text(Bytes::new())),
            Self::Text(text) => Ok(UploadBody::from_text(text.clone())),
            Self::File(path) => {
                let fail = |error| {
                    let message = format!("cannot read {}: {error}", path.display());
                    CliError::new(Exit::Read, message)
                };
                let file = File::open(path).map_err(fail)?;
                let metadata = file.metadata().map_err(fail)?;
                let length = metadata.is_file().then_some(metadata.len());
                Ok(UploadBody::from_reader(file, length))
            }
            Self::Stdin => Ok(UploadBody::from_reader(io::stdin(), None)),
        }
    }
}

/// A request body.
#[derive(Debug)]
pub(super) struct UploadBody {
    text: Option<Bytes>,
    chunks: Option<mpsc::Receiver<io::Result<Bytes>>>,
    remaining: Option<u64>,
}

impl UploadBody {
    fn from_text(text: Bytes) -> Self {
        Self { remaining: Some(text.len() as u64), text: Some(text), chunks: None }
    }

    fn from_reader(mut source: impl Read + Send + 'static, length: Option<u64>) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_CHUNKS_AHEAD);
        // The thread ends with the body: after the receiver is dropped it stops at the next chunk.
        std::thread::spawn(move || {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let result = source.read(&mut chunk).map(|read| {
                    chunk.truncate(read);
                    Bytes::from(chunk)
                });
                let is_last = result.as_ref().map_or(true, Bytes::is_empty);
                if sender.blocking_send(result).is_err() || is_last {
                    return;
                }
            }
        });
        Self { text: None, chunks: Some(receiver), remaining: length }
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(text) = self.text.take().filter(|text| !text.is_empty()) {
            self.remaining = Some(0);
            return Poll::Ready(Some(Ok(Frame::data(text))));
        }
        let Some(chunks) = &mut self.chunks else { return Poll::Ready(None) };
        match chunks.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(chunk))) if !chunk.is_empty() => {
                self.remaining = self.remaining.map(|left| left.saturating_sub(chunk.len() as u64));
                Poll::Ready(Some(Ok(Frame::data(chunk))))
            }
            Poll::Ready(Some(Err(error))) => {
                self.chunks = None;
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(_) => {
                self.chunks = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_none() && self.text.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_file_is_sent_completely_with_its_length() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
        io::Write::write_all(&mut file, &content).unwrap();
        let upload = Upload::parse(Some(&format!("@{}", file.path().display())));
        let body = upload.body().unwrap();
        assert_eq!(body.size_hint().exact(), Some(800_000));
        assert!(upload.is_repeatable());
        assert_eq!(body.collect().await.unwrap().to_bytes(), content);
    }

    #[test]
    fn a_fifo_is_not_read_twice() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(!Upload::parse(Some(&format!("@{}", path.display()))).is_repeatable());
    }

    #[tokio::test]
    async fn text_and_empty_bodies_have_their_lengths() {
        let body = Upload::parse(Some("a=b")).body().unwrap();
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(!body.is_end_stream());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "a=b");
        assert!(Upload::parse(None).body().unwrap().is_end_stream());
        assert_eq!(Upload::parse(Some("@-")), Upload::Stdin);
        assert!(Upload::parse(Some("a=b")).is_repeatable());
        let error = Upload::parse(Some("@/no/such/file")).body().unwrap_err();
        assert_eq!(error.exit, Exit::Read);
    }
}
