//! Standard error, written by a thread: a pipe that is full would block a worker with all its connections.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use std::{panic, thread};

/// Bytes that may wait to be taken; lines beyond are lost, and counted.
const MAX_BYTES: usize = 1 << 20;
/// What a line takes besides its bytes, about.
const LINE: usize = 64;
/// How long the end waits for what is left.
const LAST: Duration = Duration::from_secs(1);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Lines on their way to the thread that writes them.
struct Queue {
    lines: Sender<Vec<u8>>,
    waiting: AtomicUsize,
    lost: AtomicU64,
}

/// While this lives nobody waits for standard error. Dropping it waits for the last lines, for a second at most.
#[must_use]
pub(crate) struct Apart(());

/// From now on lines are written by a thread of its own; where there can be none, as before.
pub(crate) fn apart() -> Apart {
    let (lines, receiver) = channel();
    // Its own file: standard error's lock would be held in a write that does not end.
    if let Ok(file) = io::stderr().as_fd().try_clone_to_owned()
        && QUEUE.set(Queue { lines, waiting: 0.into(), lost: 0.into() }).is_ok()
        && let Some(queue) = QUEUE.get()
    {
        let name = "smig-stderr".to_owned();
        let write = move || queue.write_all(&receiver, &mut File::from(file));
        // Where there is no thread, the receiver has gone, and lines are written as before.
        let _ = thread::Builder::new().name(name).spawn(write);
        report_panics();
    }
    Apart(())
}

/// Reports panics like other lines: the standard library's hook would wait for the reader.
fn report_panics() {
    panic::set_hook(Box::new(|info| {
        let thread = thread::current();
        say(&format!("thread '{}' {info}", thread.name().unwrap_or("<unnamed>")));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            say(&backtrace.to_string());
        }
    }));
}

impl Drop for Apart {
    fn drop(&mut self) {
        finish();
    }
}

/// Waits until what was said so far is written, for a second at most.
pub(crate) fn finish() {
    let end = Instant::now() + LAST;
    while QUEUE.get().is_some_and(|queue| queue.waiting.load(Ordering::Acquire) > 0)
        && Instant::now() < end
    {
        thread::sleep(LOOK);
    }
}

impl Queue {
    /// Queues a line, or drops and counts it. Returns false if there is no thread to write it.
    fn take(&self, text: &[u8]) -> bool {
        let cost = text.len() + LINE;
        if self.waiting.fetch_add(cost, Ordering::Relaxed) + cost > MAX_BYTES {
            self.waiting.fetch_sub(cost, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        // The note takes the place of the lost lines.
        let mut line = self.take_note();
        self.waiting.fetch_add(line.len(), Ordering::Relaxed);
        line.extend_from_slice(text);
        let len = line.len();
        let taken = self.lines.send(line).is_ok();
        if !taken {
            self.waiting.fetch_sub(len + LINE, Ordering::Relaxed);
        }
        taken
    }

    /// Returns a line about the lines that were lost since the last one; empty if there are none.
    fn take_note(&self) -> Vec<u8> {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => Vec::new(),
            lost => {
                format!("({lost} lines were lost: standard error was not read in time)\n").into()
            }
        }
    }

    fn write_all(&self, lines: &Receiver<Vec<u8>>, to: &mut impl Write) {
        for line in lines {
            self.write(&line, to);
        }
    }

    /// Writes a line that was queued. Lines that cannot be written are lost: there is nowhere to report that.
    fn write(&self, line: &[u8], to: &mut impl Write) {
        let _ = to.write_all(line);
        let cost = line.len() + LINE;
        if self.waiting.load(Ordering::Relaxed) == cost {
            // The last of the queue: no later line will bring the note.
            let _ = to.write_all(&self.take_note());
        }
        self.waiting.fetch_sub(cost, Ordering::Release);
    }
}

/// A writer of whole lines, for each of them anew.
pub(crate) struct Lines;

impl Write for Lines {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match QUEUE.get() {
            Some(queue) if queue.take(text) => Ok(text.len()),
            Some(_) | None => io::stderr().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a line.
pub(crate) fn say(text: &str) {
    // Nobody could be told that it failed.
    let _ = Lines.write_all(format!("{text}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn queue() -> (Queue, Receiver<Vec<u8>>) {
        let (lines, receiver) = channel();
        (Queue { lines, waiting: 0.into(), lost: 0.into() }, receiver)
    }

    const LOST: &str = "(7 lines were lost: standard error was not read in time)\n";

    /// Fills the queue, and loses seven lines. Returns how many lines wait.
    fn overfill(queue: &Queue) -> usize {
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let fit = MAX_BYTES / (line.len() + LINE);
        for _ in 0..fit + 7 {
            assert!(queue.take(&line));
        }
        assert_eq!(queue.lost.load(Ordering::Relaxed), 7);
        fit
    }

    /// Writes what waits.
    fn drain(queue: &Queue, receiver: &Receiver<Vec<u8>>) -> String {
        let mut written = Vec::new();
        while let Ok(line) = receiver.try_recv() {
            queue.write(&line, &mut written);
        }
        assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn writers_never_wait_and_lost_lines_are_counted() {
        let (queue, receiver) = queue();
        let fit = overfill(&queue);
        let text = drain(&queue, &receiver);
        assert_eq!(text.matches('x').count(), fit * 1023);
        assert!(text.ends_with(LOST), "{}", &text[text.len() - 100..]);
    }

    #[test]
    fn the_note_stands_where_the_lines_were_lost() {
        let (queue, receiver) = queue();
        let fit = overfill(&queue);
        let mut first = Vec::new();
        queue.write(&receiver.recv().unwrap(), &mut first);
        assert!(queue.take(b"after\n"));
        let text = drain(&queue, &receiver);
        assert_eq!(text.matches('x').count(), (fit - 1) * 1023);
        assert!(text.ends_with(&format!("x\n{LOST}after\n")), "{}", &text[text.len() - 100..]);
    }

    #[test]
    fn without_a_thread_lines_are_written_at_once() {
        let (queue, receiver) = queue();
        drop(receiver);
        assert!(!queue.take(b"a line\n"));
        assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
    }

    /// This test is its own child, whose standard error is a pipe that nobody reads.
    #[test]
    fn threads_that_panic_do_not_wait_for_the_reader() {
        const CHILD: &str = "SMIG_TEST_PANICS";
        if std::env::var_os(CHILD).is_some() {
            let _apart = apart();
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
        child.args(["--exact", &name, "--nocapture"]).env(CHILD, "1");
        let ended = child.stdout(Stdio::null()).stderr(writer).status().unwrap();
        assert!(ended.success());
    }
}
