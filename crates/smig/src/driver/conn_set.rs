//! All connections of a session: the order of sending, and their roles.
//!
//! Interactive connections send first. The rate of bulk connections is limited ([`Pacer`]), so that the queue
//! of the path that they share stays short, and more so while interactive bytes are sent ([`BulkDeferral`]).

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use smig_pace::{BulkDeferral, DEFERRED_RATE_DIVISOR, MIN_PACED_RTT, Pacer, RateSample};
use smig_proto::{
    ConnId, ConnectionRole, ConnectionSpec, ConnectionView, ErrorCode, Event, Identity, Instant,
    OutputBuffer, Session,
};

use super::conn::{CloseState, DetachedConn, DriverConn, Progress};
use crate::connection::ConnectionInfo;
use crate::snapshot::{self, ConnectionSnapshot};
use crate::socket::{self, PathSample, SocketOptions};
use crate::throttled;
use crate::transport::Transport;

/// Which connections are paced near the measured rate of their path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// None: all send as fast as congestion control allows.
    Off,
    /// Those that a stream has migrated to.
    #[default]
    Migrated,
    /// All that have more to send than their socket takes, whatever their role. For measurements of pacing
    /// without migration.
    All,
}

/// Options for the connections of a session.
#[derive(Clone, Debug)]
pub(crate) struct ConnOptions {
    pub(crate) interactive_options: SocketOptions,
    pub(crate) bulk_options: SocketOptions,
    pub(crate) pacing: Pacing,
    /// Longest deferral of bulk by interactive output.
    pub(crate) max_bulk_deferral: Duration,
}

impl Pacing {
    /// Returns whether pacing, where it is active, limits connections of this role.
    const fn applies_to(self, role: ConnectionRole) -> bool {
        matches!((self, role), (Self::All, _) | (_, ConnectionRole::Bulk))
    }
}

#[derive(Debug)]
pub(crate) struct ConnSet {
    conns: Vec<DriverConn>,
    options: Arc<ConnOptions>,
    deferral: BulkDeferral,
    /// Limits the rate of bulk; `None` while nothing is paced, or the path's RTT is short.
    pacer: Option<Pacer>,
    /// Bytes acknowledged on all connections.
    acknowledged: u64,
}

impl ConnSet {
    pub(crate) fn new(options: Arc<ConnOptions>) -> Self {
        let deferral = BulkDeferral::new(options.max_bulk_deferral);
        Self { conns: Vec::with_capacity(1), options, deferral, pacer: None, acknowledged: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.conns.len()
    }

    /// Adds a connection to the session and its engine: the client's, or a server's first one.
    pub(crate) fn add(
        &mut self,
        session: &mut Session,
        now: Instant,
        transport: Transport,
        info: ConnectionInfo,
        identity: Identity,
    ) -> ConnId {
        let info = Arc::new(info);
        let spec = ConnectionSpec { security: info.security, identity };
        let id = session.add_connection(now, spec);
        self.insert(id, DetachedConn { transport, info, output: OutputBuffer::default() });
        id
    }

    /// Adds a connection that the engine already has.
    pub(crate) fn insert(&mut self, id: ConnId, detached: DetachedConn) {
        let mut conn = DriverConn::new(id, detached);
        conn.set_role(ConnectionRole::Interactive, &self.options.interactive_options);
        self.conns.push(conn);
    }

    /// Removes a connection, with its pending output.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<DetachedConn> {
        let index = self.conns.iter().position(|conn| conn.id == id)?;
        Some(self.conns.remove(index).detach())
    }

    fn conn_mut(&mut self, id: ConnId) -> Option<&mut DriverConn> {
        self.conns.iter_mut().find(|conn| conn.id == id)
    }

    /// Returns the properties of a connection for the application.
    pub(crate) fn info(&self, id: ConnId) -> Option<&Arc<ConnectionInfo>> {
        self.conns.iter().find(|conn| conn.id == id).map(|conn| &conn.info)
    }

    /// Samples the path of a connection now.
    pub(crate) fn sample(&mut self, id: ConnId) -> PathSample {
        let Some(conn) = self.conn_mut(id) else { return PathSample::default() };
        conn.take_sample();
        conn.sample
    }

    /// Limits what the peer may have in flight on a connection, in bytes.
    pub(crate) fn limit_receive_window(&mut self, id: ConnId, bytes: u64) {
        if let Some(conn) = self.conn_mut(id) {
            socket::set_window_clamp(conn.transport.tcp(), bytes);
        }
    }

    /// Returns a snapshot of a connection; unlike [`Self::sample`], it changes no socket option.
    pub(crate) fn snapshot(
        &self,
        view: &ConnectionView,
        role: snapshot::ConnectionRole,
    ) -> Option<ConnectionSnapshot> {
        self.conns.iter().find(|conn| conn.id == view.id).map(|conn| conn.snapshot(view, role))
    }

    /// Applies an engine event to the transports.
    pub(super) fn on_event(&mut self, session: &mut Session, now: Instant, event: &Event) {
        match event {
            Event::KeyingMaterialNeeded { conn: id, request } => {
                let Some(conn) = self.conn_mut(*id) else { return };
                match conn.transport.keying_material(request) {
                    Ok(material) => {
                        session.handle_keying_material(*id, material, crate::entropy::nonce());
                    }
                    Err(error) => {
                        throttled!(warn, "exporter", conn = %id, %error, "no TLS exporter, SMig disabled")
                    }
                }
            }
            Event::Closed { conn: id, .. } => {
                if let Some(conn) = self.conn_mut(*id) {
                    conn.begin_close(now);
                }
            }
            Event::AbortTransport { conn: id } => {
                if let Some(conn) = self.conn_mut(*id) {
                    conn.abort(session, now);
                }
            }
            Event::Migrated { to, .. } => {
                let options = Arc::clone(&self.options);
                if let Some(conn) = self.conn_mut(*to)
                    && conn.role == ConnectionRole::Interactive
                {
                    conn.set_role(ConnectionRole::Bulk, &options.bulk_options);
                    self.start_pacing(now);
                }
            }
            _ => {}
        }
    }

