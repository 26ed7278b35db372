//! The thread that writes an access log: a worker never waits for a disk, a pipe or a terminal.
//!
//! What waits is bounded. A line for which there is no room is dropped and counted, and that is said.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use smig::seldom;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Lines that may wait...
const MAX_LINES: usize = 4096;
/// ...and their bytes.
const MAX_BYTES: usize = 4 << 20;
/// Bytes that are written at once, about.
const BATCH: usize = 64 << 10;
/// At the end: who has taken no batch in this time will take none.
const STUCK: Duration = Duration::from_secs(1);

/// Where lines go.
#[derive(Debug)]
pub(super) enum Sink {
    Output,
    File(File),
}

/// The way to the thread. It ends when this is dropped and what waits is written.
#[derive(Debug)]
pub(super) struct LogWriter {
    /// What waits is bounded by the room that it takes. A question takes none.
    messages: Sender<Message>,
    room: Arc<Room>,
    dropped: Arc<Dropped>,
}

enum Message {
    Line(String),
    /// Tells when all before it is written.
    Written(oneshot::Sender<()>),
}

/// What waits to be written.
#[derive(Debug, Default)]
struct Room {
    lines: AtomicUsize,
    bytes: AtomicUsize,
}

impl Room {
    /// Whether there was room for a line.
    fn take(&self, bytes: usize) -> bool {
        let lines = self.lines.fetch_add(1, Ordering::Relaxed) + 1;
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let fits = lines <= MAX_LINES && all <= MAX_BYTES;
        if !fits {
            self.give_back(1, bytes);
        }
        fits
    }

    fn give_back(&self, lines: usize, bytes: usize) {
        self.lines.fetch_sub(lines, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn lines(&self) -> usize {
        self.lines.load(Ordering::Relaxed)
    }
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
        let (messages, receiver) = channel();
        let room = Arc::<Room>::default();
        let (left, tally) = (Arc::clone(&room), Arc::clone(&dropped));
        // Nobody joins it: it may be in a write that never ends.
        thread::Builder::new()
            .name("smig-access-log".to_owned())
            .spawn(move || write_all(&receiver, sink, &left, &tally))?;
        Ok(Self { messages, room, dropped })
    }

    /// Passes a line on if there is room.
    pub(super) fn write(&self, line: String) {
        let len = line.len();
        if !self.room.take(len) {
            return self.dropped.add(1, "whoever reads it, or the disk, is too slow");
        }
        if self.messages.send(Message::Line(line)).is_err() {
            self.room.give_back(1, len);
            self.dropped.add(1, "its thread has ended");
        }
    }

    /// Waits until all that waits now is written, for `limit` at most, and no longer than something of it is
    /// written from time to time.
    pub(super) async fn flush(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut written = self.written();
        loop {
            let before = self.room.lines();
            let left = end.saturating_duration_since(Instant::now());
            // Told or, if the thread has ended, not: nothing is waited for any more.
            if timeout(left.min(STUCK), &mut written).await.is_ok()
                || self.room.lines() == before
                || left.is_zero()
            {
                return;
            }
        }
    }

    /// Told when all that waits now is written.
    fn written(&self) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        // It fails only if the thread has ended, and is dropped then.
        drop(self.messages.send(Message::Written(tell)));
        told
    }
}

fn write_all(receiver: &Receiver<Message>, mut sink: Sink, room: &Room, dropped: &Dropped) {
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
            dropped.add(lines as u64, &error.to_string());
        }
        room.give_back(lines, batch.len());
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    /// A log into a pipe that nobody reads yet, with as many lines as there is room for: how many that were.
    fn full() -> (LogWriter, io::PipeReader, u64) {
        let (reader, pipe) = io::pipe().unwrap();
        let dropped = Arc::<Dropped>::default();
        let sink = Sink::File(File::from(OwnedFd::from(pipe)));
        let writer = LogWriter::start(sink, Arc::clone(&dropped)).unwrap();
        let mut lines = 0;
        while dropped.count() == 0 {
            writer.write("a line of a log that is long enough to fill a pipe\n".to_owned());
            lines += 1;
        }
        (writer, reader, lines - 1)
    }

    #[tokio::test]
    async fn lines_that_wait_are_written_before_the_end_also_when_there_is_no_room_for_more() {
        let (writer, mut pipe, lines) = full();
        let told = writer.written();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text.lines().count() as u64
        });
        let limit = Duration::from_secs(60);
        let told = timeout(limit, told).await;
        told.expect("never told that lines are written").expect("not told when they are");
        drop(writer);
        assert_eq!(reader.join().unwrap(), lines);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_does_not_wait_for_a_pipe_that_nobody_reads() {
        let (writer, _pipe, _) = full();
        let since = Instant::now();
        writer.flush(Duration::from_secs(3600)).await;
        // While the pipe fills, there is something to wait for.
        assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    }
}
