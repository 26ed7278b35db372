//! The future of a response: submits the request, and retries it where that is safe.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::{Response, Version};
use smig_proto::RequestHead;
use tokio::time::{Sleep, sleep};

use super::request::{RequestDraft, RequestOptions};
use super::{Client, Origin};
use crate::clock;
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::limits::QueuePermit;
use crate::stream::{BodyLength, Head, Incoming, RequestBody, SharedStream, UnsentRequest};

/// Maximum number of times a request is sent, if the server certainly did not process it.
const MAX_ATTEMPTS: usize = 3;

/// A submitted request, and the future of its response; see [`Client::submit`].
/// Dropping it cancels the stream.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct ResponseFuture<'a> {
    client: &'a Client,
    origin: &'a Origin,
    parts: RequestParts,
    attempt: Attempt,
    attempt_count: usize,
}

/// The parts of a request that every attempt sends, except the body.
#[derive(Clone, Debug)]
pub(super) struct RequestParts {
    pub(super) head: RequestHead,
    pub(super) length: BodyLength,
    pub(super) options: RequestOptions,
}

#[derive(Debug)]
struct Attempt {
    shared: Arc<SharedStream>,
    /// The body of the awaited response; dropping it cancels the stream.
    body: Incoming,
    /// The response's timeout, with its duration.
    timeout: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<'a> ResponseFuture<'a> {
    /// Submits a request, with the queue permit `queue_permit` or a new one.
    pub(super) fn submit(
        client: &'a Client,
        origin: &'a Origin,
        parts: RequestParts,
        body: RequestBody,
        queue_permit: Option<QueuePermit>,
    ) -> Result<Self, Error> {
        let attempt = Attempt::start(client, origin, parts.clone(), body, queue_permit)?;
        Ok(Self { client, origin, parts, attempt, attempt_count: 1 })
    }

    /// Returns when the request got its stream, or over HTTP/1.1 its connection. `None` while it
    /// waits for one, at first or after an attempt that the server did not process: nothing has
    /// been sent then.
    #[must_use]
    pub fn sent_at(&self) -> Option<Instant> {
        self.attempt.shared.sent_at().map(|at| clock::to_tokio(at).into_std())
    }

    /// Retries the request if the error allows it.
    fn retry(&mut self, error: Error) -> Result<(), Error> {
        let may_repeat =
            error.is_retryable() && !error.is_busy() && self.attempt_count < MAX_ATTEMPTS;
        let unsent = self.attempt.shared.take_unsent().filter(|_| may_repeat);
        let Some(UnsentRequest { body, permit: queue_permit }) = unsent else { return Err(error) };
        tracing::debug!(%error, "request retried");
        // A request that was returned before it had a stream does not count as an attempt.
        self.attempt_count += usize::from(!error.is_retired());
        let parts = self.parts.clone();
        self.attempt = Attempt::start(self.client, self.origin, parts, body, queue_permit)?;
        Ok(())
    }
}

impl Future for ResponseFuture<'_> {
    type Output = Result<Response<Incoming>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match ready!(this.attempt.poll(cx)) {
                Ok(response) => return Poll::Ready(Ok(response)),
                Err(error) => this.retry(error)?,
            }
        }
    }
}

impl Attempt {
    fn start(
        client: &Client,
        origin: &Origin,
        parts: RequestParts,
        body: RequestBody,
        queue_permit: Option<QueuePermit>,
    ) -> Result<Self, Error> {
        let Some(queue_permit) = queue_permit.or_else(|| client.inner.queue_limit.try_acquire())
        else {
            return Err(Error::new(ErrorKind::QueueFull));
        };
        let RequestParts { head, length, options } = parts;
        let shared = client.send_to_session(
            origin,
            RequestDraft { head, length, options, queue_permit },
            body,
        )?;
        let body = Incoming::stream(Arc::clone(&shared));
        let timeout = client.inner.response_timeout.map(|after| (after, Box::pin(sleep(after))));
        Ok(Self { shared, body, timeout })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Incoming>, Error>> {
        let Poll::Ready(head) = self.shared.poll_head(cx) else {
            let Some((after, timer)) = &mut self.timeout else { return Poll::Pending };
            ready!(timer.as_mut().poll(cx));
            let timeout_error = ErrorKind::Timeout { phase: TimeoutPhase::Response, after: *after };
            return Poll::Ready(Err(Error::new(timeout_error)));
        };
        Poll::Ready(Ok(match head? {
            Head::Http1(response) => response.map(Incoming::http1),
            Head::Stream(head) => {
                let mut response = Response::new(core::mem::take(&mut self.body));
                *response.status_mut() = head.status;
                *response.headers_mut() = head.headers;
                *response.version_mut() = Version::HTTP_2;
                response
            }
        }))
    }
}
