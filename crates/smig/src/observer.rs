//! Events and counters for operators: one observer per server or client, called on the task where the event occurs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use smig_proto::{ConnId, Mover};

use crate::snapshot::{MigrationCause, PolicyDecision, StreamRef};
use crate::socket::ConnectionAddrs;

/// An event of a server or a client. `addrs` identifies the connection, unless it is closed already.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ObserverEvent {
    /// A server accepted a connection, before its handshake; or a client connected.
    ConnectionOpened {
        /// The connection.
        addrs: Option<ConnectionAddrs>,
    },
    /// A connection was closed.
    ConnectionClosed {
        /// The connection.
        addrs: Option<ConnectionAddrs>,
    },
    /// Server: a client's handshake, or its first bytes on cleartext, failed or took too long. A client does not report its own.
    HandshakeFailed,
    /// A session between two SMig endpoints has its key.
    SessionEstablished,
    /// A connection joined a session.
    Joined {
        /// Its number in the session.
        conn: ConnId,
        /// The connection.
        addrs: Option<ConnectionAddrs>,
    },
    /// A server refused a JOIN: no session there has this AppID, or the session refused the
    /// connection. It continues on its own; the third refusal ends it (SMIG-4.9/three-refusals).
    JoinRefused {
        /// The connection.
        addrs: Option<ConnectionAddrs>,
    },
    /// A stream was opened.
    StreamOpened {
        /// The stream; `None` over HTTP/1.1.
        stream: Option<StreamRef>,
    },
    /// A stream completed: at a server, the last byte of its response was given to the transport; at a client,
    /// the whole response arrived, and the request was sent or is abandoned. Not reported over HTTP/1.1.
    StreamCompleted {
        /// The stream on its last connection; `None` if that was closed before.
        stream: Option<StreamRef>,
        /// Time since it was opened.
        latency: Duration,
        /// Bytes of body sent.
        sent: u64,
        /// Bytes of body received.
        received: u64,
        /// Number of its migrations.
        migrations: u8,
    },
    /// A stream ended with an error.
    StreamReset {
        /// The connection that carried it.
        addrs: Option<ConnectionAddrs>,
        /// The stream.
        stream: Option<StreamRef>,
    },
    /// The decision of the rules on a stream changed.
    PolicyDecided {
        /// The stream.
        stream: Option<StreamRef>,
        /// The new decision.
        decision: PolicyDecision,
    },
    /// A stream migrated.
    Migrated {
        /// The connection that it left.
        from: ConnId,
        /// The connection that it migrated to.
        to: ConnId,
        /// Which endpoint was the mover.
        mover: Mover,
        /// The addresses of the connection that it migrated to.
        addrs: Option<ConnectionAddrs>,
        /// The stream.
        stream: Option<StreamRef>,
        /// Bytes of body, both directions together, that it had transferred before.
        transferred_bytes: u64,
        /// The cause.
        why: MigrationCause,
    },
    /// A migration was declined.
    MigrationDeclined {
        /// The connection that the stream stays on.
        addrs: Option<ConnectionAddrs>,
        /// The stream.
        stream: Option<StreamRef>,
    },
    /// A client opens a second connection with a server that does not support SMig, because the first carries bulk.
    SecondConnection,
    /// A client's response continues on another connection, by a range request.
    ResponseContinued {
        /// The stream that it leaves.
        stream: Option<StreamRef>,
        /// Bytes of body that have arrived there.
        offset: u64,
        /// Bytes of body that the other connection repeats.
        repeated: u64,
    },
    /// A client's response stays on its connection: a range request did not return its rest.
    ContinuationFailed {
        /// The stream.
        stream: Option<StreamRef>,
        /// Why it stays.
        why: String,
    },
    /// A handler or a body panicked.
    Panicked,
    /// A limit was hit; its name.
    LimitHit(&'static str),
}

