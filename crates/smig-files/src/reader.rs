//! Reads a span of an open file, in order and in bounded memory.
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

use crate::buffer::{Buffer, CHUNK};
use crate::offload::Offload;
use crate::range::ByteRange;
use crate::stamp::FileVersion;

/// Number of chunks that a blocking thread reads at once: enough that the hop to the thread and back
/// (about 20 microseconds) is small compared with the read, and that two such reads, one being sent
/// and one in progress, saturate a disk.
const COLD_CHUNKS: usize = 4;

/// The file is checked for changes after this number of bytes, and after the last one. A check costs
/// about a hundredth of reading this much.
const CHECK_EVERY: u64 = 1 << 20;

/// A file that is open for reading, with its state when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    fd: OwnedFd,
    stamp: FileVersion,
    /// Whether this file system supports RWF_NOWAIT. Overlay and network file systems
    /// cannot.
    can_tell: AtomicBool,
}

impl OpenFile {
    pub(crate) fn new(fd: OwnedFd, stamp: FileVersion) -> Self {
        Self { fd, stamp, can_tell: AtomicBool::new(true) }
    }

    pub(crate) fn stamp(&self) -> &FileVersion {
        &self.stamp
    }

    /// Returns whether the file is unchanged since it was opened.
    pub(crate) fn is_current(&self) -> bool {
        FileVersion::of(&self.fd).is_ok_and(|(now, _)| now == self.stamp)
    }

    /// Takes the file's current state as the one announced.
    pub(crate) fn restamp(&mut self) -> Result<FileVersion, Errno> {
        let (stamp, _) = FileVersion::of(&self.fd)?;
        self.stamp = stamp;
        Ok(stamp)
    }

