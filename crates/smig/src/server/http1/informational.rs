//! State that the handlers of an HTTP/1.1 connection share with its I/O: informational responses, and how far request and
//! response are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, StatusCode};

use super::timeouts::NextProtocol;

/// Informational responses of one connection.
#[derive(Debug, Default)]
pub(in crate::server) struct Http1Informational(Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) bytes: Vec<u8>,
    pub(super) request: RequestState,
    pub(super) body: BodyState,
    pub(super) connection: Option<Waker>,
    /// Number of requests that were answered.
    answers: u64,
    /// What follows the last response.
    next: NextProtocol,
    /// Waits for the response to the last request.
    reader: Option<Waker>,
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
    UnderWay,
    /// It failed.
    Broken,
    /// hyper has all of it.
    Taken,
}

impl Http1Informational {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request that may have informational responses.
    pub(super) fn open(&self) {
        let mut state = self.lock();
        state.bytes.clear();
        state.request = RequestState::Open;
    }

    /// Records its final response, and what follows that.
    pub(super) fn close(&self, next: NextProtocol) {
        let mut state = self.lock();
        (state.request, state.next) = (RequestState::Answered, next);
        state.answers += 1;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Records the start of a body that may be delimited by close.
    pub(super) fn begin_body(&self) {
        self.lock().body = BodyState::UnderWay;
    }

    /// Records that the body failed.
    pub(super) fn break_body(&self) {
        self.lock().body = BodyState::Broken;
    }

    /// Records that hyper has dropped the body: hyper has all of it, unless it failed.
    pub(super) fn end_body(&self) {
        let mut state = self.lock();
        if state.body == BodyState::UnderWay {
            state.body = BodyState::Taken;
        }
    }

    /// Waits until `requests` requests are answered; returns what follows the last response.
    pub(super) fn poll_answer(&self, requests: u64, cx: &Context<'_>) -> Poll<NextProtocol> {
        let mut state = self.lock();
        if state.answers >= requests {
            return Poll::Ready(state.next);
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Queues an informational response.
    pub(in crate::server) fn send(&self, status: StatusCode, headers: &HeaderMap) {
        let mut state = self.lock();
        // hyper sends 100, and 101 is a final response.
        if state.request != RequestState::Open || matches!(status.as_u16(), 100 | 101) {
            return;
        }
        let reason = status.canonical_reason().unwrap_or_default();
        let bytes = &mut state.bytes;
        bytes.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).as_bytes());
        for (name, value) in headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        if let Some(connection) = state.connection.take() {
            connection.wake();
        }
    }
}
