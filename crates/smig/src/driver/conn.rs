//! One connection of a session in its driver: transport, pending output, role, close.
//!
//! Does not parse frames. The engine decides what to send, this module when the socket can take it.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use smig_proto::{
    ConnId, ConnectionRole, ConnectionView, Instant, LostReason, OutputBuffer, Session,
};

use crate::connection::ConnectionInfo;
use crate::snapshot::{self, ConnectionSnapshot};
use crate::socket::{self, PathSample, SocketOptions};
use crate::transport::{Received, Transport};

/// Bytes taken from the engine at a time while the socket fills up now and then: sealed bytes can no longer
/// be reordered.
const MIN_BATCH: usize = 16 << 10;
/// Bytes taken at a time while the socket accepts everything.
const MAX_BATCH: usize = 256 << 10;
/// Largest output buffer that an idle connection keeps.
const MAX_IDLE_OUTPUT: usize = 4 << 10;
/// Bytes sent on one connection per turn, before the others are served.
const MAX_SENT_PER_TURN: usize = 512 << 10;
/// Reads from one connection per turn.
const READS_PER_TURN: usize = 4;
/// Unsent data that the socket may hold, where it cannot be reordered, as time at the delivery rate.
const SOCKET_MILLIS: u64 = 4;
/// The same for bulk, which is paced and must not run dry while this process waits for a CPU.
const BULK_SOCKET_MILLIS: u64 = 24;
/// Maximum of unsent bytes in the socket.
const MAX_LOW_WATER: u32 = 1 << 20;
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
    Ending(Instant),
    /// This end's half is closed; input is discarded until the peer closes or this time has come.
    Lingering(Instant),
    Gone,
}

/// State of the peer's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    Open,
    Ended,
}

/// Whether there was any work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Some,
    None,
}

impl Progress {
    pub(crate) const fn or(self, other: Self) -> Self {
        match self {
            Self::Some => Self::Some,
            Self::None => other,
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
    batch: usize,
    min_batch: usize,
    unsampled: usize,
    /// The role's low-water mark, and the current one.
    low_water: u32,
    set_low_water: u32,
    /// The role's own limit on the pacing rate, and the current limit.
    own_pace: Option<u64>,
    set_cap: Option<u64>,
    /// Acknowledged bytes at the last call of [`DriverConn::newly_acknowledged`].
    counted: Option<u64>,
    /// Bytes given to the transport since the last call of [`DriverConn::newly_sent`].
    sent: u64,
    blocked: bool,
    peer: PeerState,
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
            batch: MIN_BATCH,
            min_batch: MIN_BATCH,
            unsampled: 0,
            low_water: 0,
            set_low_water: 0,
            own_pace: None,
            set_cap: None,
            counted: None,
            sent: 0,
            blocked: false,
            peer: PeerState::Open,
        }
    }

    /// Removes the connection from its session, with its pending output.
    pub(super) fn detach(self) -> DetachedConn {
        DetachedConn { transport: self.transport, info: self.info, output: self.output }
    }

    /// Sets the connection's role, and the role's socket options.
    pub(super) fn set_role(&mut self, role: ConnectionRole, options: &SocketOptions) {
        self.role = role;
        self.low_water = options.notsent_lowat.unwrap_or(0);
        self.set_low_water = self.low_water;
        socket::apply(self.transport.tcp(), options);
        self.own_pace = options.pacing_rate;
        self.set_cap = None;
    }

    /// Limits the sending rate to `cap` bytes per second, or the role's own limit; `u64::MAX` is no limit.
    pub(super) fn set_cap(&mut self, cap: u64) {
        let cap = self.own_pace.map_or(cap, |own| own.min(cap));
        // A change of 1/128 or less is not worth a system call.
        let present = self.set_cap.unwrap_or(u64::MAX);
        if cap.abs_diff(present) > present / 128 {
            self.set_cap = Some(cap);
            socket::set_pacing_rate(self.transport.tcp(), cap);
        }
    }

