//! Snapshots of the sessions, shared by all readers: taken on request, and at most once per
//! [`MIN_SNAPSHOT_INTERVAL`] however many readers there are.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::json::{Sessions, to_millis};
use super::observer::AdminObserver;
use super::reports::ReportedStats;
use super::target::AdminTarget;

/// Minimum time between two snapshots.
pub(crate) const MIN_SNAPSHOT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct SnapshotCache {
    target: AdminTarget,
    last_snapshot: Mutex<Option<CachedSnapshot>>,
}

/// A snapshot, serialized.
#[derive(Clone, Debug)]
pub(crate) struct CachedSnapshot {
    /// Sequence number of the snapshot.
    pub(crate) number: u64,
    taken_at: Instant,
    /// The body of `/api/sessions`.
    pub(crate) sessions_json: Bytes,
    /// The same with counters and statistics, as an event of the page.
    pub(crate) event: Bytes,
}

/// The data of a `snapshot` event.
#[derive(Debug, Serialize)]
struct PageUpdate<'a> {
    at_ms: u64,
    #[serde(flatten)]
    sessions: &'a Sessions,
    counters: serde_json::Value,
    /// Why the process is not ready; `None` if it is.
    not_ready: Option<String>,
    /// Small requests that ended since the last snapshot: session, connection, milliseconds.
    #[serde(rename = "ended")]
    ended_small_requests: Vec<(String, String, f64)>,
    #[serde(flatten)]
    reported_stats: ReportedStats,
}

impl SnapshotCache {
    pub(crate) fn new(target: AdminTarget) -> Arc<Self> {
        Arc::new(Self { target, last_snapshot: Mutex::default() })
    }

    pub(crate) const fn observer(&self) -> &Arc<AdminObserver> {
        &self.target.observer
    }

    pub(crate) const fn target(&self) -> &AdminTarget {
        &self.target
    }

    /// Returns a snapshot younger than [`MIN_SNAPSHOT_INTERVAL`]; takes one if there is none.
    pub(crate) async fn get(&self) -> Result<CachedSnapshot, serde_json::Error> {
        let mut last_snapshot = self.last_snapshot.lock().await;
        if let Some(snapshot) = &*last_snapshot
            && snapshot.taken_at.elapsed() < MIN_SNAPSHOT_INTERVAL
        {
            return Ok(snapshot.clone());
        }
        let number = last_snapshot.as_ref().map_or(0, |snapshot| snapshot.number) + 1;
        let taken_at = Instant::now();
        let sessions = Sessions::from_snapshot(self.target.source.sessions().await);
        let update_json = self.page_update(&sessions)?;
        let event = format!("event: snapshot\ndata: {update_json}\n\n").into();
        let sessions_json = serde_json::to_vec(&sessions)?.into();
        let snapshot = CachedSnapshot { number, taken_at, sessions_json, event };
        *last_snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }

    fn page_update(&self, sessions: &Sessions) -> Result<String, serde_json::Error> {
        let since_epoch =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let stats = self.target.source.stats();
        let small_requests = self.observer().take_small_requests().into_iter().map(|request| {
            let stream = request.stream;
            (stream.session.to_string(), stream.connection.to_string(), to_millis(request.latency))
        });
        serde_json::to_string(&PageUpdate {
            at_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
            sessions,
            counters: json!({
                "connections_open": stats.connections_opened.saturating_sub(stats.connections_closed),
                "streams_opened": stats.streams_opened,
                "migrations": stats.migrations,
                "migrations_declined": stats.migrations_declined,
                "streams_reset": stats.streams_reset,
            }),
            not_ready: (self.target.readiness_check)().err(),
            ended_small_requests: small_requests.collect(),
            reported_stats: self.target.collect_stats(),
        })
    }
}
