//! Standard error, written by a thread: a full pipe would block a worker and all its connections.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{panic, thread};

/// Maximum size of the queue in bytes; further lines are lost, and counted.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Approximate memory of a queued line besides its bytes.
const LINE_OVERHEAD_BYTES: usize = 64;
/// How long [`flush`] waits for the queued lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// How often [`flush`] checks the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Lines for the thread that writes them.
struct Queue {
    line_tx: Sender<Vec<u8>>,
    queued_bytes: AtomicUsize,
    lost_lines: AtomicU64,
}

/// Flushes the queue when dropped, which takes a second at most.
#[must_use]
pub(crate) struct WriterGuard(());

/// Starts a thread that writes all lines from now on; without one, they are written directly.
pub(crate) fn spawn_writer() -> WriterGuard {
    let (line_tx, receiver) = channel();
    // A descriptor of its own: a write that blocks would hold the lock of `io::stderr`.
    if let Ok(file) = io::stderr().as_fd().try_clone_to_owned()
        && QUEUE.set(Queue { line_tx, queued_bytes: 0.into(), lost_lines: 0.into() }).is_ok()
        && let Some(queue) = QUEUE.get()
    {
        let name = "smig-stderr".to_owned();
        let write = move || queue.write_all(&receiver, &mut File::from(file));
        // If the thread cannot start, the receiver is dropped, and lines are written directly.
        let _ = thread::Builder::new().name(name).spawn(write);
        report_panics();
    }
    WriterGuard(())
}

/// Reports panics like other lines: the standard library's hook would block on a full pipe.
fn report_panics() {
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        print_line(&format!("thread '{}' {info}", thread.name().unwrap_or("<unnamed>")));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            print_line(&backtrace.to_string());
        }
    }));
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        flush();
    }
}

/// Waits until all queued lines are written, for a second at most.
pub(crate) fn flush() {
    let deadline = Instant::now() + FLUSH_TIMEOUT;
    while QUEUE.get().is_some_and(|queue| queue.queued_bytes.load(Ordering::Acquire) > 0)
        && Instant::now() < deadline
    {
        thread::sleep(POLL_INTERVAL);
    }
}

impl Queue {
    /// Queues a line, or drops and counts it. Returns false if there is no thread to write it.
    fn enqueue(&self, text: &[u8]) -> bool {
        let cost = text.len() + LINE_OVERHEAD_BYTES;
        if self.queued_bytes.fetch_add(cost, Ordering::Relaxed) + cost > MAX_QUEUED_BYTES {
            self.queued_bytes.fetch_sub(cost, Ordering::Relaxed);
            self.lost_lines.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        // A note takes the place of lost lines.
        let mut line = self.take_lost_note();
        self.queued_bytes.fetch_add(line.len(), Ordering::Relaxed);
        line.extend_from_slice(text);
        let len = line.len();
        let is_sent = self.line_tx.send(line).is_ok();
        if !is_sent {
            self.queued_bytes.fetch_sub(len + LINE_OVERHEAD_BYTES, Ordering::Relaxed);
        }
        is_sent
    }

    /// Returns a note about the lines lost since the last note; empty if there are none.
    fn take_lost_note(&self) -> Vec<u8> {
        match self.lost_lines.swap(0, Ordering::Relaxed) {
            0 => Vec::new(),
            lost => {
                format!("({lost} lines were lost: standard error was not read in time)\n").into()
            }
        }
    }

    fn write_all(&self, receiver: &Receiver<Vec<u8>>, output: &mut impl Write) {
        for line in receiver {
            self.write(&line, output);
        }
    }

    /// Writes a queued line. Errors are ignored: there is nowhere to report them.
    fn write(&self, line: &[u8], output: &mut impl Write) {
        let _ = output.write_all(line);
        let cost = line.len() + LINE_OVERHEAD_BYTES;
        if self.queued_bytes.load(Ordering::Relaxed) == cost {
            // This was the last queued line: no later line carries the note.
            let _ = output.write_all(&self.take_lost_note());
        }
        self.queued_bytes.fetch_sub(cost, Ordering::Release);
    }
}

/// Writer for complete lines: each call of `write` queues one.
pub(crate) struct StderrLines;

impl Write for StderrLines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) if queue.enqueue(text) => Ok(text.len()),
            Some(_) | None => io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line.
pub(crate) fn print_line(text: &str) {
    // There is nowhere to report an error.
    let _ = StderrLines.write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn queue() -> (Queue, Receiver<Vec<u8>>) {
        let (line_tx, receiver) = channel();
        (Queue { line_tx, queued_bytes: 0.into(), lost_lines: 0.into() }, receiver)
    }

    const LOST_NOTE: &str = "(7 lines were lost: standard error was not read in time)\n";

    /// Fills the queue, and loses seven more lines. Returns the number of queued lines.
    fn overfill(queue: &Queue) -> usize {
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let queued_lines = MAX_QUEUED_BYTES / (line.len() + LINE_OVERHEAD_BYTES);
        for _ in 0..queued_lines + 7 {
            assert!(queue.enqueue(&line));
        }
        assert_eq!(queue.lost_lines.load(Ordering::Relaxed), 7);
        queued_lines
    }

    /// Writes the queued lines.
    fn drain(queue: &Queue, receiver: &Receiver<Vec<u8>>) -> String {
        let mut output = Vec::new();
        while let Ok(line) = receiver.try_recv() {
            queue.write(&line, &mut output);
        }
        assert_eq!(queue.queued_bytes.load(Ordering::Relaxed), 0);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn writers_never_wait_and_lost_lines_are_counted() {
        let (queue, receiver) = queue();
        let queued_lines = overfill(&queue);
        let text = drain(&queue, &receiver);
        assert_eq!(text.matches('x').count(), queued_lines * 1023);
        assert!(text.ends_with(LOST_NOTE), "{}", &text[text.len() - 100..]);
    }

    #[test]
    fn the_note_is_written_in_place_of_the_lost_lines() {
        let (queue, receiver) = queue();
        let queued_lines = overfill(&queue);
        let mut first = Vec::new();
        queue.write(&receiver.recv().unwrap(), &mut first);
        assert!(queue.enqueue(b"after\n"));
        let text = drain(&queue, &receiver);
        assert_eq!(text.matches('x').count(), (queued_lines - 1) * 1023);
        assert!(text.ends_with(&format!("x\n{LOST_NOTE}after\n")), "{}", &text[text.len() - 100..]);
    }

    #[test]
    fn without_a_writer_lines_are_not_queued() {
        let (queue, receiver) = queue();
        drop(receiver);
        assert!(!queue.enqueue(b"a line\n"));
        assert_eq!(queue.queued_bytes.load(Ordering::Relaxed), 0);
    }

    /// Runs itself as a child process whose standard error is a pipe that is never read.
    #[test]
    fn panics_do_not_block_on_a_full_pipe() {
        const CHILD_VARIABLE: &str = "SMIG_TEST_PANICS";
        if std::env::var_os(CHILD_VARIABLE).is_some() {
            let _guard = spawn_writer();
            for _ in 0..100 {
                let message = "x".repeat(4096);
                let ended = thread::spawn(move || assert_eq!(message, "")).join();
                assert!(ended.is_err());
            }
            return;
        }
        let (_reader, writer) = io::pipe().unwrap();
        let name = thread::current().name().unwrap().to_owned();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", &name, "--nocapture"]).env(CHILD_VARIABLE, "1");
        let ended = child.stdout(Stdio::null()).stderr(writer).status().unwrap();
        assert!(ended.success());
    }
}
