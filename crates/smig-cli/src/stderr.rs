//! Standard error. A program that serves does not wait for whoever reads it: a pipe that nobody empties would hold
//! a worker with all its connections.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

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
    }
    Apart(())
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
    /// Whether the line is on its way, or lost; not, if nobody is there to write it.
    fn take(&self, text: &[u8]) -> bool {
        let cost = text.len() + LINE;
        if self.waiting.fetch_add(cost, Ordering::Relaxed) + cost > MAX_BYTES {
            self.waiting.fetch_sub(cost, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let taken = self.lines.send(text.to_vec()).is_ok();
        if !taken {
            self.waiting.fetch_sub(cost, Ordering::Relaxed);
        }
        taken
    }

    fn write_all(&self, lines: &Receiver<Vec<u8>>, to: &mut impl Write) {
        for line in lines {
            // What cannot be written is lost, and there is nobody to be told.
            let _ = to.write_all(&line);
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let _ = writeln!(to, "({lost} lines were lost: nobody took them in time)");
            }
            self.waiting.fetch_sub(line.len() + LINE, Ordering::Release);
        }
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

    #[test]
    fn who_writes_never_waits_and_what_is_lost_is_counted() {
        let (lines, receiver) = channel();
        let queue = Queue { lines, waiting: 0.into(), lost: 0.into() };
        let line = [b'x'; 1024];
        let fit = MAX_BYTES / (line.len() + LINE);
        for _ in 0..fit + 7 {
            assert!(queue.take(&line));
        }
        assert_eq!(queue.lost.load(Ordering::Relaxed), 7);
        let Queue { lines, waiting, lost } = queue;
        drop(lines);
        // The thread has its own view of the same counters.
        let queue = Queue { lines: channel().0, waiting, lost };
        let mut written = Vec::new();
        queue.write_all(&receiver, &mut written);
        assert_eq!(written.iter().filter(|&&byte| byte == b'x').count(), fit * line.len());
        assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text.matches("(7 lines were lost: nobody took them in time)").count(), 1);
    }

    #[test]
    fn without_a_thread_lines_are_written_at_once() {
        let queue = Queue { lines: channel().0, waiting: 0.into(), lost: 0.into() };
        assert!(!queue.take(b"a line\n"));
        assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
    }
}
