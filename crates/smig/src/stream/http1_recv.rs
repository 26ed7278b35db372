//! Receive progress of an HTTP/1.1 request's body, and whether its reader waits for data. Streams of HTTP/2 have
//! this state in the engine and in [`SharedStream`](super::shared::SharedStream).

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
    reader: ReaderState,
    /// `None`: no minimum rate.
    progress_clock: Option<ProgressClock>,
}

/// State of the body's reader.
#[derive(Clone, Copy, Debug)]
enum ReaderState {
    /// Does not wait for data, since this time.
    Busy(Instant),
    /// Waits for data from the client.
    Waiting,
    /// Has read the complete body, or dropped it.
    Done,
}

impl Http1RecvProgress {
    pub(crate) const fn new(progress_clock: Option<ProgressClock>, now: Instant) -> Self {
        Self(Mutex::new(State { received: 0, reader: ReaderState::Busy(now), progress_clock }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the reader found no data and waits.
    pub(super) fn on_wait(&self) {
        let mut state = self.lock();
        let State { received, reader, progress_clock: progress } = &mut *state;
        if let (ReaderState::Busy(since), Some(progress)) = (*reader, progress) {
            let now = clock::now();
            // The handler took this time, not the client.
            if now.saturating_duration_since(since) >= progress.tick() {
                progress.restart(now, *received);
            }
        }
        *reader = ReaderState::Waiting;
    }

    pub(super) fn on_data(&self, len: usize) {
        let mut state = self.lock();
        state.received = state.received.saturating_add(len as u64);
        state.reader = ReaderState::Busy(clock::now());
    }

    /// Records that the body ended, failed, or was dropped.
    pub(super) fn on_end(&self) {
        self.lock().reader = ReaderState::Done;
    }

    /// Returns whether the body has ended or is not read any more.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.lock().reader, ReaderState::Done)
    }

    /// Returns the interval between checks of the minimum rate, if there is one. Also while the reader is busy: when
    /// a reader on another task begins to wait, the connection is not notified.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let state = self.lock();
        match state.reader {
            ReaderState::Busy(_) | ReaderState::Waiting => {
                state.progress_clock.as_ref().map(ProgressClock::tick)
            }
            ReaderState::Done => None,
        }
    }

    /// Returns whether the client sent too little while the reader waited.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let State { received, reader, progress_clock: progress } = &mut *state;
        match (*reader, progress) {
            (ReaderState::Waiting, Some(progress)) => progress.is_late(now, *received),
            (ReaderState::Busy(_) | ReaderState::Done, _) | (ReaderState::Waiting, None) => false,
        }
    }
}
