//! An HTTP/1.1 connection below hyper's server: handlers may send informational responses, requests that two parsers could
//! interpret differently are refused, responses are paced, and clients that receive too slowly are reset.
//!
//! An informational response is sent between two messages: when all that hyper wrote is sent and the final response
//! is not available yet, or directly before its head.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};

use super::boundaries::{MessageBoundaries, ScanStop};
use super::conn_state::{BodyState, Http1ConnState, RequestState};
use super::linger::LingerSlot;
use super::pacing::ResponsePacing;
use super::timeouts::{ExceededTimeout, Http1Timeouts, NextProtocol};
use crate::clock;
use crate::deadlines::ProgressClock;
use crate::driver::Timer;
use crate::server::task_tracker::TaskToken;
use crate::socket::{TcpInfo, reset_on_close, tcp_info};
use crate::transport::Transport;

/// A transport that inserts informational responses. Dropped in the middle of a body that is delimited by close, it
/// is reset: the client would take a truncated response for a complete one.
#[derive(Debug)]
pub(super) struct Http1Io {
    /// `None` once it is in `linger_slot`, after the last output of hyper.
    transport: Option<Transport>,
    linger_slot: Arc<LingerSlot>,
    conn_state: Arc<Http1ConnState>,
    timeouts: Arc<Http1Timeouts>,
    timer: Timer,
    pacing: ResponsePacing,
    /// Progress of output that waits for the client to make room.
    write_progress: Option<ProgressClock>,
    /// Progress of a response whose end was sent and is not acknowledged.
    delivery_progress: Option<ProgressClock>,
    /// Lets the worker wait for the connection even if a handler uses it for another protocol.
    _token: TaskToken,
    /// Part of an informational response, to be sent before anything else.
    unsent_informational: Bytes,
    /// All that hyper wrote is sent.
    flushed: bool,
    input: Input,
}

/// How input from the peer is used.
#[derive(Debug)]
enum Input {
    /// Requests.
    Http1(MessageBoundaries),
    /// Another protocol, which hyper does not parse.
    Tunnel,
    /// Input is ignored: a request was refused, and hyper reads the rest of these bytes instead.
    Refused(&'static [u8]),
}

/// Bytes that hyper refuses wherever a request may be refused: in a head with 400, in a body with an error of
/// the body. They include a terminator, so that hyper does not wait for one.
const MALFORMED_INPUT: &[u8] = b"\0\n\r\n\r\n";

impl Http1Io {
    pub(super) fn new(
        transport: Transport,
        (conn_state, timeouts, linger_slot): (
            Arc<Http1ConnState>,
            Arc<Http1Timeouts>,
            Arc<LingerSlot>,
        ),
        pacing: ResponsePacing,
        token: TaskToken,
    ) -> Self {
        Self {
            transport: Some(transport),
            linger_slot,
            conn_state,
            timeouts,
            timer: Timer::default(),
            pacing,
            write_progress: None,
            delivery_progress: None,
            _token: token,
            unsent_informational: Bytes::new(),
            flushed: true,
            input: Input::Http1(MessageBoundaries::new()),
        }
    }

    /// Returns whether closing the connection now would look like the end of a body.
    fn is_mid_body(&self) -> bool {
        match self.conn_state.lock().body {
            BodyState::None => false,
            BodyState::InProgress | BodyState::Failed => true,
            BodyState::Complete => !self.flushed,
        }
    }

    /// Makes the next close an RST.
    pub(super) fn reset_on_close(&mut self) {
        if let Some(transport) = &self.transport {
            reset_on_close(transport.tcp());
        }
    }

    /// Returns the transport, which hyper does not use after it has shut it down.
    fn transport(&mut self) -> io::Result<&mut Transport> {
        self.transport.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn tcp_info(&self) -> Option<TcpInfo> {
        tcp_info(self.transport.as_ref()?.tcp())
    }

    /// Fails when the client takes too little output for too long. Progress is what it has
    /// acknowledged: a full socket becomes writable only after a good part of it has drained.
    fn poll_write_timeout<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        loop {
            let (now, min_progress) = (clock::now(), self.timeouts.time_limits.send);
            if !self.timeouts.is_http() {
                // Other protocols have their own timeouts.
                self.write_progress = None;
            } else if self.write_progress.is_none() {
                self.write_progress = Some(ProgressClock::new(min_progress, now));
            }
            let progress_check = self.write_progress.as_ref().map(|progress| now + progress.tick());
            let next = progress_check.into_iter().chain(self.pacing.deadline()).min();
            ready!(self.timer.poll(cx, next));
            if let Some(transport) = &self.transport {
                self.pacing.sample_if_due(clock::now(), transport.tcp());
            }
            let acked = self.tcp_info().map_or(0, |info| info.bytes_acked);
            if self
                .write_progress
                .as_mut()
                .is_some_and(|progress| progress.is_late(clock::now(), acked))
            {
                return Poll::Ready(Err(self.abort_stalled()));
            }
        }
    }

    /// After a response: checks whether the client has acknowledged all of it, or receives it too slowly. Called
    /// whenever the connection is polled, which [`Http1Timeouts`] ensures.
    fn check_delivery(&mut self) -> io::Result<()> {
        if !self.timeouts.is_delivering() {
            self.delivery_progress = None;
            return Ok(());
        }
        if let Some(transport) = &self.transport {
            self.pacing.on_response_flushed(clock::now(), transport.tcp());
        }
        let (now, min_progress) = (clock::now(), self.timeouts.time_limits.send);
        let info = self.tcp_info().filter(TcpInfo::is_delivering);
        let Some(info) = info else {
            self.delivery_progress = None;
            self.timeouts.on_delivered(now);
            return Ok(());
        };
        let progress =
            self.delivery_progress.get_or_insert_with(|| ProgressClock::new(min_progress, now));
        if progress.is_late(now, info.bytes_acked) {
            return Err(self.abort_stalled());
        }
        Ok(())
    }

