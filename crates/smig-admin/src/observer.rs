//! The observer: counts requests, records the log, and notifies connected readers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use smig::{Observer, ObserverEvent, StreamRef};
use tokio::sync::broadcast;

use super::event_log::EventLog;
use super::request_metrics::{RequestMetrics, SMALL_REQUEST_THRESHOLD_BYTES};
use super::spans::OpenSpans;
use super::telemetry::Tracer;

/// Maximum number of records that a reader may lag behind; beyond it, it gets the number missed.
const MAX_LAG_RECORDS: usize = 256;
/// Maximum number of small requests reported individually per snapshot.
const MAX_SMALL_REQUESTS: usize = 256;
/// Maximum number of concurrent readers of the event stream.
const MAX_READERS: usize = 16;

/// The observer of a server or a client for the admin interface: pass it to the builder as observer, and to
/// [`AdminTarget::new`](super::AdminTarget::new).
#[derive(Debug)]
pub struct AdminObserver {
    log: Mutex<EventLog>,
    live_records: broadcast::Sender<Bytes>,
    reader_count: AtomicUsize,
    small_requests: Mutex<Vec<SmallRequest>>,
    request_metrics: RequestMetrics,
    spans: OpenSpans,
}

/// A completed small request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmallRequest {
    pub(crate) stream: StreamRef,
    pub(crate) latency: Duration,
}

impl AdminObserver {
    /// An observer without telemetry.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_tracer(None)
    }

    /// An observer that also exports spans, if there is a tracer.
    pub fn with_tracer(tracer: Option<Tracer>) -> Arc<Self> {
        Arc::new(Self {
            log: Mutex::default(),
            live_records: broadcast::Sender::new(MAX_LAG_RECORDS),
            reader_count: AtomicUsize::new(0),
            small_requests: Mutex::default(),
            request_metrics: RequestMetrics::default(),
            spans: OpenSpans::new(tracer),
        })
    }

    pub(crate) const fn request_metrics(&self) -> &RequestMetrics {
        &self.request_metrics
    }

    /// Returns the spans of open requests, which new requests add to.
    #[must_use]
    pub const fn spans(&self) -> &OpenSpans {
        &self.spans
    }

    /// Ends the remaining spans: the observed server has stopped.
    pub fn abort_spans(&self) {
        self.spans.abort_all();
    }

    fn lock_log(&self) -> MutexGuard<'_, EventLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a reader: returns the buffered records, and a receiver of the following ones; `None` at the
    /// limit of readers.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
    ) -> Option<(Vec<Bytes>, broadcast::Receiver<Bytes>, Subscription)> {
        if self.reader_count.fetch_add(1, Ordering::Relaxed) >= MAX_READERS {
            self.reader_count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let subscription = Subscription(Arc::clone(self));
        // Under the lock, no record is missed or duplicated.
        let log = self.lock_log();
        Some((log.records(), self.live_records.subscribe(), subscription))
    }

    /// Takes the small requests that completed while a reader was connected.
    pub(crate) fn take_small_requests(&self) -> Vec<SmallRequest> {
        core::mem::take(&mut *self.small_requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn on_stream_completed(&self, stream: Option<StreamRef>, latency: Duration, bytes: u64) {
        let is_small = bytes < SMALL_REQUEST_THRESHOLD_BYTES;
        self.request_metrics.observe_latency(latency, is_small);
        if !is_small || self.reader_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(stream) = stream else { return };
        let mut small_requests = self.small_requests.lock().unwrap_or_else(PoisonError::into_inner);
        if small_requests.len() < MAX_SMALL_REQUESTS {
            small_requests.push(SmallRequest { stream, latency });
        }
    }
}

impl Observer for AdminObserver {
    fn on_event(&self, event: &ObserverEvent) {
        self.spans.on_event(event);
        match event {
            ObserverEvent::StreamCompleted { stream, latency, sent, received, .. } => {
                self.request_metrics.count_body_bytes(*sent, *received);
                self.on_stream_completed(*stream, *latency, sent + received);
            }
            ObserverEvent::StreamOpened { .. } => {}
            logged_event => {
                if let ObserverEvent::LimitHit(limit) = logged_event {
                    self.request_metrics.count_limit_hit(limit);
                }
                let mut log = self.lock_log();
                if let Some(record) = log.add(logged_event, self.live_records.receiver_count() > 0)
                {
                    // The last reader may just have disconnected.
                    drop(self.live_records.send(record));
                }
            }
        }
    }
}

/// A registered reader; dropping it unregisters it.
#[derive(Debug)]
pub(crate) struct Subscription(Arc<AdminObserver>);

impl Drop for Subscription {
    fn drop(&mut self) {
        if self.0.reader_count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.take_small_requests();
        }
    }
}
