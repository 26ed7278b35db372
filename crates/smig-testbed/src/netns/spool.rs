//! Writes to a file without blocking the packet thread.
//!
//! Items are buffered and sent in chunks to a thread that formats and writes
//! them. If the disk is slower than the link, memory grows; no item is lost, and
//! only `drop` waits for the disk.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Items per chunk.
const CHUNK_ITEMS: usize = 4_096;

/// Writes items to a file, which is complete once this is dropped.
#[derive(Debug)]
pub(super) struct Spool<T> {
    chunk: Vec<T>,
    chunk_items: usize,
    chunk_tx: Option<Sender<Vec<T>>>,
    writer: Option<JoinHandle<()>>,
}

/// The writer's error, if there is one.
#[derive(Debug, Clone, Default)]
pub(super) struct WriterResult(Arc<Mutex<Option<io::Error>>>);

impl WriterResult {
    /// Returns the error of the writer, once.
    pub(super) fn take(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn set(&self, error: io::Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

impl<T: Send + 'static> Spool<T> {
    /// Creates a file that begins with `header`. `format` encodes each chunk.
    pub(super) fn create(
        path: &Path,
        header: &[u8],
        mut format: impl FnMut(&[T], &mut Vec<u8>) + Send + 'static,
    ) -> io::Result<(Self, WriterResult)> {
        let with_path = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        };
        let mut file = BufWriter::new(File::create(path).map_err(with_path)?);
        file.write_all(header).map_err(with_path)?;
        let (chunk_tx, chunk_rx) = mpsc::channel::<Vec<T>>();
        let outcome = WriterResult::default();
        let writer_result = outcome.clone();
        let path = path.to_owned();
        let writer = thread::Builder::new().name("spool".into()).spawn(move || {
            let mut bytes = Vec::new();
            let write = |chunk: Vec<T>| {
                bytes.clear();
                format(&chunk, &mut bytes);
                file.write_all(&bytes)
            };
            let result = chunk_rx.iter().try_for_each(write).and_then(|()| file.flush());
            if let Err(error) = result {
                let text = format!("cannot write {}: {error}", path.display());
                writer_result.set(io::Error::new(error.kind(), text));
            }
        })?;
        let spool = Self {
            chunk: Vec::new(),
            chunk_items: CHUNK_ITEMS,
            chunk_tx: Some(chunk_tx),
            writer: Some(writer),
        };
        Ok((spool, outcome))
    }

    /// Appends several items to one chunk.
    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        self.chunk.extend(items);
        if self.chunk.len() >= self.chunk_items {
            self.flush_chunk();
        }
    }

    /// Sets the number of items per chunk.
    pub(super) const fn with_chunks_of(mut self, items: usize) -> Self {
        self.chunk_items = items;
        self
    }

    fn flush_chunk(&mut self) {
        let empty = Vec::with_capacity(self.chunk.len());
        let chunk = std::mem::replace(&mut self.chunk, empty);
        if let Some(chunks) = &self.chunk_tx {
            // Fails if the writer has ended after an error, which is in `WriterResult`.
            let _ = chunks.send(chunk);
        }
    }
}

impl<T> Drop for Spool<T> {
    fn drop(&mut self) {
        if let Some(chunks) = self.chunk_tx.take() {
            let _ = chunks.send(std::mem::take(&mut self.chunk));
        }
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
