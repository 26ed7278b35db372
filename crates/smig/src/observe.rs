//! What operators may count: one observer a server or client, called on the session's task.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smig_proto::{ConnId, Mover, StreamKey};

use crate::driver::Turn;
use crate::snapshot::{Book, MoveCause, Record, StreamPlace, Verdict};

/// Something worth counting. Where it happened is in `ends`, unless that connection is gone already.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Observed {
    /// A server accepted a connection, its handshake comes next; a client made one.
    ConnectionOpened {
        /// The connection.
        ends: Option<Ends>,
    },
    /// A connection ended.
    ConnectionClosed {
        /// The connection.
        ends: Option<Ends>,
    },
    /// A handshake failed or took too long.
    HandshakeFailed,
    /// A session between two SMig endpoints has its key.
    SessionEstablished,
    /// A connection joined a session.
    Joined {
        /// Its number in the session.
        conn: ConnId,
        /// The connection.
        ends: Option<Ends>,
    },
    /// A connection was refused by a session and goes on alone.
    JoinRefused {
        /// The connection.
        ends: Option<Ends>,
    },
    /// A stream was opened.
    StreamOpened {
        /// Which; `None` by HTTP/1.1.
        stream: Option<StreamPlace>,
    },
    /// A stream ended in order: at a server, the last octet of its response was given to the transport;
    /// at a client, all of it came. Not told of HTTP/1.1.
    StreamEnded {
        /// Which, and where it was at the end; `None` if its connection was gone by then.
        stream: Option<StreamPlace>,
        /// Since it was opened.
        latency: Duration,
        /// Octets of body sent.
        sent: u64,
        /// Octets of body received.
        received: u64,
        /// How often it moved.
        moves: u8,
    },
    /// A stream ended with an error.
    StreamReset {
        /// The connection that it was on.
        ends: Option<Ends>,
        /// Which.
        stream: Option<StreamPlace>,
    },
    /// The rules came to another verdict on a stream than before.
    Judged {
        /// Which.
        stream: Option<StreamPlace>,
        /// What they say now.
        verdict: Verdict,
    },
    /// A stream moved.
    Moved {
        /// From the connection of this number in the session.
        from: ConnId,
        /// To this one.
        to: ConnId,
        /// Which end began it.
        mover: Mover,
        /// The connection that it is on now.
        ends: Option<Ends>,
        /// Which stream.
        stream: Option<StreamPlace>,
        /// Octets of body, both directions together, that went before the move.
        offset: u64,
        /// Why.
        why: MoveCause,
    },
    /// A move was declined.
    MoveDeclined {
        /// The connection that the stream stays on.
        ends: Option<Ends>,
        /// Which stream.
        stream: Option<StreamPlace>,
    },
    /// A handler or a body panicked.
    Panicked,
    /// A limit fired; its name.
    LimitHit(&'static str),
}

/// A connection, by its two ends: no other of the machine has the same while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they say it")]
pub struct Ends {
    pub local: SocketAddr,
    pub peer: SocketAddr,
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
    pub streams_ended: u64,
    pub streams_reset: u64,
    pub judged: u64,
    pub moves: u64,
    /// Of these, the ones that this end began.
    pub moves_made: u64,
    pub moves_declined: u64,
    pub panics: u64,
    pub limits_hit: u64,
}

/// What is counted. The order is that of the counters.
#[derive(Clone, Copy, Debug)]
enum Kind {
    ConnectionOpened,
    ConnectionClosed,
    HandshakeFailed,
    SessionEstablished,
    Joined,
    JoinRefused,
    StreamOpened,
    StreamEnded,
    StreamReset,
    Judged,
    Moved,
    /// Of these, the ones that this end began.
    MoveMade,
    MoveDeclined,
    Panicked,
    LimitHit,
}

const KINDS: usize = Kind::LimitHit as usize + 1;

impl Kind {
    const fn of(what: &Observed) -> Self {
        match what {
            Observed::ConnectionOpened { .. } => Self::ConnectionOpened,
            Observed::ConnectionClosed { .. } => Self::ConnectionClosed,
            Observed::HandshakeFailed => Self::HandshakeFailed,
            Observed::SessionEstablished => Self::SessionEstablished,
            Observed::Joined { .. } => Self::Joined,
            Observed::JoinRefused { .. } => Self::JoinRefused,
            Observed::StreamOpened { .. } => Self::StreamOpened,
            Observed::StreamEnded { .. } => Self::StreamEnded,
            Observed::StreamReset { .. } => Self::StreamReset,
            Observed::Judged { .. } => Self::Judged,
            Observed::Moved { .. } => Self::Moved,
            Observed::MoveDeclined { .. } => Self::MoveDeclined,
            Observed::Panicked => Self::Panicked,
            Observed::LimitHit(_) => Self::LimitHit,
        }
    }
}

