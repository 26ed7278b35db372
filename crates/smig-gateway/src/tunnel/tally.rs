//! Tunnels counted for operators: how many, how much, how long, and why they ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smig::{ConnId, StreamInfo};
use tokio::time::Instant;

use super::end::End;
use super::relay::{Broken, Outcome, Side, relay_telling};
use crate::admin::{Report, Reported, TunnelReport};

/// How a tunnel was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By CONNECT.
    Connect,
    /// By Upgrade, or by extended CONNECT (RFC 8441), of an upstream.
    Upgrade,
    /// By SOCKS5.
    Socks,
    /// By a local port that leads to one destination.
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

/// Why a tunnel is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Both directions had ended.
    InOrder,
    /// The client's end broke.
    Client,
    /// The other end broke.
    Far,
    /// Nothing moved for too long.
    Idle,
    /// This program gave it up: it ends, or lost what carried it.
    Stopped,
}

const ENDINGS: [(Ending, &str); 5] = [
    (Ending::InOrder, "in_order"),
    (Ending::Client, "client"),
    (Ending::Far, "far"),
    (Ending::Idle, "idle"),
    (Ending::Stopped, "stopped"),
];

/// Upper bounds of the histogram of durations, seconds.
const BOUNDS: [f64; 9] = [0.1, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0, f64::INFINITY];

/// Tunnels of a gateway or an agent. Clones count together.
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
    /// Of those that have ended.
    moved: AtomicU64,
    ended: [AtomicU64; ENDINGS.len()],
    lasted: [AtomicU64; BOUNDS.len()],
    lasted_millis: AtomicU64,
    /// By their numbers.
    open: Mutex<HashMap<u64, Place>>,
}

/// Where a tunnel's stream began, if it has one.
#[derive(Debug)]
struct Place(Option<(StreamInfo, Option<ConnId>)>);

impl Place {
    fn of(stream: Option<StreamInfo>) -> Self {
        Self(stream.map(|stream| {
            let first = stream.connection();
            (stream, first)
        }))
    }

    /// Whether it travels by another connection than at first, or did.
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
    /// Those of a gateway.
    #[must_use]
    pub fn of_gateway() -> Self {
        Self::new(&[Kind::Connect, Kind::Upgrade])
    }

    /// Those of an agent.
    #[must_use]
    pub fn of_agent() -> Self {
        Self::new(&[Kind::Connect, Kind::Socks, Kind::Port])
    }

    fn new(shown: &'static [Kind]) -> Self {
        Self(Arc::new(Book { shown, counts: Default::default() }))
    }

    /// A tunnel is open; `stream` is what carries it, or its client's side, if it is an HTTP/2 stream.
    /// To be [carried](Tunnel::carry).
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

/// A tunnel that is open; dropped, it is over.
#[derive(Debug)]
pub struct Tunnel {
    book: Arc<Book>,
    kind: Kind,
    number: u64,
    since: Instant,
    ending: Ending,
    /// Counted already.
    sent: u64,
    received: u64,
}

impl Tunnel {
    fn counts(&self) -> Option<&Counts> {
        self.book.counts.get(self.kind as usize)
    }

    /// Carries octets between the client and the other end, as [`relay`](super::relay) does.
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

    /// So many octets have passed since its beginning.
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
        // To the end: a report finds it open or ended, and never neither.
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
