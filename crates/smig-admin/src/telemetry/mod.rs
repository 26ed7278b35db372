//! The export of request spans to a collector: OTLP over HTTP, in batches, in the background.
//!
//! Requests never wait for the collector. Spans that it does not accept in time are dropped and
//! counted. The exporter is compiled in with the feature `opentelemetry`. Without it, configuring a
//! collector is an error, and the exporter's types have no values.

#[cfg(not(feature = "opentelemetry"))]
mod absent;
#[cfg(feature = "opentelemetry")]
mod otlp;
mod spec;

use std::time::Duration;

#[cfg(not(feature = "opentelemetry"))]
pub use absent::{Telemetry, Tracer};
#[cfg(feature = "opentelemetry")]
pub use otlp::{Telemetry, Tracer};
pub use spec::TelemetrySpec;

#[cfg(not(feature = "opentelemetry"))]
pub(crate) use absent::OtelSpan;
#[cfg(feature = "opentelemetry")]
pub(crate) use otlp::OtelSpan;

/// How long sending the queued spans may take at shutdown.
pub const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

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
    Exporter(smig::BoxError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The feature `opentelemetry` is not compiled in.
    #[error("{}", spec::NOT_BUILT)]
    NotBuilt,
}

/// An attribute of an exported span.
#[derive(Debug)]
#[cfg_attr(not(feature = "opentelemetry"), expect(dead_code, reason = "nothing is exported"))]
pub(crate) struct Attribute {
    key: &'static str,
    value: AttributeValue,
}

/// An attribute's value.
#[derive(Debug)]
#[cfg_attr(not(feature = "opentelemetry"), expect(dead_code, reason = "nothing is exported"))]
pub(crate) enum AttributeValue {
    Text(String),
    /// One of a fixed set of texts.
    StaticText(&'static str),
    Number(i64),
}

impl Attribute {
    pub(crate) fn new(key: &'static str, value: impl Into<AttributeValue>) -> Self {
        Self { key, value: value.into() }
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        Self::StaticText(text)
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}
