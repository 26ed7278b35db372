//! Reads a range of an open file, in order and in bounded memory.
//!
//! Owns the choice between reading on the calling thread (data in the page cache) and on a blocking
//! thread (data on the disk), and the check that the file is still the one announced. Never yields
//! fewer or other bytes without an error.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2};

use crate::buffer::{Buffer, CHUNK_BYTES};
use crate::file_version::FileVersion;
use crate::offload::Offload;
use crate::range::ByteRange;

/// Number of chunks that a blocking thread reads at once: enough that the hop to the thread and back
/// (about 20 microseconds) is small compared with the read, and that two such reads, one being sent
/// and one in progress, saturate a disk.
const BLOCKING_READ_CHUNKS: usize = 4;

/// The file is checked for changes after this number of bytes, and after the last one. A check costs
/// about a hundredth of reading this much.
const CHECK_INTERVAL_BYTES: u64 = 1 << 20;

/// A file that is open for reading, with its version when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    fd: OwnedFd,
    version: FileVersion,
    /// Whether this file system supports RWF_NOWAIT. Overlay and network file systems do not.
    supports_nowait: AtomicBool,
}

impl OpenFile {
    pub(crate) fn new(fd: OwnedFd, version: FileVersion) -> Self {
        Self { fd, version, supports_nowait: AtomicBool::new(true) }
    }

    pub(crate) fn version(&self) -> &FileVersion {
        &self.version
    }

    /// Returns whether the file is unchanged since it was opened.
    pub(crate) fn is_current(&self) -> bool {
        FileVersion::of(&self.fd).is_ok_and(|(now, _)| now == self.version)
    }

    /// Replaces the recorded version by the file's current one, and returns it.
    pub(crate) fn refresh_version(&mut self) -> Result<FileVersion, Errno> {
        let (version, _) = FileVersion::of(&self.fd)?;
        self.version = version;
        Ok(version)
    }

