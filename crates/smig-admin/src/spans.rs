//! Tracing spans of requests. Attributes are recorded as they become known: how the request was made, where
//! it was routed, its outcome, and at its end its bytes and its migrations.
//!
//! Attribute names follow OpenTelemetry's semantic conventions where these have one. Spans have level DEBUG
//! and one target, so that they cost nothing unless a subscriber enables them. With telemetry, the same
//! spans are exported to a collector.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::uri::Authority;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use smig::{ConnectionInfo, ObserverEvent, SessionId, StreamInfo, StreamKey, StreamRef};
use tracing::field::Empty;
use tracing::{Level, Span};

use super::telemetry::{Attribute, OtelSpan, Tracer};

/// The target of the spans, for a subscriber's filter.
pub const TARGET: &str = "smig::request";

/// Maximum number of spans of open streams; further ones lack bytes and migrations.
const MAX_OPEN_SPANS: usize = 4096;

/// Maximum length in characters of an exported text: the client controls it, and it is buffered until it
/// is sent.
const MAX_ATTRIBUTE_CHARS: usize = 1024;

/// The well-known methods; all others are `_OTHER`, so that clients cannot create unlimited values.
const KNOWN_METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// A request's span. It ends when this is dropped and the stream has ended.
#[derive(Clone, Debug)]
pub struct RequestSpan {
    /// For subscribers within this process.
    tracing_span: Span,
    /// For the exporter.
    otel_span: Option<OtelSpan>,
    /// The span is enabled, and its request has a stream. The span ends with it, unless too many spans were open: then with the response's head.
    has_stream: bool,
}

/// The attributes of a request that are known at its start.
struct SpanAttributes<'a> {
    /// The method of an HTTP request.
    method: Option<&'a Method>,
    /// The protocol, which is the span's name where there is no known method.
    protocol: &'static str,
    route: Option<&'a str>,
    /// The target host.
    authority: Option<&'a Authority>,
    path: &'a str,
    scheme: Option<&'a str>,
    version: Option<&'static str>,
    headers: Option<&'a HeaderMap>,
}

impl<'a> SpanAttributes<'a> {
    fn from_request<B>(
        request: &'a Request<B>,
        authority: Option<&'a Authority>,
        route: Option<&'a str>,
    ) -> Self {
        let (uri, info) = (request.uri(), request.extensions().get::<Arc<ConnectionInfo>>());
        let transport_scheme = info.map(|info| if info.tls().is_some() { "https" } else { "http" });
        Self {
            method: Some(request.method()),
            protocol: "HTTP",
            route,
            authority,
            path: uri.path(),
            scheme: uri.scheme_str().or(transport_scheme),
            version: protocol_version(request.version()),
            headers: Some(request.headers()),
        }
    }

    fn method(&self) -> Option<&'static str> {
        let known_method =
            |method: &Method| KNOWN_METHODS.into_iter().find(|known| *known == method.as_str());
        self.method.map(|method| known_method(method).unwrap_or("_OTHER"))
    }

    fn method_original(&self) -> Option<&'a str> {
        self.method.filter(|_| self.method() == Some("_OTHER")).map(Method::as_str)
    }

    fn name(&self) -> String {
        let prefix = self.method().filter(|method| *method != "_OTHER").unwrap_or(self.protocol);
        match self.route {
            Some(route) => format!("{prefix} {route}"),
            None => prefix.to_owned(),
        }
    }

    fn path(&self) -> Option<&'a str> {
        Some(self.path).filter(|path| !path.is_empty())
    }

    fn attributes(&self) -> Vec<Attribute> {
        let mut attributes = Vec::with_capacity(16);
        let texts = [
            ("http.request.method_original", self.method_original()),
            ("http.route", self.route),
            ("server.address", self.authority.map(Authority::host)),
            ("url.path", self.path()),
            ("url.scheme", self.scheme),
        ];
        let known_values =
            [("http.request.method", self.method()), ("network.protocol.version", self.version)];
        let text = |(key, value): (_, Option<&str>)| Some(Attribute::new(key, truncate(value?)));
        attributes.extend(texts.into_iter().filter_map(text));
        attributes.extend(
            known_values.into_iter().filter_map(|(key, value)| Some(Attribute::new(key, value?))),
        );
        let port = self.authority.and_then(Authority::port_u16);
        attributes.extend(port.map(|port| Attribute::new("server.port", i64::from(port))));
        attributes
    }
}

