//! Spans of requests for a collector: where it is, the trace that a request belongs to, and (feature
//! `otlp`) who sends them.

pub(crate) mod context;
#[cfg(feature = "otlp")]
mod export;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

#[cfg(feature = "otlp")]
pub use export::Exporter;

/// The collector's address in the environment, for all signals and for traces.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Where spans go. What is not said here is as the environment says (`OTEL_*`); without an endpoint in
/// either place nothing is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySpec {
    /// The collector, by OTLP over HTTP: `http://127.0.0.1:4318`, whose path is `/v1/traces` unless
    /// another is said.
    pub endpoint: Option<String>,
    /// The service's name in the traces.
    pub service: Option<String>,
    /// Header fields that the collector wants.
    pub headers: BTreeMap<String, String>,
    /// Authorities of the collector's certificate, PEM; the system's unless set.
    pub ca: Option<PathBuf>,
}

impl TelemetrySpec {
    /// Whether somebody wants spans.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.endpoint.is_some() || VARIABLES.iter().any(is_set)
    }
}
