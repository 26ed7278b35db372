//! How far a request's body by HTTP/1.1 is, and whether anybody waits for it: HTTP/2's streams know this of
//! themselves.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smig_proto::Instant;

use crate::clock;
use crate::deadlines::Pace;

/// What the body's reader and the connection know together.
#[derive(Debug)]
pub(crate) struct Intake(Mutex<State>);

#[derive(Debug)]
struct State {
    received: u64,
    reader: Reader,
    /// `None`: it may come as slowly as it likes.
    pace: Option<Pace>,
}

/// What the body's reader does.
#[derive(Clone, Copy, Debug)]
enum Reader {
    /// Something else, since then.
    Busy(Instant),
    /// It waits for the client.
    Waits,
    /// It has all, or wants no more.
    Gone,
}

impl Intake {
    pub(crate) const fn new(pace: Option<Pace>, now: Instant) -> Self {
        Self(Mutex::new(State { received: 0, reader: Reader::Busy(now), pace }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader found nothing.
    pub(super) fn on_wait(&self) {
        let mut state = self.lock();
        let State { received, reader, pace } = &mut *state;
        if let (Reader::Busy(since), Some(pace)) = (*reader, pace) {
            let now = clock::now();
            // It was not the client who took this time.
            if now.saturating_duration_since(since) >= pace.tick() {
                pace.rest(now, *received);
            }
        }
        *reader = Reader::Waits;
    }

    pub(super) fn on_data(&self, len: usize) {
        let mut state = self.lock();
        state.received = state.received.saturating_add(len as u64);
        state.reader = Reader::Busy(clock::now());
    }

    /// It ended, failed, or was dropped.
    pub(super) fn on_end(&self) {
        self.lock().reader = Reader::Gone;
    }

    /// Nothing more comes of it.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.lock().reader, Reader::Gone)
    }

    /// How long to wait until the clock is looked at, if there is one. Also while the reader is busy: one on another
    /// task begins to wait, and nobody tells the connection.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let state = self.lock();
        match state.reader {
            Reader::Busy(_) | Reader::Waits => state.pace.as_ref().map(Pace::tick),
            Reader::Gone => None,
        }
    }

    /// Whether the reader has waited too long for too little.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let State { received, reader, pace } = &mut *state;
        match (*reader, pace) {
            (Reader::Waits, Some(pace)) => pace.is_late(now, *received),
            (Reader::Busy(_) | Reader::Gone, _) | (Reader::Waits, None) => false,
        }
    }
}
