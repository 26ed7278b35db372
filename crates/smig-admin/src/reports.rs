//! Statistics that other modules contribute to the admin page and to `/metrics`.
//!
//! Names and units of the metrics are in `metrics`.

use serde::Serialize;

/// A module with statistics for operators. Called at each scrape, and a few times a second while a client
/// reads the page's events.
pub trait StatsSource: Send + Sync + 'static {
    /// Adds the module's statistics.
    fn report(&self, stats: &mut ReportedStats);
}

/// The statistics of all modules.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReportedStats {
    /// Servers of the upstreams.
    #[serde(rename = "upstreams")]
    pub upstream_servers: Vec<UpstreamServerReport>,
    /// Tunnels, by kind.
    pub tunnels: Vec<TunnelReport>,
    /// Access log lines dropped since the start, if there is an access log.
    pub access_log_dropped: Option<u64>,
    /// Counters of exported spans, if there is a collector.
    pub telemetry: Option<TelemetryReport>,
}

/// Counters of spans that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TelemetryReport {
    /// Accepted by the collector.
    pub exported: u64,
    /// Dropped: the export failed, or the queue was full.
    pub dropped: u64,
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamServerReport {
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// The server's URL.
    pub server: String,
    /// Whether it is neither ejected nor failing its health checks. The balancer picks an
    /// unhealthy server only if no healthy one is left.
    pub healthy: bool,
    /// Active requests.
    pub active: u64,
    /// Connections that are open or being made.
    pub connections: u64,
    /// Attempts since the start: the times that a request was given this server. Retries count again, and so do
    /// requests for which there was no connection.
    #[serde(rename = "requests")]
    pub attempts: u64,
    /// Of these, the failures that the server is blamed for, as for its ejection.
    pub failures: u64,
}

/// Tunnels of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunnelReport {
    /// How they are opened: `connect`, `upstream` (all to an upstream, also by CONNECT), `socks`, `port`.
    pub kind: &'static str,
    /// Open tunnels.
    pub open: u64,
    /// Opened since the start.
    pub opened: u64,
    /// Of these, the ones whose stream migrated to another connection.
    pub migrated: u64,
    /// Bytes from clients, including those of open tunnels.
    #[serde(rename = "bytes_in")]
    pub bytes_from_client: u64,
    /// Bytes to clients.
    #[serde(rename = "bytes_out")]
    pub bytes_to_client: u64,
    /// Closed tunnels by reason: `completed`; an end failed, `client` or `remote`; `idle_timeout`; `aborted`.
    pub ended: Vec<(&'static str, u64)>,
    /// Histogram of their durations, not cumulative: upper bound of each bucket in seconds, and its count.
    pub durations: Vec<(f64, u64)>,
    /// Sum of the durations, seconds.
    pub duration_sum_seconds: f64,
}
