//! Statistics of tunnels for operators: number, bytes, duration, and why they ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smig::{ConnId, StreamInfo};
use smig_admin::{ReportedStats, StatsSource, TunnelReport};
use tokio::time::Instant;

use super::end::TunnelEndpoint;
use super::relay::{TunnelError, TunnelOutcome, TunnelSide, relay_with_progress};

/// How a tunnel was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelKind {
    /// By CONNECT, to a host that the client names.
    Connect,
    /// To an upstream of a gateway: by Upgrade or extended CONNECT (RFC 8441), as for WebSockets, or
    /// by CONNECT.
    Upstream,
    /// By SOCKS5.
    Socks,
    /// By a connection to a forwarded local port.
    PortForward,
}

const TUNNEL_KIND_COUNT: usize = TunnelKind::PortForward as usize + 1;

impl TunnelKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Upstream => "upstream",
            Self::Socks => "socks",
            Self::PortForward => "port",
        }
    }
}

/// Why a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndReason {
    /// Both directions completed.
    Completed,
    /// The client's end failed.
    Client,
    /// The other end failed.
    Remote,
    /// Nothing was relayed for the idle timeout.
    Idle,
    /// The relay was dropped before its end: at shutdown, or with the connection that carried it.
    Aborted,
}

const END_REASONS: [(EndReason, &str); 5] = [
    (EndReason::Completed, "completed"),
    (EndReason::Client, "client"),
    (EndReason::Remote, "remote"),
    (EndReason::Idle, "idle_timeout"),
    (EndReason::Aborted, "aborted"),
];

/// Bucket bounds of the histogram of durations, seconds.
const DURATION_BUCKETS_S: [f64; 9] =
    [0.1, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0, f64::INFINITY];

/// Open tunnels of a gateway or an agent, and their statistics. Clones share them.
#[derive(Clone, Debug)]
pub struct TunnelRegistry(Arc<TunnelStats>);

#[derive(Debug)]
struct TunnelStats {
    kinds: &'static [TunnelKind],
    counts: [Counts; TUNNEL_KIND_COUNT],
}

#[derive(Debug, Default)]
struct Counts {
    opened_count: AtomicU64,
    bytes_from_client: AtomicU64,
    bytes_to_client: AtomicU64,
    /// Ended tunnels whose stream migrated.
    migrated_ended_count: AtomicU64,
    ended_by_reason: [AtomicU64; END_REASONS.len()],
    duration_buckets: [AtomicU64; DURATION_BUCKETS_S.len()],
    duration_sum_ms: AtomicU64,
    /// Open tunnels by their numbers.
    open_tunnels: Mutex<HashMap<u64, TunnelStream>>,
}

/// A tunnel's stream and its first connection, if it has a stream.
#[derive(Debug)]
struct TunnelStream(Option<(StreamInfo, Option<ConnId>)>);

impl TunnelStream {
    fn of(stream: Option<StreamInfo>) -> Self {
        Self(stream.map(|stream| {
            let first = stream.connection();
            (stream, first)
        }))
    }

    /// Returns whether the stream has migrated from its first connection.
    fn has_migrated(&self) -> bool {
        self.0.as_ref().is_some_and(|(stream, first)| {
            stream.connection() != *first || stream.segments().len() > 1
        })
    }
}

impl Counts {
    fn lock_open_tunnels(&self) -> MutexGuard<'_, HashMap<u64, TunnelStream>> {
        self.open_tunnels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, kind: TunnelKind) -> TunnelReport {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let open_tunnels = self.lock_open_tunnels();
        let migrated_open =
            open_tunnels.values().filter(|stream| stream.has_migrated()).count() as u64;
        TunnelReport {
            kind: kind.as_str(),
            open: open_tunnels.len() as u64,
            opened: get(&self.opened_count),
            migrated: get(&self.migrated_ended_count) + migrated_open,
            bytes_from_client: get(&self.bytes_from_client),
            bytes_to_client: get(&self.bytes_to_client),
            ended: END_REASONS
                .iter()
                .zip(&self.ended_by_reason)
                .map(|((_, reason), n)| (*reason, get(n)))
                .collect(),
            durations: DURATION_BUCKETS_S
                .iter()
                .zip(&self.duration_buckets)
                .map(|(bound, n)| (*bound, get(n)))
                .collect(),
            duration_sum_seconds: Duration::from_millis(get(&self.duration_sum_ms)).as_secs_f64(),
        }
    }
}

