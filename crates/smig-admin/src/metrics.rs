//! Metrics in the OpenMetrics text format: all names, units and help texts.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use smig::Stats;

use super::request_metrics::SMALL_REQUEST_THRESHOLD_BYTES;
use super::snapshot_cache::SnapshotCache;
use super::{ReportedStats, TunnelReport, UpstreamServerReport};

/// All metrics of one target.
pub(crate) struct Metrics(Registry);

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    pub(crate) fn new(snapshots: &Arc<SnapshotCache>) -> Self {
        let mut registry = Registry::with_prefix("smig");
        let build_info = vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("title", snapshots.target().title.clone()),
        ];
        registry.register("build", "Version and title of this process", Info::new(build_info));
        let requests = snapshots.observer().request_metrics();
        let help = format!(
            "Time from a request to the end of its response, HTTP/2 only; small: both bodies \
             together have less than {SMALL_REQUEST_THRESHOLD_BYTES} bytes"
        );
        let latency = requests.latency();
        registry.register_with_unit("request_duration", help, Unit::Seconds, latency);
        let help = "Body bytes of completed HTTP/2 streams";
        registry.register_with_unit("body", help, Unit::Bytes, requests.body_bytes());
        let help = "Limits reached, by their names";
        registry.register("limit_hits", help, requests.limit_hits());
        registry.register_collector(Box::new(ScrapeCollector(Arc::clone(snapshots))));
        Self(registry)
    }

    /// Encodes all metrics in the text format.
    pub(crate) fn to_text(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.0)?;
        Ok(out)
    }
}

/// Metrics that are collected at each scrape.
#[derive(Debug)]
struct ScrapeCollector(Arc<SnapshotCache>);

impl Collector for ScrapeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let target = self.0.target();
        let stats = target.source.stats();
        for (name, help, value) in counters(&stats) {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        let open_connections = stats.connections_opened.saturating_sub(stats.connections_closed);
        let ready = i64::from((target.readiness_check)().is_ok());
        let open_connections = i64::try_from(open_connections).unwrap_or(i64::MAX);
        for (name, help, value) in [
            ("connections", "Open connections", open_connections),
            ("ready", "1 if new work is accepted, else 0", ready),
        ] {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)?;
        }
        encode_migrations(&mut encoder, &stats)?;
        let reported_stats = target.collect_stats();
        encode_access_log(&mut encoder, &reported_stats)?;
        encode_telemetry(&mut encoder, &reported_stats)?;
        encode_upstreams(&mut encoder, &reported_stats)?;
        encode_tunnels(&mut encoder, &reported_stats)
    }
}

