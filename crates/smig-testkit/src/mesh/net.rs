//! The two ends and their connections: the drivers, in virtual time and without sockets.
//!
//! Owns engines, connections, the registry of sessions and the keying material. Makes no decisions about
//! streams; all events are queued for [`Mesh::next_event`], also those that the driver has handled.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::BytesMut;
use smig_proto::{
    AppId, ConnId, ConnectionSpec, Event, Identity, Instant, JoinRefusal, KeyingRequest,
    LostReason, OutputBuffer, Session, TransmitLimits,
};

use crate::mesh::frame_inspector::{FrameInspector, FrameSource};
use crate::mesh::link::{CloseCause, Link, LinkEnd, Pipe, Side};
use crate::mesh::rng::{Rng, mix};
use crate::mesh::setup::Setup;

/// An event of an engine, and where it occurred.
pub(crate) struct EngineEvent {
    pub(crate) side: Side,
    pub(crate) session: usize,
    pub(crate) event: Event,
}

/// One client's session, the server's sessions, and the connections between them.
pub struct Mesh {
    pub(crate) setup: Setup,
    pub(crate) now: Instant,
    pub(crate) client: Session,
    pub(crate) servers: Vec<Session>,
    pub(crate) links: Vec<Link>,
    pub(crate) inspector: FrameInspector,
    /// Refusals for the next joins, regardless of their proof.
    pub(crate) join_refusals: VecDeque<JoinRefusal>,
    registry: Vec<(AppId, usize)>,
    queued_events: VecDeque<EngineEvent>,
    scratch: OutputBuffer,
    rng: Rng,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("now", &self.now).field("links", &self.links).finish()
    }
}

