//! All connections of a session: the order of sending, and their roles.
//!
//! Interactive connections send first, and each connection what is not bulk. Bulk is limited ([`super::pacing`]), so
//! that the queue of the path that all share stays short.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use smig_proto::policy::Interference;
use smig_proto::{
    ConnId, ConnectionRole, ConnectionSpec, ConnectionView, ErrorCode, Event, Identity, Instant,
    OutputBuffer, Session,
};

use super::conn::{CloseState, DetachedConn, DriverConn, Progress, Release};
use super::pacing::{BulkPacing, ConnTurn, Pacing, PacingLift};
use crate::connection::ConnectionInfo;
use crate::snapshot::{self, ConnectionSnapshot};
use crate::socket::{self, PathSample, SocketOptions};
use crate::throttled;
use crate::transport::Transport;

/// Options for the connections of a session.
#[derive(Clone, Debug)]
pub(crate) struct ConnOptions {
    pub(crate) interactive_options: SocketOptions,
    pub(crate) bulk_options: SocketOptions,
    /// Whether bulk that is sent is paced.
    pub(crate) pacing: Pacing,
    /// Whether bulk that is received from a peer without SMig is paced, by its window or the credit of its streams.
    pub(crate) receive_pacing: Pacing,
    /// Most interactive data, as time on the path, for which bulk still has to make room.
    pub(crate) max_bulk_deferral: Duration,
}

#[derive(Debug)]
pub(crate) struct ConnSet {
    conns: Vec<DriverConn>,
    options: Arc<ConnOptions>,
    pacing: BulkPacing,
}

impl ConnSet {
    pub(crate) fn new(options: Arc<ConnOptions>) -> Self {
        let pacing = BulkPacing::new(Arc::clone(&options));
        Self { conns: Vec::with_capacity(1), options, pacing }
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

    /// On a path that is long enough for pacing: returns how bulk affects the other streams of its connection.
    pub(crate) fn bulk_interference(&self) -> Interference {
        self.pacing.interference()
    }

    /// Samples the path of a connection now.
    pub(crate) fn sample(&mut self, id: ConnId) -> PathSample {
        let Some(conn) = self.conn_mut(id) else { return PathSample::default() };
        conn.take_sample();
        conn.sample
    }

    /// Sets whether bulk may be sent as congestion control allows, although it is paced otherwise: its connections have
    /// windows that are too small for a queue.
    pub(crate) const fn lift_pacing(&mut self, lift: PacingLift) {
        self.pacing.set_lift(lift);
    }

    /// Returns whether bulk is held back by its pacing now.
    pub(crate) fn is_bulk_limited(&self) -> bool {
        self.pacing.is_limiting()
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
                let role = session.connection(*to).map(|conn| conn.role);
                if let (Some(conn), Some(role)) = (self.conn_mut(*to), role)
                    && conn.role != role
                {
                    let options = match role {
                        ConnectionRole::Interactive => &options.interactive_options,
                        ConnectionRole::Bulk => &options.bulk_options,
                    };
                    conn.set_role(role, options);
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

    /// Sends: interactive data first, then bulk as far as it is allowed now.
    pub(super) fn transmit(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Progress {
        let mut has_bulk = false;
        for conn in &mut self.conns {
            has_bulk |= conn.note_bulk(session, now);
        }
        if has_bulk {
            let (pacing, mut conns) = self.turn(session, now, cx);
            pacing.on_bulk(now, &mut conns);
        }
        let was_limiting = self.pacing.is_limiting();
        let (mut progress, interactive_bytes) = self.transmit_first(session, now, cx);
        let (pacing, mut conns) = self.turn(session, now, cx);
        pacing.update(now, &mut conns, interactive_bytes);
        if !was_limiting {
            return progress;
        }
        if pacing.is_limiting() {
            pacing.release(now, &mut conns);
            progress = progress.or(conns.progress);
        } else if has_bulk {
            // The update has lifted the limit.
            progress = progress.or(self.transmit_first(session, now, cx).0);
        }
        progress
    }

    /// Returns the pacing, and the connections as it sees them.
    fn turn<'a, 'cx>(
        &'a mut self,
        session: &'a mut Session,
        now: Instant,
        cx: &'a mut Context<'cx>,
    ) -> (&'a mut BulkPacing, ConnTurn<'a, 'cx>) {
        let conns = &mut self.conns;
        (&mut self.pacing, ConnTurn { conns, session, now, cx, progress: Progress::No })
    }

    /// Sends what is not bulk, or everything if bulk is not limited. Also returns how many bytes were not bulk.
    fn transmit_first(
        &mut self,
        session: &mut Session,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> (Progress, u64) {
        let (mut progress, mut interactive_bytes) = (Progress::No, 0);
        let Self { conns, pacing, .. } = self;
        for role in [ConnectionRole::Interactive, ConnectionRole::Bulk] {
            for conn in conns.iter_mut().filter(|conn| conn.role == role) {
                let release = match pacing.is_limiting() {
                    true => Release::Interactive(pacing.bucket()),
                    false => Release::All,
                };
                progress = progress.or(conn.transmit(session, now, cx, release));
                interactive_bytes += conn.pacing.take_interactive_sent();
            }
        }
        (progress, interactive_bytes)
    }

    /// Returns whether no connection has anything to do until its socket has input, and there is one.
    pub(super) fn is_settled(&mut self, session: &Session) -> bool {
        !self.conns.is_empty()
            && !self.pacing.is_limiting()
            && self.conns.iter_mut().all(|conn| conn.is_settled(session))
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
        [closing, self.pacing.deadline()].into_iter().flatten().min()
    }
}
