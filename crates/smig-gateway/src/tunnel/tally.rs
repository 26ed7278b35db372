//! Statistics of tunnels for operators: number, bytes, duration, and why they ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smig::{ConnId, StreamInfo};
use tokio::time::Instant;

use super::end::End;
use super::relay::{Broken, Outcome, Side, relay_telling};
use crate::admin::{Report, Reported, TunnelReport};

/// How a tunnel was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By CONNECT.
    Connect,
    /// By Upgrade or extended CONNECT (RFC 8441), to an upstream.
    Upgrade,
    /// By SOCKS5.
    Socks,
    /// By a connection to a forwarded local port.
    Port,
}

const KINDS: usize = Kind::Port as usize + 1;

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Upgrade => "upgrade",
            Self::Socks => "socks",
            Self::Port => "port",
        }
    }
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Both directions completed.
    InOrder,
    /// The client's end failed.
    Client,
    /// The other end failed.
    Far,
    /// Nothing was relayed for the idle timeout.
    Idle,
    /// The relay was dropped before its end: at shutdown, or with the connection that carried it.
    Stopped,
}

const ENDINGS: [(Ending, &str); 5] = [
    (Ending::InOrder, "in_order"),
    (Ending::Client, "client"),
    (Ending::Far, "far"),
    (Ending::Idle, "idle"),
    (Ending::Stopped, "stopped"),
];

/// Bucket bounds of the histogram of durations, seconds.
const BOUNDS: [f64; 9] = [0.1, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0, f64::INFINITY];

/// Statistics of the tunnels of a gateway or an agent. Clones share them.
#[derive(Clone, Debug)]
pub struct Tunnels(Arc<Book>);

#[derive(Debug)]
struct Book {
    shown: &'static [Kind],
    counts: [Counts; KINDS],
}

#[derive(Debug, Default)]
struct Counts {
    opened: AtomicU64,
    octets_in: AtomicU64,
    octets_out: AtomicU64,
    /// Closed tunnels whose stream migrated.
    moved: AtomicU64,
    ended: [AtomicU64; ENDINGS.len()],
    lasted: [AtomicU64; BOUNDS.len()],
    lasted_millis: AtomicU64,
    /// Open tunnels by their numbers.
    open: Mutex<HashMap<u64, Place>>,
}

/// A tunnel's stream and its first connection, if it has a stream.
#[derive(Debug)]
struct Place(Option<(StreamInfo, Option<ConnId>)>);

impl Place {
    fn of(stream: Option<StreamInfo>) -> Self {
        Self(stream.map(|stream| {
            let first = stream.connection();
            (stream, first)
        }))
    }

    /// Returns whether the stream has migrated from its first connection.
    fn has_moved(&self) -> bool {
        self.0.as_ref().is_some_and(|(stream, first)| {
            stream.connection() != *first || stream.segments().len() > 1
        })
    }
}

impl Counts {
    fn open(&self) -> MutexGuard<'_, HashMap<u64, Place>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, kind: Kind) -> TunnelReport {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let open = self.open();
        let moving = open.values().filter(|place| place.has_moved()).count() as u64;
        TunnelReport {
            kind: kind.as_str(),
            open: open.len() as u64,
            opened: get(&self.opened),
            moved: get(&self.moved) + moving,
            octets_in: get(&self.octets_in),
            octets_out: get(&self.octets_out),
            ended: ENDINGS.iter().zip(&self.ended).map(|((_, why), n)| (*why, get(n))).collect(),
            lasted: BOUNDS.iter().zip(&self.lasted).map(|(bound, n)| (*bound, get(n))).collect(),
            lasted_seconds: Duration::from_millis(get(&self.lasted_millis)).as_secs_f64(),
        }
    }
}

impl Tunnels {
    /// The statistics of a gateway.
    #[must_use]
    pub fn of_gateway() -> Self {
        Self::new(&[Kind::Connect, Kind::Upgrade])
    }

    /// The statistics of an agent.
    #[must_use]
    pub fn of_agent() -> Self {
        Self::new(&[Kind::Connect, Kind::Socks, Kind::Port])
    }

    fn new(shown: &'static [Kind]) -> Self {
        Self(Arc::new(Book { shown, counts: Default::default() }))
    }

    /// Registers an open tunnel; `stream` is the stream that carries it, or its client's side, if that is an
    /// HTTP/2 stream. Call [`Tunnel::carry`] next.
    #[must_use]
    pub fn begin(&self, kind: Kind, stream: Option<StreamInfo>) -> Tunnel {
        let book = Arc::clone(&self.0);
        let number = book.counts.get(kind as usize).map_or(0, |counts| {
            let number = counts.opened.fetch_add(1, Ordering::Relaxed);
            counts.open().insert(number, Place::of(stream));
            number
        });
        let (since, ending) = (Instant::now(), Ending::Stopped);
        Tunnel { book, kind, number, since, ending, sent: 0, received: 0 }
    }
}

impl Report for Tunnels {
    fn report(&self, to: &mut Reported) {
        let counts = |kind: &Kind| Some(self.0.counts.get(*kind as usize)?.report(*kind));
        to.tunnels.extend(self.0.shown.iter().filter_map(counts));
    }
}

/// A registered open tunnel; dropping it records its end.
#[derive(Debug)]
pub struct Tunnel {
    book: Arc<Book>,
    kind: Kind,
    number: u64,
    since: Instant,
    ending: Ending,
    /// Bytes already counted.
    sent: u64,
    received: u64,
}

impl Tunnel {
    fn counts(&self) -> Option<&Counts> {
        self.book.counts.get(self.kind as usize)
    }

    /// Relays bytes between the client and the other end, as [`relay`](super::relay) does.
    pub async fn carry<A: End, B: End>(
        mut self,
        client: A,
        far: B,
        idle: Option<Duration>,
    ) -> Outcome {
        let outcome = relay_telling(client, far, idle, |sent, received| {
            self.carried(sent, received);
        })
        .await;
        self.carried(outcome.sent, outcome.received);
        self.ending = match &outcome.end {
            Ok(()) => Ending::InOrder,
            Err(Broken::End { side: Side::A, .. }) => Ending::Client,
            Err(Broken::End { side: Side::B, .. }) => Ending::Far,
            Err(Broken::Idle(_)) => Ending::Idle,
        };
        outcome
    }

    /// Adds the bytes since the last call; both arguments are totals since the start.
    fn carried(&mut self, sent: u64, received: u64) {
        if let Some(counts) = self.counts() {
            counts.octets_in.fetch_add(sent - self.sent, Ordering::Relaxed);
            counts.octets_out.fetch_add(received - self.received, Ordering::Relaxed);
        }
        (self.sent, self.received) = (sent, received);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let Some(counts) = self.counts() else { return };
        // Held until the end: a report counts the tunnel either as open or as ended.
        let mut open = counts.open();
        let place = open.remove(&self.number);
        if place.is_some_and(|place| place.has_moved()) {
            counts.moved.fetch_add(1, Ordering::Relaxed);
        }
        let lasted = self.since.elapsed();
        let within = BOUNDS.iter().position(|&bound| lasted.as_secs_f64() <= bound);
        let why = ENDINGS.iter().position(|(ending, _)| *ending == self.ending);
        let buckets =
            [within.and_then(|at| counts.lasted.get(at)), why.and_then(|at| counts.ended.get(at))];
        for count in buckets.into_iter().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let millis = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
        counts.lasted_millis.fetch_add(millis, Ordering::Relaxed);
    }
}
