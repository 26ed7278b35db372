//! The thread that writes an access log: a worker never blocks on a disk, a pipe or a terminal.
//!
//! The buffer is bounded. A line that does not fit is dropped, counted and reported.

use std::fs::File;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use smig::throttled;
use tokio::time::{Instant, sleep};

/// Maximum number of buffered lines.
const MAX_LINES: usize = 4096;
/// Maximum number of buffered bytes.
const MAX_BYTES: usize = 4 << 20;
/// Approximate number of bytes that are taken from the queue at once.
const BATCH_BYTES: usize = 64 << 10;
/// Approximate number of bytes per write. Progress is visible only when a write returns, which for
/// a pipe means that all of it has fit.
const WRITE_BYTES: usize = 4 << 10;
/// At shutdown: if nothing is written for this long, the reader counts as stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// At shutdown: interval between checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The destination of the lines.
#[derive(Debug)]
pub(super) enum Sink {
    Stdout,
    File(File),
}

/// Sends lines to the thread, which ends once this is dropped and all buffered lines are written.
#[derive(Debug)]
pub(super) struct LogWriter {
    /// Unbounded; `usage` bounds its lines and bytes.
    sender: Sender<String>,
    usage: Arc<BufferUsage>,
    stats: Arc<LogStats>,
}

/// Accounts for the buffered lines. The thread holds a reference until they are written.
#[derive(Debug, Default)]
struct BufferUsage {
    lines: AtomicUsize,
    bytes: AtomicUsize,
    /// Bytes written, or dropped because a write failed, so far.
    written_bytes: AtomicU64,
}

impl BufferUsage {
    /// Reserves space for a line; returns whether there was enough.
    fn try_reserve(&self, bytes: usize) -> bool {
        let lines = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let total_bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = lines <= MAX_LINES && total_bytes <= MAX_BYTES;
        if !fits {
            self.release(1, bytes);
        }
        fits
    }

    fn release(&self, lines: usize, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Release: a thread that sees no buffered line also sees all of them written.
        self.lines.fetch_sub(lines, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.lines.load(Ordering::Acquire) == 0
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }
}

/// Statistics of a log and of those that it replaced: dropped lines, and buffered ones.
#[derive(Debug, Default)]
pub(super) struct LogStats {
    dropped_lines: AtomicU64,
    usages: Mutex<Vec<Weak<BufferUsage>>>,
}

impl LogStats {
    pub(super) fn dropped_lines(&self) -> u64 {
        self.dropped_lines.load(Ordering::Relaxed)
    }

    fn record_dropped(&self, lines: u64, why: &str) {
        self.dropped_lines.fetch_add(lines, Ordering::Relaxed);
        throttled!(warn, "dropped lines", times = lines, "access log lines dropped: {why}");
    }

    fn add(&self, usage: &Arc<BufferUsage>) {
        let mut usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        usages.retain(|usage| usage.strong_count() > 0);
        usages.push(Arc::downgrade(usage));
    }

    /// Waits until no line is buffered, for at most `timeout`, and only as long as writes make progress.
    pub(super) async fn wait_until_written(&self, timeout: Duration) {
        let all = self.usages.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut usages: Vec<Arc<BufferUsage>> = all.iter().filter_map(Weak::upgrade).collect();
        let deadline = Instant::now() + timeout;
        let (mut written_bytes, mut last_progress) = (0, Instant::now());
        loop {
            usages.retain(|usage| !usage.is_empty());
            let now = Instant::now();
            let total_written = usages.iter().map(|usage| usage.written_bytes()).sum();
            if total_written != written_bytes {
                (written_bytes, last_progress) = (total_written, now);
            }
            if usages.is_empty() || now >= deadline.min(last_progress + STALL_TIMEOUT) {
                return;
            }
            sleep(CHECK_INTERVAL).await;
        }
    }
}

impl LogWriter {
    /// Starts the thread.
    pub(super) fn start(sink: Sink, stats: Arc<LogStats>) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let usage = Arc::<BufferUsage>::default();
        stats.add(&usage);
        let (thread_usage, thread_stats) = (Arc::clone(&usage), Arc::clone(&stats));
        // Not joined: it may be in a write that never returns.
        thread::Builder::new()
            .name("smig-access-log".to_owned())
            .spawn(move || write_all(&receiver, sink, &thread_usage, &thread_stats))?;
        Ok(Self { sender, usage, stats })
    }

    /// Buffers a line, or drops it if the buffer is full.
    pub(super) fn write(&self, line: String) {
        let len = line.len();
        if !self.usage.try_reserve(len) {
            return self.stats.record_dropped(1, "the log's reader or disk is too slow");
        }
        if self.sender.send(line).is_err() {
            self.usage.release(1, len);
            self.stats.record_dropped(1, "the log's thread has ended");
        }
    }
}

