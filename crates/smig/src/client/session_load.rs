//! What the pool knows of a session: whether its server answers, and how many of its streams carry bulk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The load of one session: written by its task, read where a request chooses its session.
#[derive(Debug, Default)]
pub(super) struct SessionLoad {
    is_ready: AtomicBool,
    bulk_streams: AtomicUsize,
    open_streams: AtomicUsize,
    /// Minimum round-trip time in nanoseconds; 0 if it is not known.
    min_rtt: AtomicU64,
}

impl SessionLoad {
    /// Records that the server's SETTINGS have arrived over HTTP/2: a request need not wait for a handshake.
    pub(super) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    /// Records the number of open streams.
    pub(super) fn set_open_streams(&self, count: usize) {
        self.open_streams.store(count, Ordering::Relaxed);
    }

    /// Records the minimum round-trip time of the session's connection.
    pub(super) fn set_min_rtt(&self, min_rtt: Duration) {
        let nanos = u64::try_from(min_rtt.as_nanos()).unwrap_or(u64::MAX);
        self.min_rtt.store(nanos, Ordering::Relaxed);
    }

    /// Returns the last minimum round-trip time, if one was recorded.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        let nanos = self.min_rtt.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Returns whether more bulk would delay no other stream.
    pub(super) fn is_apart(&self) -> bool {
        self.is_ready() && self.open_streams.load(Ordering::Relaxed) <= self.bulk_streams()
    }

    /// Returns the number of streams behind whose bytes other responses would wait.
    pub(super) fn bulk_streams(&self) -> usize {
        self.bulk_streams.load(Ordering::Relaxed)
    }
}

/// Counts a stream as bulk while it exists.
#[derive(Debug)]
pub(super) struct BulkGuard(Arc<SessionLoad>);

impl BulkGuard {
    pub(super) fn new(load: &Arc<SessionLoad>) -> Self {
        load.bulk_streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }
}

impl Drop for BulkGuard {
    fn drop(&mut self) {
        self.0.bulk_streams.fetch_sub(1, Ordering::Relaxed);
    }
}
