//! A tracing span for a request, filled in as things become known: how it was asked for, where it
//! went, what came of it, and at the end, from what is observed, its octets and its moves.
//!
//! Field names are OpenTelemetry's where it has one. Spans are of level DEBUG and of one target, so that
//! nobody pays for them who has not asked for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::{Request, StatusCode};
use smig::{Observed, SessionId, StreamKey, StreamPlace};
use tracing::field::Empty;
use tracing::{Level, Span};

use super::Watch;

/// The target of the spans: what a subscriber's filter names.
pub const TARGET: &str = "smig_gateway::request";

/// Requests that are followed at once, at most; further ones lack octets and moves.
const FOLLOWED: usize = 4096;

/// One request's span. The span ends when this is dropped and the stream has ended.
#[derive(Clone, Debug)]
pub struct RequestSpan(Span);

impl RequestSpan {
    /// Begins a span for a request that took `route`, and lets `watch` end it with the stream.
    #[must_use]
    pub fn begin<B>(request: &Request<B>, route: &str, watch: &Watch) -> Self {
        let span = tracing::span!(
            target: TARGET,
            Level::DEBUG,
            "request",
            otel.kind = "server",
            otel.name = Empty,
            http.request.method = request.method().as_str(),
            http.route = route,
            url.path = request.uri().path(),
            smig.upstream = Empty,
            http.response.status_code = Empty,
            http.request.body.size = Empty,
            http.response.body.size = Empty,
            smig.moves = Empty,
            error.type = Empty,
        );
        if !span.is_disabled() {
            span.record("otel.name", format!("{} {route}", request.method()));
            if let Some(place) = request.extensions().get::<StreamPlace>() {
                watch.spans().follow(*place, &span);
            }
        }
        Self(span)
    }

    /// The request goes to this upstream.
    pub fn sent_to(&self, upstream: &str) {
        self.0.record("smig.upstream", upstream);
    }

    /// The response has this status.
    pub fn answered(&self, status: StatusCode) {
        self.0.record("http.response.status_code", status.as_u16());
    }

    /// For what happens within it: `tracing::Instrument::instrument`.
    #[must_use]
    pub const fn span(&self) -> &Span {
        &self.0
    }
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
                    span.record("error.type", "reset");
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
