//! A request on its way: submitted, repeated where that is safe, answered.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::{Response, Version};
use smig_proto::RequestHead;
use tokio::time::{Sleep, sleep};

use super::request::{Draft, RequestOptions};
use super::{Client, Origin};
use crate::clock;
use crate::error::{Error, ErrorKind, TimeoutPhase};
use crate::limits::QueuePermit;
use crate::stream::{BodyLength, Head, Incoming, RequestBody, SharedStream, UnsentRequest};

/// Maximum number of times a request is sent, if the server certainly did not process it.
const MAX_ATTEMPTS: usize = 3;

/// A submitted request, and the future of its response; see [`Client::begin`]. Dropping it cancels the stream.
#[derive(Debug)]
#[must_use = "dropping it cancels the request"]
pub struct Sending<'a> {
    client: &'a Client,
    origin: &'a Origin,
    message: Message,
    attempt: Attempt,
    attempts: usize,
}

/// What each attempt sends before the body.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) head: RequestHead,
    pub(super) length: BodyLength,
    pub(super) options: RequestOptions,
}

#[derive(Debug)]
struct Attempt {
    shared: Arc<SharedStream>,
    /// The body of the response that is waited for; dropping it cancels the stream.
    body: Incoming,
    /// The response's timeout, with its duration.
    timeout: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<'a> Sending<'a> {
    /// Submits a request, with the queue slot in `place` or with a new one.
    pub(super) fn begin(
        client: &'a Client,
        origin: &'a Origin,
        message: Message,
        body: RequestBody,
        place: Option<QueuePermit>,
    ) -> Result<Self, Error> {
        let attempt = Attempt::begin(client, origin, message.clone(), body, place)?;
        Ok(Self { client, origin, message, attempt, attempts: 1 })
    }

    /// Returns when the request got its stream, or over HTTP/1.1 its connection. `None` while it waits for that, for
    /// the first time or, after an attempt that the server did not process, again: nothing was sent then.
    #[must_use]
    pub fn sent_at(&self) -> Option<Instant> {
        self.attempt.shared.sent_at().map(|at| clock::deadline(at).into_std())
    }

    /// Submits the request again if the error allows it.
    fn again(&mut self, error: Error) -> Result<(), Error> {
        let may_repeat = error.is_retryable() && !error.is_busy() && self.attempts < MAX_ATTEMPTS;
        let unsent = self.attempt.shared.take_unsent().filter(|_| may_repeat);
        let Some(UnsentRequest { body, permit: place }) = unsent else { return Err(error) };
        tracing::debug!(%error, "request retried");
        // A request that was returned before it had a stream does not count as an attempt.
        self.attempts += usize::from(!error.is_retired());
        let message = self.message.clone();
        self.attempt = Attempt::begin(self.client, self.origin, message, body, place)?;
        Ok(())
    }
}

impl Future for Sending<'_> {
    type Output = Result<Response<Incoming>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            match ready!(this.attempt.poll(cx)) {
                Ok(response) => return Poll::Ready(Ok(response)),
                Err(error) => this.again(error)?,
            }
        }
    }
}

impl Attempt {
    fn begin(
        client: &Client,
        origin: &Origin,
        message: Message,
        body: RequestBody,
        place: Option<QueuePermit>,
    ) -> Result<Self, Error> {
        let Some(place) = place.or_else(|| client.inner.queue.try_acquire()) else {
            return Err(Error::new(ErrorKind::QueueFull));
        };
        let Message { head, length, options } = message;
        let shared = client.submit(origin, Draft { head, length, options, place }, body)?;
        let body = Incoming::stream(Arc::clone(&shared));
        let timeout = client.inner.response_timeout.map(|after| (after, Box::pin(sleep(after))));
        Ok(Self { shared, body, timeout })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Incoming>, Error>> {
        let Poll::Ready(head) = self.shared.poll_head(cx) else {
            let Some((after, timer)) = &mut self.timeout else { return Poll::Pending };
            ready!(timer.as_mut().poll(cx));
            let late = ErrorKind::Timeout { phase: TimeoutPhase::Response, after: *after };
            return Poll::Ready(Err(Error::new(late)));
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
