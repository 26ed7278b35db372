//! Spans made and exported by OpenTelemetry's crates.

mod export;
mod parent;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry::trace::{
    SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use tokio::sync::oneshot;

use super::{Attribute, AttributeValue, TelemetryError, TelemetrySpec};
use crate::StatsSource;
use export::ExportStats;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The exporter of spans, on threads of its own. Dropping it sends the queued spans without waiting for the
/// result.
#[derive(Debug)]
pub struct Telemetry {
    provider: SdkTracerProvider,
    stats: Arc<ExportStats>,
}

impl Telemetry {
    /// Starts the exporter; `service` is the service name unless the configuration or the environment sets one.
    ///
    /// # Errors
    /// [`TelemetryError`]. An unreachable collector is not an error.
    pub fn start(spec: &TelemetrySpec, service: &'static str) -> Result<Self, TelemetryError> {
        let stats = Arc::new(ExportStats::new(spec.traces_url()));
        let processor = export::build_processor(spec, &stats)?;
        let mut provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_resource(build_resource(spec, service));
        if let Some(ratio) = spec.sample_ratio {
            let roots = Sampler::TraceIdRatioBased(ratio);
            provider = provider.with_sampler(Sampler::ParentBased(Box::new(roots)));
        }
        Ok(Self { provider: provider.build(), stats })
    }

    /// Returns the tracer whose spans it exports.
    #[must_use]
    pub fn tracer(&self) -> Tracer {
        let scope = InstrumentationScope::builder("smig").with_version(VERSION).build();
        Tracer(self.provider.tracer_with_scope(scope))
    }

    /// Returns the counters of exported and dropped spans.
    #[must_use]
    pub fn stats(&self) -> Arc<dyn StatsSource> {
        Arc::<ExportStats>::clone(&self.stats)
    }

    /// Sends the queued spans, for `timeout` at most, and stops the exporter.
    pub async fn shutdown(self, timeout: Duration) {
        let provider = self.provider.clone();
        let (done_sender, done_receiver) = oneshot::channel();
        // A plain thread: a runtime would wait for a blocking task at its end.
        thread::spawn(move || {
            // A timeout is logged below, as unsent spans.
            let _ = provider.shutdown_with_timeout(timeout);
            let _ = done_sender.send(());
        });
        let _ = done_receiver.await;
        self.stats.log_unsent();
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let _ = self.provider.shutdown_with_timeout(Duration::ZERO);
    }
}

/// The resource attributes of all spans.
fn build_resource(spec: &TelemetrySpec, service: &'static str) -> Resource {
    let is_named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES")
            .is_ok_and(|all| all.split(',').any(|one| one.trim().starts_with("service.name=")));
    let resource = Resource::builder().with_attribute(KeyValue::new("service.version", VERSION));
    match &spec.service_name {
        Some(name) => resource.with_service_name(name.clone()),
        None if is_named => resource,
        None => resource.with_service_name(service),
    }
    .build()
}

/// Starts spans that are exported to a collector.
#[derive(Clone, Debug)]
pub struct Tracer(SdkTracer);

impl Tracer {
    /// Starts a span of kind server. If `headers` carry a trace context, its span is the parent.
    pub(crate) fn start_span(
        &self,
        name: String,
        attributes: Vec<Attribute>,
        headers: Option<&HeaderMap>,
    ) -> OtelSpan {
        let parent = headers.and_then(parent::extract);
        let continues_trace = parent.is_some();
        let parent_context = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Server)
            .with_attributes(key_values(attributes));
        let span = self.0.build_with_context(builder, &parent_context);
        OtelSpan(Arc::new(SpanInner { context: Context::new().with_span(span), continues_trace }))
    }
}

/// An OpenTelemetry span, exported if it is sampled. It ends when its last clone is dropped. It is
/// one pointer in size, because every request has a field for it, even without telemetry.
#[derive(Clone, Debug)]
pub(crate) struct OtelSpan(Arc<SpanInner>);

#[derive(Debug)]
struct SpanInner {
    context: Context,
    /// The span belongs to a trace that the client started.
    continues_trace: bool,
}

impl OtelSpan {
    pub(crate) fn record(&self, attribute: Attribute) {
        self.0.context.span().set_attribute(attribute.into());
    }

    pub(crate) fn add_event(&self, name: &'static str, attributes: Vec<Attribute>) {
        self.0.context.span().add_event(name, key_values(attributes));
    }

    pub(crate) fn set_error(&self, error_type: &str) {
        self.record(Attribute::new("error.type", error_type.to_owned()));
        self.0.context.span().set_status(Status::error(""));
    }

    /// Sets this span as the parent in a forwarded request's fields, in place of the client's.
    pub(crate) fn inject(&self, headers: &mut HeaderMap) {
        parent::inject(self.0.context.span().span_context(), self.0.continues_trace, headers);
    }
}

impl From<Attribute> for KeyValue {
    fn from(Attribute { key, value }: Attribute) -> Self {
        match value {
            AttributeValue::Text(text) => Self::new(key, text),
            AttributeValue::StaticText(text) => Self::new(key, text),
            AttributeValue::Number(number) => Self::new(key, number),
        }
    }
}

fn key_values(attributes: Vec<Attribute>) -> Vec<KeyValue> {
    attributes.into_iter().map(KeyValue::from).collect()
}
