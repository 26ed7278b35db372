//! How long a client may take: one set of numbers and one clock, whichever version of HTTP it speaks.
//!
//! The clock runs on bytes that moved, so that whoever moves next to nothing does not restart it. By HTTP/2 the
//! session asks it of each stream (what is sent by the engine, what is received by `server::uploads`); by HTTP/1.1
//! the connection of itself (`server::vigil`).

use std::time::Duration;

use smig_proto::{Instant, Limits, StallClock};

/// Bytes of a request's body that must come within its time limit.
const LEAST_BODY: u64 = 1024;

/// The time limits of a server's clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    /// From a head's first byte to its last.
    pub(crate) head: Duration,
    /// A request's body that a handler waits for before it has answered.
    pub(crate) body: Progress,
    /// What is sent and not taken.
    pub(crate) send: Progress,
    /// Until the next request.
    pub(crate) idle: Duration,
}

impl Deadlines {
    /// Those of the engine's limits, and what the server adds.
    pub(crate) const fn new(limits: &Limits, body: Duration, idle: Duration) -> Self {
        Self {
            head: limits.headers_timeout,
            body: Progress { least: LEAST_BODY, within: body },
            send: Progress { least: limits.stall_octets, within: limits.stall_timeout },
            idle,
        }
    }

    /// How often it is looked whether a client has all of a response, so that its next turn begins.
    pub(crate) fn delivery_tick(&self) -> Duration {
        let turn = self.idle.min(self.head) / 4;
        self.send.tick().min(turn).max(Duration::from_millis(1))
    }
}

/// So much must move in so long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) least: u64,
    pub(crate) within: Duration,
}

impl Progress {
    /// How often a clock with this limit is looked at.
    pub(crate) fn tick(self) -> Duration {
        (self.within / 4).max(Duration::from_millis(1))
    }
}

/// How far something has come, and since when it should have come further.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    clock: StallClock,
    progress: Progress,
}

impl Pace {
    pub(crate) const fn new(progress: Progress, now: Instant) -> Self {
        Self { clock: StallClock::new(now), progress }
    }

    /// The other end is not waited for: the clock begins anew.
    pub(crate) const fn rest(&mut self, now: Instant, moved: u64) {
        self.clock.rest(now, moved);
    }

    /// Whether too little has moved for too long.
    pub(crate) fn is_late(&mut self, now: Instant, moved: u64) -> bool {
        self.clock.is_stalled(now, moved, self.progress.least, self.progress.within)
    }

    /// How often it is looked at.
    pub(crate) fn tick(&self) -> Duration {
        self.progress.tick()
    }
}
