//! A tracing span for a request, filled in as things become known: how it was asked for, where it
//! went, what came of it, and at the end its octets and its moves.
//!
//! Field names are OpenTelemetry's where it has one. Spans are of level DEBUG and of one target, so that
//! nobody pays for them who has not asked for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::uri::Authority;
use http::{HeaderMap, Request, StatusCode};
use smig::{Observed, SessionId, StreamInfo, StreamKey, StreamPlace};
use tracing::field::Empty;
use tracing::{Level, Span};

use super::Watch;
use crate::telemetry::context;

/// The target of the spans: what a subscriber's filter names.
pub const TARGET: &str = "smig_gateway::request";

/// Requests that are followed at once, at most; further ones lack octets and moves.
const FOLLOWED: usize = 4096;

/// One request's span. The span ends when this is dropped and the stream has ended.
#[derive(Clone, Debug)]
pub struct RequestSpan(Span);

/// What is known of a request at its beginning.
struct Asked<'a> {
    /// How it was asked for: a method, or another way.
    name: &'a str,
    method: Option<&'a str>,
    route: Option<&'a str>,
    /// Where to, if that is another host.
    to: Option<&'a Authority>,
    path: &'a str,
}

impl RequestSpan {
    /// Begins a span for a request that took `route`, and lets `watch` end it with the stream.
    #[must_use]
    pub fn begin<B>(request: &Request<B>, route: &str, watch: &Watch) -> Self {
        let method = request.method().as_str();
        let path = request.uri().path();
        let route = Some(route);
        let asked = Asked { name: method, method: Some(method), route, to: None, path };
        Self::new(&asked, Some(request.headers())).followed(request, watch)
    }

    /// The same for a request to another host, by a forward proxy.
    #[must_use]
    pub fn forwarded<B>(request: &Request<B>, watch: &Watch) -> Self {
        let method = request.method().as_str();
        let (to, path) = (request.uri().authority(), request.uri().path());
        let asked = Asked { name: method, method: Some(method), route: None, to, path };
        Self::new(&asked, Some(request.headers())).followed(request, watch)
    }

    /// Begins a span for a local program's request to an agent.
    pub(crate) fn local<B>(request: &Request<B>, to: Option<&Authority>) -> Self {
        let method = request.method().as_str();
        let path = request.uri().path();
        let asked = Asked { name: method, method: Some(method), route: None, to, path };
        Self::new(&asked, Some(request.headers()))
    }

    /// Begins a span for a tunnel that a local program asked an agent for by something else than HTTP.
    pub(crate) fn tunnel(name: &str, to: &Authority) -> Self {
        let asked = Asked { name, method: None, route: None, to: Some(to), path: "" };
        Self::new(&asked, None)
    }

    fn new(asked: &Asked<'_>, headers: Option<&HeaderMap>) -> Self {
        let span = tracing::span!(
            target: TARGET,
            Level::DEBUG,
            "request",
            otel.kind = "server",
            otel.name = Empty,
            otel.status_code = Empty,
            http.request.method = asked.method,
            http.route = asked.route,
            server.address = asked.to.map(Authority::host),
            server.port = asked.to.and_then(Authority::port_u16),
            url.path = Some(asked.path).filter(|path| !path.is_empty()),
            smig.upstream = Empty,
            http.response.status_code = Empty,
            http.request.body.size = Empty,
            http.response.body.size = Empty,
            smig.moves = Empty,
            error.type = Empty,
        );
        if !span.is_disabled() {
            match asked.route {
                Some(route) => span.record("otel.name", format!("{} {route}", asked.name)),
                None => span.record("otel.name", asked.name),
            };
            if let Some(headers) = headers {
                context::adopt(&span, headers);
            }
        }
        Self(span)
    }

    fn followed<B>(self, request: &Request<B>, watch: &Watch) -> Self {
        if !self.0.is_disabled()
            && let Some(place) = request.extensions().get::<StreamPlace>()
        {
            watch.spans().follow(*place, &self.0);
        }
        self
    }

    /// Names the span, to who is asked next, as the cause of a request with these fields.
    pub fn pass_on(&self, headers: &mut HeaderMap) {
        if !self.0.is_disabled() {
            context::pass_on(&self.0, headers);
        }
    }

    /// The request goes to this upstream.
    pub fn sent_to(&self, upstream: &str) {
        self.0.record("smig.upstream", upstream);
    }

    /// The response has this status.
    pub fn answered(&self, status: StatusCode) {
        self.0.record("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            failed(&self.0, status.as_str());
        }
    }

    /// It is over: octets of both bodies, and the stream that carried it.
    pub(crate) fn ended(&self, received: Option<u64>, sent: u64, stream: Option<&StreamInfo>) {
        if self.0.is_disabled() {
            return;
        }
        self.0.record("http.request.body.size", received);
        self.0.record("http.response.body.size", sent);
        if let Some(stream) = stream {
            self.0.record("smig.moves", stream.segments().len().saturating_sub(1));
        }
    }

    /// It broke off.
    pub(crate) fn broke(&self, how: &str) {
        failed(&self.0, how);
    }
}

fn failed(span: &Span, how: &str) {
    span.record("error.type", how);
    span.record("otel.status_code", "ERROR");
}

/// Spans of streams that have not ended.
#[derive(Debug, Default)]
pub(super) struct Spans {
    /// So that nobody waits for the lock when there are none.
    count: AtomicUsize,
    spans: Mutex<HashMap<(SessionId, StreamKey), Span>>,
}

impl Spans {
    fn lock(&self) -> MutexGuard<'_, HashMap<(SessionId, StreamKey), Span>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, place: StreamPlace, span: &Span) {
        let mut spans = self.lock();
        if spans.len() < FOLLOWED {
            spans.insert((place.session, place.stream), span.clone());
            self.count.store(spans.len(), Ordering::Relaxed);
        }
    }

    fn take(&self, place: StreamPlace) -> Option<Span> {
        let mut spans = self.lock();
        let span = spans.remove(&(place.session, place.stream));
        self.count.store(spans.len(), Ordering::Relaxed);
        span
    }

    /// Tells a span what was observed of its stream.
    pub(super) fn on(&self, what: &Observed) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        match what {
            Observed::StreamEnded { stream: Some(place), sent, received, moves, .. } => {
                let Some(span) = self.take(*place) else { return };
                span.record("http.request.body.size", *received);
                span.record("http.response.body.size", *sent);
                span.record("smig.moves", *moves);
            }
            Observed::StreamReset { stream: Some(place), .. } => {
                if let Some(span) = self.take(*place) {
                    failed(&span, "reset");
                }
            }
            Observed::Moved { stream: Some(place), from, to, offset, why, .. } => {
                let span = self.lock().get(&(place.session, place.stream)).cloned();
                if let Some(span) = span {
                    span.in_scope(|| {
                        tracing::debug!(target: TARGET, %from, %to, offset, %why, "moved");
                    });
                }
            }
            _ => {}
        }
    }
}
