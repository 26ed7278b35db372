//! All connections of a session: the order of sending, and their roles.
//!
//! Interactive connections send first. The rate of bulk connections is limited ([`HostSchedule`]), so that the queue
//! of the path that they share stays short, and more so while interactive bytes are sent ([`BulkDeferral`]).

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use smig_proto::{
    ConnId, ConnectionRole, ConnectionSpec, ConnectionView, ErrorCode, Event, Identity, Instant,
    OutputBuffer, Session,
};

use super::bulk::{BulkDeferral, LEAST_BASE, Pacer, RateSample};
use super::conn::{CloseState, DetachedConn, DriverConn, Progress};
use crate::connection::ConnectionInfo;
use crate::seldom;
use crate::snapshot::{self, ConnectionSnapshot};
use crate::socket::{PathSample, SocketOptions};
use crate::transport::Transport;

/// While bulk yields, it gets the path's rate divided by this.
const DEFERRED_RATE_DIVISOR: u64 = 4;

/// Which connections are paced near the measured rate of their path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// None: all send as fast as congestion control allows.
    Off,
    /// Those that a stream has migrated to.
    #[default]
    Moved,
    /// Every one that has more to send than its socket takes, however urgent. For measurements of pacing
    /// without migration.
    Every,
}

/// Options for the connections of a session.
#[derive(Clone, Debug)]
pub(crate) struct ConnOptions {
    pub(crate) interactive: SocketOptions,
    pub(crate) bulk: SocketOptions,
    pub(crate) pacing: Pacing,
    /// How long interactive output may hold bulk back at most.
    pub(crate) max_bulk_deferral: Duration,
}

impl Pacing {
    /// Returns whether pacing, where it is active, limits connections of this role.
    const fn takes(self, role: ConnectionRole) -> bool {
        matches!((self, role), (Self::Every, _) | (_, ConnectionRole::Bulk))
    }
}

#[derive(Debug)]
pub(crate) struct ConnSet {
    conns: Vec<DriverConn>,
    options: Arc<ConnOptions>,
    deferral: BulkDeferral,
    /// Limits bulk, where the path's queue matters.
    pacer: Option<Pacer>,
    /// Bytes acknowledged on all connections.
    acknowledged: u64,
}

impl ConnSet {
    pub(crate) fn new(options: Arc<ConnOptions>) -> Self {
        let hold = BulkDeferral::new(options.max_bulk_deferral);
        Self { conns: Vec::with_capacity(1), options, deferral: hold, pacer: None, acknowledged: 0 }
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

    /// Adds a connection that the engine knows already.
    pub(crate) fn insert(&mut self, id: ConnId, departed: DetachedConn) {
        let mut link = DriverConn::new(id, departed);
        link.set_role(ConnectionRole::Interactive, &self.options.interactive);
        self.conns.push(link);
    }

    /// Removes a connection, with its pending output.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<DetachedConn> {
        let index = self.conns.iter().position(|link| link.id == id)?;
        Some(self.conns.remove(index).depart())
    }

    fn find(&mut self, id: ConnId) -> Option<&mut DriverConn> {
        self.conns.iter_mut().find(|link| link.id == id)
    }

    /// Returns what the application may know of a connection.
    pub(crate) fn info(&self, id: ConnId) -> Option<&Arc<ConnectionInfo>> {
        self.conns.iter().find(|link| link.id == id).map(|link| &link.info)
    }

    /// Samples the path of a connection now.
    pub(crate) fn sample(&mut self, id: ConnId) -> PathSample {
        let Some(link) = self.find(id) else { return PathSample::default() };
        link.take_sample();
        link.sample
    }

    /// Returns a snapshot of a connection; unlike [`Self::sample`], it changes no socket option.
    pub(crate) fn snapshot(
        &self,
        view: &ConnectionView,
        role: snapshot::ConnectionRole,
    ) -> Option<ConnectionSnapshot> {
        self.conns.iter().find(|link| link.id == view.id).map(|link| link.snapshot(view, role))
    }