fn write_all(receiver: &Receiver<String>, mut sink: Sink, usage: &BufferUsage, stats: &LogStats) {
    let mut batch = String::new();
    while let Ok(first) = receiver.recv() {
        let mut lines = 0;
        let mut next = Some(first);
        while let Some(line) = next {
            lines += 1;
            batch.push_str(&line);
            next = if batch.len() < BATCH_BYTES { receiver.try_recv().ok() } else { None };
        }
        for piece in split_at_line_ends(&batch) {
            if let Err(error) = sink.write_all(piece.as_bytes()) {
                stats.record_dropped(piece.lines().count() as u64, &error.to_string());
            }
            usage.written_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        usage.release(lines, batch.len());
        batch.clear();
    }
}

/// Splits a batch at line ends, so that lines of two logs to one file do not mix.
fn split_at_line_ends(batch: &str) -> impl Iterator<Item = &str> {
    let mut rest = batch;
    core::iter::from_fn(move || {
        let bytes = rest.as_bytes();
        let last = |part: &[u8]| part.iter().rposition(|&byte| byte == b'\n');
        let end = bytes
            .get(..WRITE_BYTES)
            .map_or(Some(bytes.len()), |part| last(part).map(|at| at + 1))
            .or_else(|| bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1))
            .unwrap_or(bytes.len());
        let (piece, left) = rest.split_at_checked(end)?;
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Sink {
    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut output = io::stdout().lock();
                output.write_all(text)?;
                output.flush()
            }
            Self::File(file) => file.write_all(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A log to a pipe that is not being read yet.
    fn log_to_pipe(stats: &Arc<LogStats>) -> (LogWriter, io::PipeReader) {
        let (reader, pipe) = io::pipe().unwrap();
        let sink = Sink::File(File::from(OwnedFd::from(pipe)));
        (LogWriter::start(sink, Arc::clone(stats)).unwrap(), reader)
    }

    /// Fills the buffer; returns the number of lines that fit.
    fn fill(writer: &LogWriter) -> u64 {
        let (dropped_before, mut lines) = (writer.stats.dropped_lines(), 0);
        while writer.stats.dropped_lines() == dropped_before {
            writer.write("a line of a log that is long enough to fill a pipe\n".to_owned());
            lines += 1;
        }
        lines - 1
    }

    /// Reads `bytes` bytes every `interval_ms` milliseconds until the end; returns the number of lines.
    fn spawn_reader(
        mut pipe: io::PipeReader,
        bytes: usize,
        interval_ms: u64,
    ) -> thread::JoinHandle<u64> {
        thread::spawn(move || {
            let (mut piece, mut lines) = (vec![0; bytes], 0);
            loop {
                match pipe.read(&mut piece).unwrap() {
                    0 => return lines,
                    len => {
                        lines += piece[..len].iter().filter(|&&byte| byte == b'\n').count() as u64
                    }
                }
                thread::sleep(Duration::from_millis(interval_ms));
            }
        })
    }

    #[tokio::test]
    async fn a_full_buffer_is_written_before_shutdown() {
        let stats = Arc::default();
        let (writer, pipe) = log_to_pipe(&stats);
        let lines = fill(&writer);
        let reader = spawn_reader(pipe, 64 << 10, 0);
        stats.wait_until_written(HOUR).await;
        assert!(writer.usage.is_empty());
        drop(writer);
        assert_eq!(reader.join().unwrap(), lines);
    }

    #[tokio::test]
    async fn shutdown_waits_for_a_slow_reader() {
        let stats = Arc::default();
        let (writer, pipe) = log_to_pipe(&stats);
        fill(&writer);
        // 40 KB a second.
        let reader = spawn_reader(pipe, 4 << 10, 100);
        stats.wait_until_written(HOUR).await;
        assert!(writer.usage.is_empty());
        drop(writer);
        reader.join().unwrap();
    }

    #[tokio::test]
    async fn lines_of_a_replaced_log_are_written_before_shutdown() {
        let stats = Arc::default();
        let (old_writer, pipe) = log_to_pipe(&stats);
        let lines = fill(&old_writer);
        let usage = Arc::downgrade(&old_writer.usage);
        // A reload: the old log is dropped, and another replaces it.
        drop(old_writer);
        let (_after, _) = log_to_pipe(&stats);
        let reader = spawn_reader(pipe, 64 << 10, 1);
        stats.wait_until_written(HOUR).await;
        assert!(usage.upgrade().is_none_or(|usage| usage.is_empty()));
        assert_eq!(reader.join().unwrap(), lines);
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_does_not_wait_for_an_unread_pipe() {
        let stats = Arc::default();
        let (writer, _pipe) = log_to_pipe(&stats);
        fill(&writer);
        let started_at = Instant::now();
        stats.wait_until_written(HOUR).await;
        // While the pipe fills, writes make progress.
        assert!(started_at.elapsed() < Duration::from_secs(60), "{:?}", started_at.elapsed());
    }

    #[test]
    fn batches_are_split_at_line_ends() {
        let line = format!("{}\n", "x".repeat(1500));
        let long = format!("{}\n", "y".repeat(10_000));
        let batch = format!("{line}{line}{line}{long}{line}");
        let found: Vec<usize> = split_at_line_ends(&batch).map(str::len).collect();
        assert_eq!(found, [3002, 1501, 10_001, 1501]);
        assert_eq!(split_at_line_ends("").count(), 0);
    }
}
