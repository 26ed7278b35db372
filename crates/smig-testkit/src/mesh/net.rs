//! The two ends and their connections: the drivers, in virtual time and without sockets.
//!
//! Owns engines, connections, the registry of sessions and the keying material. Makes no decisions about
//! streams; events for the application are queued in [`Mesh::next_happening`].

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::BytesMut;
use smig_proto::{
    AppId, ConnId, ConnectionSpec, Event, Identity, Instant, JoinRefusal, KeyingRequest,
    LostReason, OutputBuffer, Session,
};

use crate::mesh::link::{Doom, End, Link, Pipe, Side};
use crate::mesh::rng::{Rng, mix};
use crate::mesh::setup::Setup;
use crate::mesh::watch::{FrameSource, Watch};

/// An event of an engine.
pub(crate) struct DriverEvent {
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
    pub(crate) watch: Watch,
    /// Refusals for the next joins, regardless of their proof.
    pub(crate) refusals: VecDeque<JoinRefusal>,
    registry: Vec<(AppId, usize)>,
    happenings: VecDeque<DriverEvent>,
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
            watch: Watch::default(),
            refusals: VecDeque::new(),
            registry: Vec::new(),
            happenings: VecDeque::new(),
            scratch: OutputBuffer::new(),
            rng: Rng::new(setup.seed ^ 0x6d65_7368),
            now,
            setup,
        }
    }

    pub(crate) fn next_happening(&mut self) -> Option<DriverEvent> {
        self.happenings.pop_front()
    }

    pub(crate) fn session(&mut self, side: Side, index: usize) -> &mut Session {
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

    /// Returns why streams lost the connection that an end knew by this id.
    pub(crate) fn doom_of(&self, side: Side, session: usize, conn: ConnId) -> Option<Doom> {
        self.links.iter().find(|link| link.is_known_as(side, session, conn))?.doom
    }

    /// Opens a connection, if the client is permitted to.
    pub(crate) fn connect(&mut self) -> bool {
        if self.links.len() >= 20 || !(self.client.can_join() || self.client.is_closed()) {
            return false;
        }
        let spec = ConnectionSpec { security: self.setup.security, identity: Identity([1; 32]) };
        let mut server = Session::server(self.setup.server_config(), self.now);
        let at_server = server.add_connection(self.now, spec);
        self.servers.push(server);
        let at_client = self.client.add_connection(self.now, spec);
        let cid = self.client.connection(at_client).and_then(|view| view.cid);
        let ends = [
            End { session: 0, conn: Some(at_client) },
            End { session: self.servers.len() - 1, conn: Some(at_server) },
        ];
        self.links.push(Link {
            secret: self.rng.bits(),
            number: cid.map_or(0, |cid| cid.number),
            ends,
            pipes: [Pipe::default(), Pipe::default()],
            broken: false,
            doom: None,
            lost: [None, None],
        });
        self.pump_events();
        true
    }

    /// Takes about `bytes` bytes of frames from an engine. Returns the number taken.
    pub(crate) fn take_frames(&mut self, link: usize, side: Side, bytes: usize) -> usize {
        let End { session, conn } = self.links[link].ends[side.index()];
        let Some(conn) = conn else { return 0 };
        let now = self.now;
        let mut scratch = std::mem::take(&mut self.scratch);
        let engine = self.session(side, session);
        let wanted = engine.wants_transmit(conn);
        let taken = engine.poll_transmit(now, conn, bytes, &mut scratch);
        if taken > 0 && !wanted {
            self.watch.faults.push(format!("link {link}: {side:?} sends, and did not want to"));
        }
        let mut flat = Vec::with_capacity(taken);
        while !scratch.is_empty() {
            let mut slices = [IoSlice::new(&[]); 4];
            let filled = scratch.chunks(&mut slices);
            let before = flat.len();
            slices[..filled].iter().for_each(|slice| flat.extend_from_slice(slice));
            let bytes = flat.len() - before;
            scratch.advance(bytes);
        }
        self.scratch = scratch;
        let place = FrameSource { link, number: self.links[link].number, side };
        let flat = self.watch.frames(place, flat);
        let pipe = &mut self.links[link].pipes[side.index()];
        if !pipe.ended {
            pipe.backlog.extend_from_slice(&flat);
        }
        self.pump_events();
        taken
    }

    /// Takes frames and writes up to `bytes` bytes; closes the connection when its engine requests it.
    pub(crate) fn transmit(&mut self, link: usize, side: Side, bytes: usize) -> usize {
        let room = self.setup.socket as usize;
        let mut taken = 0;
        let backlog = self.links[link].pipes[side.index()].backlog.len();
        if backlog < bytes && self.links[link].pipes[side.index()].flight.len() < room {
            taken = self.take_frames(link, side, bytes - backlog);
        }
        let pipe = &mut self.links[link].pipes[side.index()];
        let written = pipe.write(bytes, room);
        let flushed = pipe.backlog.is_empty();
        let End { session, conn } = self.links[link].ends[side.index()];
        if let Some(conn) = conn
            && flushed
            && self.session_at(side, session).should_close(conn)
        {
            self.close(link, side);
        }
        written.max(taken)
    }

    /// Delivers up to `bytes` bytes to `to`. Returns how many left the path; the end counts as one.
    pub(crate) fn deliver(&mut self, link: usize, to: Side, bytes: usize) -> usize {
        let End { session, conn } = self.links[link].ends[to.index()];
        let from = to.other().index();
        let Some(conn) = conn else {
            // This end does not read any more; the sender has room again.
            let flight = &mut self.links[link].pipes[from].flight;
            let dropped = flight.len();
            flight.clear();
            return dropped;
        };
        if !self.session_at(to, session).wants_input(conn) {
            return 0;
        }
        let arrived = self.links[link].pipes[from].arrive(bytes);
        if arrived > 0 {
            self.feed(link, to);
            if to == Side::Client && self.client.connections().any(|conn| conn.unbound > 0) {
                self.watch.seen.insert("frames before their barrier");
            }
        }
        let pipe = &self.links[link].pipes[from];
        let over = pipe.ended && pipe.flight.is_empty();
        if over && self.links[link].is_open_at(to) {
            self.lose(link, to);
            return arrived + 1;
        }
        arrived
    }

    /// Passes arrived bytes to the engine.
    fn feed(&mut self, link: usize, to: Side) {
        let End { session, conn } = self.links[link].ends[to.index()];
        let Some(conn) = conn else { return };
        let from = to.other().index();
        let mut inbox = std::mem::take(&mut self.links[link].pipes[from].inbox);
        let now = self.now;
        self.session(to, session).handle_input(now, conn, &mut inbox);
        // The engine leaves the beginning of a frame, or input that waits for a JOIN's answer.
        self.links[link].pipes[from].inbox = BytesMut::from(&inbox[..]);
        self.pump_events();
    }

    /// Notifies `side` of the end of a connection, closed or failed.
    fn lose(&mut self, link: usize, side: Side) {
        let End { session, conn } = self.links[link].ends[side.index()];
        let Some(conn) = conn else { return };
        self.links[link].ends[side.index()].conn = None;
        self.links[link].lost[side.index()] = Some((session, conn));
        self.links[link].pipes[side.index()].ended = true;
        self.links[link].pipes[side.index()].backlog.clear();
        let (now, broken) = (self.now, self.links[link].broken);
        let engine = self.session(side, session);
        if broken {
            engine.handle_lost(now, conn, LostReason::Failed("cut".to_owned()));
        } else {
            engine.handle_eof(now, conn);
        }
        self.pump_events();
    }

    /// Writes the rest at `side` and closes.
    pub(crate) fn close(&mut self, link: usize, side: Side) {
        while self.take_frames(link, side, 1 << 20) > 0 {}
        let pipe = &mut self.links[link].pipes[side.index()];
        pipe.write(usize::MAX, usize::MAX);
        pipe.ended = true;
        self.links[link].pipes[side.other().index()].flight.clear();
        self.lose(link, side);
    }

    /// Fails the connection: of the bytes in flight, `keep` thousandths still arrive.
    pub(crate) fn cut(&mut self, link: usize, keep: [u16; 2]) {
        let number = self.links[link].number;
        self.watch.on_cut(link, number);
        let share = |at: usize| {
            let flight = self.links[link].pipes[at].flight.len();
            flight * usize::from(keep[at].min(1000)) / 1000
        };
        let keep = [share(0), share(1)];
        self.links[link].doom.get_or_insert(Doom::Step);
        self.links[link].cut(keep);
    }

    pub(crate) fn wake(&mut self, side: Side, session: usize) {
        let now = self.now;
        self.session(side, session).handle_timeout(now);
        self.pump_events();
    }

    /// Drains the events of all engines: handles those for the driver, queues the others.
    pub(crate) fn pump_events(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(event) = self.client.poll_event() {
                quiet = false;
                self.on_event(Side::Client, 0, event);
            }
            for session in 0..self.servers.len() {
                while let Some(event) = self.servers[session].poll_event() {
                    quiet = false;
                    self.on_event(Side::Server, session, event);
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn on_event(&mut self, side: Side, session: usize, event: Event) {
        match &event {
            Event::KeyingMaterialNeeded { conn, request } => {
                let Some(link) = self.link_of(side, session, *conn) else { return };
                let material = self.material(link, request);
                let nonce = self.nonce();
                self.session(side, session).handle_keying_material(*conn, material, nonce);
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
                    self.watch.seen.insert("connection closed to cancel");
                    self.links[link].doom.get_or_insert(Doom::Cancel);
                    self.links[link].cut([0, 0]);
                    self.lose(link, side);
                }
            }
            _ => {}
        }
        self.happenings.push_back(DriverEvent { side, session, event });
    }

    fn owner_of(&self, app: AppId) -> Option<usize> {
        let (_, owner) = self.registry.iter().find(|(other, _)| *other == app)?;
        (!self.servers[*owner].is_closed()).then_some(*owner)
    }

    fn on_join(&mut self, session: usize, conn: ConnId, app: AppId) {
        let Some(link) = self.link_of(Side::Server, session, conn) else { return };
        let (now, refusal) = (self.now, self.refusals.pop_front());
        let owner = self.owner_of(app).filter(|&owner| owner != session);
        match (owner, refusal) {
            (None, _) => {
                self.servers[session].refuse_join(now, conn, JoinRefusal::UnknownSession);
            }
            (Some(_), Some(reason)) => {
                self.watch.seen.insert(match reason {
                    JoinRefusal::UnknownSession => "session left",
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
        let Some(detached) = self.servers[session].detach(conn) else { return };
        let exporter = self.material(link, &detached.exporter_request());
        let (now, nonce) = (self.now, self.nonce());
        let end = match self.servers[owner].verify_join(&detached, exporter) {
            Ok(proof) => {
                self.watch.seen.insert("join accepted");
                let conn = self.servers[owner].attach(now, detached, &proof, nonce);
                End { session: owner, conn: Some(conn) }
            }
            Err(reason) => {
                self.watch.seen.insert("join refused by its owner");
                let config = self.setup.server_config();
                let (adopted, conn) = Session::adopt(config, now, detached, reason);
                self.servers.push(adopted);
                End { session: self.servers.len() - 1, conn: Some(conn) }
            }
        };
        self.links[link].ends[Side::Server.index()] = end;
    }

    fn nonce(&mut self) -> [u8; 16] {
        (u128::from(self.rng.bits()) << 64 | u128::from(self.rng.bits())).to_be_bytes()
    }

    /// Returns a TLS exporter's output: equal at both ends of one connection, and different elsewhere.
    fn material(&mut self, link: usize, request: &KeyingRequest) -> [u8; 32] {
        let seed = match request {
            KeyingRequest::Zero => return [0; 32],
            KeyingRequest::Random => self.rng.bits(),
            KeyingRequest::Exporter { label, context } => {
                let text = label.bytes().chain([0]).chain(context.iter().copied());
                let secret = self.links[link].secret;
                text.fold(secret, |hash, byte| mix(hash ^ u64::from(byte)))
            }
        };
        let mut stream = Rng::new(seed);
        let mut material = [0; 32];
        for part in material.chunks_mut(8) {
            part.copy_from_slice(&stream.bits().to_be_bytes());
        }
        material
    }
}