    /// Returns the bytes acknowledged between the samples of the previous call and of this one.
    pub(super) fn newly_acknowledged(&mut self) -> u64 {
        let total = self.sample.acknowledged;
        let before = self.counted.unwrap_or(total);
        self.counted = Some(total.max(before));
        total.saturating_sub(before)
    }

    /// Returns the bytes given to the transport since the previous call.
    pub(super) fn newly_sent(&mut self) -> u64 {
        core::mem::take(&mut self.sent)
    }

    /// Returns whether output waits for the socket.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
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
            CloseState::Ending(_) | CloseState::Gone => Progress::None,
        }
    }

    fn receive_open(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut progress = Progress::None;
        for _ in 0..READS_PER_TURN {
            if self.peer == PeerState::Ended || !session.wants_input(self.id) {
                break;
            }
            match self.transport.poll_receive(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(received)) => {
                    progress = Progress::Some;
                    session.handle_input(now, self.id, self.transport.input());
                    if received == Received::End {
                        self.peer = PeerState::Ended;
                        session.handle_eof(now, self.id);
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.lose(session, now, &error);
                    return Progress::Some;
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
            return Progress::None;
        }
        let before = self.transport.input().len();
        session.handle_input(now, self.id, self.transport.input());
        if self.transport.input().len() == before { Progress::None } else { Progress::Some }
    }

    fn discard(&mut self, cx: &mut Context<'_>) -> Progress {
        for _ in 0..READS_PER_TURN {
            match self.transport.poll_receive(cx) {
                Poll::Pending => return Progress::None,
                Poll::Ready(Ok(Received::Progress)) => self.transport.input().clear(),
                Poll::Ready(_) => {
                    self.close_state = CloseState::Gone;
                    return Progress::Some;
                }
            }
        }
        Progress::Some
    }

    /// Handles a failure of the socket.
    fn lose(&mut self, session: &mut Session, now: Instant, error: &io::Error) {
        tracing::debug!(conn = %self.id, %error, "connection lost");
        self.close_state = CloseState::Gone;
        session.handle_lost(now, self.id, LostReason::Failed(error.to_string()));
    }

    /// Sends what the engine has, as far as the socket takes it.
    pub(super) fn transmit(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        if matches!(self.close_state, CloseState::Lingering(_) | CloseState::Gone) {
            return Progress::None;
        }
        let mut sent = 0;
        loop {
            if !self.output.is_empty() || self.transport.has_sealed() {
                match self.transport.poll_flush(cx, &mut self.output) {
                    Poll::Pending => {
                        self.on_full();
                        break;
                    }
                    Poll::Ready(Ok(())) => self.blocked = false,
                    Poll::Ready(Err(error)) => {
                        self.lose(session, now, &error);
                        return Progress::Some;
                    }
                }
            }
            if sent >= MAX_SENT_PER_TURN || !session.wants_transmit(self.id) {
                break;
            }
            let taken = session.poll_transmit(now, self.id, self.batch, &mut self.output);
            if taken == 0 && self.output.is_empty() {
                break;
            }
            if taken >= self.batch {
                self.batch = (self.batch * 2).min(MAX_BATCH);
            }
            sent += taken;
            self.unsampled += taken;
        }
        self.sent += sent as u64;
        if sent > 0 { Progress::Some } else { Progress::None }
    }

    /// Releases spare output memory, before the session's task goes idle.
    pub(super) fn release_idle_memory(&mut self) {
        self.output.shrink(MAX_IDLE_OUTPUT);
    }

    /// Handles a full socket: smaller batches from now on, and a sample of how fast it drains.
    fn on_full(&mut self) {
        self.blocked = true;
        if self.unsampled >= MAX_BATCH || self.sample.delivery_rate.is_none() {
            self.take_sample();
        }
        self.batch = self.min_batch;
    }

    /// Reads TCP_INFO and sets the low-water mark to a few milliseconds at the delivery rate.
    pub(super) fn take_sample(&mut self) {
        self.unsampled = 0;
        let Some(info) = socket::tcp_info(self.transport.tcp()) else { return };
        self.sample = PathSample::from(&info);
        let Some(rate) = self.sample.delivery_rate else { return };
        if self.low_water == 0 {
            return;
        }
        let millis = match self.role {
            ConnectionRole::Interactive => SOCKET_MILLIS,
            ConnectionRole::Bulk => BULK_SOCKET_MILLIS,
        };
        let fits = u32::try_from(rate / 1000 * millis).unwrap_or(MAX_LOW_WATER);
        let wanted = fits.clamp(self.low_water, MAX_LOW_WATER.max(self.low_water));
        // Follow changes of the rate, not its noise.
        let present = self.set_low_water;
        if wanted > present.saturating_mul(2) || wanted < present / 2 {
            self.set_low_water = wanted;
            socket::set_not_sent_low_water(self.transport.tcp(), wanted);
            self.min_batch = (wanted as usize).clamp(MIN_BATCH, MAX_BATCH);
        }
    }

    /// Returns a snapshot of the connection.
    pub(super) fn snapshot(
        &self,
        view: &ConnectionView,
        role: snapshot::ConnectionRole,
    ) -> ConnectionSnapshot {
        let info = socket::tcp_info(self.transport.tcp()).unwrap_or_default();
        let path = PathSample::from(&info);
        let bytes = |packets: u32| u64::from(packets) * u64::from(path.packet);
        ConnectionSnapshot {
            id: self.id,
            role,
            ends: self.info.ends(),
            rtt: path.rtt,
            min_rtt: path.min_rtt,
            congestion_window: bytes(info.snd_cwnd),
            in_flight: path.in_flight,
            unsent: self.output.len() as u64 + u64::from(path.not_sent),
            delivery_rate: path.delivery_rate,
            pacing_cap: self.set_cap.or(self.own_pace).filter(|&cap| cap != u64::MAX),
            sent: view.data_sent,
            received: view.data_received,
            streams: view.streams,
        }
    }

    /// Handles that the engine has closed the connection.
    pub(super) fn end(&mut self, now: Instant) {
        if self.close_state == CloseState::Open {
            self.close_state = CloseState::Ending(now + FLUSH_TIMEOUT);
        }
    }

    /// Closes at once with an RST; pending output is discarded.
    pub(super) fn abandon(&mut self, session: &mut Session, now: Instant) {
        socket::reset_on_close(self.transport.tcp());
        self.close_state = CloseState::Gone;
        session.handle_lost(
            now,
            self.id,
            LostReason::Failed("closed with a cancelled stream".to_owned()),
        );
    }

    /// Advances a connection that is being closed by one step.
    pub(super) fn finish(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        if self.close_state == CloseState::Open && session.should_close(self.id) {
            self.end(now);
        }
        match self.close_state {
            CloseState::Ending(_) if !self.blocked && self.output.is_empty() => {
                session.handle_lost(now, self.id, LostReason::Closed);
                self.transport.queue_close();
                let flushed = self.transport.poll_flush(cx, &mut self.output);
                let closed = self.transport.poll_close_write(cx);
                let sent = matches!((flushed, closed), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))));
                self.close_state = if sent && self.peer != PeerState::Ended {
                    CloseState::Lingering(now + LINGER_TIMEOUT)
                } else {
                    CloseState::Gone
                };
                Progress::Some
            }
            CloseState::Ending(until) if now >= until => {
                session.handle_lost(now, self.id, LostReason::Closed);
                self.close_state = CloseState::Gone;
                Progress::Some
            }
            CloseState::Lingering(until) if now >= until => {
                self.close_state = CloseState::Gone;
                Progress::Some
            }
            _ => Progress::None,
        }
    }

    /// Returns when [`Self::finish`] must be called at the latest.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.close_state {
            CloseState::Ending(until) | CloseState::Lingering(until) => Some(until),
            _ => None,
        }
    }
}
