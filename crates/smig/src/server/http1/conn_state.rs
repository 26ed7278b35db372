//! State that the handlers of an HTTP/1.1 connection share with its I/O: informational responses,
//! and the states of request and response.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, StatusCode};
use smig_proto::BulkHint;

use super::pacing::ResponseExtent;
use super::timeouts::NextProtocol;

/// The shared state of one connection.
#[derive(Debug, Default)]
pub(in crate::server) struct Http1ConnState(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) queued_informational: Vec<u8>,
    pub(super) request: RequestState,
    pub(super) body: BodyState,
    pub(super) connection_waker: Option<Waker>,
    /// Number of requests that were answered.
    responses: u64,
    /// The protocol after the last response.
    next_protocol: NextProtocol,
    /// The last response's length, and whether it is bulk.
    response_length: Option<u64>,
    response_hint: BulkHint,
    /// Of a reader that waits for the response to the last request.
    reader_waker: Option<Waker>,
}

/// State of the current request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestState {
    /// There is none, or its final response was given to hyper.
    #[default]
    Answered,
    /// A handler runs.
    Open,
}

/// State of a body that may be delimited by close (HTTP/1.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyState {
    /// There is none.
    #[default]
    None,
    InProgress,
    /// It failed.
    Failed,
    /// hyper has all of it.
    Complete,
}

impl State {
    /// Returns what decides whether the last response is bulk.
    pub(super) const fn response_extent(&self) -> ResponseExtent {
        ResponseExtent {
            number: self.responses,
            length: self.response_length,
            hint: self.response_hint,
            is_tunnel: matches!(self.next_protocol, NextProtocol::Tunnel),
        }
    }
}

impl Http1ConnState {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request that may have informational responses.
    pub(super) fn on_request(&self) {
        let mut state = self.lock();
        state.queued_informational.clear();
        state.request = RequestState::Open;
    }

    /// Records the final response, with the length of its body if known, and the protocol after it.
    pub(super) fn on_response(
        &self,
        next_protocol: NextProtocol,
        length: Option<u64>,
        hint: BulkHint,
    ) {
        let mut state = self.lock();
        (state.response_length, state.response_hint) = (length, hint);
        (state.request, state.next_protocol) = (RequestState::Answered, next_protocol);
        state.responses += 1;
        if let Some(reader) = state.reader_waker.take() {
            reader.wake();
        }
    }

    /// Records the start of a body that may be delimited by close.
    pub(super) fn on_body_begun(&self) {
        self.lock().body = BodyState::InProgress;
    }

    /// Records that the body failed.
    pub(super) fn on_body_failed(&self) {
        self.lock().body = BodyState::Failed;
    }

    /// Records that hyper has dropped the body: hyper has all of it, unless it failed.
    pub(super) fn on_body_dropped(&self) {
        let mut state = self.lock();
        if state.body == BodyState::InProgress {
            state.body = BodyState::Complete;
        }
    }

    /// Waits until `requests` requests are answered; returns the protocol after the last response.
    pub(super) fn poll_response(&self, requests: u64, cx: &Context<'_>) -> Poll<NextProtocol> {
        let mut state = self.lock();
        if state.responses >= requests {
            return Poll::Ready(state.next_protocol);
        }
        state.reader_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Queues an informational response.
    pub(in crate::server) fn queue_informational(&self, status: StatusCode, headers: &HeaderMap) {
        let mut state = self.lock();
        if state.request != RequestState::Open {
            return;
        }
        let reason = status.canonical_reason().unwrap_or_default();
        let bytes = &mut state.queued_informational;
        bytes.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).as_bytes());
        for (name, value) in headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        if let Some(connection) = state.connection_waker.take() {
            connection.wake();
        }
    }
}
