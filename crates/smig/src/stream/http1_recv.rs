//! Receive progress of an HTTP/1.1 request's body, and whether its reader waits for data. Streams of HTTP/2 have
//! this state in the engine.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smig_proto::Instant;

use crate::clock;
use crate::deadlines::ProgressClock;

/// State shared by the body's reader and the connection.
#[derive(Debug)]
pub(crate) struct Http1RecvProgress(Mutex<State>);

#[derive(Debug)]
struct State {
    received: u64,
    reader: Reader,
    /// `None`: no minimum rate.
    progress: Option<ProgressClock>,
}

/// State of the body's reader.
#[derive(Clone, Copy, Debug)]
enum Reader {
    /// Does not wait for data, since this time.
    Busy(Instant),
    /// Waits for data from the client.
    Waiting,
    /// Has read the complete body, or dropped it.
    Done,
}

impl Http1RecvProgress {
    pub(crate) const fn new(progress: Option<ProgressClock>, now: Instant) -> Self {
        Self(Mutex::new(State { received: 0, reader: Reader::Busy(now), progress }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the reader found no data and waits.
    pub(super) fn on_wait(&self) {
        let mut state = self.lock();
        let State { received, reader, progress } = &mut *state;
        if let (Reader::Busy(since), Some(progress)) = (*reader, progress) {
            let now = clock::now();
            // The handler took this time, not the client.
            if now.saturating_duration_since(since) >= progress.tick() {
                progress.restart(now, *received);
            }
        }
        *reader = Reader::Waiting;
    }

    pub(super) fn on_data(&self, len: usize) {
        let mut state = self.lock();
        state.received = state.received.saturating_add(len as u64);
        state.reader = Reader::Busy(clock::now());
    }

    /// Records that the body ended, failed, or was dropped.
    pub(super) fn on_end(&self) {
        self.lock().reader = Reader::Done;
    }

    /// Returns whether the body has ended or is not read any more.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.lock().reader, Reader::Done)
    }

    /// Returns the interval between checks of the minimum rate, if there is one. Also while the reader is busy: when
    /// a reader on another task begins to wait, the connection is not notified.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let state = self.lock();
        match state.reader {
            Reader::Busy(_) | Reader::Waiting => state.progress.as_ref().map(ProgressClock::tick),
            Reader::Done => None,
        }
    }

    /// Returns whether the client sent too little while the reader waited.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let State { received, reader, progress } = &mut *state;
        match (*reader, progress) {
            (Reader::Waiting, Some(progress)) => progress.is_late(now, *received),
            (Reader::Busy(_) | Reader::Done, _) | (Reader::Waiting, None) => false,
        }
    }
}
