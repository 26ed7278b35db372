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

/// A file that is open for reading, with the version that its content is checked against.
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

    /// Returns whether the file is unchanged since its version was recorded.
    pub(crate) fn is_current(&self) -> bool {
        FileVersion::fstat(&self.fd)
            .is_ok_and(|(current_version, _)| current_version == self.version)
    }

    /// Replaces the recorded version by the file's current one, and returns it.
    pub(crate) fn refresh_version(&mut self) -> Result<FileVersion, Errno> {
        let (version, _) = FileVersion::fstat(&self.fd)?;
        self.version = version;
        Ok(version)
    }

    /// Reads data that is in the page cache; `None` if the read would block, or if the file
    /// system cannot tell.
    pub(crate) fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Result<Option<usize>, Errno> {
        if !self.supports_nowait.load(Ordering::Relaxed) {
            return Ok(None);
        }
        loop {
            let slices = &mut [IoSliceMut::new(buf)];
            match preadv2(&self.fd, slices, offset, ReadWriteFlags::NOWAIT) {
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
        offset: u64,
        slices: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| preadv(&self.fd, slices, offset))
    }

    /// Returns an error if the bytes are not those that were announced.
    fn check_unchanged(&self) -> io::Result<()> {
        let (current_version, _) = FileVersion::fstat(&self.fd)?;
        if current_version.size() < self.version.size() {
            return Err(truncated_error());
        }
        if self.version.is_prefix_of(&current_version) { Ok(()) } else { Err(changed_error()) }
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
    offset: u64,
    end: u64,
    /// The position at which the next check is due.
    next_check_offset: u64,
    last_source: ReadSource,
    /// Chunks read but not yet yielded.
    ready_chunks: VecDeque<Bytes>,
    /// A read on a blocking thread.
    pending_read: Option<Offload<io::Result<Vec<Bytes>>>>,
}

/// How the last bytes were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadSource {
    /// The page cache: one chunk is read on demand.
    PageCache,
    /// On a blocking thread, since the data was not in the page cache, or the file system cannot tell. One read is kept ahead of
    /// the demand.
    BlockingThread,
}

impl Reader {
    pub(crate) fn new(file: Arc<OpenFile>, range: ByteRange) -> Self {
        Self {
            file,
            offset: range.start,
            end: range.end,
            next_check_offset: range.start.saturating_add(CHECK_INTERVAL_BYTES),
            last_source: ReadSource::PageCache,
            ready_chunks: VecDeque::new(),
            pending_read: None,
        }
    }