    /// Reads from the connection at `index`.
    pub(super) fn receive(
        &mut self,
        index: usize,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let Some(conn) = self.conns.get_mut(index) else { return Progress::No };
        let resumed = conn.resume_input(session, now);
        resumed.or(conn.receive(session, now, cx))
    }

    /// Sends: on interactive connections first, then on bulk connections.
    pub(super) fn transmit(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut progress = Progress::No;
        let mut bytes = 0;
        for conn in self.conns.iter_mut().filter(|conn| conn.role == ConnectionRole::Interactive) {
            progress = progress.or(conn.transmit(session, now, cx));
            bytes += conn.take_sent();
        }
        if self.options.pacing == Pacing::All && self.conns.iter().any(DriverConn::is_blocked) {
            self.start_pacing(now);
        }
        if self.paced_conns().next().is_none() {
            self.pacer = None;
            self.deferral.cancel();
            return progress;
        }
        self.limit_bulk(now, bytes);
        for conn in self.conns.iter_mut().filter(|conn| conn.role == ConnectionRole::Bulk) {
            progress = progress.or(conn.transmit(session, now, cx));
        }
        progress
    }

    /// Sets the rate limit of bulk, after interactive connections have sent `bytes` bytes.
    fn limit_bulk(&mut self, now: Instant, bytes: u64) {
        let Some(mut pacer) = self.pacer.take() else { return };
        if pacer.is_due(now) {
            self.update_pacer(now, &mut pacer);
        }
        // With `All`, interactive connections are paced too: their own output must not defer them.
        if self.options.pacing != Pacing::All {
            self.deferral.on_interactive(now, bytes, pacer.capacity());
        }
        let mut cap = pacer.cap();
        if self.deferral.is_active(now) {
            cap = cap.min(pacer.capacity() / DEFERRED_RATE_DIVISOR);
        }
        self.pacer = Some(pacer);
        let active = self.paced_conns().filter(|conn| conn.is_blocked()).count();
        let share = if cap == u64::MAX { cap } else { cap / active.max(1) as u64 };
        let pacing = self.options.pacing;
        for conn in self.conns.iter_mut().filter(|conn| pacing.applies_to(conn.role)) {
            conn.set_cap(share);
        }
    }

    /// Returns the connections whose rate is limited.
    fn paced_conns(&self) -> impl Iterator<Item = &DriverConn> + Clone {
        self.conns.iter().filter(|conn| self.options.pacing.applies_to(conn.role))
    }

    /// Samples every connection, and passes the result to the pacer.
    fn update_pacer(&mut self, now: Instant, pacer: &mut Pacer) {
        let Some(min_rtt) = self.sample_all() else { return };
        let newly_acknowledged: u64 =
            self.conns.iter_mut().map(DriverConn::take_acknowledged).sum();
        self.acknowledged += newly_acknowledged;
        let in_flight = |conn: &DriverConn| conn.sample.in_flight;
        let all_in_flight: u64 = self.conns.iter().map(in_flight).sum();
        let paced = self.paced_conns();
        let in_flight = paced.clone().map(in_flight).sum();
        let sending = paced.filter(|conn| conn.sample.in_flight > 0);
        let Some(conn) = sending.min_by_key(|conn| conn.sample.rtt) else {
            pacer.on_idle(now);
            return;
        };
        let sample = RateSample {
            acknowledged: self.acknowledged,
            sent: self.acknowledged + all_in_flight,
            rtt: conn.sample.rtt,
            rtt_deviation: conn.sample.rtt_deviation,
            min_rtt,
            mss: conn.sample.mss,
            in_flight,
        };
        pacer.on_sample(now, sample);
    }

    /// Samples all connections; returns the lowest minimum RTT.
    fn sample_all(&mut self) -> Option<Duration> {
        let sample = |conn: &mut DriverConn| {
            conn.take_sample();
            conn.sample.min_rtt
        };
        self.conns.iter_mut().map(sample).filter(|base| !base.is_zero()).min()
    }

    /// Starts pacing, if it is enabled and the path's RTT is long enough.
    fn start_pacing(&mut self, now: Instant) {
        if self.options.pacing != Pacing::Off && self.pacer.is_none() {
            let min_rtt = self.sample_all().filter(|&base| base >= MIN_PACED_RTT);
            self.pacer = min_rtt.map(|base| Pacer::new(now, base));
        }
    }

    /// Advances connections that are being closed, and removes those that are closed.
    pub(super) fn advance_close(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut progress = Progress::No;
        for conn in &mut self.conns {
            progress = progress.or(conn.advance_close(session, now, cx));
        }
        self.conns.retain(|conn| conn.close_state != CloseState::Closed);
        progress
    }

    /// Closes every connection now: the peer was notified and has not closed them in time.
    pub(crate) fn close_all(&self, now: Instant, session: &mut Session) {
        for conn in &self.conns {
            session.close(now, conn.id, ErrorCode::NoError, "the session has ended");
        }
    }

    /// Releases excess memory, before the session's task goes idle.
    pub(super) fn release_idle_memory(&mut self) {
        for conn in &mut self.conns {
            conn.release_idle_memory();
        }
    }

    /// Returns when the driver must run again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let closing = self.conns.iter().filter_map(DriverConn::deadline).min();
        let pacer = self.pacer.as_ref().and_then(Pacer::deadline);
        [closing, self.deferral.deadline(), pacer].into_iter().flatten().min()
    }
}
