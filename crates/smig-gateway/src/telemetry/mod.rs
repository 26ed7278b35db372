//! Spans of requests on their way to a collector: OTLP over HTTP, in batches, behind everybody's back.
//!
//! Nothing waits for a collector. What it does not take in time is dropped and counted.

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

pub(crate) use export::Tally;

/// For the last batch, when a program ends.
pub(crate) const LAST: Duration = Duration::from_secs(3);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why there is no telemetry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// Certificates that cannot be read.
    #[error(transparent)]
    Trust(#[from] smig::Error),
    /// What the environment's OTEL variables want is not there.
    #[error(transparent)]
    Exporter(#[from] ExporterBuildError),
    /// No threads for it.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Sends spans from threads of its own. Dropped, it sends what it has, and nobody waits for that.
#[derive(Debug)]
pub(crate) struct Telemetry {
    provider: SdkTracerProvider,
    tally: Arc<Tally>,
}

impl Telemetry {
    /// Begins; `service` is what the program is called unless the description or the environment say it.
    ///
    /// # Errors
    /// [`TelemetryError`]. That the collector is away is none.
    pub(crate) fn start(
        spec: &TelemetrySpec,
        service: &'static str,
    ) -> Result<Self, TelemetryError> {
        let tally = Arc::new(Tally::new(spec.traces()));
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

    pub(crate) fn tracer(&self) -> Tracer {
        let scope = InstrumentationScope::builder("smig").with_version(VERSION).build();
        Tracer(self.provider.tracer_with_scope(scope))
    }

    /// Counts what became of the spans.
    pub(crate) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Sends what is left, for as long as `limit`; then nothing is sent any more.
    pub(crate) async fn end(self, limit: Duration) {
        let provider = self.provider.clone();
        let (done, ended) = oneshot::channel();
        // A thread that a runtime does not wait for when it ends.
        thread::spawn(move || {
            // That it took too long is said below.
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

/// What all spans have in common.
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

/// Begins spans for a collector.
#[derive(Clone, Debug)]
pub(crate) struct Tracer(SdkTracer);

impl Tracer {
    /// Begins a span of a server. If `headers` name a span, it is the parent.
    pub(crate) fn begin(
        &self,
        name: String,
        attributes: Vec<KeyValue>,
        headers: Option<&HeaderMap>,
    ) -> Traced {
        let parent = headers.and_then(parent::of);
        let joined = parent.is_some();
        let around = match parent {
            Some(parent) => Context::new().with_remote_span_context(parent),
            None => Context::new(),
        };
        let builder =
            SpanBuilder::from_name(name).with_kind(SpanKind::Server).with_attributes(attributes);
        let span = self.0.build_with_context(builder, &around);
        Traced(Arc::new(Begun { context: Context::new().with_span(span), joined }))
    }
}

/// A span for a collector. It ends when the last clone of it is dropped. Small, as requests carry a place
/// for it also where there is none.
#[derive(Clone, Debug)]
pub(crate) struct Traced(Arc<Begun>);

#[derive(Debug)]
struct Begun {
    context: Context,
    /// It belongs to a trace that the client began.
    joined: bool,
}

impl Traced {
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

    /// Names this span in a request that is sent on, in the place of the client's.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        parent::tell(self.0.context.span().span_context(), self.0.joined, headers);
    }
}
