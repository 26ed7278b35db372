//! Time limits for a server's clients: one set of numbers and one clock, whichever version of HTTP they use.
//!
//! The clock counts bytes transferred, so that a client that transfers almost nothing does not restart it. Over HTTP/2
//! the session checks it for each stream (the engine counts what is sent, `server::slow_uploads` what is received); over
//! HTTP/1.1 the connection checks its own (`server::http1::timeouts`).

use std::time::Duration;

use smig_proto::{Instant, Limits, StallClock};

/// Bytes of a request body that must arrive within its time limit.
const MIN_BODY_BYTES: u64 = 1024;

/// The time limits of a server's clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimits {
    /// From the first byte of a request head to its last.
    pub(crate) head: Duration,
    /// For a request body that a handler reads before it has responded.
    pub(crate) body: MinProgress,
    /// For output that the client does not accept.
    pub(crate) send: MinProgress,
    /// From one request to the next.
    pub(crate) idle: Duration,
}

impl TimeLimits {
    /// Combines the engine's limits with those that the server adds.
    pub(crate) const fn new(limits: &Limits, body: Duration, idle: Duration) -> Self {
        Self {
            head: limits.headers_timeout,
            body: MinProgress { bytes: MIN_BODY_BYTES, within: body },
            send: MinProgress { bytes: limits.stall_bytes, within: limits.stall_timeout },
            idle,
        }
    }

    /// Returns how often to check whether a client has the whole response, so that the time limits for its next
    /// request begin.
    pub(crate) fn delivery_tick(&self) -> Duration {
        let request_tick = self.idle.min(self.head) / 4;
        self.send.tick().min(request_tick).max(Duration::from_millis(1))
    }
}

/// The progress that is required: `bytes` bytes in each period `within`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MinProgress {
    pub(crate) bytes: u64,
    pub(crate) within: Duration,
}

impl MinProgress {
    /// Returns how often to check a clock with this limit.
    pub(crate) fn tick(self) -> Duration {
        (self.within / 4).max(Duration::from_millis(1))
    }
}

/// A stall clock with its limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressClock {
    clock: StallClock,
    progress: MinProgress,
}

impl ProgressClock {
    pub(crate) const fn new(progress: MinProgress, now: Instant) -> Self {
        Self { clock: StallClock::new(now), progress }
    }

    /// Restarts the clock, because nothing is expected of the peer.
    pub(crate) const fn restart(&mut self, now: Instant, transferred: u64) {
        self.clock.restart(now, transferred);
    }

    /// Returns whether too few bytes were transferred for too long.
    pub(crate) fn is_late(&mut self, now: Instant, transferred: u64) -> bool {
        self.clock.check_stalled(now, transferred, self.progress.bytes, self.progress.within)
    }

    /// Returns how often to check it.
    pub(crate) fn tick(&self) -> Duration {
        self.progress.tick()
    }
}
