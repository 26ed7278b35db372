//! Telemetry of a build without OpenTelemetry: it cannot be started, so none of these types has a value.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::{Attribute, TelemetryError, TelemetrySpec};
use crate::StatsSource;

/// The exporter of spans, which this build does not have.
#[derive(Debug)]
pub enum Telemetry {}

/// Starts spans that are exported, which this build cannot.
#[derive(Clone, Debug)]
pub enum Tracer {}

/// An OpenTelemetry span; this build has none.
#[derive(Clone, Debug)]
pub(crate) enum OtelSpan {}

impl Telemetry {
    /// Fails: this build exports nothing.
    ///
    /// # Errors
    /// [`TelemetryError::NotBuilt`], always.
    pub fn start(_: &TelemetrySpec, _: &'static str) -> Result<Self, TelemetryError> {
        Err(TelemetryError::NotBuilt)
    }

    /// Returns the tracer whose spans it exports.
    #[must_use]
    pub fn tracer(&self) -> Tracer {
        match *self {}
    }

    /// Returns the counters of exported and dropped spans.
    #[must_use]
    pub fn stats(&self) -> Arc<dyn StatsSource> {
        match *self {}
    }

    /// Sends the queued spans, for `timeout` at most, and stops the exporter.
    pub async fn shutdown(self, timeout: Duration) {
        let _ = timeout;
        match self {}
    }
}

impl Tracer {
    pub(crate) fn start_span(
        &self,
        _: String,
        _: Vec<Attribute>,
        _: Option<&HeaderMap>,
    ) -> OtelSpan {
        match *self {}
    }
}

impl OtelSpan {
    pub(crate) fn record(&self, _: Attribute) {
        match *self {}
    }

    pub(crate) fn add_event(&self, _: &'static str, _: Vec<Attribute>) {
        match *self {}
    }

    pub(crate) fn set_error(&self, _: &str) {
        match *self {}
    }

    pub(crate) fn inject(&self, _: &mut HeaderMap) {
        match *self {}
    }
}
