//! An HTTP/1.1 connection of hyper, polled by the exchange that uses it.
//!
//! It has no task of its own, so its events wake only the task of that exchange.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::shared_waker::SharedWaker;
use crate::ProxyError;
use crate::dial::Io;
use crate::framing::Content;
use crate::upload::{ResponseClock, ResponseTimeouts, Upload};

/// Maximum number of polling rounds before yielding to other tasks of the thread.
const MAX_POLL_ROUNDS: usize = 16;

/// An HTTP/1.1 connection to a server.
pub struct Http1Conn {
    sender: http1::SendRequest<Content<Upload>>,
    connection: http1::Connection<TokioIo<Io>, Content<Upload>>,
    shared_waker: Arc<SharedWaker>,
    waker: Waker,
    timer: Pin<Box<Sleep>>,
    /// Deadline of the current timeout; the timer may fire earlier.
    deadline: Instant,
    /// The connection must not be polled any more.
    has_ended: bool,
    /// It has carried a request before: the server may have closed it since.
    was_used: bool,
    /// It must not be reused: a request or response on it was the last.
    is_last: bool,
    pub(super) idle_since: Instant,
    permit: OwnedSemaphorePermit,
    /// The server's IP address, if it has one.
    pub(super) peer_ip: Option<IpAddr>,
}

impl std::fmt::Debug for Http1Conn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Conn")
            .field("ended", &self.has_ended)
            .field("used", &self.was_used)
            .finish()
    }
}

/// Why a request got no response.
#[derive(Debug)]
pub struct SendError {
    /// The error.
    pub error: ProxyError,
    /// Whether no byte of the request was written.
    pub is_unsent: bool,
}

impl From<SendError> for ProxyError {
    fn from(error: SendError) -> Self {
        if error.is_unsent {
            return Self::Refused(error.error.to_string());
        }
        error.error
    }
}

/// A connection that was switched to another protocol.
#[derive(Debug)]
pub struct UpgradedConn {
    /// Its transport.
    pub io: Io,
    /// Bytes that were read after the response's header section.
    pub read_buf: Bytes,
    /// The connection counts against the limit while this exists.
    pub permit: OwnedSemaphorePermit,
}

