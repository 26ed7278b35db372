//! The peer: connections to one engine, virtual time, and the driver for the engine.

use core::time::Duration;
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use bytes::BytesMut;
use smig_proto::{
    AppId, Cid, ConnId, ConnectionSpec, Event, Instant, LostReason, OutputBuffer, Session, Side,
    TransmitLimits, Transmitted,
};

use super::codec::{self, FrameReader};
use super::frame::Frame;
use super::setup::{JoinAnswers, Setup};

/// A connection of a script; the number is the order of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnHandle(pub(super) usize);

/// The first connection.
pub const C1: ConnHandle = ConnHandle(0);
/// The second connection.
pub const C2: ConnHandle = ConnHandle(1);
/// The third connection.
pub const C3: ConnHandle = ConnHandle(2);
/// The fourth connection.
pub const C4: ConnHandle = ConnHandle(3);

/// Whether the peer reads the engine's output on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputState {
    Running,
    /// The peer does not read.
    Paused,
    Closed,
}

pub(super) struct PeerConnection {
    /// Index of the engine session that has the connection, and its id there.
    pub(super) session: usize,
    pub(super) conn: ConnId,
    pub(super) cid: Option<Cid>,
    /// Sent by the peer, not consumed by the engine.
    pub(super) unread_input: BytesMut,
    pub(super) reader: FrameReader,
    pub(super) output: BytesMut,
    pub(super) frames: VecDeque<Frame>,
    pub(super) output_state: OutputState,
    /// The nonce of the client's JOIN, sent or received by the peer.
    pub(super) nonce: [u8; 16],
    pub(super) preface_bytes_due: usize,
    /// The engine reported the connection as closed.
    closed_by_engine: bool,
}

/// A scripted peer; see the [module's description](super).
pub struct Peer {
    pub(super) engine_side: Side,
    pub(super) setup: Setup,
    pub(super) now: Instant,
    /// The session under test is the first; a server has another one for each connection that has
    /// not joined.
    pub(super) sessions: Vec<Session>,
    pub(super) connections: Vec<PeerConnection>,
    pub(super) events: VecDeque<(usize, Event)>,
    pub(super) registry: Vec<(AppId, usize)>,
    /// K, if it is not derived from the exporter of the session's first connection.
    pub(super) session_key: Option<[u8; 32]>,
    pub(super) nonce_count: u64,
    /// Bytes taken from the engine per poll.
    transmit_limit: usize,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("engine_side", &self.engine_side).finish_non_exhaustive()
    }
}