fn truncate(text: &str) -> String {
    let end = text.char_indices().nth(MAX_ATTRIBUTE_CHARS).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or_default().to_owned()
}

const fn protocol_version(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_10 => Some("1.0"),
        Version::HTTP_11 => Some("1.1"),
        Version::HTTP_2 => Some("2"),
        _ => None,
    }
}

impl RequestSpan {
    /// Starts a span for a request to `authority` that matched `route`. It ends with its stream, if
    /// the observer of `open_spans` is notified of that stream.
    #[must_use]
    pub fn for_route<B>(
        request: &Request<B>,
        authority: Option<&Authority>,
        route: &str,
        open_spans: &OpenSpans,
    ) -> Self {
        Self::new(
            &SpanAttributes::from_request(request, authority, Some(route)),
            open_spans.tracer.as_ref(),
        )
        .track(request, open_spans)
    }

    /// Starts a span for a request that a forward proxy sends to another host.
    #[must_use]
    pub fn for_forward_proxy<B>(request: &Request<B>, open_spans: &OpenSpans) -> Self {
        let attributes = SpanAttributes::from_request(request, request.uri().authority(), None);
        Self::new(&attributes, open_spans.tracer.as_ref()).track(request, open_spans)
    }

    /// Starts a span for a local program's request to an agent.
    #[must_use]
    pub fn for_local_request<B>(
        request: &Request<B>,
        authority: Option<&Authority>,
        tracer: Option<&Tracer>,
    ) -> Self {
        Self::new(&SpanAttributes::from_request(request, authority, None), tracer)
    }

    /// Starts a span for a tunnel that a local program requested from an agent without HTTP.
    #[must_use]
    pub fn for_local_tunnel(
        protocol: &'static str,
        authority: &Authority,
        tracer: Option<&Tracer>,
    ) -> Self {
        let (method, route, path) = (None, None, "");
        let (scheme, version, headers) = (None, None, None);
        let authority = Some(authority);
        Self::new(
            &SpanAttributes { method, protocol, route, authority, path, scheme, version, headers },
            tracer,
        )
    }

    fn new(attributes: &SpanAttributes<'_>, tracer: Option<&Tracer>) -> Self {
        let span = tracing::span!(
            target: TARGET,
            Level::DEBUG,
            "request",
            otel.kind = "server",
            otel.name = attributes.name(),
            otel.status_code = Empty,
            http.request.method = attributes.method(),
            http.request.method_original = attributes.method_original(),
            http.route = attributes.route,
            server.address = attributes.authority.map(Authority::host),
            server.port = attributes.authority.and_then(Authority::port_u16),
            url.scheme = attributes.scheme,
            url.path = attributes.path(),
            network.protocol.version = attributes.version,
            smig.upstream = Empty,
            http.response.status_code = Empty,
            http.request.body.size = Empty,
            http.response.body.size = Empty,
            smig.migrations = Empty,
            error.type = Empty,
        );
        let otel_span = tracer.map(|tracer| {
            tracer.start_span(attributes.name(), attributes.attributes(), attributes.headers)
        });
        Self { tracing_span: span, otel_span, has_stream: false }
    }

    fn track<B>(mut self, request: &Request<B>, open_spans: &OpenSpans) -> Self {
        if self.is_enabled()
            && let Some(stream) = request.extensions().get::<StreamRef>()
        {
            self.has_stream = true;
            open_spans.insert(*stream, &self);
        }
        self
    }