fn counters(stats: &Stats) -> [(&'static str, &'static str, u64); 14] {
    [
        ("connections_opened", "Connections accepted or opened", stats.connections_opened),
        ("connections_closed", "Connections closed", stats.connections_closed),
        (
            "handshakes_failed",
            "Handshakes that failed or timed out, and cleartext connections without a request",
            stats.handshakes_failed,
        ),
        ("sessions_established", "Sessions between two SMig endpoints", stats.sessions_established),
        ("joins", "Connections that joined a session", stats.connections_joined),
        ("joins_refused", "JOINs refused", stats.joins_refused),
        ("streams_opened", "HTTP/2 streams and HTTP/1.1 requests", stats.streams_opened),
        ("streams_completed", "HTTP/2 streams completed", stats.streams_completed),
        ("streams_reset", "Streams that ended with an error", stats.streams_reset),
        ("migrations_declined", "Migrations declined by the peer", stats.migrations_declined),
        (
            "second_connections",
            "Connections opened beside one that carries bulk",
            stats.second_connections,
        ),
        ("responses_continued", "Responses continued by range requests", stats.responses_continued),
        (
            "continuations_failed",
            "Range requests that did not return the rest of a response",
            stats.continuations_failed,
        ),
        ("panics", "Panics in handlers and bodies", stats.panics),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InitiatorLabels {
    initiator: &'static str,
}

/// Encodes the number of migrations by the end that started them.
fn encode_migrations(encoder: &mut DescriptorEncoder<'_>, stats: &Stats) -> Result<(), fmt::Error> {
    let help = "Migrations of streams to another connection, by the end that initiated them";
    let mut metric = encoder.encode_descriptor("migrations", help, None, MetricType::Counter)?;
    let counts = [("local", stats.migrations_initiated), ("peer", stats.migrations_by_peer)];
    for (initiator, count) in counts {
        ConstCounter::new(count).encode(metric.encode_family(&InitiatorLabels { initiator })?)?;
    }
    Ok(())
}

fn encode_access_log(
    encoder: &mut DescriptorEncoder<'_>,
    reported_stats: &ReportedStats,
) -> Result<(), fmt::Error> {
    let Some(dropped) = reported_stats.access_log_dropped else { return Ok(()) };
    let (name, help) = ("access_log_lines_dropped", "Lines dropped: buffer full, or write failed");
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    ConstCounter::new(dropped).encode(metric)
}

fn encode_telemetry(
    encoder: &mut DescriptorEncoder<'_>,
    reported_stats: &ReportedStats,
) -> Result<(), fmt::Error> {
    let Some(telemetry) = reported_stats.telemetry else { return Ok(()) };
    for (name, help, value) in [
        ("telemetry_spans_exported", "Spans accepted by the collector", telemetry.exported),
        ("telemetry_spans_dropped", "Spans dropped", telemetry.dropped),
    ] {
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)?;
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    upstream: String,
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TunnelLabels {
    kind: &'static str,
}

/// A metric with one value per label set.
struct MetricDef<T> {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    value: fn(&T) -> u64,
}

fn encode_all<T, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    items: &[T],
    labels: impl Fn(&T) -> L,
    metrics: &[MetricDef<T>],
) -> Result<(), fmt::Error> {
    if items.is_empty() {
        return Ok(());
    }
    for MetricDef { name, help, kind, value } in metrics {
        let mut metric = encoder.encode_descriptor(name, help, None, *kind)?;
        for item in items {
            let labels = labels(item);
            let family = metric.encode_family(&labels)?;
            match kind {
                MetricType::Counter => ConstCounter::new(value(item)).encode(family)?,
                _ => ConstGauge::new(i64::try_from(value(item)).unwrap_or(i64::MAX))
                    .encode(family)?,
            }
        }
    }
    Ok(())
}

fn encode_upstreams(
    encoder: &mut DescriptorEncoder<'_>,
    reported_stats: &ReportedStats,
) -> Result<(), fmt::Error> {
    use MetricType::{Counter, Gauge};
    let labels = |one: &UpstreamServerReport| UpstreamLabels {
        upstream: one.upstream.clone(),
        server: one.server.clone(),
    };
    let metric = |name, help, kind, value: fn(&UpstreamServerReport) -> u64| MetricDef {
        name,
        help,
        kind,
        value,
    };
    encode_all(
        encoder,
        &reported_stats.upstream_servers,
        labels,
        &[
            metric(
                "upstream_healthy",
                "1 if neither ejected nor failing its health checks, else 0",
                Gauge,
                |one| one.healthy.into(),
            ),
            metric("upstream_active_requests", "Requests in progress", Gauge, |one| one.active),
            metric("upstream_connections", "Connections open or being established", Gauge, |one| {
                one.connections
            }),
            metric(
                "upstream_requests",
                "Attempts: each time that a request was given this server, retries included",
                Counter,
                |one| one.attempts,
            ),
            metric(
                "upstream_failures",
                "Failed attempts that count against the server",
                Counter,
                |one| one.failures,
            ),
        ],
    )
}

fn encode_tunnels(
    encoder: &mut DescriptorEncoder<'_>,
    reported_stats: &ReportedStats,
) -> Result<(), fmt::Error> {
    use MetricType::{Counter, Gauge};
    let labels = |one: &TunnelReport| TunnelLabels { kind: one.kind };
    let metric =
        |name, help, kind, value: fn(&TunnelReport) -> u64| MetricDef { name, help, kind, value };
    encode_all(
        encoder,
        &reported_stats.tunnels,
        labels,
        &[
            metric("tunnels", "Open tunnels", Gauge, |one| one.open),
            metric("tunnels_opened", "Tunnels opened", Counter, |one| one.opened),
            metric("tunnels_migrated", "Tunnels whose stream migrated", Counter, |one| {
                one.migrated
            }),
        ],
    )?;
    encode_tunnel_bytes(encoder, &reported_stats.tunnels)?;
    encode_tunnel_ends(encoder, &reported_stats.tunnels)
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TunnelBytesLabels {
    kind: &'static str,
    direction: &'static str,
}

/// Encodes the bytes of tunnels, counted while they run.
fn encode_tunnel_bytes(
    encoder: &mut DescriptorEncoder<'_>,
    reports: &[TunnelReport],
) -> Result<(), fmt::Error> {
    if reports.is_empty() {
        return Ok(());
    }
    let (help, unit) = ("Bytes received from and sent to clients", Some(&Unit::Bytes));
    let mut metric = encoder.encode_descriptor("tunnel", help, unit, MetricType::Counter)?;
    for report in reports {
        for (direction, bytes) in
            [("received", report.bytes_from_client), ("sent", report.bytes_to_client)]
        {
            let labels = TunnelBytesLabels { kind: report.kind, direction };
            ConstCounter::new(bytes).encode(metric.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TunnelEndLabels {
    kind: &'static str,
    reason: &'static str,
}

/// Encodes why tunnels ended, and how long they lasted.
fn encode_tunnel_ends(
    encoder: &mut DescriptorEncoder<'_>,
    reports: &[TunnelReport],
) -> Result<(), fmt::Error> {
    if reports.is_empty() {
        return Ok(());
    }
    let help = "Tunnels ended: completed, failed at one end, timed out idle, or aborted here";
    let mut metric = encoder.encode_descriptor("tunnels_ended", help, None, MetricType::Counter)?;
    for report in reports {
        for &(reason, count) in &report.ended {
            let labels = TunnelEndLabels { kind: report.kind, reason };
            ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
        }
    }
    let (help, unit) = ("Duration of ended tunnels", Some(&Unit::Seconds));
    let mut metric =
        encoder.encode_descriptor("tunnel_duration", help, unit, MetricType::Histogram)?;
    for report in reports {
        let labels = TunnelLabels { kind: report.kind };
        let count = report.durations.iter().map(|(_, count)| count).sum();
        metric.encode_family(&labels)?.encode_histogram::<TunnelLabels>(
            report.duration_sum_seconds,
            count,
            &report.durations,
            None,
        )?;
    }
    Ok(())
}