impl Peer {
    /// Creates a peer without connections.
    pub(super) fn new(engine_side: Side, setup: Setup) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let session = match engine_side {
            Side::Server => Session::server(setup.config.clone(), now),
            Side::Client => Session::client(setup.config.clone(), setup.app_id, now),
        };
        Self {
            engine_side,
            setup,
            now,
            sessions: vec![session],
            connections: Vec::new(),
            events: VecDeque::new(),
            registry: Vec::new(),
            session_key: None,
            nonce_count: 0,
            transmit_limit: 1 << 20,
        }
    }

    /// Returns the engine's time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the session under test.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.sessions[0]
    }

    /// Returns the session that has this connection; a server's connection that has not joined has
    /// its own.
    #[must_use]
    pub fn session_of(&self, handle: ConnHandle) -> &Session {
        &self.sessions[self.connection(handle).session]
    }

    /// Returns the engine's id of a connection.
    #[must_use]
    pub fn conn_id(&self, handle: ConnHandle) -> ConnId {
        self.connection(handle).conn
    }

    /// Returns a connection's CID.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[must_use]
    #[track_caller]
    pub fn cid(&self, handle: ConnHandle) -> Cid {
        self.connection(handle).cid.expect("the connection has a CID")
    }

    pub(super) fn connection(&self, handle: ConnHandle) -> &PeerConnection {
        &self.connections[handle.0]
    }

    pub(super) fn connection_mut(&mut self, handle: ConnHandle) -> &mut PeerConnection {
        &mut self.connections[handle.0]
    }

    pub(super) fn handle_of(&self, session: usize, conn: ConnId) -> Option<ConnHandle> {
        self.connections
            .iter()
            .position(|other| other.session == session && other.conn == conn)
            .map(ConnHandle)
    }

    /// Returns the session registered for this AppID.
    pub(super) fn owner(&self, app: AppId) -> Option<usize> {
        self.registry.iter().find(|(other, _)| *other == app).map(|&(_, at)| at)
    }

    pub(super) fn add_connection(&mut self, session: usize) -> ConnHandle {
        let spec = ConnectionSpec { security: self.setup.security, identity: self.setup.identity };
        let now = self.now;
        let conn = self.sessions[session].add_connection(now, spec);
        self.connections.push(PeerConnection {
            session,
            conn,
            cid: None,
            unread_input: BytesMut::new(),
            reader: FrameReader::new(self.setup.max_frame_size()),
            output: BytesMut::new(),
            frames: VecDeque::new(),
            output_state: OutputState::Running,
            nonce: [0; 16],
            preface_bytes_due: if self.engine_side == Side::Client { 24 } else { 0 },
            closed_by_engine: false,
        });
        ConnHandle(self.connections.len() - 1)
    }

    // Sending.

    /// Sends one frame.
    #[track_caller]
    pub fn send(&mut self, handle: ConnHandle, frame: impl Into<Frame>) {
        let mut bytes = BytesMut::new();
        codec::encode(&frame.into(), &mut bytes);
        self.send_bytes(handle, &bytes);
    }

    /// Sends frames that the engine reads together.
    #[track_caller]
    pub fn send_all<F: Into<Frame>>(
        &mut self,
        handle: ConnHandle,
        frames: impl IntoIterator<Item = F>,
    ) {
        let mut bytes = BytesMut::new();
        for frame in frames {
            codec::encode(&frame.into(), &mut bytes);
        }
        self.send_bytes(handle, &bytes);
    }

    /// Sends one frame, unless the engine has closed the connection.
    pub fn send_if_open(&mut self, handle: ConnHandle, frame: impl Into<Frame>) {
        if !self.is_closed(handle) {
            self.send(handle, frame);
        }
    }

    /// Sends bytes unchanged.
    #[track_caller]
    pub fn send_bytes(&mut self, handle: ConnHandle, bytes: &[u8]) {
        assert_ne!(
            self.connection(handle).output_state,
            OutputState::Closed,
            "{handle:?} is closed"
        );
        self.connection_mut(handle).unread_input.extend_from_slice(bytes);
        self.feed(handle);
        self.pump();
    }

    /// Passes the peer's bytes to the engine.
    pub(super) fn feed(&mut self, handle: ConnHandle) {
        let (now, connection) = (self.now, &mut self.connections[handle.0]);
        self.sessions[connection.session].handle_input(
            now,
            connection.conn,
            &mut connection.unread_input,
        );
    }

    /// Calls the session under test as the application.
    pub fn with_session<R>(&mut self, act: impl FnOnce(&mut Session, Instant) -> R) -> R {
        let result = act(&mut self.sessions[0], self.now);
        self.pump();
        result
    }

    /// Fails the transport, in both directions at once.
    pub fn lose(&mut self, handle: ConnHandle) {
        self.end_transport(handle, LostReason::Failed("lost".to_owned()));
    }

    /// Closes the transport cleanly.
    pub fn close(&mut self, handle: ConnHandle) {
        self.end_transport(handle, LostReason::Closed);
    }

    fn end_transport(&mut self, handle: ConnHandle, reason: LostReason) {
        let (now, connection) = (self.now, &mut self.connections[handle.0]);
        connection.output_state = OutputState::Closed;
        self.sessions[connection.session].handle_lost(now, connection.conn, reason);
        self.pump();
    }

    /// Returns whether the engine requests that the connection be closed.
    #[must_use]
    pub fn should_close(&self, handle: ConnHandle) -> bool {
        self.session_of(handle).should_close(self.conn_id(handle))
    }

    /// Returns whether the connection is closed, by either end.
    #[must_use]
    pub fn is_closed(&self, handle: ConnHandle) -> bool {
        self.connection(handle).output_state == OutputState::Closed
    }

    /// Stops reading the engine's output.
    pub fn pause(&mut self, handle: ConnHandle) {
        self.connection_mut(handle).output_state = OutputState::Paused;
    }

    /// Resumes reading the engine's output.
    pub fn resume(&mut self, handle: ConnHandle) {
        self.connection_mut(handle).output_state = OutputState::Running;
        self.pump();
    }

    /// Limits the bytes that the engine may write per call.
    pub const fn limit_transmit(&mut self, bytes: usize) {
        self.transmit_limit = bytes;
    }

    /// Takes up to `limit` bytes of output from a paused connection.
    pub fn take_output(&mut self, handle: ConnHandle, limit: usize) {
        self.take_output_within(handle, TransmitLimits::any(limit));
    }

    /// Takes output of a paused connection, within limits. Returns how much.
    pub fn take_output_within(
        &mut self,
        handle: ConnHandle,
        limits: TransmitLimits,
    ) -> Transmitted {
        let taken = self.transmit(handle, limits);
        self.parse(handle);
        taken
    }

    /// Advances the time; the engine's timers run when they are due.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        loop {
            let due = self.sessions.iter().filter_map(Session::poll_timeout).min();
            let Some(due) = due.filter(|&due| due <= end) else { break };
            self.now = self.now.max(due);
            for session in &mut self.sessions {
                session.handle_timeout(self.now);
            }
            self.pump();
        }
        self.now = end;
    }

    // Driver.

    pub(super) fn pump(&mut self) {
        loop {
            let mut progress = false;
            for session in 0..self.sessions.len() {
                while let Some(event) = self.sessions[session].poll_event() {
                    progress = true;
                    self.on_event(session, event);
                }
            }
            for handle in (0..self.connections.len()).map(ConnHandle) {
                if self.connection(handle).output_state == OutputState::Running {
                    progress |=
                        self.transmit(handle, TransmitLimits::any(self.transmit_limit)).bytes > 0;
                }
            }
            if !progress {
                break;
            }
        }
        for handle in (0..self.connections.len()).map(ConnHandle) {
            self.parse(handle);
            self.close_if_engine_closed(handle);
        }
    }

    /// Closes a connection that the engine has closed, as a driver does after [`Event::Closed`].
    fn close_if_engine_closed(&mut self, handle: ConnHandle) {
        let connection = &mut self.connections[handle.0];
        if connection.closed_by_engine && connection.output_state == OutputState::Running {
            connection.output_state = OutputState::Closed;
            let (session, conn) = (connection.session, connection.conn);
            self.sessions[session].handle_lost(self.now, conn, LostReason::Closed);
            self.pump();
        }
    }

    fn transmit(&mut self, handle: ConnHandle, limits: TransmitLimits) -> Transmitted {
        let connection = &mut self.connections[handle.0];
        let session = &mut self.sessions[connection.session];
        if session.transmit_demand(connection.conn).is_none() {
            return Transmitted::default();
        }
        let mut out = OutputBuffer::new();
        let taken = session.poll_transmit(self.now, connection.conn, limits, &mut out);
        assert_eq!(taken.bytes, out.len(), "poll_transmit returns how much it appended");
        while !out.is_empty() {
            let mut slices = [IoSlice::new(&[]); 8];
            let filled = out.chunks(&mut slices);
            let bytes: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
            connection.output.extend_from_slice(&bytes);
            out.advance(bytes.len());
        }
        taken
    }

    fn parse(&mut self, handle: ConnHandle) {
        let connection = self.connection_mut(handle);
        if connection.preface_bytes_due > 0
            && connection.output.len() >= connection.preface_bytes_due
        {
            let preface = connection.output.split_to(connection.preface_bytes_due);
            assert_eq!(&preface[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            connection.preface_bytes_due = 0;
        }
        if connection.preface_bytes_due == 0 {
            while let Some(frame) = connection.reader.next(&mut connection.output) {
                connection.frames.push_back(frame);
            }
        }
    }

    fn on_event(&mut self, session: usize, event: Event) {
        match &event {
            Event::KeyingMaterialNeeded { conn, request } => {
                self.provide_keying_material(session, *conn, request);
            }
            Event::JoinRequested { conn, .. } => {
                let handle = self.handle_of(session, *conn);
                if let (Some(handle), JoinAnswers::Automatic) = (handle, self.setup.join_answers) {
                    self.events.push_back((session, event));
                    return self.decide_join(handle);
                }
            }
            Event::SessionEstablished { app, .. } if self.owner(*app).is_none() => {
                self.registry.push((*app, session));
            }
            Event::Closed { conn, .. } => {
                if let Some(handle) = self.handle_of(session, *conn) {
                    self.connections[handle.0].closed_by_engine = true;
                }
            }
            Event::AbortTransport { conn } => {
                if let Some(handle) = self.handle_of(session, *conn) {
                    self.connections[handle.0].output_state = OutputState::Closed;
                    self.sessions[session].handle_lost(self.now, *conn, LostReason::Closed);
                }
            }
            _ => {}
        }
        self.events.push_back((session, event));
    }
}