impl TunnelRegistry {
    /// Creates the registry of a gateway.
    #[must_use]
    pub fn of_gateway() -> Self {
        Self::new(&[TunnelKind::Connect, TunnelKind::Upstream])
    }

    /// Creates the registry of an agent.
    #[must_use]
    pub fn of_agent() -> Self {
        Self::new(&[TunnelKind::Connect, TunnelKind::Socks, TunnelKind::PortForward])
    }

    fn new(kinds: &'static [TunnelKind]) -> Self {
        Self(Arc::new(TunnelStats { kinds, counts: Default::default() }))
    }

    /// Registers an open tunnel; `stream` is the stream that carries it, or its client's side, if that is an
    /// HTTP/2 stream. Call [`Tunnel::run`] next.
    #[must_use]
    pub fn begin(&self, kind: TunnelKind, stream: Option<StreamInfo>) -> Tunnel {
        let stats = Arc::clone(&self.0);
        let number = stats.counts.get(kind as usize).map_or(0, |counts| {
            let number = counts.opened_count.fetch_add(1, Ordering::Relaxed);
            counts.lock_open_tunnels().insert(number, TunnelStream::of(stream));
            number
        });
        let (started_at, end_reason) = (Instant::now(), EndReason::Aborted);
        Tunnel {
            stats,
            kind,
            number,
            started_at,
            end_reason,
            counted_from_client: 0,
            counted_to_client: 0,
        }
    }
}

impl StatsSource for TunnelRegistry {
    fn report(&self, stats: &mut ReportedStats) {
        let counts = |kind: &TunnelKind| Some(self.0.counts.get(*kind as usize)?.report(*kind));
        stats.tunnels.extend(self.0.kinds.iter().filter_map(counts));
    }
}

/// A registered open tunnel; dropping it records its end.
#[derive(Debug)]
pub struct Tunnel {
    stats: Arc<TunnelStats>,
    kind: TunnelKind,
    number: u64,
    started_at: Instant,
    end_reason: EndReason,
    /// Bytes already added to the statistics.
    counted_from_client: u64,
    counted_to_client: u64,
}

impl Tunnel {
    fn counts(&self) -> Option<&Counts> {
        self.stats.counts.get(self.kind as usize)
    }

    /// Relays bytes between the client and the other end, as [`relay`](super::relay) does.
    pub async fn run<A: TunnelEndpoint, B: TunnelEndpoint>(
        mut self,
        client: A,
        remote: B,
        idle_timeout: Option<Duration>,
    ) -> TunnelOutcome {
        let outcome =
            relay_with_progress(client, remote, idle_timeout, |from_client, to_client| {
                self.count_bytes(from_client, to_client);
            })
            .await;
        self.count_bytes(outcome.bytes_to_remote, outcome.bytes_to_client);
        self.end_reason = match &outcome.end {
            Ok(()) => EndReason::Completed,
            Err(TunnelError::End { side: TunnelSide::Client, .. }) => EndReason::Client,
            Err(TunnelError::End { side: TunnelSide::Remote, .. }) => EndReason::Remote,
            Err(TunnelError::Idle(_)) => EndReason::Idle,
        };
        outcome
    }

    /// Adds the bytes since the last call; both arguments are totals since the start.
    fn count_bytes(&mut self, from_client: u64, to_client: u64) {
        if let Some(counts) = self.counts() {
            counts
                .bytes_from_client
                .fetch_add(from_client - self.counted_from_client, Ordering::Relaxed);
            counts.bytes_to_client.fetch_add(to_client - self.counted_to_client, Ordering::Relaxed);
        }
        (self.counted_from_client, self.counted_to_client) = (from_client, to_client);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let Some(counts) = self.counts() else { return };
        // Held until the end: a report counts the tunnel either as open or as ended.
        let mut open_tunnels = counts.lock_open_tunnels();
        let tunnel_stream = open_tunnels.remove(&self.number);
        if tunnel_stream.is_some_and(|stream| stream.has_migrated()) {
            counts.migrated_ended_count.fetch_add(1, Ordering::Relaxed);
        }
        let duration = self.started_at.elapsed();
        let bucket = DURATION_BUCKETS_S.iter().position(|&bound| duration.as_secs_f64() <= bound);
        let reason = END_REASONS.iter().position(|(ending, _)| *ending == self.end_reason);
        let counters = [
            bucket.and_then(|at| counts.duration_buckets.get(at)),
            reason.and_then(|at| counts.ended_by_reason.get(at)),
        ];
        for count in counters.into_iter().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        counts.duration_sum_ms.fetch_add(millis, Ordering::Relaxed);
    }
}
