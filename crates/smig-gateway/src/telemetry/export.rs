//! Sends spans of requests to a collector by OTLP over HTTP, with this project's own client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use smig::{BoxError, Client, Trust};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::TelemetrySpec;
use crate::admin::span::TARGET;

/// How long one batch may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Octets of a collector's answer that are read.
const MAX_ANSWER: usize = 64 << 10;
/// The only protocol that is spoken, as `OTEL_EXPORTER_OTLP_PROTOCOL` calls it.
const PROTOCOL: &str = "http/protobuf";

/// Sends spans in batches, from a thread of its own; what cannot be sent is dropped, and that is said
/// once.
#[derive(Debug)]
pub struct Exporter(SdkTracerProvider);

impl Exporter {
    /// Begins. Must be called inside a tokio runtime, on which the batches are sent. `service` is the
    /// service's name unless the file or the environment has another.
    ///
    /// # Errors
    /// An endpoint that is no URL, certificates that cannot be read, or an environment that asks for
    /// a protocol other than `http/protobuf`.
    pub fn start(spec: &TelemetrySpec, service: &str) -> Result<Self, BoxError> {
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            let value = std::env::var(name).unwrap_or_default();
            if !value.is_empty() && value != PROTOCOL {
                return Err(format!("{name}: {value} is not spoken here; write {PROTOCOL}").into());
            }
        }
        let trust = spec.ca.clone().map_or(Trust::System, Trust::File);
        let post = Post {
            client: Client::builder().trust(trust).build()?,
            runtime: Handle::current(),
            is_lost: AtomicBool::new(false),
        };
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(post)
            .with_headers(spec.headers.clone().into_iter().collect());
        if let Some(endpoint) = &spec.endpoint {
            exporter = exporter.with_endpoint(of_traces(endpoint)?);
        }
        let mut resource = Resource::builder();
        let named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty());
        if let Some(name) = spec.service.as_deref().or((!named).then_some(service)) {
            resource = resource.with_service_name(name.to_owned());
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter.build()?)
            .with_resource(resource.build());
        Ok(Self(provider.build()))
    }

    /// What takes spans of requests from a subscriber, and nothing else.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        tracing_opentelemetry::layer()
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_tracer(self.0.tracer("smig"))
            .with_filter(filter_fn(|metadata| metadata.target() == TARGET))
    }

    /// Sends what is left, then ends.
    ///
    /// # Errors
    /// The last batch could not be sent.
    pub async fn shutdown(self) -> Result<(), BoxError> {
        // It waits for its thread, which needs this runtime.
        let ended = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(PATIENCE));
        Ok(ended.await??)
    }
}

/// The address for traces of a collector.
fn of_traces(endpoint: &str) -> Result<String, BoxError> {
    let uri: Uri = endpoint.parse().map_err(|error| format!("{endpoint:?}: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(format!("{endpoint:?}: write http://HOST:4318 or https://HOST").into());
    }
    Ok(match uri.path() {
        "" | "/" => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
        _ => endpoint.to_owned(),
    })
}

/// The exporter's client, called on the exporter's thread.
#[derive(Debug)]
struct Post {
    client: Client,
    runtime: Handle,
    /// Whether the last batch was lost: that is said once.
    is_lost: AtomicBool,
}

#[async_trait]
impl HttpClient for Post {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (client, to) = (self.client.clone(), request.uri().clone());
        let sent = self.runtime.spawn(timeout(PATIENCE, async move {
            let response = client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await?.to_bytes();
            Ok::<_, HttpError>(Response::from_parts(parts, body))
        }));
        let answered = match sent.await {
            Ok(Ok(answered)) => answered,
            Ok(Err(_)) => Err("no answer in time".into()),
            Err(error) => Err(error.into()),
        };
        let lost = match &answered {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_lost = self.is_lost.swap(lost.is_some(), Ordering::Relaxed);
        match lost {
            Some(why) if !was_lost => tracing::warn!(%to, why, "the collector takes no spans"),
            None if was_lost => tracing::info!(%to, "the collector takes spans again"),
            _ => {}
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_a_path_for_traces() {
        let of = |endpoint: &str| of_traces(endpoint).ok();
        assert_eq!(of("http://a:4318").as_deref(), Some("http://a:4318/v1/traces"));
        assert_eq!(of("https://a/").as_deref(), Some("https://a/v1/traces"));
        assert_eq!(of("http://a/x").as_deref(), Some("http://a/x"));
        assert_eq!(of("a:4318"), None);
        assert_eq!(of("grpc://a"), None);
    }
}