impl Mesh {
    /// Creates two ends without a connection.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let now = Instant::from_nanos(1_000_000);
        let app = AppId::new(mix(setup.seed) | 1);
        Self {
            client: Session::client(setup.client_config(), app, now),
            servers: Vec::new(),
            links: Vec::new(),
            inspector: FrameInspector::default(),
            join_refusals: VecDeque::new(),
            registry: Vec::new(),
            queued_events: VecDeque::new(),
            scratch: OutputBuffer::new(),
            rng: Rng::new(setup.seed ^ 0x6d65_7368),
            now,
            setup,
        }
    }

    pub(crate) fn next_event(&mut self) -> Option<EngineEvent> {
        self.queued_events.pop_front()
    }

    pub(crate) fn session_mut(&mut self, side: Side, index: usize) -> &mut Session {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.servers[index],
        }
    }

    pub(crate) fn session_at(&self, side: Side, index: usize) -> &Session {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.servers[index],
        }
    }

    pub(crate) fn link_of(&self, side: Side, session: usize, conn: ConnId) -> Option<usize> {
        self.links.iter().position(|link| {
            let end = link.ends[side.index()];
            end.session == session && end.conn == Some(conn)
        })
    }

    /// Returns why the connection that an end knows or knew by this id ended.
    pub(crate) fn close_cause_of(
        &self,
        side: Side,
        session: usize,
        conn: ConnId,
    ) -> Option<CloseCause> {
        self.links.iter().find(|link| link.is_known_as(side, session, conn))?.close_cause
    }

    /// Opens a connection, if the client is permitted to.
    pub(crate) fn connect(&mut self) -> bool {
        if self.links.len() >= 20 || !(self.client.can_join() || self.client.is_closed()) {
            return false;
        }
        let spec = ConnectionSpec { security: self.setup.security, identity: Identity([1; 32]) };
        let mut server = Session::server(self.setup.server_config(), self.now);
        let server_conn = server.add_connection(self.now, spec);
        self.servers.push(server);
        let client_conn = self.client.add_connection(self.now, spec);
        let cid = self.client.connection(client_conn).and_then(|view| view.cid);
        let ends = [
            LinkEnd { session: 0, conn: Some(client_conn) },
            LinkEnd { session: self.servers.len() - 1, conn: Some(server_conn) },
        ];
        self.links.push(Link {
            secret: self.rng.bits(),
            conn_no: cid.map_or(0, |cid| cid.number),
            ends,
            pipes: [Pipe::default(), Pipe::default()],
            has_failed: false,
            close_cause: None,
            former_ids: [None, None],
        });
        self.pump_events();
        true
    }

    /// Takes frames from an engine, within `limits`. Returns the number of bytes.
    pub(crate) fn take_frames(&mut self, link: usize, side: Side, limits: TransmitLimits) -> usize {
        let LinkEnd { session, conn } = self.links[link].ends[side.index()];
        let Some(conn) = conn else { return 0 };
        let now = self.now;
        let mut scratch = std::mem::take(&mut self.scratch);
        let engine = self.session_mut(side, session);
        let demand = engine.transmit_demand(conn);
        let taken = engine.poll_transmit(now, conn, limits, &mut scratch);
        let taken_bytes = taken.bytes;
        let may_send = demand.interactive || (demand.bulk && limits.bulk_bytes > 0);
        if (taken_bytes > 0 && !may_send) || (limits.bulk_bytes == 0 && taken.bulk_bytes > 0) {
            self.inspector.violations.push(format!(
                "link {link}: {side:?} sends {taken:?} of {limits:?}, with {demand:?} to send"
            ));
        }
        if taken.bulk_bytes > 0 {
            self.inspector.cases.insert("bulk");
        } else if demand.bulk && limits.bulk_bytes == 0 {
            self.inspector.cases.insert("bulk held back");
        }
        let mut output = Vec::with_capacity(taken_bytes);
        while !scratch.is_empty() {
            let mut slices = [IoSlice::new(&[]); 4];
            let filled = scratch.chunks(&mut slices);
            let before = output.len();
            slices[..filled].iter().for_each(|slice| output.extend_from_slice(slice));
            let bytes = output.len() - before;
            scratch.advance(bytes);
        }
        self.scratch = scratch;
        let source = FrameSource { link, conn_no: self.links[link].conn_no, side };
        let output = self.inspector.inspect(source, output);
        let pipe = &mut self.links[link].pipes[side.index()];
        if !pipe.is_closed {
            pipe.backlog.extend_from_slice(&output);
        }
        self.pump_events();
        taken_bytes
    }

    /// Takes frames and writes within `limits`; closes the connection when its engine requests it.
    pub(crate) fn transmit(&mut self, link: usize, side: Side, limits: TransmitLimits) -> usize {
        let capacity = self.setup.pipe_capacity as usize;
        let mut taken_bytes = 0;
        let backlog = self.links[link].pipes[side.index()].backlog.len();
        if backlog < limits.bytes && self.links[link].pipes[side.index()].in_flight.len() < capacity
        {
            taken_bytes = self.take_frames(
                link,
                side,
                TransmitLimits { bytes: limits.bytes - backlog, ..limits },
            );
        }
        let pipe = &mut self.links[link].pipes[side.index()];
        let written_bytes = pipe.write(limits.bytes, capacity);
        let flushed = pipe.backlog.is_empty();
        let LinkEnd { session, conn } = self.links[link].ends[side.index()];
        if let Some(conn) = conn
            && flushed
            && self.session_at(side, session).should_close(conn)
        {
            self.close(link, side);
        }
        written_bytes.max(taken_bytes)
    }

    /// Delivers up to `bytes` bytes to `to`. Returns how many left the pipe; the end counts as one.
    pub(crate) fn deliver(&mut self, link: usize, to: Side, bytes: usize) -> usize {
        let LinkEnd { session, conn } = self.links[link].ends[to.index()];
        let sender_index = to.other().index();
        let Some(conn) = conn else {
            // This end no longer reads: bytes in flight are dropped.
            let in_flight = &mut self.links[link].pipes[sender_index].in_flight;
            let dropped = in_flight.len();
            in_flight.clear();
            return dropped;
        };
        if !self.session_at(to, session).wants_input(conn) {
            return 0;
        }
        let arrived_bytes = self.links[link].pipes[sender_index].deliver(bytes);
        if arrived_bytes > 0 {
            self.feed(link, to);
            if to == Side::Client
                && self.client.connections().any(|conn| conn.unbound_carrier_count > 0)
            {
                self.inspector.cases.insert("frames before their barrier");
            }
        }
        if self.links[link].pipes[sender_index].fuse == Some(0) {
            self.links[link].pipes[sender_index].fuse = None;
            self.cut(link, [0, 0]);
        }
        let pipe = &self.links[link].pipes[sender_index];
        let has_ended = pipe.is_closed && pipe.in_flight.is_empty();
        if has_ended && self.links[link].is_open_at(to) {
            self.notify_end(link, to);
            return arrived_bytes + 1;
        }
        arrived_bytes
    }

    /// Passes arrived bytes to the engine.
    fn feed(&mut self, link: usize, to: Side) {
        let LinkEnd { session, conn } = self.links[link].ends[to.index()];
        let Some(conn) = conn else { return };
        let sender_index = to.other().index();
        let mut inbox = std::mem::take(&mut self.links[link].pipes[sender_index].inbox);
        let now = self.now;
        self.session_mut(to, session).handle_input(now, conn, &mut inbox);
        // The engine leaves the beginning of a frame, or input that waits for a JOIN's answer.
        self.links[link].pipes[sender_index].inbox = BytesMut::from(&inbox[..]);
        self.pump_events();
    }

    /// Notifies `side` of the end of a connection, closed or failed.
    fn notify_end(&mut self, link: usize, side: Side) {
        let LinkEnd { session, conn } = self.links[link].ends[side.index()];
        let Some(conn) = conn else { return };
        self.links[link].ends[side.index()].conn = None;
        self.links[link].former_ids[side.index()] = Some((session, conn));
        self.links[link].pipes[side.index()].is_closed = true;
        self.links[link].pipes[side.index()].backlog.clear();
        let (now, has_failed) = (self.now, self.links[link].has_failed);
        let engine = self.session_mut(side, session);
        if has_failed {
            engine.handle_lost(now, conn, LostReason::Failed("cut".to_owned()));
        } else {
            engine.handle_eof(now, conn);
        }
        self.pump_events();
    }

    /// Writes the rest at `side` and closes.
    pub(crate) fn close(&mut self, link: usize, side: Side) {
        while self.take_frames(link, side, TransmitLimits::any(1 << 20)) > 0 {}
        let pipe = &mut self.links[link].pipes[side.index()];
        pipe.write(usize::MAX, usize::MAX);
        pipe.is_closed = true;
        self.links[link].pipes[side.other().index()].in_flight.clear();
        self.notify_end(link, side);
    }

    /// Cuts the connection when this many bytes more have arrived from `from`.
    pub fn cut_after(&mut self, link: usize, from: Side, bytes: usize) {
        self.links[link].pipes[from.index()].fuse = Some(bytes);
    }

    /// Returns whether the connection was cut.
    #[must_use]
    pub fn is_cut(&self, link: usize) -> bool {
        self.links[link].has_failed
    }

    /// Fails the connection: of the bytes in flight, `delivered_permille` still arrive.
    pub(crate) fn cut(&mut self, link: usize, delivered_permille: [u16; 2]) {
        let conn_no = self.links[link].conn_no;
        self.inspector.on_cut(link, conn_no);
        let delivered_from = |at: usize| {
            let in_flight = self.links[link].pipes[at].in_flight.len();
            in_flight * usize::from(delivered_permille[at].min(1000)) / 1000
        };
        let delivered_bytes = [delivered_from(0), delivered_from(1)];
        self.links[link].close_cause.get_or_insert(CloseCause::Step);
        self.links[link].cut(delivered_bytes);
    }

    pub(crate) fn handle_timeout(&mut self, side: Side, session: usize) {
        let now = self.now;
        self.session_mut(side, session).handle_timeout(now);
        self.pump_events();
    }

    /// Drains the events of all engines: handles those for the driver, and queues all of them.
    pub(crate) fn pump_events(&mut self) {
        loop {
            let mut is_idle = true;
            while let Some(event) = self.client.poll_event() {
                is_idle = false;
                self.on_event(Side::Client, 0, event);
            }
            for session in 0..self.servers.len() {
                while let Some(event) = self.servers[session].poll_event() {
                    is_idle = false;
                    self.on_event(Side::Server, session, event);
                }
            }
            if is_idle {
                return;
            }
        }
    }

    fn on_event(&mut self, side: Side, session: usize, event: Event) {
        match &event {
            Event::KeyingMaterialNeeded { conn, request } => {
                let Some(link) = self.link_of(side, session, *conn) else { return };
                let material = self.keying_material(link, request);
                let nonce = self.next_nonce();
                self.session_mut(side, session).handle_keying_material(*conn, material, nonce);
            }
            Event::SessionEstablished { app, .. }
                if side == Side::Server && self.owner_of(*app).is_none() =>
            {
                self.registry.retain(|(other, _)| other != app);
                self.registry.push((*app, session));
            }
            Event::JoinRequested { conn, cid } => self.on_join(session, *conn, cid.app),
            Event::Closed { conn, .. } => {
                if let Some(link) = self.link_of(side, session, *conn) {
                    self.close(link, side);
                }
            }
            Event::AbortTransport { conn } => {
                if let Some(link) = self.link_of(side, session, *conn) {
                    self.inspector.cases.insert("connection closed to cancel");
                    self.links[link].close_cause.get_or_insert(CloseCause::Cancel);
                    self.links[link].cut([0, 0]);
                    self.notify_end(link, side);
                }
            }
            _ => {}
        }
        self.queued_events.push_back(EngineEvent { side, session, event });
    }

    fn owner_of(&self, app: AppId) -> Option<usize> {
        let (_, owner) = self.registry.iter().find(|(other, _)| *other == app)?;
        (!self.servers[*owner].is_closed()).then_some(*owner)
    }

    fn on_join(&mut self, session: usize, conn: ConnId, app: AppId) {
        let Some(link) = self.link_of(Side::Server, session, conn) else { return };
        let (now, refusal) = (self.now, self.join_refusals.pop_front());
        let owner = self.owner_of(app).filter(|&owner| owner != session);
        match (owner, refusal) {
            (None, _) => {
                self.servers[session].refuse_join(now, conn, JoinRefusal::UnknownSession);
            }
            (Some(_), Some(reason)) => {
                self.inspector.cases.insert(match reason {
                    JoinRefusal::UnknownSession => "join of an unknown session",
                    _ => "join refused",
                });
                self.servers[session].refuse_join(now, conn, reason);
            }
            (Some(owner), None) => self.hand_over(link, session, conn, owner),
        }
        self.feed(link, Side::Server);
    }

    /// Hands a connection over from the session where it arrived to the one that it joins.
    fn hand_over(&mut self, link: usize, session: usize, conn: ConnId, owner: usize) {
        let Some(detached_conn) = self.servers[session].detach(conn) else { return };
        let exporter = self.keying_material(link, &detached_conn.exporter_request());
        let (now, nonce) = (self.now, self.next_nonce());
        let end = match self.servers[owner].verify_join(&detached_conn, exporter) {
            Ok(proof) => {
                self.inspector.cases.insert("join accepted");
                let conn = self.servers[owner].attach(now, detached_conn, &proof, nonce);
                LinkEnd { session: owner, conn: Some(conn) }
            }
            Err(reason) => {
                self.inspector.cases.insert("join refused by its owner");
                let config = self.setup.server_config();
                let (adopted, conn) = Session::adopt(config, now, detached_conn, reason);
                self.servers.push(adopted);
                LinkEnd { session: self.servers.len() - 1, conn: Some(conn) }
            }
        };
        self.links[link].ends[Side::Server.index()] = end;
    }

    fn next_nonce(&mut self) -> [u8; 16] {
        (u128::from(self.rng.bits()) << 64 | u128::from(self.rng.bits())).to_be_bytes()
    }

    /// Returns the requested keying material. A TLS exporter's output is equal at both ends of one connection, and
    /// different elsewhere.
    fn keying_material(&mut self, link: usize, request: &KeyingRequest) -> [u8; 32] {
        let seed = match request {
            KeyingRequest::Zero => return [0; 32],
            KeyingRequest::Random => self.rng.bits(),
            KeyingRequest::Exporter { label, context } => {
                let text = label.bytes().chain([0]).chain(context.iter().copied());
                let secret = self.links[link].secret;
                text.fold(secret, |hash, byte| mix(hash ^ u64::from(byte)))
            }
        };
        let mut rng = Rng::new(seed);
        let mut material = [0; 32];
        for part in material.chunks_mut(8) {
            part.copy_from_slice(&rng.bits().to_be_bytes());
        }
        material
    }
}
