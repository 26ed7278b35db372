//! An HTTP/1.1 connection below hyper's server, with two additions: handlers may send informational responses, and
//! requests that two parsers could interpret differently are refused.
//!
//! An informational response is sent between two messages: when all that hyper wrote is sent and the final response
//! is not available yet, or directly before its head.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};

use super::boundaries::{HeldBack, MessageBoundaries};
use super::informational::{BodyState, Http1Informational, RequestState};
use super::linger::LingerSlot;
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
    /// `None` once it is in `lingering`, after the last output of hyper.
    transport: Option<Transport>,
    lingering: Arc<LingerSlot>,
    informational: Arc<Http1Informational>,
    timeouts: Arc<Http1Timeouts>,
    timer: Timer,
    /// Progress of output that waits for the client to make room.
    unsent: Option<ProgressClock>,
    /// Progress of a response whose end was sent and is not acknowledged.
    unacknowledged: Option<ProgressClock>,
    /// Lets the worker wait for the connection even if a handler uses it for another protocol.
    _active: TaskToken,
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
    Another,
    /// Not at all: a request was refused, and hyper reads what is left of these bytes instead.
    Refused(&'static [u8]),
}

/// Bytes that hyper refuses wherever a request may be refused: in a head with 400, in a body with an error of
/// the body. They include a terminator, so that hyper does not wait for one.
const REFUSED: &[u8] = b"\0\n\r\n\r\n";

impl Http1Io {
    pub(super) fn new(
        transport: Transport,
        (informational, timeouts, lingering): (
            Arc<Http1Informational>,
            Arc<Http1Timeouts>,
            Arc<LingerSlot>,
        ),
        active: TaskToken,
    ) -> Self {
        Self {
            transport: Some(transport),
            lingering,
            informational,
            timeouts,
            timer: Timer::default(),
            unsent: None,
            unacknowledged: None,
            _active: active,
            unsent_informational: Bytes::new(),
            flushed: true,
            input: Input::Http1(MessageBoundaries::new()),
        }
    }

    /// Returns whether closing the connection now would look like the end of a body.
    fn is_mid_body(&self) -> bool {
        match self.informational.lock().body {
            BodyState::None => false,
            BodyState::UnderWay | BodyState::Broken => true,
            BodyState::Taken => !self.flushed,
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

    /// Waits until the client makes room, within its time limit. Progress is what it has acknowledged: a full
    /// socket becomes writable only after a good part of it has drained.
    fn wait_for_room<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        loop {
            let (now, send) = (clock::now(), self.timeouts.deadlines.send);
            if !self.timeouts.is_http() {
                return Poll::Pending;
            }
            let next =
                now + self.unsent.get_or_insert_with(|| ProgressClock::new(send, now)).tick();
            ready!(self.timer.poll(cx, Some(next)));
            let taken = self.tcp_info().map_or(0, |info| info.bytes_acked);
            if self.unsent.as_mut().is_some_and(|progress| progress.is_late(clock::now(), taken)) {
                return Poll::Ready(Err(self.give_up_sending()));
            }
        }
    }

    /// After a response: checks whether the client has acknowledged all of it, or receives it too slowly. Called
    /// whenever the connection is polled, which [`Http1Timeouts`] ensures.
    fn check_delivery(&mut self) -> io::Result<()> {
        if !self.timeouts.is_delivering() {
            self.unacknowledged = None;
            return Ok(());
        }
        let (now, send) = (clock::now(), self.timeouts.deadlines.send);
        let info = self.tcp_info().filter(TcpInfo::is_delivering);
        let Some(info) = info else {
            self.unacknowledged = None;
            self.timeouts.on_delivered(now);
            return Ok(());
        };
        let progress = self.unacknowledged.get_or_insert_with(|| ProgressClock::new(send, now));
        if progress.is_late(now, info.bytes_acked) {
            return Err(self.give_up_sending());
        }
        Ok(())
    }

    /// Gives up on the client, with an RST, so that the kernel's send buffer is freed as well.
    fn give_up_sending(&mut self) -> io::Error {
        self.reset_on_close();
        self.timeouts.give_up(ExceededTimeout::Send);
        io::ErrorKind::TimedOut.into()
    }

    /// Returns the result of a write, or an error if the client blocks it for too long.
    fn timed<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            return self.wait_for_room(cx);
        }
        self.unsent = None;
        polled
    }

    fn write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let informational = Arc::clone(&self.informational);
        let mut state = informational.lock();
        if state.request == RequestState::Answered && !state.bytes.is_empty() {
            let bytes = core::mem::take(&mut state.bytes);
            if self.flushed {
                // What hyper writes now begins with the final head.
                self.unsent_informational = bytes.into();
            }
        }
        drop(state);
        self.flushed = false;
        self.unacknowledged = None;
        ready!(self.poll_informational(cx))?;
        Pin::new(self.transport()?).poll_write(cx, buf)
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_informational(cx))?;
        ready!(Pin::new(self.transport()?).poll_flush(cx))?;
        self.flushed = true;
        let informational = Arc::clone(&self.informational);
        let mut state = informational.lock();
        if state.request == RequestState::Open {
            // hyper has no more output, and the final response is not available yet.
            if !state.bytes.is_empty() {
                self.unsent_informational = core::mem::take(&mut state.bytes).into();
                drop(state);
                ready!(self.poll_informational(cx))?;
                return Pin::new(self.transport()?).poll_flush(cx);
            }
            match &mut state.connection {
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
            let is_whole = matches!(&self.input, Input::Http1(boundaries) if boundaries.is_whole());
            let is_unread = !is_whole || !transport.input().is_empty();
            self.lingering.put(transport, is_unread);
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
    /// Reads what hyper may see.
    fn poll_passed(
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
                Input::Another => return Pin::new(transport).poll_read(cx, buf),
                Input::Refused(left) => {
                    let (now, later) = left.split_at(left.len().min(buf.remaining()));
                    buf.put_slice(now);
                    *left = later;
                    return Poll::Ready(Ok(()));
                }
            };
            let bytes = ready!(transport.poll_input(cx))?;
            let bytes = bytes.get(..buf.remaining()).unwrap_or(bytes);
            let (passed, stop) = boundaries.scan(bytes);
            transport.move_input(passed, &mut buf);
            match stop {
                Some(HeldBack::Held) if passed == 0 => {
                    match ready!(self.informational.poll_answer(boundaries.heads(), cx)) {
                        NextProtocol::Http => boundaries.resume(),
                        NextProtocol::Tunnel => self.input = Input::Another,
                    }
                }
                Some(HeldBack::Refused(why)) => {
                    let peer = transport.peer();
                    tracing::debug!(%peer, why, "invalid HTTP/1.1 request rejected");
                    self.input = Input::Refused(REFUSED);
                }
                Some(HeldBack::Held) | None => return Poll::Ready(Ok(())),
            }
            // An empty read would mean end of file.
            if passed > 0 {
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
        let polled = self.poll_passed(cx, buf);
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
        self.timed(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.flush(cx);
        ready!(self.timed(cx, polled))?;
        Poll::Ready(self.check_delivery())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.shutdown(cx);
        self.timed(cx, polled)
    }
}
