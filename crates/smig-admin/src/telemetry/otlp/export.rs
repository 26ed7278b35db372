//! The export of spans: a bounded queue, batches, and their requests to the collector.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use opentelemetry::Context;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    Protocol, SpanExporter as OtlpExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use smig::{Client, Config};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::super::{TelemetryError, TelemetrySpec};
use crate::{ReportedStats, StatsSource, TelemetryReport};

/// Maximum number of spans that are queued or being exported.
const MAX_PENDING_SPANS: usize = 4096;
/// Deadline for the retries of a batch. The library makes three, within about a second if the collector refuses at once. Each
/// attempt has this timeout too, so the last one may end later.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read of a collector's response.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// Creates the processor of ended spans.
pub(super) fn build_processor(
    spec: &TelemetrySpec,
    stats: &Arc<ExportStats>,
) -> Result<impl SpanProcessor + use<>, TelemetryError> {
    let exporter = OtlpExporter::builder()
        .with_http()
        .with_http_client(OtlpClient::new(spec, stats)?)
        .with_endpoint(spec.traces_url())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|error| TelemetryError::Exporter(error.into()))?;
    // Up to 512 spans, at least every five seconds, unless OTEL_BSP_* environment variables say otherwise. The queue's
    // size is ours, whatever OTEL_BSP_MAX_QUEUE_SIZE says.
    let batch_config = BatchConfigBuilder::default().with_max_queue_size(MAX_PENDING_SPANS).build();
    let exporter = CountingExporter { exporter, stats: Arc::clone(stats) };
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batch_config).build();
    Ok(BoundedProcessor { processor, stats: Arc::clone(stats) })
}

/// Counters and state of the export.
pub(crate) struct ExportStats {
    traces_url: String,
    /// Spans that are queued or being exported.
    pending_spans: AtomicUsize,
    exported_spans: AtomicU64,
    dropped_spans: AtomicU64,
    /// The last batch failed, and that was logged.
    is_failing: AtomicBool,
    /// Spans were dropped because the queue was full, and that was logged.
    was_full_logged: AtomicBool,
    /// The last error.
    last_error: Mutex<String>,
}

impl fmt::Debug for ExportStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportStats").field("traces_url", &self.traces_url).finish_non_exhaustive()
    }
}

impl ExportStats {
    pub(super) fn new(traces_url: String) -> Self {
        Self {
            traces_url,
            pending_spans: AtomicUsize::new(0),
            exported_spans: AtomicU64::new(0),
            dropped_spans: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            was_full_logged: AtomicBool::new(false),
            last_error: Mutex::default(),
        }
    }

    /// Reserves a slot in the queue; returns `false`, and counts a dropped span, if the queue is full.
    fn try_reserve(&self) -> bool {
        if self.pending_spans.fetch_add(1, Ordering::Relaxed) < MAX_PENDING_SPANS {
            return true;
        }
        self.pending_spans.fetch_sub(1, Ordering::Relaxed);
        self.dropped_spans.fetch_add(1, Ordering::Relaxed);
        if !self.was_full_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                collector = self.traces_url,
                "the queue of {MAX_PENDING_SPANS} spans is full; further ones are dropped"
            );
        }
        false
    }

    fn set_error(&self, error: String) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Counts a batch that was accepted or lost. Logs only changes between the two.
    fn on_batch(&self, count: usize, was_accepted: bool) {
        self.pending_spans.fetch_sub(count, Ordering::Relaxed);
        let was_failing = self.is_failing.swap(!was_accepted, Ordering::Relaxed);
        if was_accepted {
            self.exported_spans.fetch_add(count as u64, Ordering::Relaxed);
            let was_full = self.was_full_logged.swap(false, Ordering::Relaxed);
            if was_failing {
                tracing::info!(collector = self.traces_url, "the collector accepts spans again");
            } else if was_full {
                tracing::info!(collector = self.traces_url, "the queue of spans has room again");
            }
            return;
        }
        self.dropped_spans.fetch_add(count as u64, Ordering::Relaxed);
        if !was_failing {
            let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
            tracing::warn!(
                collector = self.traces_url,
                why = last_error.as_str(),
                "spans are dropped: the collector does not accept them"
            );
        }
    }

    /// Logs how many spans were left unsent at shutdown.
    pub(super) fn log_unsent(&self) {
        let unsent_spans = self.pending_spans.load(Ordering::Relaxed);
        if unsent_spans > 0 {
            tracing::warn!(
                collector = self.traces_url,
                "{unsent_spans} spans not sent before shutdown"
            );
        }
    }
}

impl StatsSource for ExportStats {
    fn report(&self, stats: &mut ReportedStats) {
        stats.telemetry = Some(TelemetryReport {
            exported: self.exported_spans.load(Ordering::Relaxed),
            dropped: self.dropped_spans.load(Ordering::Relaxed),
        });
    }
}

/// The library's queue, behind our own limit: the library does not report what it drops, so it
/// never gets more than fits.
#[derive(Debug)]
struct BoundedProcessor {
    processor: BatchSpanProcessor,
    stats: Arc<ExportStats>,
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.stats.try_reserve() {
            self.processor.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.processor.force_flush()
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.processor.shutdown_with_timeout(limit)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.processor.set_resource(resource);
    }
}

/// The library's exporter; counts the result of each batch.
#[derive(Debug)]
struct CountingExporter {
    exporter: OtlpExporter,
    stats: Arc<ExportStats>,
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let result = self.exporter.export(batch).await;
        self.stats.on_batch(count, result.is_ok());
        result
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(limit)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Sends the exporter's requests on a thread of its own, so that they do not delay the workers.
struct OtlpClient {
    client: Client,
    headers: HeaderMap,
    stats: Arc<ExportStats>,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
}

impl fmt::Debug for OtlpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpClient").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl OtlpClient {
    fn new(spec: &TelemetrySpec, stats: &Arc<ExportStats>) -> Result<Self, TelemetryError> {
        let config = Config { smig: None, ..Config::client() };
        let client = Client::builder()
            .trust(spec.trust())
            .engine(config)
            .spares(0)
            .connect_timeout(EXPORT_TIMEOUT)
            .handshake_timeout(EXPORT_TIMEOUT)
            .build()?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("smig-telemetry")
            .enable_all()
            .build()?;
        let (headers, stats) = (spec.headers.clone(), Arc::clone(stats));
        Ok(Self { client, headers, stats, runtime: Some(runtime) })
    }
}

impl Drop for OtlpClient {
    fn drop(&mut self) {
        // Do not wait for a name lookup that is in progress.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[async_trait]
impl HttpClient for OtlpClient {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let Some(runtime) = &self.runtime else { return Err("the exporter has ended".into()) };
        for (name, value) in &self.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let client = self.client.clone();
        let exchange = async move {
            let response = client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        let task = runtime.spawn(async move { timeout(EXPORT_TIMEOUT, exchange).await });
        let result = match task.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(format!("no response within {} s", EXPORT_TIMEOUT.as_secs()).into()),
            Err(error) => Err(error.into()),
        };
        match &result {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => {
                self.stats.set_error(format!("the collector responded with {}", response.status()))
            }
            Err(error) => self.stats.set_error(error.to_string()),
        }
        result
    }
}