    /// Gives up on the client, with an RST, so that the kernel's send buffer is freed as well.
    fn abort_stalled(&mut self) -> io::Error {
        self.reset_on_close();
        self.timeouts.set_exceeded(ExceededTimeout::Send);
        io::ErrorKind::TimedOut.into()
    }

    /// Returns the result of a write, or an error if the client blocks it for too long.
    fn with_write_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            self.pacing.on_blocked();
            return self.poll_write_timeout(cx);
        }
        self.pacing.on_unblocked(clock::now());
        self.write_progress = None;
        polled
    }

    fn write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let conn_state = Arc::clone(&self.conn_state);
        let mut state = conn_state.lock();
        if state.request == RequestState::Answered && !state.queued_informational.is_empty() {
            let bytes = core::mem::take(&mut state.queued_informational);
            if self.flushed {
                // What hyper writes now begins with the final head.
                self.unsent_informational = bytes.into();
            }
        }
        let response = state.response_extent();
        drop(state);
        self.flushed = false;
        self.delivery_progress = None;
        ready!(self.poll_informational(cx))?;
        let transport = self.transport.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let now = clock::now();
        self.pacing.before_write(now, transport.tcp(), response);
        let written = ready!(Pin::new(self.transport()?).poll_write(cx, buf))?;
        self.pacing.after_write(now, written);
        Poll::Ready(Ok(written))
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_informational(cx))?;
        ready!(Pin::new(self.transport()?).poll_flush(cx))?;
        self.flushed = true;
        let conn_state = Arc::clone(&self.conn_state);
        let mut state = conn_state.lock();
        if state.request == RequestState::Open {
            // hyper has no more output, and the final response is not available yet.
            if !state.queued_informational.is_empty() {
                self.unsent_informational = core::mem::take(&mut state.queued_informational).into();
                drop(state);
                ready!(self.poll_informational(cx))?;
                return Pin::new(self.transport()?).poll_flush(cx);
            }
            match &mut state.connection_waker {
                Some(connection) => connection.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Closes this end's half. No HTTP follows, and hyper, with its buffers, should not wait for what the client
    /// still sends.
    fn shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_informational(cx))?;
        ready!(Pin::new(self.transport()?).poll_shutdown(cx))?;
        self.flushed = true;
        if self.timeouts.is_http()
            && !self.is_mid_body()
            && let Some(mut transport) = self.transport.take()
        {
            let is_complete =
                matches!(&self.input, Input::Http1(boundaries) if boundaries.is_between_requests());
            let is_unread = !is_complete || !transport.input().is_empty();
            self.linger_slot.put(transport, is_unread);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_informational(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent_informational.is_empty() {
            let Some(transport) = &mut self.transport else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            let written = ready!(Pin::new(transport).poll_write(cx, &self.unsent_informational))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent_informational.advance(written.min(self.unsent_informational.len()));
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Http1Io {
    fn drop(&mut self) {
        if self.is_mid_body() {
            self.reset_on_close();
        }
    }
}

impl Http1Io {
    /// Reads input that has passed the check.
    fn poll_checked_input(
        &mut self,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(transport) = &mut self.transport else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        loop {
            let boundaries = match &mut self.input {
                Input::Http1(boundaries) => boundaries,
                Input::Tunnel => return Pin::new(transport).poll_read(cx, buf),
                Input::Refused(remaining) => {
                    let (chunk, tail) = remaining.split_at(remaining.len().min(buf.remaining()));
                    buf.put_slice(chunk);
                    *remaining = tail;
                    return Poll::Ready(Ok(()));
                }
            };
            let bytes = ready!(transport.poll_input(cx))?;
            let bytes = bytes.get(..buf.remaining()).unwrap_or(bytes);
            let (passed_len, stop) = boundaries.scan(bytes);
            transport.move_input(passed_len, &mut buf);
            match stop {
                Some(ScanStop::AwaitingResponse) if passed_len == 0 => {
                    match ready!(self.conn_state.poll_response(boundaries.heads(), cx)) {
                        NextProtocol::Http => boundaries.resume(),
                        NextProtocol::Tunnel => self.input = Input::Tunnel,
                    }
                }
                Some(ScanStop::Malformed(why)) => {
                    let peer = transport.peer();
                    tracing::debug!(%peer, why, "invalid HTTP/1.1 request rejected");
                    self.input = Input::Refused(MALFORMED_INPUT);
                }
                Some(ScanStop::AwaitingResponse) | None => return Poll::Ready(Ok(())),
            }
            // An empty read would mean end of file.
            if passed_len > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Read for Http1Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = self.poll_checked_input(cx, buf);
        if polled.is_ready() {
            self.timeouts.on_read(clock::now());
        }
        polled
    }
}

impl Write for Http1Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = self.write(cx, buf);
        self.with_write_timeout(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.flush(cx);
        ready!(self.with_write_timeout(cx, polled))?;
        Poll::Ready(self.check_delivery())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.shutdown(cx);
        self.with_write_timeout(cx, polled)
    }
}
