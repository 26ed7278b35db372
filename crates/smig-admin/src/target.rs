//! The target of the admin interface: sessions, counters, and statistics of other modules.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use smig::{Client, ServerView, Snapshot, Stats};

use super::observer::AdminObserver;
use super::reports::{ReportedStats, StatsSource};

/// A source of sessions and counters: a server, a client, or several of them.
pub trait SessionSource: Send + Sync + 'static {
    /// Returns the counters since the start.
    fn stats(&self) -> Stats;
    /// Takes a snapshot of the sessions.
    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>>;
}

impl SessionSource for ServerView {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(Self::sessions(self))
    }
}

impl SessionSource for Client {
    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn sessions(&self) -> Pin<Box<dyn Future<Output = Snapshot> + Send + '_>> {
        Box::pin(Self::sessions(self))
    }
}

/// The server, gateway or agent that the admin interface shows.
pub struct AdminTarget {
    pub(crate) title: String,
    pub(crate) source: Box<dyn SessionSource>,
    pub(crate) observer: Arc<AdminObserver>,
    stats_sources: Vec<Arc<dyn StatsSource>>,
    pub(crate) readiness_check: ReadinessCheck,
}

/// Readiness check: an error's text says why the process does not accept work.
type ReadinessCheck = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

impl AdminTarget {
    /// The sessions of `source`, observed by `observer`, under a title: the program, and perhaps its location.
    #[must_use]
    pub fn new(
        title: impl Into<String>,
        source: impl SessionSource,
        observer: Arc<AdminObserver>,
    ) -> Self {
        Self {
            title: title.into(),
            source: Box::new(source),
            observer,
            stats_sources: Vec::new(),
            readiness_check: Box::new(|| Ok(())),
        }
    }

    /// Adds statistics of another module, such as upstreams or tunnels.
    #[must_use]
    pub fn with_stats(mut self, source: Arc<dyn StatsSource>) -> Self {
        self.stats_sources.push(source);
        self
    }

    /// Sets the check of `/readyz`: an error's text says why the process is not ready, such as "draining".
    #[must_use]
    pub fn with_readiness(
        mut self,
        readiness_check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.readiness_check = Box::new(readiness_check);
        self
    }

    /// Collects the current statistics of all modules.
    pub(crate) fn collect_stats(&self) -> ReportedStats {
        let mut reported_stats = ReportedStats::default();
        for source in &self.stats_sources {
            source.report(&mut reported_stats);
        }
        reported_stats
    }
}

impl fmt::Debug for AdminTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminTarget").field("title", &self.title).finish_non_exhaustive()
    }
}
