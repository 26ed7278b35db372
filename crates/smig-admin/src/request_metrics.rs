//! Metrics of requests, updated as these end. Their names and help texts are in `metrics`.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

/// Requests with fewer bytes, both bodies together, count as small, that is, latency-sensitive.
pub(crate) const SMALL_REQUEST_THRESHOLD_BYTES: u64 = 64 << 10;
/// Upper bounds of the latency histograms, seconds.
const LATENCY_BUCKETS_S: [f64; 16] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.2, 0.35, 0.5, 1.0, 2.0, 10.0, 60.0,
];

/// Latencies by size.
type Latencies = Family<SizeLabels, Histogram, fn() -> Histogram>;

/// Metrics that are updated as requests end and as limits are reached.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    latency: Latencies,
    small_latency: Histogram,
    large_latency: Histogram,
    body_bytes: Family<DirectionLabels, Counter>,
    bytes_sent: Counter,
    bytes_received: Counter,
    limit_hits: Family<LimitLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SizeLabels {
    size: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DirectionLabels {
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LimitLabels {
    limit: &'static str,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let new_histogram: fn() -> Histogram = || Histogram::new(LATENCY_BUCKETS_S);
        let latency = Family::new_with_constructor(new_histogram);
        let bytes = Family::default();
        // Looked up once: updating per request takes no lock of a family.
        let of_size = |size| latency.get_or_create_owned(&SizeLabels { size });
        let (small, large) = (of_size("small"), of_size("large"));
        let of_direction =
            |direction| -> Counter { bytes.get_or_create_owned(&DirectionLabels { direction }) };
        let (sent, received) = (of_direction("sent"), of_direction("received"));
        Self {
            latency,
            small_latency: small,
            large_latency: large,
            body_bytes: bytes,
            bytes_sent: sent,
            bytes_received: received,
            limit_hits: Family::default(),
        }
    }
}

impl RequestMetrics {
    /// Returns the latencies, by size, for the registry.
    pub(crate) fn latency(&self) -> Latencies {
        self.latency.clone()
    }

    /// Returns the body bytes, by direction, for the registry.
    pub(crate) fn body_bytes(&self) -> Family<DirectionLabels, Counter> {
        self.body_bytes.clone()
    }

    /// Returns how often each limit was reached, for the registry.
    pub(crate) fn limit_hits(&self) -> Family<LimitLabels, Counter> {
        self.limit_hits.clone()
    }

    pub(crate) fn count_limit_hit(&self, limit: &'static str) {
        self.limit_hits.get_or_create(&LimitLabels { limit }).inc();
    }

    pub(crate) fn observe_latency(&self, latency: Duration, is_small: bool) {
        let histogram = if is_small { &self.small_latency } else { &self.large_latency };
        histogram.observe(latency.as_secs_f64());
    }

    pub(crate) fn count_body_bytes(&self, sent: u64, received: u64) {
        self.bytes_sent.inc_by(sent);
        self.bytes_received.inc_by(received);
    }
}
