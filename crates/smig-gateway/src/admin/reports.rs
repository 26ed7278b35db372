//! What other rooms of the house tell operators: numbers of upstreams and tunnels.
//!
//! One list of each, filled by whoever has some; names and units of the metrics are in `metrics`.

use serde::Serialize;

/// Somebody who has numbers for operators. Asked at each scrape, and a few times a second while the
/// page is open.
pub trait Report: Send + Sync + 'static {
    /// Adds them.
    fn report(&self, to: &mut Reported);
}

/// What was reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reported {
    /// Servers that requests go to.
    pub upstreams: Vec<UpstreamReport>,
    /// Tunnels, by kind.
    pub tunnels: Vec<TunnelReport>,
    /// Lines that were dropped since the start, if there is an access log.
    pub unlogged: Option<u64>,
    /// Spans for a collector, if there is one.
    pub telemetry: Option<TelemetryReport>,
}

/// What became of spans that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TelemetryReport {
    /// The collector took them.
    pub sent: u64,
    /// It did not, or too many waited for it.
    pub dropped: u64,
}

/// One server of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamReport {
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// The server's URL.
    pub server: String,
    /// Whether requests are sent there.
    pub healthy: bool,
    /// Requests that run now.
    pub running: u64,
    /// Connections that are open now.
    pub connections: u64,
    /// Requests since the start.
    pub requests: u64,
    /// Of these, the ones that got no whole answer.
    pub failures: u64,
}

/// Tunnels of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunnelReport {
    /// How they are asked for: `connect`, `upgrade`, `socks`, `port`.
    pub kind: &'static str,
    /// Open now.
    pub open: u64,
    /// Opened since the start.
    pub opened: u64,
    /// Of these, the ones whose stream moved to another connection.
    pub moved: u64,
    /// Octets from clients, of open ones too.
    pub octets_in: u64,
    /// Octets to clients.
    pub octets_out: u64,
    /// Those that have ended, by why: `in_order`; an end broke, `client` or `far`; `idle`; `stopped`.
    pub ended: Vec<(&'static str, u64)>,
    /// How long they lasted: upper bounds, seconds, and how many ended within and beyond the bound before.
    pub lasted: Vec<(f64, u64)>,
    /// All of them together.
    pub lasted_seconds: f64,
}