/// Receives events as they occur, on the task where they occur: it must not block.
///
/// For the [`ServerBuilder`](crate::ServerBuilder::observer) or the [`ClientBuilder`](crate::ClientBuilder::observer).
/// Tasks of several sessions call it, on several threads.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use smig::{Observer, ObserverEvent, Server};
///
/// /// Counts bytes of responses by whether they migrated.
/// #[derive(Default)]
/// struct Bytes {
///     migrated: AtomicU64,
///     stayed: AtomicU64,
/// }
///
/// impl Observer for Bytes {
///     fn on_event(&self, event: &ObserverEvent) {
///         if let ObserverEvent::StreamCompleted { sent, migrations, .. } = event {
///             let count = if *migrations > 0 { &self.migrated } else { &self.stayed };
///             count.fetch_add(*sent, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let bytes = Arc::new(Bytes::default());
/// let builder = Server::builder().observer(bytes.clone());
/// ```
///
/// The [crate's first page](crate#when-a-stream-migrates) observes a migration.
pub trait Observer: Send + Sync + 'static {
    /// Handles an event.
    fn on_event(&self, event: &ObserverEvent);
}

/// Counters of a server or a client since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each counts the event of its name")]
pub struct Stats {
    pub connections_opened: u64,
    pub connections_closed: u64,
    pub handshakes_failed: u64,
    pub sessions_established: u64,
    pub connections_joined: u64,
    pub joins_refused: u64,
    pub streams_opened: u64,
    pub streams_completed: u64,
    pub streams_reset: u64,
    pub policy_decisions: u64,
    pub migrations: u64,
    /// Migrations of which this end was the mover.
    pub migrations_initiated: u64,
    pub migrations_by_peer: u64,
    pub migrations_declined: u64,
    pub second_connections: u64,
    pub responses_continued: u64,
    pub continuations_failed: u64,
    pub panics: u64,
    pub limits_hit: u64,
}

/// A counter. Its value is the index of the count.
#[derive(Clone, Copy, Debug)]
enum CounterId {
    ConnectionOpened,
    ConnectionClosed,
    HandshakeFailed,
    SessionEstablished,
    Joined,
    JoinRefused,
    StreamOpened,
    StreamCompleted,
    StreamReset,
    PolicyDecided,
    /// Migrations of which this end was the mover, and the others.
    MigrationInitiated,
    MigratedByPeer,
    MigrationDeclined,
    SecondConnection,
    ResponseContinued,
    ContinuationFailed,
    Panicked,
    LimitHit,
}

const COUNTER_COUNT: usize = CounterId::LimitHit as usize + 1;

impl CounterId {
    const fn for_event(event: &ObserverEvent) -> Self {
        match event {
            ObserverEvent::ConnectionOpened { .. } => Self::ConnectionOpened,
            ObserverEvent::ConnectionClosed { .. } => Self::ConnectionClosed,
            ObserverEvent::HandshakeFailed => Self::HandshakeFailed,
            ObserverEvent::SessionEstablished => Self::SessionEstablished,
            ObserverEvent::Joined { .. } => Self::Joined,
            ObserverEvent::JoinRefused { .. } => Self::JoinRefused,
            ObserverEvent::StreamOpened { .. } => Self::StreamOpened,
            ObserverEvent::StreamCompleted { .. } => Self::StreamCompleted,
            ObserverEvent::StreamReset { .. } => Self::StreamReset,
            ObserverEvent::PolicyDecided { .. } => Self::PolicyDecided,
            ObserverEvent::Migrated { mover: Mover::Local, .. } => Self::MigrationInitiated,
            ObserverEvent::Migrated { mover: Mover::Peer, .. } => Self::MigratedByPeer,
            ObserverEvent::MigrationDeclined { .. } => Self::MigrationDeclined,
            ObserverEvent::SecondConnection => Self::SecondConnection,
            ObserverEvent::ResponseContinued { .. } => Self::ResponseContinued,
            ObserverEvent::ContinuationFailed { .. } => Self::ContinuationFailed,
            ObserverEvent::Panicked => Self::Panicked,
            ObserverEvent::LimitHit(_) => Self::LimitHit,
        }
    }
}