/// The engine's news that a stream has moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) stream: StreamKey,
    pub(crate) from: ConnId,
    pub(crate) to: ConnId,
    pub(crate) mover: Mover,
    /// Octets of body that came before.
    pub(crate) received: u64,
}

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
        self.count(Kind::of(what));
        if let Observed::Moved { mover: Mover::Local, .. } = what {
            self.count(Kind::MoveMade);
        }
        if let Some(observer) = &self.observer {
            observer.on(what);
        }
    }

    /// What an observer is told of a connection; not asked for when there is none.
    pub(crate) fn ends(&self, find: impl FnOnce() -> Option<Ends>) -> Option<Ends> {
        self.observer.as_ref().and_then(|_| find())
    }

    /// The same, of one of a session's connections.
    pub(crate) fn ends_of(&self, turn: &Turn<'_>, conn: ConnId) -> Option<Ends> {
        self.ends(|| Some(turn.links.info(conn)?.ends()))
    }

    /// The same, of the connection that a stream is on.
    pub(crate) fn ends_of_stream(&self, turn: &Turn<'_>, stream: StreamKey) -> Option<Ends> {
        self.ends(|| Some(turn.links.info(turn.session.stream(stream)?.connection)?.ends()))
    }

    /// What an observer is told of a stream; not asked for when there is none.
    pub(crate) fn place(
        &self,
        turn: &Turn<'_>,
        book: &Book,
        stream: StreamKey,
    ) -> Option<StreamPlace> {
        self.observer.as_ref().and_then(|_| book.place(turn, stream))
    }

    /// A stream has moved.
    pub(crate) fn moved(
        &self,
        turn: &Turn<'_>,
        book: &mut Book,
        record: Option<&mut Record>,
        migration: Migration,
    ) {
        let Migration { stream, from, to, mover, received } = migration;
        let sent = turn.session.stream(stream).map_or(0, |view| view.sent);
        let (why, offset) = book.moved(stream, record, mover, sent + received);
        let place = self.observer.as_ref().map(|_| book.place_on(stream, to));
        let ends = self.ends_of(turn, to);
        self.on(&Observed::Moved { from, to, mover, ends, stream: place, offset, why });
    }

    /// A stream has ended in order.
    pub(crate) fn ended(&self, turn: &Turn<'_>, book: &Book, key: StreamKey, record: &Record) {
        if !self.is_observed() {
            return self.count(Kind::StreamEnded);
        }
        let view = turn.session.stream(key);
        self.on(&Observed::StreamEnded {
            stream: self.place(turn, book, key),
            // A turn may begin and end a stream: its own time is too coarse for who measures.
            latency: crate::clock::now().saturating_duration_since(record.opened),
            sent: view.map_or(0, |view| view.sent),
            received: view.map_or(0, |view| view.received),
            moves: view.map_or(0, |view| view.moves),
        });
    }

    /// Whether somebody wants to know when a stream has really ended.
    pub(crate) const fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    fn count(&self, kind: Kind) {
        if let Some(count) = self.counts.get(kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let count = |kind: Kind| {
            self.counts.get(kind as usize).map_or(0, |count| count.load(Ordering::Relaxed))
        };
        Stats {
            connections_opened: count(Kind::ConnectionOpened),
            connections_closed: count(Kind::ConnectionClosed),
            handshakes_failed: count(Kind::HandshakeFailed),
            sessions_established: count(Kind::SessionEstablished),
            joined: count(Kind::Joined),
            joins_refused: count(Kind::JoinRefused),
            streams_opened: count(Kind::StreamOpened),
            streams_ended: count(Kind::StreamEnded),
            streams_reset: count(Kind::StreamReset),
            judged: count(Kind::Judged),
            moves: count(Kind::Moved),
            moves_made: count(Kind::MoveMade),
            moves_declined: count(Kind::MoveDeclined),
            panics: count(Kind::Panicked),
            limits_hit: count(Kind::LimitHit),
        }
    }
}
