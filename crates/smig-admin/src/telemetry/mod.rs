//! The export of request spans to a collector: OTLP over HTTP, in batches, in the background.
//!
//! Requests never wait for the collector. Spans that it does not accept in time are dropped and counted.

mod export;
mod parent;
mod spec;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::trace::{
    SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tokio::sync::oneshot;

pub use spec::TelemetrySpec;

use crate::StatsSource;
use export::ExportStats;

/// Timeout of the last batch at shutdown.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The CA certificates cannot be read.
    #[error(transparent)]
    Trust(#[from] smig::Error),
    /// The exporter cannot be built, for example because the OTEL environment variables request something that
    /// is not compiled in.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// The exporter of spans, on threads of its own. Dropping it sends the queued spans without waiting for the
/// result.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
    tally: Arc<ExportStats>,
}

impl Telemetry {
    /// Starts the exporter; `service` is the service name unless the configuration or the environment sets one.
    ///
    /// # Errors
    /// [`TelemetryError`]. An unreachable collector is not an error.
    pub fn start(spec: &TelemetrySpec, service: &'static str) -> Result<Self, TelemetryError> {
        let tally = Arc::new(ExportStats::new(spec.traces()));
        let processor = export::processor(spec, &tally)?;
        let mut provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_resource(resource(spec, service));
        if let Some(ratio) = spec.sample {
            let roots = Sampler::TraceIdRatioBased(ratio);
            provider = provider.with_sampler(Sampler::ParentBased(Box::new(roots)));
        }
        Ok(Self { provider: provider.build(), tally })
    }

    /// Returns the tracer whose spans it exports.
    #[must_use]
    pub fn tracer(&self) -> Tracer {
        let scope = InstrumentationScope::builder("smig").with_version(VERSION).build();
        Tracer(self.provider.tracer_with_scope(scope))
    }

    /// Returns the counters of exported and dropped spans.
    #[must_use]
    pub fn tally(&self) -> Arc<dyn StatsSource> {
        Arc::<ExportStats>::clone(&self.tally)
    }

    /// Sends the queued spans, for `limit` at most, and stops the exporter.
    pub async fn end(self, limit: Duration) {
        let provider = self.provider.clone();
        let (done, ended) = oneshot::channel();
        // A plain thread: a runtime would wait for a blocking task at its end.
        thread::spawn(move || {
            // A timeout is logged below, as unsent spans.
            let _ = provider.shutdown_with_timeout(limit);
            let _ = done.send(());
        });
        let _ = ended.await;
        self.tally.tell_unsent();
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let _ = self.provider.shutdown_with_timeout(Duration::ZERO);
    }
}

/// The resource attributes of all spans.
fn resource(spec: &TelemetrySpec, service: &'static str) -> Resource {
    let said = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES")
            .is_ok_and(|all| all.split(',').any(|one| one.trim().starts_with("service.name=")));
    let resource = Resource::builder().with_attribute(KeyValue::new("service.version", VERSION));
    match &spec.service_name {
        Some(name) => resource.with_service_name(name.clone()),
        None if said => resource,
        None => resource.with_service_name(service),
    }
    .build()
}

/// Starts spans that are exported to a collector.
#[derive(Clone, Debug)]
pub struct Tracer(SdkTracer);

impl Tracer {
    /// Starts a span of kind server. If `headers` carry a trace context, its span is the parent.
    pub(crate) fn begin(
        &self,
        name: String,
        attributes: Vec<KeyValue>,
        headers: Option<&HeaderMap>,
    ) -> ExportedSpan {
        let parent = headers.and_then(parent::extract);
        let joined = parent.is_some();
        let around = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder =
            SpanBuilder::from_name(name).with_kind(SpanKind::Server).with_attributes(attributes);
        let span = self.0.build_with_context(builder, &around);
        ExportedSpan(Arc::new(Begun { context: Context::new().with_span(span), joined }))
    }
}

/// An exported span. It ends when its last clone is dropped. It is one pointer in size, because every request
/// has a place for it, even without telemetry.
#[derive(Clone, Debug)]
pub(crate) struct ExportedSpan(Arc<Begun>);

#[derive(Debug)]
struct Begun {
    context: Context,
    /// The span belongs to a trace that the client started.
    joined: bool,
}

impl ExportedSpan {
    pub(crate) fn record(&self, name: &'static str, value: impl Into<Value>) {
        self.0.context.span().set_attribute(KeyValue::new(name, value));
    }

    pub(crate) fn event(&self, name: &'static str, attributes: Vec<KeyValue>) {
        self.0.context.span().add_event(name, attributes);
    }

    pub(crate) fn failed(&self, how: &str) {
        self.record("error.type", how.to_owned());
        self.0.context.span().set_status(Status::error(""));
    }

    /// Sets this span as the parent in a forwarded request's fields, in place of the client's.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        parent::inject(self.0.context.span().span_context(), self.0.joined, headers);
    }
}