    /// Returns the next bytes of the range; `None` after the last.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        match ready!(self.poll_inner(cx)) {
            Ok(chunk) => Poll::Ready(chunk.map(Ok)),
            Err(error) => {
                self.offset = self.end;
                self.ready_chunks.clear();
                self.pending_read = None;
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(chunk) = self.ready_chunks.pop_front() {
                self.read_ahead()?;
                return Poll::Ready(Ok(Some(chunk)));
            }
            if let Some(pending) = &mut self.pending_read {
                let chunks = ready!(pending.poll(cx));
                self.pending_read = None;
                for chunk in chunks?? {
                    self.advance(chunk.len())?;
                    self.ready_chunks.push_back(chunk);
                }
                continue;
            }
            if self.offset == self.end {
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
        let idle =
            self.ready_chunks.is_empty() && self.pending_read.is_none() && self.offset < self.end;
        if !idle || self.last_source == ReadSource::PageCache {
            return Ok(());
        }
        match self.read_cached()? {
            Some(chunk) => self.ready_chunks.push_back(chunk),
            None => self.start_blocking_read(),
        }
        Ok(())
    }

    fn read_cached(&mut self) -> io::Result<Option<Bytes>> {
        let mut buffer = Buffer::take(self.remaining());
        let Some(count) = self.file.read_cached(self.offset, buffer.space())? else {
            self.last_source = ReadSource::BlockingThread;
            return Ok(None);
        };
        self.last_source = ReadSource::PageCache;
        let chunk = buffer.into_bytes(count);
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
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        self.pending_read = Some(Offload::start(move || read_blocking(&file, offset, buffers)));
    }

    /// Returns the number of bytes left, saturating at `usize::MAX`.
    fn remaining(&self) -> usize {
        usize::try_from(self.end - self.offset).unwrap_or(usize::MAX)
    }

    fn advance(&mut self, count: usize) -> io::Result<()> {
        if count == 0 {
            return Err(truncated_error());
        }
        self.offset += count as u64;
        if self.offset < self.next_check_offset && self.offset < self.end {
            return Ok(());
        }
        self.next_check_offset = self.offset.saturating_add(CHECK_INTERVAL_BYTES);
        self.file.check_unchanged()
    }
}

/// Runs on a blocking thread. Returns at least one chunk, which is empty at the end of the file.
fn read_blocking(file: &OpenFile, offset: u64, mut buffers: Vec<Buffer>) -> io::Result<Vec<Bytes>> {
    let mut slices: Vec<_> =
        buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer.space())).collect();
    let mut count = file.read_blocking(offset, &mut slices)?;
    let mut chunks = Vec::with_capacity(buffers.len());
    for mut buffer in buffers {
        let len = count.min(buffer.space().len());
        chunks.push(buffer.into_bytes(len));
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
        let (version, _) = FileVersion::fstat(&file).unwrap();
        let open_file = OpenFile::new(file.try_clone().unwrap().into(), version);
        open_file.supports_nowait.store(false, Ordering::Relaxed);
        (file, Arc::new(open_file))
    }

    fn pattern(size: usize) -> Vec<u8> {
        (0..size).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
    }

    async fn next_chunk(reader: &mut Reader) -> Option<io::Result<Bytes>> {
        std::future::poll_fn(|context| reader.poll_chunk(context)).await
    }

    async fn read_to_end(mut reader: Reader) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while let Some(chunk) = next_chunk(&mut reader).await {
            bytes.extend_from_slice(&chunk?);
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn offloaded_reads_return_the_content() {
        let content = pattern(BLOCKING_READ_CHUNKS * CHUNK_BYTES * 2 + 1000);
        let (_file, open_file) = offloaded_file(&content);
        for (start, end) in [(0, 1), (0, CHUNK_BYTES), (5, CHUNK_BYTES * 5 + 7), (0, content.len())]
        {
            let range = ByteRange { start: start as u64, end: end as u64 };
            let bytes = read_to_end(Reader::new(Arc::clone(&open_file), range)).await.unwrap();
            assert!(bytes == content[start..end], "{start} to {end}");
        }
    }

    #[tokio::test]
    async fn at_most_one_read_is_ahead() {
        let content = pattern(BLOCKING_READ_CHUNKS * CHUNK_BYTES * 4);
        let (_file, open_file) = offloaded_file(&content);
        let range = ByteRange { start: 0, end: content.len() as u64 };
        let mut reader = Reader::new(open_file, range);
        let mut yielded_len = 0;
        while let Some(bytes) = next_chunk(&mut reader).await {
            yielded_len += bytes.unwrap().len();
            let buffered: usize = reader.ready_chunks.iter().map(Bytes::len).sum();
            assert!(buffered < BLOCKING_READ_CHUNKS * CHUNK_BYTES);
            let ahead = reader.pending_read.is_some();
            // The last chunk of a read has been yielded, so the next read is in progress.
            assert_eq!(ahead, buffered == 0 && yielded_len < content.len(), "{yielded_len}");
        }
        assert_eq!(yielded_len, content.len());
    }

    #[tokio::test]
    async fn truncation_during_a_read_is_an_error() {
        let (file, open_file) = offloaded_file(&pattern(CHUNK_BYTES * 20));
        let range = ByteRange { start: 0, end: CHUNK_BYTES as u64 * 20 };
        let mut reader = Reader::new(open_file, range);
        assert_eq!(next_chunk(&mut reader).await.unwrap().unwrap().len(), CHUNK_BYTES);
        file.set_len(CHUNK_BYTES as u64).unwrap();
        assert_eq!(read_to_end(reader).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn without_a_runtime_reads_block() {
        let content = pattern(CHUNK_BYTES * 9);
        let (_file, open_file) = offloaded_file(&content);
        let mut reader = Reader::new(open_file, ByteRange { start: 0, end: content.len() as u64 });
        let mut bytes = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(chunk)) = reader.poll_chunk(&mut context) {
            bytes.extend_from_slice(&chunk.unwrap());
        }
        assert!(bytes == content);
    }
}
