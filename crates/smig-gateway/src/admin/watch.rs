//! The observer: counts requests, keeps the log, and tells who looks at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use smig::{Observed, Observer, StreamPlace};
use tokio::sync::broadcast;

use super::log::Log;
use super::metrics::Requests;
use super::span::Spans;
use crate::telemetry::Tracer;

/// A request below this many octets, both bodies together, is a small one: somebody waits for it.
pub(super) const SMALL: u64 = 64 << 10;
/// Records that a slow reader may fall behind; then it is told how many it missed.
const BEHIND: usize = 256;
/// Small requests that are shown one by one, from one sample to the next.
const SHOWN: usize = 256;
/// Who may look at once.
const MAX_LOOKERS: usize = 16;

/// Observes a server or a client for its operators: give it to the builder as observer, and to
/// [`Subject::new`](super::Subject::new).
#[derive(Debug)]
pub struct Watch {
    log: Mutex<Log>,
    live: broadcast::Sender<Bytes>,
    lookers: AtomicUsize,
    ended: Mutex<Vec<Small>>,
    requests: Requests,
    spans: Spans,
    /// Who sends spans to a collector.
    tracer: Option<Tracer>,
}

/// A small request that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Small {
    pub(super) place: StreamPlace,
    pub(super) latency: Duration,
}

impl Watch {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with(None)
    }

    /// One whose spans go to a collector as well, if there is one.
    pub(crate) fn with(tracer: Option<Tracer>) -> Arc<Self> {
        Arc::new(Self {
            log: Mutex::default(),
            live: broadcast::Sender::new(BEHIND),
            lookers: AtomicUsize::new(0),
            ended: Mutex::default(),
            requests: Requests::default(),
            spans: Spans::default(),
            tracer,
        })
    }

    pub(super) const fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(super) const fn spans(&self) -> &Spans {
        &self.spans
    }

    pub(super) const fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// What was observed is over: spans that have not ended do now.
    pub(crate) fn cut(&self) {
        self.spans.cut();
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to look, unless too many do: what was kept, and what comes.
    pub(super) fn look(
        self: &Arc<Self>,
    ) -> Option<(Vec<Bytes>, broadcast::Receiver<Bytes>, Looker)> {
        if self.lookers.fetch_add(1, Ordering::Relaxed) >= MAX_LOOKERS {
            self.lookers.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let looker = Looker(Arc::clone(self));
        // Under the lock nothing is told twice, and nothing is missed.
        let log = self.log();
        Some((log.records(), self.live.subscribe(), looker))
    }

    /// Takes the small requests that have ended while somebody looked.
    pub(super) fn take_ended(&self) -> Vec<Small> {
        core::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn on_ended(&self, place: Option<StreamPlace>, latency: Duration, octets: u64) {
        let small = octets < SMALL;
        self.requests.observe(latency, small);
        if !small || self.lookers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(place) = place else { return };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() < SHOWN {
            ended.push(Small { place, latency });
        }
    }
}

impl Observer for Watch {
    fn on(&self, what: &Observed) {
        self.spans.on(what);
        match what {
            Observed::StreamEnded { stream, latency, sent, received, .. } => {
                self.requests.carried(*sent, *received);
                self.on_ended(*stream, *latency, sent + received);
            }
            Observed::StreamOpened { .. } => {}
            told => {
                let mut log = self.log();
                if let Some(record) = log.add(told, self.live.receiver_count() > 0) {
                    // Who looked may just have gone.
                    drop(self.live.send(record));
                }
            }
        }
    }
}

/// Somebody who looks; no longer when dropped.
#[derive(Debug)]
pub(super) struct Looker(Arc<Watch>);

impl Drop for Looker {
    fn drop(&mut self) {
        if self.0.lookers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.take_ended();
        }
    }
}
