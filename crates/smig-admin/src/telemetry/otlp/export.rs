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
const WAITING: usize = 4096;
/// Timeout of a batch, including its retries.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of bytes read of a collector's response.
const MAX_ANSWER: usize = 64 << 10;

/// Creates the processor of ended spans.
pub(super) fn processor(
    spec: &TelemetrySpec,
    stats: &Arc<ExportStats>,
) -> Result<impl SpanProcessor + use<>, TelemetryError> {
    let exporter = OtlpExporter::builder()
        .with_http()
        .with_http_client(OtlpClient::new(spec, stats)?)
        .with_endpoint(spec.traces())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(PATIENCE)
        .build()
        .map_err(|error| TelemetryError::Exporter(error.into()))?;
    // Up to 512 spans, at least every five seconds; the OTEL_BSP_* environment variables override this.
    let batches = BatchConfigBuilder::default().with_max_queue_size(WAITING).build();
    let exporter = Counted { exporter, stats: Arc::clone(stats) };
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    Ok(Bounded { processor, stats: Arc::clone(stats) })
}

/// Counters and state of the export.
pub(crate) struct ExportStats {
    endpoint: String,
    /// Spans that are queued or being exported.
    waiting: AtomicUsize,
    sent: AtomicU64,
    dropped: AtomicU64,
    /// The last batch failed, and that was logged.
    is_away: AtomicBool,
    /// Spans were dropped because the queue was full, and that was logged.
    is_full: AtomicBool,
    /// The last error.
    why: Mutex<String>,
}

impl fmt::Debug for ExportStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportStats").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl ExportStats {
    pub(super) fn new(endpoint: String) -> Self {
        Self {
            endpoint,
            waiting: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            why: Mutex::default(),
        }
    }

    /// Reserves a slot in the queue; returns `false`, and counts a dropped span, if the queue is full.
    fn reserve(&self) -> bool {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < WAITING {
            return true;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if !self.is_full.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                collector = self.endpoint,
                "the queue of {WAITING} spans is full; further ones are dropped"
            );
        }
        false
    }

    fn failed(&self, why: String) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Counts a batch that was accepted or lost. Logs only changes between the two.
    fn on_batch(&self, count: usize, taken: bool) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
        let was_away = self.is_away.swap(!taken, Ordering::Relaxed);
        if taken {
            self.sent.fetch_add(count as u64, Ordering::Relaxed);
            let was_full = self.is_full.swap(false, Ordering::Relaxed);
            if was_away || was_full {
                tracing::info!(collector = self.endpoint, "the collector accepts spans again");
            }
            return;
        }
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
        if !was_away {
            let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
            tracing::warn!(
                collector = self.endpoint,
                why = why.as_str(),
                "spans are dropped: the collector does not accept them"
            );
        }
    }

    /// Logs how many spans were left unsent at shutdown.
    pub(super) fn log_unsent(&self) {
        let left = self.waiting.load(Ordering::Relaxed);
        if left > 0 {
            tracing::warn!(collector = self.endpoint, "{left} spans not sent before shutdown");
        }
    }
}

impl StatsSource for ExportStats {
    fn report(&self, to: &mut ReportedStats) {
        to.telemetry = Some(TelemetryReport {
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        });
    }
}

/// The library's queue, behind our own limit: the library does not report what it drops, so it never gets
/// more than it has room for.
#[derive(Debug)]
struct Bounded {
    processor: BatchSpanProcessor,
    stats: Arc<ExportStats>,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.stats.reserve() {
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

/// The library's exporter, with the result of each batch counted.
#[derive(Debug)]
struct Counted {
    exporter: OtlpExporter,
    stats: Arc<ExportStats>,
}

impl SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let taken = self.exporter.export(batch).await;
        self.stats.on_batch(count, taken.is_ok());
        taken
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
        let engine = Config { smig: None, ..Config::client() };
        let client = Client::builder()
            .trust(spec.trust())
            .engine(engine)
            .spares(0)
            .connect_timeout(PATIENCE)
            .handshake_timeout(PATIENCE)
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
            let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        };
        let sending = runtime.spawn(async move { timeout(PATIENCE, exchange).await });
        let answer = match sending.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(format!("no response within {} s", PATIENCE.as_secs()).into()),
            Err(error) => Err(error.into()),
        };
        match &answer {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.stats.failed(format!("it responded with {}", response.status())),
            Err(error) => self.stats.failed(error.to_string()),
        }
        answer
    }
}
