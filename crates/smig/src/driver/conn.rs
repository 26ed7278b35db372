//! One connection of a session in its driver: transport, pending output, role, close.
//!
//! Parses no frames. The engine decides what is sent, and this module when the socket can take it.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smig_pace::{Bounds, BulkBucket, ConnSample};
use smig_proto::{
    ConnId, ConnectionRole, ConnectionView, Instant, LostReason, OutputBuffer, Session,
    TransmitLimits, Transmitted,
};

use super::conn_pacing::{ConnPacing, MAX_BATCH_BYTES};
use crate::connection::ConnectionInfo;
use crate::snapshot::{self, ConnectionSnapshot};
use crate::socket::{self, PathSample, SocketOptions};
use crate::transport::{ReceiveOutcome, Transport};

/// Largest output buffer that an idle connection keeps.
const MAX_IDLE_OUTPUT_BYTES: usize = 4 << 10;
/// Bytes sent on one connection per turn, before the others are served.
const MAX_SENT_BYTES_PER_TURN: usize = 512 << 10;
/// Reads from one connection per turn.
const MAX_READS_PER_TURN: usize = 4;
/// How long a connection that this end closes is still read, so that the peer gets the reason: unread input
/// would cause an RST.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a connection that this end closes may take to accept the last output.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CloseState {
    Open,
    /// The engine has closed it: pending output is sent, until this time at most, then this end's half is
    /// closed.
    Flushing(Instant),
    /// This end's half is closed; input is discarded until the peer closes or this time has come.
    Lingering(Instant),
    Closed,
}

/// State of the peer's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    Open,
    Closed,
}

/// Whether there was any work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Yes,
    No,
}

impl Progress {
    pub(crate) const fn or(self, other: Self) -> Self {
        match self {
            Self::Yes => Self::Yes,
            Self::No => other,
        }
    }
}

/// A connection outside of a session.
#[derive(Debug)]
pub(crate) struct DetachedConn {
    pub(crate) transport: Transport,
    pub(crate) info: Arc<ConnectionInfo>,
    /// Framed and not written yet.
    pub(crate) output: OutputBuffer,
}

#[derive(Debug)]
pub(crate) struct DriverConn {
    pub(super) id: ConnId,
    pub(super) transport: Transport,
    pub(super) info: Arc<ConnectionInfo>,
    pub(super) role: ConnectionRole,
    pub(super) close_state: CloseState,
    pub(super) sample: PathSample,
    output: OutputBuffer,
    pub(super) pacing: ConnPacing,
    blocked: bool,
    /// The last read found nothing, so the socket wakes the task when there is something.
    awaits_input: bool,
    peer_state: PeerState,
}

/// What a connection may send now.
#[derive(Debug)]
pub(super) enum Release<'a> {
    /// Everything.
    All,
    /// Everything but bulk. If that does not end, a piece of bulk now and then, as the bucket allows.
    Interactive(&'a mut BulkBucket),
    /// A piece of bulk.
    Piece {
        /// Its size, with all framing.
        bytes: u64,
        /// What was taken of it.
        written: &'a mut u64,
    },
}

impl DriverConn {
    pub(super) fn new(id: ConnId, detached: DetachedConn) -> Self {
        let DetachedConn { transport, info, output } = detached;
        Self {
            id,
            transport,
            info,
            role: ConnectionRole::Interactive,
            close_state: CloseState::Open,
            sample: PathSample::default(),
            output,
            pacing: ConnPacing::default(),
            blocked: false,
            awaits_input: false,
            peer_state: PeerState::Open,
        }
    }

    /// Removes the connection from its session, with its pending output.
    pub(super) fn detach(mut self) -> DetachedConn {
        self.pacing.leave_session(self.transport.tcp());
        DetachedConn { transport: self.transport, info: self.info, output: self.output }
    }

    /// Sets the connection's role, and the role's socket options.
    pub(super) fn set_role(&mut self, role: ConnectionRole, options: &SocketOptions) {
        self.role = role;
        self.pacing.set_role(self.transport.tcp(), role, options);
    }