    /// Reads data that is in the page cache; `None` if the read would block.
    pub(crate) fn read_cached(&self, at: u64, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        if !self.supports_nowait.load(Ordering::Relaxed) {
            return Ok(None);
        }
        loop {
            let into = &mut [IoSliceMut::new(into)];
            match preadv2(&self.fd, into, at, ReadWriteFlags::NOWAIT) {
                Ok(count) => return Ok(Some(count)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.supports_nowait.store(false, Ordering::Relaxed);
                    return Ok(None);
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Reads, blocking on the disk if necessary.
    pub(crate) fn read_blocking(
        &self,
        at: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| preadv(&self.fd, into, at))
    }

    /// Returns an error if the bytes are not those that were announced.
    fn check_unchanged(&self) -> io::Result<()> {
        let (now, _) = FileVersion::of(&self.fd)?;
        if now.size() < self.version.size() {
            return Err(truncated_error());
        }
        if self.version.is_prefix_of(&now) { Ok(()) } else { Err(changed_error()) }
    }
}

fn truncated_error() -> io::Error {
    let text = "the file was truncated while it was being sent; request it again";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

fn changed_error() -> io::Error {
    io::Error::other("the file was changed while it was being sent; request it again")
}

/// Reads one range of a file.
#[derive(Debug)]
pub(crate) struct Reader {
    file: Arc<OpenFile>,
    /// The next byte to read.
    at: u64,
    end: u64,
    /// The position at which the next check is due.
    check_at: u64,
    cache_state: CacheState,
    /// Chunks read but not yet yielded.
    ready: VecDeque<Bytes>,
    /// A read on a blocking thread.
    pending: Option<Offload<io::Result<Vec<Bytes>>>>,
}

/// Where the last bytes were read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheState {
    /// The page cache: one chunk is read on demand.
    Hit,
    /// The disk: one read is kept ahead of the demand.
    Miss,
}

impl Reader {
    pub(crate) fn new(file: Arc<OpenFile>, range: ByteRange) -> Self {
        Self {
            file,
            at: range.start,
            end: range.end,
            check_at: range.start.saturating_add(CHECK_INTERVAL_BYTES),
            cache_state: CacheState::Hit,
            ready: VecDeque::new(),
            pending: None,
        }
    }

    /// Returns the next bytes of the range; `None` after the last.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match ready!(self.poll_inner(cx)) {
            Ok(chunk) => Poll::Ready(chunk.map(Ok)),
            Err(error) => {
                self.at = self.end;
                self.ready.clear();
                self.pending = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                self.read_ahead()?;
                return Poll::Ready(Ok(Some(chunk)));
            }
            if let Some(pending) = &mut self.pending {
                let chunks = ready!(pending.poll(cx));
                self.pending = None;
                for chunk in chunks?? {
                    self.advance(chunk.len())?;
                    self.ready.push_back(chunk);
                }
                continue;
            }
            if self.at == self.end {
                return Poll::Ready(Ok(None));
            }
            match self.read_cached()? {
                Some(chunk) => return Poll::Ready(Ok(Some(chunk))),
                None => self.start_blocking_read(),
            }
        }
    }

    /// If the disk is the source, starts the next read before the current one is used up.
    fn read_ahead(&mut self) -> io::Result<()> {
        let idle = self.ready.is_empty() && self.pending.is_none() && self.at < self.end;
        if !idle || self.cache_state == CacheState::Hit {
            return Ok(());
        }
        match self.read_cached()? {
            Some(chunk) => self.ready.push_back(chunk),
            None => self.start_blocking_read(),
        }
        Ok(())
    }

    fn read_cached(&mut self) -> io::Result<Option<Bytes>> {
        let mut buffer = Buffer::take(self.remaining());
        let Some(count) = self.file.read_cached(self.at, buffer.space())? else {
            self.cache_state = CacheState::Miss;
            return Ok(None);
        };
        self.cache_state = CacheState::Hit;
        let chunk = buffer.filled(count);
        self.advance(count)?;
        Ok(Some(chunk))
    }

    fn start_blocking_read(&mut self) {
        let mut remaining = self.remaining();
        let mut buffers = Vec::with_capacity(BLOCKING_READ_CHUNKS);
        while remaining > 0 && buffers.len() < BLOCKING_READ_CHUNKS {
            buffers.push(Buffer::take(remaining));
            remaining = remaining.saturating_sub(CHUNK_BYTES);
        }
        let (file, at) = (Arc::clone(&self.file), self.at);
        self.pending = Some(Offload::start(move || read_blocking(&file, at, buffers)));
    }

    /// Returns the number of bytes left, saturating at `usize::MAX`.
    fn remaining(&self) -> usize {
        usize::try_from(self.end - self.at).unwrap_or(usize::MAX)
    }

    fn advance(&mut self, count: usize) -> io::Result<()> {
        if count == 0 {
            return Err(truncated_error());
        }
        self.at += count as u64;
        if self.at < self.check_at && self.at < self.end {
            return Ok(());
        }
        self.check_at = self.at.saturating_add(CHECK_INTERVAL_BYTES);
        self.file.check_unchanged()
    }
}

/// Runs on a blocking thread. Returns at least one chunk, which is empty at the end of the file.
fn read_blocking(file: &OpenFile, at: u64, mut buffers: Vec<Buffer>) -> io::Result<Vec<Bytes>> {
    let mut slices: Vec<_> =
        buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer.space())).collect();
    let mut count = file.read_blocking(at, &mut slices)?;
    let mut chunks = Vec::with_capacity(buffers.len());
    for mut buffer in buffers {
        let len = count.min(buffer.space().len());
        chunks.push(buffer.filled(len));
        count -= len;
        if count == 0 {
            break;
        }
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::task::Waker;

    use super::*;

    /// A file on a file system without RWF_NOWAIT: all reads are offloaded.
    fn offloaded_file(content: &[u8]) -> (File, Arc<OpenFile>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let (version, _) = FileVersion::of(&file).unwrap();
        let open = OpenFile::new(file.try_clone().unwrap().into(), version);
        open.supports_nowait.store(false, Ordering::Relaxed);
        (file, Arc::new(open))
    }

    fn pattern(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
    }

    async fn chunk(reader: &mut Reader) -> Option<io::Result<Bytes>> {
        std::future::poll_fn(|context| reader.poll_chunk(context)).await
    }

    async fn all(mut reader: Reader) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(chunk) = chunk(&mut reader).await {
            bytes.extend_from_slice(&chunk?);
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn offloaded_reads_return_the_content() {
        let content = pattern(BLOCKING_READ_CHUNKS * CHUNK_BYTES * 2 + 1000);
        let (_file, open) = offloaded_file(&content);
        for (start, end) in [(0, 1), (0, CHUNK_BYTES), (5, CHUNK_BYTES * 5 + 7), (0, content.len())]
        {
            let range = ByteRange { start: start as u64, end: end as u64 };
            let bytes = all(Reader::new(Arc::clone(&open), range)).await.unwrap();
            assert!(bytes == content[start..end], "{start} to {end}");
        }
    }

    #[tokio::test]
    async fn at_most_one_read_is_ahead() {
        let content = pattern(BLOCKING_READ_CHUNKS * CHUNK_BYTES * 4);
        let (_file, open) = offloaded_file(&content);
        let range = ByteRange { start: 0, end: content.len() as u64 };
        let mut reader = Reader::new(open, range);
        let mut yielded = 0;
        while let Some(bytes) = chunk(&mut reader).await {
            yielded += bytes.unwrap().len();
            let buffered: usize = reader.ready.iter().map(Bytes::len).sum();
            assert!(buffered < BLOCKING_READ_CHUNKS * CHUNK_BYTES);
            let ahead = reader.pending.is_some();
            // The last chunk of a read has been yielded, so the next read is in progress.
            assert_eq!(ahead, buffered == 0 && yielded < content.len(), "{yielded}");
        }
        assert_eq!(yielded, content.len());
    }

    #[tokio::test]
    async fn truncation_during_a_read_is_an_error() {
        let (file, open) = offloaded_file(&pattern(CHUNK_BYTES * 20));
        let range = ByteRange { start: 0, end: CHUNK_BYTES as u64 * 20 };
        let mut reader = Reader::new(open, range);
        assert_eq!(chunk(&mut reader).await.unwrap().unwrap().len(), CHUNK_BYTES);
        file.set_len(CHUNK_BYTES as u64).unwrap();
        assert_eq!(all(reader).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn without_a_runtime_reads_block() {
        let content = pattern(CHUNK_BYTES * 9);
        let (_file, open) = offloaded_file(&content);
        let mut reader = Reader::new(open, ByteRange { start: 0, end: content.len() as u64 });
        let mut bytes = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(chunk)) = reader.poll_chunk(&mut context) {
            bytes.extend_from_slice(&chunk.unwrap());
        }
        assert!(bytes == content);
    }
}