impl Http1Conn {
    /// Starts HTTP/1.1 on a connection, which holds its permit until it is dropped.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn handshake(io: Io, permit: OwnedSemaphorePermit) -> Result<Self, ProxyError> {
        let peer_ip = io.peer_ip();
        let (sender, connection) =
            http1::handshake(TokioIo::new(io)).await.map_err(ProxyError::from_hyper)?;
        let shared_waker = Arc::new(SharedWaker::default());
        let now = Instant::now();
        Ok(Self {
            sender,
            connection,
            waker: Waker::from(Arc::clone(&shared_waker)),
            shared_waker,
            timer: Box::pin(tokio::time::sleep_until(now)),
            deadline: now,
            has_ended: false,
            was_used: false,
            is_last: false,
            idle_since: now,
            permit,
            peer_ip,
        })
    }

    fn poll_connection(&mut self) {
        if self.has_ended {
            return;
        }
        let mut cx = Context::from_waker(&self.waker);
        match self.connection.poll_without_shutdown(&mut cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.has_ended = true,
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "upstream connection failed");
                self.has_ended = true;
            }
        }
    }

    /// Calls `poll` and polls the connection in turn, until `poll` is ready or both are pending.
    pub fn drive<R>(
        &mut self,
        cx: &Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        self.shared_waker.begin(cx.waker());
        for _ in 0..MAX_POLL_ROUNDS {
            let result = poll(&mut Context::from_waker(&self.waker));
            if result.is_ready() {
                self.shared_waker.end_without_wake();
                return result;
            }
            self.poll_connection();
            if !self.shared_waker.take_repoll() {
                self.shared_waker.end();
                return Poll::Pending;
            }
        }
        self.shared_waker.end();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the connection until it makes no more progress. Returns whether it can be reused.
    pub(super) fn quiesce(&mut self) -> bool {
        self.shared_waker.begin_detached();
        let is_quiet = (0..MAX_POLL_ROUNDS).any(|_| {
            self.poll_connection();
            !self.shared_waker.take_repoll()
        });
        self.shared_waker.end_without_wake();
        is_quiet && !self.has_ended && !self.is_last && self.sender.is_ready()
    }

    /// Marks the current request as the connection's last, whatever it carries.
    pub const fn mark_last(&mut self) {
        self.is_last = true;
    }

    /// Returns whether an idle connection can still be reused.
    pub(super) fn is_reusable(&mut self) -> bool {
        !self.shared_waker.is_notified() || self.quiesce()
    }

    /// Polls a timeout, which starts anew if `restart` is set; only then is `timeout` read. A deadline
    /// that moves later, as it does with each request, does not reset the timer.
    pub fn poll_timeout(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        restart: bool,
    ) -> Poll<()> {
        if restart {
            self.deadline = Instant::now() + timeout;
            if self.deadline < self.timer.deadline() {
                self.timer.as_mut().reset(self.deadline);
            }
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            if self.timer.deadline() >= self.deadline {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(self.deadline);
        }
        Poll::Pending
    }

    /// Sends a request; the future waits for the response's header section.
    pub fn send(
        &mut self,
        request: Request<Content<Upload>>,
        timeouts: ResponseTimeouts,
    ) -> impl Future<Output = Result<Response<Incoming>, SendError>> + use<'_> {
        self.is_last |= smig::is_last_request(request.headers());
        self.shared_waker.begin_detached();
        let response = self.sender.try_send_request(request);
        self.shared_waker.end_without_wake();
        let was_used = std::mem::replace(&mut self.was_used, true);
        let clock = timeouts.start();
        let next_timeout = Some(clock.first_timeout());
        SendFuture { response, connection: self, clock, next_timeout, was_used }
    }

    /// Takes over the transport after both ends have agreed on another protocol.
    pub async fn switch(mut self, timeout: Duration) -> Result<UpgradedConn, ProxyError> {
        let mut restart = true;
        poll_fn(|cx| {
            let poll_ended =
                |this: &Self| if this.has_ended { Poll::Ready(()) } else { Poll::Pending };
            self.shared_waker.begin(cx.waker());
            self.poll_connection();
            self.shared_waker.end();
            if poll_ended(&self).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let expired = self.poll_timeout(cx, timeout, std::mem::take(&mut restart));
            expired.map(|()| Err(ProxyError::Upgrade("timed out switching protocols")))
        })
        .await?;
        let http1::Parts { io, read_buf, .. } = self.connection.into_parts();
        Ok(UpgradedConn { io: io.into_inner(), read_buf, permit: self.permit })
    }
}

pin_project! {
    /// Waits for a response's header section. Not an async block: that would reserve space for
    /// `response` twice.
    struct SendFuture<'a, F> {
        #[pin]
        response: F,
        connection: &'a mut Http1Conn,
        clock: ResponseClock,
        // A timeout that has not started.
        next_timeout: Option<Duration>,
        // The connection has carried a request before.
        was_used: bool,
    }
}

impl<F> Future for SendFuture<'_, F>
where
    F: Future<Output = Result<Response<Incoming>, TrySendError<Request<Content<Upload>>>>>,
{
    type Output = Result<Response<Incoming>, SendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(sent) = this.connection.drive(cx, |cx| this.response.as_mut().poll(cx)) {
            this.connection.is_last |= sent.as_ref().is_ok_and(smig::is_last_response);
            return Poll::Ready(sent.map_err(|mut send_error| {
                let is_unsent = send_error.take_message().is_some();
                let error = ProxyError::from_hyper(send_error.into_error());
                SendError { error: error.stale_if_reused(*this.was_used), is_unsent }
            }));
        }
        loop {
            let next_timeout = this.next_timeout.take();
            let (timeout, restart) = (next_timeout.unwrap_or_default(), next_timeout.is_some());
            std::task::ready!(this.connection.poll_timeout(cx, timeout, restart));
            match this.clock.check_progress() {
                Ok(timeout) => *this.next_timeout = Some(timeout),
                Err(error) => return Poll::Ready(Err(SendError { error, is_unsent: false })),
            }
        }
    }
}