    /// Sets the bounds of bulk, if the connection has any now.
    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.pacing.set_bounds(self.transport.tcp(), bounds);
    }

    /// Records whether the connection has bulk to send; returns it.
    pub(super) fn note_bulk(&mut self, session: &Session, now: Instant) -> bool {
        let paced = &mut self.pacing.paced;
        paced.set_has_bulk(now, session.transmit_demand(self.id).bulk);
        paced.has_bulk()
    }

    /// Returns whether bulk waits to be sent, and the socket accepts it as far as is known.
    pub(super) const fn has_bulk_to_write(&self) -> bool {
        self.pacing.paced.has_bulk() && !self.blocked
    }

    /// Measures the socket for the pacing.
    pub(super) fn measure(&mut self) -> ConnSample {
        self.take_sample();
        let mut sample = self.sample.conn_sample();
        sample.outstanding += (self.output.len() + self.transport.sealed_unwritten()) as u64;
        sample
    }

    /// Reads what has arrived and passes it to the engine.
    pub(super) fn receive(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        match self.close_state {
            CloseState::Open => self.receive_open(session, now, cx),
            CloseState::Lingering(_) => self.discard(cx),
            CloseState::Flushing(_) | CloseState::Closed => Progress::No,
        }
    }

    fn receive_open(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut progress = Progress::No;
        self.awaits_input = false;
        for _ in 0..MAX_READS_PER_TURN {
            if self.peer_state == PeerState::Closed || !session.wants_input(self.id) {
                break;
            }
            match self.transport.poll_receive(cx) {
                Poll::Pending => {
                    self.awaits_input = true;
                    break;
                }
                Poll::Ready(Ok(received)) => {
                    progress = Progress::Yes;
                    session.handle_input(now, self.id, self.transport.input());
                    if received == ReceiveOutcome::End {
                        self.peer_state = PeerState::Closed;
                        session.handle_eof(now, self.id);
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.handle_failure(session, now, &error);
                    return Progress::Yes;
                }
            }
        }
        self.transport.release_idle_memory();
        progress
    }

    /// Passes buffered input to the engine, which did not accept it when it was read.
    pub(super) fn resume_input(&mut self, session: &mut Session, now: Instant) -> Progress {
        if self.close_state != CloseState::Open
            || self.transport.input().is_empty()
            || !session.wants_input(self.id)
        {
            return Progress::No;
        }
        let before = self.transport.input().len();
        session.handle_input(now, self.id, self.transport.input());
        if self.transport.input().len() == before { Progress::No } else { Progress::Yes }
    }

    fn discard(&mut self, cx: &mut Context<'_>) -> Progress {
        for _ in 0..MAX_READS_PER_TURN {
            match self.transport.poll_receive(cx) {
                Poll::Pending => return Progress::No,
                Poll::Ready(Ok(ReceiveOutcome::Progress)) => self.transport.input().clear(),
                Poll::Ready(_) => {
                    self.close_state = CloseState::Closed;
                    return Progress::Yes;
                }
            }
        }
        Progress::Yes
    }

    /// Returns whether there is nothing to do until the socket has input, as far as is known: all that was read has been
    /// handled, and all that the engine has was written.
    pub(super) fn is_settled(&mut self, session: &Session) -> bool {
        self.close_state == CloseState::Open
            && self.awaits_input
            && self.transport.input().is_empty()
            && self.output.is_empty()
            && !self.transport.has_sealed()
            && session.transmit_demand(self.id).is_none()
    }

    /// Handles a failure of the socket.
    fn handle_failure(&mut self, session: &mut Session, now: Instant, error: &io::Error) {
        tracing::debug!(conn = %self.id, %error, "connection lost");
        self.close_state = CloseState::Closed;
        session.handle_lost(now, self.id, LostReason::Failed(error.to_string()));
    }

    /// Sends what the engine has and `release` allows, as far as the socket takes it.
    pub(super) fn transmit(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
        mut release: Release<'_>,
    ) -> Progress {
        if matches!(self.close_state, CloseState::Lingering(_) | CloseState::Closed) {
            return Progress::No;
        }
        let mut total_taken = 0;
        loop {
            if !self.output.is_empty() || self.transport.has_sealed() {
                match self.transport.poll_flush(cx, &mut self.output) {
                    Poll::Pending => {
                        self.on_socket_full();
                        break;
                    }
                    Poll::Ready(Ok(())) => self.blocked = false,
                    Poll::Ready(Err(error)) => {
                        self.handle_failure(session, now, &error);
                        return Progress::Yes;
                    }
                }
            }
            let is_piece_sent = matches!(release, Release::Piece { .. }) && total_taken > 0;
            if total_taken >= MAX_SENT_BYTES_PER_TURN || is_piece_sent {
                break;
            }
            let demand = session.transmit_demand(self.id);
            self.pacing.paced.set_has_bulk(now, demand.bulk);
            let limits = match &release {
                Release::All if !demand.is_none() => TransmitLimits::any(self.pacing.batch_bytes()),
                Release::Interactive(bucket) if demand.interactive => TransmitLimits {
                    bytes: self.pacing.batch_bytes(),
                    bulk_bytes: self.bulk_beside_interactive(bucket),
                },
                Release::Piece { bytes, .. } if demand.bulk => self.piece_limits(*bytes),
                Release::All | Release::Interactive(_) | Release::Piece { .. } => break,
            };
            let taken = session.poll_transmit(now, self.id, limits, &mut self.output);
            if taken.bytes == 0 && self.output.is_empty() {
                break;
            }
            self.record_taken(&mut release, taken);
            total_taken += taken.bytes;
        }
        if total_taken > 0 { Progress::Yes } else { Progress::No }
    }

    /// Records what was taken from the engine.
    fn record_taken(&mut self, release: &mut Release<'_>, taken: Transmitted) {
        match release {
            Release::Piece { written, .. } => {
                **written += self.transport.sealed_bytes(taken.bytes) as u64;
                return self.pacing.on_piece(taken);
            }
            Release::Interactive(bucket) => bucket.consume(taken.bulk_bytes as u64),
            Release::All => {}
        }
        self.pacing.on_taken(taken);
    }

    /// Returns how much bulk may be sent together with interactive data: none, unless that has occupied the socket
    /// for long. Otherwise bulk could wait for so long that its stream counts as stalled.
    fn bulk_beside_interactive(&self, bucket: &BulkBucket) -> usize {
        let piece = if self.pacing.is_piece_overdue() { bucket.piece() } else { None };
        piece.map_or(0, |piece| self.piece_limits(piece).bulk_bytes)
    }

    /// Returns the limits for a piece of bulk: with its framing it fills packets.
    fn piece_limits(&self, piece_bytes: u64) -> TransmitLimits {
        let piece = usize::try_from(piece_bytes).unwrap_or(MAX_BATCH_BYTES);
        let bytes = self.transport.unsealed_bytes(piece.min(MAX_BATCH_BYTES));
        TransmitLimits { bytes, bulk_bytes: bytes }
    }

    /// Releases excess output memory, before the session's task goes idle.
    pub(super) fn release_idle_memory(&mut self) {
        self.output.shrink(MAX_IDLE_OUTPUT_BYTES);
    }

    /// Handles a full socket: smaller batches from now on, and a sample of how fast it drains.
    fn on_socket_full(&mut self) {
        self.blocked = true;
        if self.pacing.is_sample_old() || self.sample.delivery_rate.is_none() {
            self.take_sample();
        }
        self.pacing.on_socket_full();
    }

    /// Reads TCP_INFO and sets TCP_NOTSENT_LOWAT to what the delivery rate sends in a few milliseconds.
    pub(super) fn take_sample(&mut self) {
        let tcp = self.transport.tcp();
        if let Some(info) = socket::tcp_info(tcp) {
            self.sample = PathSample::from(&info);
        }
        self.pacing.on_sample(tcp, self.sample.delivery_rate);
    }

    /// Returns a snapshot of the connection.
    pub(super) fn snapshot(
        &self,
        view: &ConnectionView,
        role: snapshot::ConnectionRole,
    ) -> ConnectionSnapshot {
        let info = socket::tcp_info(self.transport.tcp()).unwrap_or_default();
        let path = PathSample::from(&info);
        ConnectionSnapshot {
            id: self.id,
            role,
            addrs: self.info.addrs(),
            rtt: path.rtt,
            min_rtt: path.min_rtt,
            congestion_window: path.congestion_window,
            in_flight: path.in_flight,
            unsent: self.output.len() as u64 + u64::from(path.unsent),
            delivery_rate: path.delivery_rate,
            pacing_cap: self.pacing.cap(),
            sent: view.data_bytes_sent,
            received: view.data_bytes_received,
            streams: view.stream_count,
        }
    }

    /// Handles that the engine has closed the connection.
    pub(super) fn begin_close(&mut self, now: Instant) {
        if self.close_state == CloseState::Open {
            self.close_state = CloseState::Flushing(now + FLUSH_TIMEOUT);
        }
    }

    /// Closes at once with an RST; pending output is discarded.
    pub(super) fn abort(&mut self, session: &mut Session, now: Instant) {
        socket::reset_on_close(self.transport.tcp());
        self.close_state = CloseState::Closed;
        session.handle_lost(
            now,
            self.id,
            LostReason::Failed("closed with a cancelled stream".to_owned()),
        );
    }

    /// Advances a connection that is being closed by one step.
    pub(super) fn advance_close(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        if self.close_state == CloseState::Open && session.should_close(self.id) {
            self.begin_close(now);
        }
        match self.close_state {
            CloseState::Flushing(_) if !self.blocked && self.output.is_empty() => {
                session.handle_lost(now, self.id, LostReason::Closed);
                self.transport.queue_close_notify();
                let flushed = self.transport.poll_flush(cx, &mut self.output);
                let closed = self.transport.poll_close_write(cx);
                let sent = matches!((flushed, closed), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))));
                self.close_state = if sent && self.peer_state != PeerState::Closed {
                    CloseState::Lingering(now + LINGER_TIMEOUT)
                } else {
                    CloseState::Closed
                };
                Progress::Yes
            }
            CloseState::Flushing(until) if now >= until => {
                session.handle_lost(now, self.id, LostReason::Closed);
                self.close_state = CloseState::Closed;
                Progress::Yes
            }
            CloseState::Lingering(until) if now >= until => {
                self.close_state = CloseState::Closed;
                Progress::Yes
            }
            _ => Progress::No,
        }
    }

    /// Returns when [`Self::advance_close`] must be called at the latest.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.close_state {
            CloseState::Flushing(until) | CloseState::Lingering(until) => Some(until),
            _ => None,
        }
    }
}
