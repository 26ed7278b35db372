//! One request and its response at the server, polled by the session's task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use smig_proto::policy::MigrationHint;
use smig_proto::{ConnId, StreamKey};
use tower_service::Service;

use super::bulk_uploads::UploadWatch;
use crate::deadlines::ProgressClock;
use crate::error::BoxError;
use crate::migration::Candidate;
use crate::snapshot::StreamRecord;
use crate::stream::{BodyLength, BodyRecvState, Incoming, SharedStream};

pin_project! {
    /// The current work of a stream. Its allocation is reused by the next stream.
    #[project = WorkProjection]
    pub(super) enum Work<S, F, B> {
        Idle,
        // The service was not ready.
        Waiting { service: S, request: Option<Request<Incoming>> },
        Handler { #[pin] future: F },
        Body { #[pin] body: B },
    }
}

/// A request that is being handled.
pub(super) struct Exchange<S, F, B> {
    pub(super) key: StreamKey,
    pub(super) conn: ConnId,
    pub(super) work: Pin<Box<Work<S, F, B>>>,
    pub(super) shared: Option<Arc<SharedStream>>,
    pub(super) kind: RequestKind,
    pub(super) continue_expectation: ContinueExpectation,
    pub(super) recv_state: BodyRecvState,
    pub(super) send_state: BodySendState,
    pub(super) length: BodyLength,
    /// `None`: the request body may arrive at any speed.
    pub(super) upload_clock: Option<ProgressClock>,
    /// `None`: the request has no body, or uploads are not paced.
    pub(super) upload_watch: Option<UploadWatch>,
    pub(super) candidate: Option<Candidate>,
    /// The application's instruction for the response.
    pub(super) hint: MigrationHint,
    pub(super) record: StreamRecord,
}

/// What the request's method implies for the response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Other,
    /// The response has no body.
    Head,
    /// A 2xx response opens a tunnel.
    Connect,
}

/// Whether the client expects 100 (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContinueExpectation {
    Expected,
    NotExpected,
}

/// State of the outgoing direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodySendState {
    Open,
    /// The engine has all of it.
    Ended,
    /// The transport has all of it.
    Sent,
}

/// Result of polling a handler.
pub(super) enum HandlerPoll<B> {
    Pending,
    Response(Response<B>),
    /// There will be no response.
    Failed(HandlerError),
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum HandlerError {
    Panicked,
    Error(BoxError),
}

impl<S, B> Exchange<S, S::Future, B>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
{
    /// Polls the service for its response.
    pub(super) fn poll_handler(&mut self, cx: &mut Context<'_>) -> HandlerPoll<B> {
        loop {
            match self.work.as_mut().project() {
                WorkProjection::Idle | WorkProjection::Body { .. } => return HandlerPoll::Pending,
                WorkProjection::Waiting { service, request } => {
                    match catch_panic(|| service.poll_ready(cx)) {
                        Ok(Poll::Pending) => return HandlerPoll::Pending,
                        Ok(Poll::Ready(Ok(()))) => {}
                        Ok(Poll::Ready(Err(error))) => {
                            return HandlerPoll::Failed(HandlerError::Error(error.into()));
                        }
                        Err(panicked) => return HandlerPoll::Failed(panicked),
                    }
                    let Some(request) = request.take() else { return HandlerPoll::Pending };
                    match catch_panic(|| service.call(request)) {
                        Ok(future) => self.work.set(Work::Handler { future }),
                        Err(panicked) => return HandlerPoll::Failed(panicked),
                    }
                }
                WorkProjection::Handler { future } => {
                    return match catch_panic(|| future.poll(cx)) {
                        Ok(Poll::Pending) => HandlerPoll::Pending,
                        Ok(Poll::Ready(Ok(response))) => HandlerPoll::Response(response),
                        Ok(Poll::Ready(Err(error))) => {
                            HandlerPoll::Failed(HandlerError::Error(error.into()))
                        }
                        Err(panicked) => HandlerPoll::Failed(panicked),
                    };
                }
            }
        }
    }
}

/// Runs application code: its panic ends one stream, not the session.
pub(super) fn catch_panic<R>(f: impl FnOnce() -> R) -> Result<R, HandlerError> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| HandlerError::Panicked)
}