/// Number of places for counts; if there are more threads, some share one.
const COUNT_PLACES: usize = 64;

/// The counts of the events of one thread, in cache lines of their own: two of them are counted for each request, and
/// workers that count in one line take it from each other each time. Processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct ThreadCounts([AtomicU64; COUNTER_COUNT]);

/// Returns the number of this thread's place in [`EventSink`].
fn count_place() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PLACE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % COUNT_PLACES;
    }
    // A thread whose locals are gone counts where another one does.
    PLACE.try_with(|place| *place).unwrap_or(0)
}

/// Counts events, and passes them on to the application's observer.
pub(crate) struct EventSink {
    counts: Box<[ThreadCounts]>,
    observer: Option<Arc<dyn Observer>>,
}

impl std::fmt::Debug for EventSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

impl Default for EventSink {
    fn default() -> Self {
        Self::new(None)
    }
}

impl EventSink {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        let counts = std::iter::repeat_with(ThreadCounts::default).take(COUNT_PLACES).collect();
        Self { counts, observer }
    }

    pub(crate) fn on_event(&self, event: &ObserverEvent) {
        self.count(CounterId::for_event(event));
        if let Some(observer) = &self.observer {
            observer.on_event(event);
        }
    }

    /// Returns the addresses of a connection for the observer. Without an observer, `find` is not called.
    pub(crate) fn addrs(
        &self,
        find: impl FnOnce() -> Option<ConnectionAddrs>,
    ) -> Option<ConnectionAddrs> {
        self.observer.as_ref().and_then(|_| find())
    }

    /// Counts a completed stream, where there is no observer.
    pub(crate) fn count_stream_completion(&self) {
        self.count(CounterId::StreamCompleted);
    }

    /// Returns whether there is an observer. It needs the time at which a stream has really completed.
    pub(crate) const fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    fn count(&self, id: CounterId) {
        if let Some(count) = self.counts.get(count_place()).and_then(|of| of.0.get(id as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let count = |id: CounterId| {
            let of_threads = self.counts.iter().filter_map(|of| of.0.get(id as usize));
            of_threads.map(|count| count.load(Ordering::Relaxed)).sum()
        };
        // Each is read once, so that none of them ever falls.
        let initiated = count(CounterId::MigrationInitiated);
        let by_peer = count(CounterId::MigratedByPeer);
        Stats {
            connections_opened: count(CounterId::ConnectionOpened),
            connections_closed: count(CounterId::ConnectionClosed),
            handshakes_failed: count(CounterId::HandshakeFailed),
            sessions_established: count(CounterId::SessionEstablished),
            connections_joined: count(CounterId::Joined),
            joins_refused: count(CounterId::JoinRefused),
            streams_opened: count(CounterId::StreamOpened),
            streams_completed: count(CounterId::StreamCompleted),
            streams_reset: count(CounterId::StreamReset),
            policy_decisions: count(CounterId::PolicyDecided),
            migrations: initiated + by_peer,
            migrations_initiated: initiated,
            migrations_by_peer: by_peer,
            migrations_declined: count(CounterId::MigrationDeclined),
            second_connections: count(CounterId::SecondConnection),
            responses_continued: count(CounterId::ResponseContinued),
            continuations_failed: count(CounterId::ContinuationFailed),
            panics: count(CounterId::Panicked),
            limits_hit: count(CounterId::LimitHit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_threads_are_summed() {
        let sink = EventSink::new(None);
        std::thread::scope(|scope| {
            for _ in 0..COUNT_PLACES + 2 {
                scope.spawn(|| {
                    sink.count_stream_completion();
                    sink.on_event(&ObserverEvent::Panicked);
                });
            }
        });
        let stats = sink.stats();
        let threads = COUNT_PLACES as u64 + 2;
        assert_eq!((stats.streams_completed, stats.panics), (threads, threads));
    }
}