    /// Returns whether the span is enabled in this process or exported.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.otel_span.is_some() || !self.tracing_span.is_disabled()
    }

    /// Returns whether the span is enabled and its request has a stream. The span ends with it, unless too many spans were open: then with
    /// the response's head.
    #[must_use]
    pub const fn has_stream(&self) -> bool {
        self.has_stream
    }

    /// Sets this span as the parent in a forwarded request's fields (W3C Trace Context). Without telemetry the
    /// client's fields are left in place.
    pub fn inject(&self, headers: &mut HeaderMap) {
        if let Some(exported) = &self.otel_span {
            exported.inject(headers);
        }
    }

    /// Records the upstream of the request.
    pub fn set_upstream(&self, upstream: &str) {
        self.tracing_span.record("smig.upstream", upstream);
        if let Some(exported) = &self.otel_span {
            exported.record(Attribute::new("smig.upstream", upstream.to_owned()));
        }
    }

    /// Records the status of the response.
    pub fn set_status(&self, status: StatusCode) {
        self.record("http.response.status_code", status.as_u16().into());
        if status.is_server_error() {
            self.set_error(status.as_str());
        }
    }

    /// Records the bytes of both bodies, and the migrations of the stream.
    pub fn record_end(&self, received: Option<u64>, sent: u64, stream: Option<&StreamInfo>) {
        if !self.is_enabled() {
            return;
        }
        if let Some(received) = received {
            self.record("http.request.body.size", received);
        }
        self.record("http.response.body.size", sent);
        if let Some(stream) = stream {
            self.record("smig.migrations", stream.segments().len().saturating_sub(1) as u64);
        }
    }

    fn record(&self, name: &'static str, value: u64) {
        self.tracing_span.record(name, value);
        if let Some(exported) = &self.otel_span {
            exported.record(Attribute::new(name, i64::try_from(value).unwrap_or(i64::MAX)));
        }
    }

    /// Records that the exchange failed.
    pub fn set_error(&self, error_type: &str) {
        self.tracing_span.record("error.type", error_type);
        self.tracing_span.record("otel.status_code", "ERROR");
        if let Some(exported) = &self.otel_span {
            exported.set_error(error_type);
        }
    }
}

/// Spans of open streams.
#[derive(Debug)]
pub struct OpenSpans {
    /// The tracer that exports spans to a collector.
    tracer: Option<Tracer>,
    /// Avoids the lock when there are none.
    count: AtomicUsize,
    spans: Mutex<HashMap<(SessionId, StreamKey), RequestSpan>>,
}

impl OpenSpans {
    pub(crate) fn new(tracer: Option<Tracer>) -> Self {
        Self { tracer, count: AtomicUsize::new(0), spans: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(SessionId, StreamKey), RequestSpan>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, stream: StreamRef, span: &RequestSpan) {
        let mut spans = self.lock();
        if spans.len() < MAX_OPEN_SPANS {
            spans.insert((stream.session, stream.stream), span.clone());
            self.count.store(spans.len(), Ordering::Relaxed);
        }
    }

    fn take(&self, stream: StreamRef) -> Option<RequestSpan> {
        let mut spans = self.lock();
        let span = spans.remove(&(stream.session, stream.stream));
        self.count.store(spans.len(), Ordering::Relaxed);
        span
    }

    /// Marks all remaining spans as aborted and ends them: the observed server has stopped.
    pub(crate) fn abort_all(&self) {
        let spans = std::mem::take(&mut *self.lock());
        self.count.store(0, Ordering::Relaxed);
        spans.into_values().for_each(|span| span.set_error("aborted"));
    }

    /// Updates the span of an observed stream.
    pub(crate) fn on_event(&self, event: &ObserverEvent) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        match event {
            ObserverEvent::StreamCompleted {
                stream: Some(stream),
                sent,
                received,
                migrations,
                ..
            } => {
                let Some(span) = self.take(*stream) else { return };
                span.record("http.request.body.size", *received);
                span.record("http.response.body.size", *sent);
                span.record("smig.migrations", (*migrations).into());
            }
            ObserverEvent::StreamReset { stream: Some(stream), .. } => {
                if let Some(span) = self.take(*stream) {
                    span.set_error("reset");
                }
            }
            ObserverEvent::Migrated {
                stream: Some(stream),
                from,
                to,
                transferred_bytes: offset,
                why,
                ..
            } => {
                let span = self.lock().get(&(stream.session, stream.stream)).cloned();
                if let Some(span) = span {
                    span.tracing_span.in_scope(|| {
                        tracing::debug!(target: TARGET, %from, %to, offset, reason = %why, "migrated");
                    });
                    if let Some(otel_span) = &span.otel_span {
                        let offset = i64::try_from(*offset).unwrap_or(i64::MAX);
                        let texts = [("from", from.to_string()), ("to", to.to_string())];
                        let mut attributes: Vec<_> = texts
                            .into_iter()
                            .map(|(key, text)| Attribute::new(key, text))
                            .collect();
                        attributes.push(Attribute::new("offset", offset));
                        attributes.push(Attribute::new("reason", why.to_string()));
                        otel_span.add_event("migrated", attributes);
                    }
                }
            }
            _ => {}
        }
    }
}
