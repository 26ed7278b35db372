//! What operators may count: one observer a server or client, called on the session's task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smig_proto::{ConnId, Mover};

/// Something worth counting.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Observed {
    /// A connection was accepted or made, its handshake done.
    ConnectionOpened,
    /// A connection ended.
    ConnectionClosed,
    /// A handshake failed or took too long.
    HandshakeFailed,
    /// A session between two SMig endpoints has its key.
    SessionEstablished,
    /// A connection joined a session.
    Joined,
    /// A connection was refused by a session and goes on alone.
    JoinRefused,
    /// A stream was opened.
    StreamOpened,
    /// A stream ended with an error.
    StreamReset,
    /// A stream moved.
    Moved {
        /// From this connection.
        from: ConnId,
        /// To this one.
        to: ConnId,
        /// Which end began it.
        mover: Mover,
    },
    /// A move was declined.
    MoveDeclined,
    /// A handler or a body panicked.
    Panicked,
    /// A limit fired; its name.
    LimitHit(&'static str),
}

/// Gets everything worth counting, at once, on the task that saw it: it must not block.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn on(&self, what: &Observed);
}

/// Counters of a server or a client since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each counts the Observed of its name")]
pub struct Stats {
    pub connections_opened: u64,
    pub connections_closed: u64,
    pub handshakes_failed: u64,
    pub sessions_established: u64,
    pub joined: u64,
    pub joins_refused: u64,
    pub streams_opened: u64,
    pub streams_reset: u64,
    pub moves: u64,
    /// Of these, the ones that this end began.
    pub moves_made: u64,
    pub moves_declined: u64,
    pub panics: u64,
    pub limits_hit: u64,
}

const KINDS: usize = 13;

/// Counts, and passes on to the application's observer.
#[derive(Default)]
pub(crate) struct Counters {
    counts: [AtomicU64; KINDS],
    observer: Option<Arc<dyn Observer>>,
}

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

impl Counters {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Self { counts: Default::default(), observer }
    }

    pub(crate) fn on(&self, what: &Observed) {
        if let Some(count) = self.counts.get(index(what)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Observed::Moved { mover: Mover::Local, .. } = what
            && let Some(count) = self.counts.get(MADE)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(observer) = &self.observer {
            observer.on(what);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let count = |what: &Observed| {
            self.counts.get(index(what)).map_or(0, |count| count.load(Ordering::Relaxed))
        };
        Stats {
            connections_opened: count(&Observed::ConnectionOpened),
            connections_closed: count(&Observed::ConnectionClosed),
            handshakes_failed: count(&Observed::HandshakeFailed),
            sessions_established: count(&Observed::SessionEstablished),
            joined: count(&Observed::Joined),
            joins_refused: count(&Observed::JoinRefused),
            streams_opened: count(&Observed::StreamOpened),
            streams_reset: count(&Observed::StreamReset),
            moves_made: self.counts.get(MADE).map_or(0, |count| count.load(Ordering::Relaxed)),
            moves: self.counts.get(MOVED).map_or(0, |count| count.load(Ordering::Relaxed)),
            moves_declined: count(&Observed::MoveDeclined),
            panics: count(&Observed::Panicked),
            limits_hit: count(&Observed::LimitHit("")),
        }
    }
}

const MOVED: usize = 8;
/// Of these, the ones that this end began.
const MADE: usize = 12;

const fn index(what: &Observed) -> usize {
    match what {
        Observed::ConnectionOpened => 0,
        Observed::ConnectionClosed => 1,
        Observed::HandshakeFailed => 2,
        Observed::SessionEstablished => 3,
        Observed::Joined => 4,
        Observed::JoinRefused => 5,
        Observed::StreamOpened => 6,
        Observed::StreamReset => 7,
        Observed::Moved { .. } => MOVED,
        Observed::MoveDeclined => 9,
        Observed::Panicked => 10,
        Observed::LimitHit(_) => 11,
    }
}