    /// Applies an engine event to the transports.
    pub(super) fn on_event(&mut self, session: &mut Session, now: Instant, event: &Event) {
        match event {
            Event::KeyingMaterialNeeded { conn, request } => {
                let Some(link) = self.find(*conn) else { return };
                match link.transport.keying_material(request) {
                    Ok(material) => {
                        session.handle_keying_material(*conn, material, crate::entropy::nonce());
                    }
                    Err(error) => {
                        seldom!(warn, "exporter", %conn, %error, "no TLS exporter, SMig disabled")
                    }
                }
            }
            Event::Closed { conn, .. } => {
                if let Some(link) = self.find(*conn) {
                    link.end(now);
                }
            }
            Event::AbortTransport { conn } => {
                if let Some(link) = self.find(*conn) {
                    link.abandon(session, now);
                }
            }
            Event::Migrated { to, .. } => {
                let options = Arc::clone(&self.options);
                if let Some(link) = self.find(*to)
                    && link.role == ConnectionRole::Interactive
                {
                    link.set_role(ConnectionRole::Bulk, &options.bulk);
                    self.begin_pace(now);
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
        let Some(link) = self.conns.get_mut(index) else { return Progress::None };
        let resumed = link.resume_input(session, now);
        resumed.or(link.receive(session, now, cx))
    }

    /// Sends: on interactive connections first, then on bulk connections.
    pub(super) fn transmit(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut progress = Progress::None;
        let mut bytes = 0;
        for link in self.conns.iter_mut().filter(|link| link.role == ConnectionRole::Interactive) {
            progress = progress.or(link.transmit(session, now, cx));
            bytes += link.newly_sent();
        }
        if self.options.pacing == Pacing::Every && self.conns.iter().any(DriverConn::is_blocked) {
            self.begin_pace(now);
        }
        if self.paced().next().is_none() {
            self.pacer = None;
            self.deferral.forget();
            return progress;
        }
        self.steer(now, bytes);
        for link in self.conns.iter_mut().filter(|link| link.role == ConnectionRole::Bulk) {
            progress = progress.or(link.transmit(session, now, cx));
        }
        progress
    }

    /// Sets the rate limit of bulk, after interactive connections have sent `bytes` bytes.
    fn steer(&mut self, now: Instant, bytes: u64) {
        let Some(mut pace) = self.pacer.take() else { return };
        if pace.is_due(now) {
            self.measure(now, &mut pace);
        }
        // A connection does not yield to itself.
        if self.options.pacing != Pacing::Every {
            self.deferral.on_interactive(now, bytes, pace.capacity());
        }
        let mut cap = pace.cap();
        if self.deferral.holds(now) {
            cap = cap.min(pace.capacity() / DEFERRED_RATE_DIVISOR);
        }
        self.pacer = Some(pace);
        let active = self.paced().filter(|link| link.is_blocked()).count();
        let share = if cap == u64::MAX { cap } else { cap / active.max(1) as u64 };
        let pacing = self.options.pacing;
        for link in self.conns.iter_mut().filter(|link| pacing.takes(link.role)) {
            link.set_cap(share);
        }
    }

    /// Returns the connections whose rate is limited.
    fn paced(&self) -> impl Iterator<Item = &DriverConn> + Clone {
        self.conns.iter().filter(|link| self.options.pacing.takes(link.role))
    }

    /// Samples every connection, and gives a reading to the pace.
    fn measure(&mut self, now: Instant, pace: &mut Pacer) {
        let Some(base) = self.sample_all() else { return };
        let new: u64 = self.conns.iter_mut().map(DriverConn::newly_acknowledged).sum();
        self.acknowledged += new;
        let in_flight = |link: &DriverConn| link.sample.in_flight;
        let all_in_flight: u64 = self.conns.iter().map(in_flight).sum();
        let bulk = self.paced();
        let in_flight = bulk.clone().map(in_flight).sum();
        let sends = bulk.filter(|link| link.sample.in_flight > 0);
        let Some(link) = sends.min_by_key(|link| link.sample.rtt) else {
            pace.on_silence(now);
            return;
        };
        let reading = RateSample {
            acknowledged: self.acknowledged,
            sent: self.acknowledged + all_in_flight,
            rtt: link.sample.rtt,
            deviation: link.sample.deviation,
            base,
            packet: link.sample.packet,
            in_flight,
        };
        pace.on_reading(now, reading);
    }

    /// Samples all connections; returns the lowest minimum RTT.
    fn sample_all(&mut self) -> Option<Duration> {
        let sample = |link: &mut DriverConn| {
            link.take_sample();
            link.sample.min_rtt
        };
        self.conns.iter_mut().map(sample).filter(|base| !base.is_zero()).min()
    }

    /// Starts pacing, if it is enabled and the path's RTT is long enough.
    fn begin_pace(&mut self, now: Instant) {
        if self.options.pacing != Pacing::Off && self.pacer.is_none() {
            let base = self.sample_all().filter(|&base| base >= LEAST_BASE);
            self.pacer = base.map(|base| Pacer::begin(now, base));
        }
    }

    /// Advances connections that are being closed, and removes those that are closed.
    pub(super) fn finish(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut progress = Progress::None;
        for link in &mut self.conns {
            progress = progress.or(link.finish(session, now, cx));
        }
        self.conns.retain(|link| link.close_state != CloseState::Gone);
        progress
    }

    /// Closes every connection now: the peer was notified and has not closed them in time.
    pub(crate) fn close_all(&self, now: Instant, session: &mut Session) {
        for link in &self.conns {
            session.close(now, link.id, ErrorCode::NoError, "the session has ended");
        }
    }

    /// Releases spare memory, before the session's task goes idle.
    pub(super) fn release_idle_memory(&mut self) {
        for link in &mut self.conns {
            link.rest();
        }
    }

    /// Returns when the driver must run again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ends = self.conns.iter().filter_map(DriverConn::deadline).min();
        let pace = self.pacer.as_ref().and_then(Pacer::deadline);
        [ends, self.deferral.deadline(), pace].into_iter().flatten().min()
    }
}