    /// Reads data that is in the page cache; `None` if the read would block.
    pub(crate) fn read_now(&self, at: u64, into: &mut [u8]) -> Result<Option<usize>, Errno> {
        if !self.can_tell.load(Ordering::Relaxed) {
            return Ok(None);
        }
        loop {
            let into = &mut [IoSliceMut::new(into)];
            match preadv2(&self.fd, into, at, ReadWriteFlags::NOWAIT) {
                Ok(count) => return Ok(Some(count)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.can_tell.store(false, Ordering::Relaxed);
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
    fn check(&self) -> io::Result<()> {
        let (now, _) = FileVersion::of(&self.fd)?;
        if now.size() < self.stamp.size() {
            return Err(shrank());
        }
        if self.stamp.still_holds(&now) { Ok(()) } else { Err(changed()) }
    }
}

fn shrank() -> io::Error {
    let text = "the file was truncated while it was being sent; request it again";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

fn changed() -> io::Error {
    io::Error::other("the file was changed while it was being sent; request it again")
}

/// Reads one span of a file.
#[derive(Debug)]
pub(crate) struct Reader {
    file: Arc<OpenFile>,
    /// The next byte to read.
    at: u64,
    end: u64,
    /// The position at which the next check is due.
    check_at: u64,
    pace: PageCache,
    /// Chunks read but not yet yielded.
    ready: VecDeque<Bytes>,
    /// A read on a blocking thread.
    pending: Option<Offload<io::Result<Vec<Bytes>>>>,
}

/// The source of the last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageCache {
    /// The page cache: read one chunk on demand.
    Hit,
    /// The disk: keep one read ahead of the demand.
    Miss,
}

impl Reader {
    pub(crate) fn new(file: Arc<OpenFile>, span: ByteRange) -> Self {
        Self {
            file,
            at: span.start,
            end: span.end,
            check_at: span.start.saturating_add(CHECK_EVERY),
            pace: PageCache::Hit,
            ready: VecDeque::new(),
            pending: None,
        }
    }

    /// Returns the next bytes of the span; `None` after the last.
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
            match self.read_now()? {
                Some(chunk) => return Poll::Ready(Ok(Some(chunk))),
                None => self.start_blocking(),
            }
        }
    }

    /// If the disk is the source, starts the next read before the current one is used up.
    fn read_ahead(&mut self) -> io::Result<()> {
        let idle = self.ready.is_empty() && self.pending.is_none() && self.at < self.end;
        if !idle || self.pace == PageCache::Hit {
            return Ok(());
        }
        match self.read_now()? {
            Some(chunk) => self.ready.push_back(chunk),
            None => self.start_blocking(),
        }
        Ok(())
    }

    fn read_now(&mut self) -> io::Result<Option<Bytes>> {
        let mut buffer = Buffer::take(self.left());
        let Some(count) = self.file.read_now(self.at, buffer.space())? else {
            self.pace = PageCache::Miss;
            return Ok(None);
        };
        self.pace = PageCache::Hit;
        let chunk = buffer.filled(count);
        self.advance(count)?;
        Ok(Some(chunk))
    }

    fn start_blocking(&mut self) {
        let mut left = self.left();
        let mut buffers = Vec::with_capacity(COLD_CHUNKS);
        while left > 0 && buffers.len() < COLD_CHUNKS {
            buffers.push(Buffer::take(left));
            left = left.saturating_sub(CHUNK);
        }
        let (file, at) = (Arc::clone(&self.file), self.at);
        self.pending = Some(Offload::start(move || read_blocking(&file, at, buffers)));
    }

    /// Returns the number of bytes left, saturating at `usize::MAX`.
    fn left(&self) -> usize {
        usize::try_from(self.end - self.at).unwrap_or(usize::MAX)
    }

    fn advance(&mut self, count: usize) -> io::Result<()> {
        if count == 0 {
            return Err(shrank());
        }
        self.at += count as u64;
        if self.at < self.check_at && self.at < self.end {
            return Ok(());
        }
        self.check_at = self.at.saturating_add(CHECK_EVERY);
        self.file.check()
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

    /// A file on a file system that cannot report blocking reads: all reads are offloaded.
    fn cold(content: &[u8]) -> (File, Arc<OpenFile>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let (stamp, _) = FileVersion::of(&file).unwrap();
        let open = OpenFile::new(file.try_clone().unwrap().into(), stamp);
        open.can_tell.store(false, Ordering::Relaxed);
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
    async fn from_the_disk() {
        let content = pattern(COLD_CHUNKS * CHUNK * 2 + 1000);
        let (_file, open) = cold(&content);
        for (start, end) in [(0, 1), (0, CHUNK), (5, CHUNK * 5 + 7), (0, content.len())] {
            let span = ByteRange { start: start as u64, end: end as u64 };
            let bytes = all(Reader::new(Arc::clone(&open), span)).await.unwrap();
            assert!(bytes == content[start..end], "{start} to {end}");
        }
    }

    #[tokio::test]
    async fn one_read_is_kept_ahead_and_no_more() {
        let content = pattern(COLD_CHUNKS * CHUNK * 4);
        let (_file, open) = cold(&content);
        let span = ByteRange { start: 0, end: content.len() as u64 };
        let mut reader = Reader::new(open, span);
        let mut given = 0;
        while let Some(bytes) = chunk(&mut reader).await {
            given += bytes.unwrap().len();
            let waiting: usize = reader.ready.iter().map(Bytes::len).sum();
            assert!(waiting < COLD_CHUNKS * CHUNK);
            let ahead = reader.pending.is_some();
            // The last chunk of a read has been yielded, so the next read is in progress.
            assert_eq!(ahead, waiting == 0 && given < content.len(), "{given}");
        }
        assert_eq!(given, content.len());
    }

    #[tokio::test]
    async fn it_shrinks() {
        let (file, open) = cold(&pattern(CHUNK * 20));
        let span = ByteRange { start: 0, end: CHUNK as u64 * 20 };
        let mut reader = Reader::new(open, span);
        assert_eq!(chunk(&mut reader).await.unwrap().unwrap().len(), CHUNK);
        file.set_len(CHUNK as u64).unwrap();
        assert_eq!(all(reader).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn without_a_runtime_it_reads_on_the_spot() {
        let content = pattern(CHUNK * 9);
        let (_file, open) = cold(&content);
        let mut reader = Reader::new(open, ByteRange { start: 0, end: content.len() as u64 });
        let mut bytes = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(chunk)) = reader.poll_chunk(&mut context) {
            bytes.extend_from_slice(&chunk.unwrap());
        }
        assert!(bytes == content);
    }
}
