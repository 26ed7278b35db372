//! The thread that writes an access log: a worker never waits for a disk, a pipe or a terminal.
//!
//! What waits is bounded. A line for which there is no room is dropped and counted, and that is said.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use smig::seldom;
use tokio::sync::oneshot;

/// Lines that may wait...
const MAX_LINES: usize = 4096;
/// ...and their bytes.
const MAX_BYTES: usize = 4 << 20;
/// Bytes that are written at once, about.
const BATCH: usize = 64 << 10;

/// Where lines go.
#[derive(Debug)]
pub(super) enum Sink {
    Output,
    File(File),
}

/// The way to the thread. It ends when this is dropped and what waits is written.
#[derive(Debug)]
pub(super) struct LogWriter {
    lines: SyncSender<Message>,
    waiting: Arc<AtomicUsize>,
    dropped: Arc<Dropped>,
}

enum Message {
    Line(String),
    /// Tells when all before it is written.
    Written(oneshot::Sender<()>),
}

/// Lines that were not written, of a log and of those that took its place.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    count: AtomicU64,
}

impl Dropped {
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, lines: u64, why: &str) {
        self.count.fetch_add(lines, Ordering::Relaxed);
        seldom!(warn, "dropped lines", times = lines, "lines of the access log are dropped: {why}");
    }
}

impl LogWriter {
    /// Starts the thread.
    pub(super) fn start(sink: Sink, dropped: Arc<Dropped>) -> io::Result<Self> {
        let (lines, receiver) = sync_channel(MAX_LINES);
        let waiting = Arc::new(AtomicUsize::new(0));
        let (left, tally) = (Arc::clone(&waiting), Arc::clone(&dropped));
        // Nobody joins it: it may be in a write that never ends.
        thread::Builder::new()
            .name("smig-access-log".to_owned())
            .spawn(move || write_all(&receiver, sink, &left, &tally))?;
        Ok(Self { lines, waiting, dropped })
    }

    /// Passes a line on if there is room.
    pub(super) fn write(&self, line: String) {
        let len = line.len();
        let full = "whoever reads it, or the disk, is too slow";
        if self.waiting.fetch_add(len, Ordering::Relaxed) + len > MAX_BYTES {
            self.waiting.fetch_sub(len, Ordering::Relaxed);
            return self.dropped.add(1, full);
        }
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.waiting.fetch_sub(len, Ordering::Relaxed);
            self.dropped.add(1, full);
        }
    }

    /// Told when all that waits now is written; dropped at once if there is no room even for the question.
    pub(super) fn written(&self) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        drop(self.lines.try_send(Message::Written(tell)));
        told
    }
}

fn write_all(
    receiver: &Receiver<Message>,
    mut sink: Sink,
    waiting: &AtomicUsize,
    dropped: &Dropped,
) {
    let (mut batch, mut told) = (String::new(), Vec::new());
    while let Ok(first) = receiver.recv() {
        let mut lines = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Line(line) => {
                    lines += 1;
                    batch.push_str(&line);
                }
                Message::Written(tell) => told.push(tell),
            }
            next = if batch.len() < BATCH { receiver.try_recv().ok() } else { None };
        }
        if let Err(error) = sink.write_all(batch.as_bytes()) {
            dropped.add(lines, &error.to_string());
        }
        waiting.fetch_sub(batch.len(), Ordering::Relaxed);
        batch.clear();
        for tell in told.drain(..) {
            // Who asked may have gone.
            let _ = tell.send(());
        }
    }
}

impl Sink {
    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Output => {
                let mut output = io::stdout().lock();
                output.write_all(text)?;
                output.flush()
            }
            Self::File(file) => file.write_all(text),
        }
    }
}
