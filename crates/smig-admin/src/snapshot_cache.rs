//! Snapshots of the sessions, shared by all readers: taken on request, and at most once per [`PERIOD`]
//! however many readers there are.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::json::{Sessions, millis};
use super::observer::AdminObserver;
use super::reports::ReportedStats;
use super::target::AdminTarget;

/// Minimum time between two snapshots.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct SnapshotCache {
    subject: AdminTarget,
    last: Mutex<Option<CachedSnapshot>>,
}

/// A snapshot, serialized.
#[derive(Clone, Debug)]
pub(crate) struct CachedSnapshot {
    /// Sequence number of the snapshot.
    pub(crate) number: u64,
    taken: Instant,
    /// The body of `/api/sessions`.
    pub(crate) sessions: Bytes,
    /// The same with counters and statistics, as an event of the page.
    pub(crate) event: Bytes,
}

/// The data of a page event.
#[derive(Debug, Serialize)]
struct PageUpdate<'a> {
    at_ms: u64,
    #[serde(flatten)]
    sessions: &'a Sessions,
    counters: serde_json::Value,
    /// Why the process is not ready; `None` if it is.
    not_ready: Option<String>,
    /// Small requests that ended since the last snapshot: session, connection, milliseconds.
    ended: Vec<(String, String, f64)>,
    #[serde(flatten)]
    reported: ReportedStats,
}

impl SnapshotCache {
    pub(crate) fn new(subject: AdminTarget) -> Arc<Self> {
        Arc::new(Self { subject, last: Mutex::default() })
    }

    pub(crate) const fn observer(&self) -> &Arc<AdminObserver> {
        &self.subject.observer
    }

    pub(crate) const fn subject(&self) -> &AdminTarget {
        &self.subject
    }

    /// Returns a snapshot that is younger than [`PERIOD`]; takes one if there is none.
    pub(crate) async fn get(&self) -> Result<CachedSnapshot, serde_json::Error> {
        let mut last = self.last.lock().await;
        if let Some(sample) = &*last
            && sample.taken.elapsed() < PERIOD
        {
            return Ok(sample.clone());
        }
        let number = last.as_ref().map_or(0, |sample| sample.number) + 1;
        let taken = Instant::now();
        let sessions = Sessions::of(self.subject.source.sessions().await);
        let event = self.page_update(&sessions)?;
        let event = format!("event: snapshot\ndata: {event}\n\n").into();
        let sessions = serde_json::to_vec(&sessions)?.into();
        let sample = CachedSnapshot { number, taken, sessions, event };
        *last = Some(sample.clone());
        Ok(sample)
    }

    fn page_update(&self, sessions: &Sessions) -> Result<String, serde_json::Error> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let stats = self.subject.source.stats();
        let ended = self.observer().take_ended().into_iter().map(|small| {
            let place = small.place;
            (place.session.to_string(), place.connection.to_string(), millis(small.latency))
        });
        serde_json::to_string(&PageUpdate {
            at_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            sessions,
            counters: json!({
                "connections_open": stats.connections_opened.saturating_sub(stats.connections_closed),
                "streams_opened": stats.streams_opened,
                "migrations": stats.migrations,
                "migrations_declined": stats.migrations_declined,
                "streams_reset": stats.streams_reset,
            }),
            not_ready: (self.subject.ready)().err(),
            ended: ended.collect(),
            reported: self.subject.reported(),
        })
    }
}
