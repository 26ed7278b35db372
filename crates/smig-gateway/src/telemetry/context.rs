//! The trace that a request belongs to (W3C Trace Context): taken from who asks, passed on to who is
//! asked next. Where nobody exports spans, the fields go through as they came.

use http::HeaderMap;
use tracing::Span;

/// Makes the span part of the trace that its request names.
#[cfg(feature = "otlp")]
pub(crate) fn adopt(span: &Span, headers: &HeaderMap) {
    use opentelemetry::Context;
    use opentelemetry::propagation::TextMapPropagator as _;
    use opentelemetry_http::HeaderExtractor;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let told = HeaderExtractor(headers);
    let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &told);
    // Fails where no exporter runs, which is no fault.
    let _ = span.set_parent(parent);
}

/// Names the span as the parent of what its request causes elsewhere.
#[cfg(feature = "otlp")]
pub(crate) fn pass_on(span: &Span, headers: &mut HeaderMap) {
    use opentelemetry::propagation::TextMapPropagator as _;
    use opentelemetry::trace::TraceContextExt as _;
    use opentelemetry_http::HeaderInjector;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    let context = span.context();
    if !context.span().span_context().is_valid() {
        return;
    }
    let propagator = TraceContextPropagator::new();
    for field in propagator.fields() {
        headers.remove(field);
    }
    propagator.inject_context(&context, &mut HeaderInjector(headers));
}

#[cfg(not(feature = "otlp"))]
pub(crate) const fn adopt(_: &Span, _: &HeaderMap) {}

#[cfg(not(feature = "otlp"))]
pub(crate) const fn pass_on(_: &Span, _: &mut HeaderMap) {}
