//! Writing to a file without keeping the packet thread waiting.
//!
//! Items are collected and handed over in chunks to a thread that formats and
//! writes them. Memory grows if the disk is slower than the link, nothing is
//! lost and nothing blocks before the end.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Items handed over at once.
const CHUNK: usize = 4_096;

/// Takes items; the file is complete when this has been dropped.
#[derive(Debug)]
pub(super) struct Spool<T> {
    chunk: Vec<T>,
    size: usize,
    chunks: Option<Sender<Vec<T>>>,
    writer: Option<JoinHandle<()>>,
}

/// How the writing goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome(Arc<Mutex<Option<io::Error>>>);

impl Outcome {
    /// What went wrong, told once.
    pub(super) fn take(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn set(&self, error: io::Error) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }
}

impl<T: Send + 'static> Spool<T> {
    /// A new file that begins with `head`, and to which `format` writes each chunk.
    pub(super) fn create(
        path: &Path,
        head: &[u8],
        mut format: impl FnMut(&[T], &mut Vec<u8>) + Send + 'static,
    ) -> io::Result<(Self, Outcome)> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        };
        let mut file = BufWriter::new(File::create(path).map_err(named)?);
        file.write_all(head).map_err(named)?;
        let (chunks, incoming) = mpsc::channel::<Vec<T>>();
        let outcome = Outcome::default();
        let told = outcome.clone();
        let path = path.to_owned();
        let writer = thread::Builder::new().name("spool".into()).spawn(move || {
            let mut bytes = Vec::new();
            let write = |chunk: Vec<T>| {
                bytes.clear();
                format(&chunk, &mut bytes);
                file.write_all(&bytes)
            };
            let result = incoming.iter().try_for_each(write).and_then(|()| file.flush());
            if let Err(error) = result {
                let text = format!("cannot write {}: {error}", path.display());
                told.set(io::Error::new(error.kind(), text));
            }
        })?;
        let spool =
            Self { chunk: Vec::new(), size: CHUNK, chunks: Some(chunks), writer: Some(writer) };
        Ok((spool, outcome))
    }

    /// Appends one item.
    pub(super) fn push(&mut self, item: T) {
        self.chunk.push(item);
        self.pass_on_if_full();
    }

    /// Appends several items, which then stay together.
    pub(super) fn extend(&mut self, items: impl IntoIterator<Item = T>) {
        self.chunk.extend(items);
        self.pass_on_if_full();
    }

    /// Sets how many items are handed over at once.
    pub(super) const fn with_chunks_of(mut self, items: usize) -> Self {
        self.size = items;
        self
    }

    fn pass_on_if_full(&mut self) {
        if self.chunk.len() >= self.size {
            self.pass_on();
        }
    }

    fn pass_on(&mut self) {
        let empty = Vec::with_capacity(self.chunk.len());
        let chunk = std::mem::replace(&mut self.chunk, empty);
        if let Some(chunks) = &self.chunks {
            // The writer has ended if the disk is full; it has told so.
            let _ = chunks.send(chunk);
        }
    }
}

impl<T> Drop for Spool<T> {
    fn drop(&mut self) {
        if let Some(chunks) = self.chunks.take() {
            let _ = chunks.send(std::mem::take(&mut self.chunk));
        }
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
