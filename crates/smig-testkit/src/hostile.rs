//! A fuzzing peer: frames in any order and with any content, and bytes that are not frames.
//!
//! Derives an attack from any input, on one engine with three joined connections and an application
//! that responds. Checks the invariants: no panic, `check_invariants` finds nothing, the number of
//! streams stays within its limit, and no state is left once the connections are closed.

use core::time::Duration;

use smig_proto::{
    Config, ConnId, EndStream, ErrorCode, Event, MigrationTarget, ReadResult, ResumptionConfig,
    Session, Side, SmigConfig, StreamKey,
};

use crate::script::frame::{
    ResumePoint, accept, data, decline, flag, goaway, headers, lost, migrate, offer, ping, raw,
    receipt, reset, resume, resume_refused, resumed, setting, settings, window_update,
};
use crate::script::{C1, C2, C3, ConnHandle, Peer, Setup, request_head};

const HANDLES: [ConnHandle; 3] = [C1, C2, C3];
/// Maximum number of streams that the application keeps open towards the peer.
const MAX_OPEN_STREAMS: usize = 8;

/// Statistics of an attack.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttackStats {
    /// Steps executed: until the input was used up or every connection was closed.
    pub steps: u32,
    /// Streams opened by the peer or the application.
    pub streams: u32,
    /// Migrations that the engine completed.
    pub migrations: u32,
    /// Directions that the application ended.
    pub ended_directions: u32,
    /// Connections that ended, also those that the attack lost or that were closed at its end.
    pub closed_connections: u32,
}

/// Runs the attack that `input` encodes against an engine of the given side.
///
/// # Panics
///
/// When the engine violates an invariant.
pub fn attack(engine_side: Side, input: &[u8]) -> AttackStats {
    let can_resume = input.first().is_some_and(|byte| byte % 2 == 1);
    let peer = connected(engine_side, can_resume);
    let next_ids = if engine_side == Side::Server { [1; 3] } else { [2; 3] };
    let mut attack = Attack {
        engine_side,
        peer,
        input,
        keys: Vec::new(),
        locations: Vec::new(),
        next_ids,
        stats: AttackStats::default(),
    };
    while !attack.input.is_empty() && attack.open_handles().next().is_some() {
        attack.step();
        attack.run_application();
        attack.check();
        attack.stats.steps += 1;
    }
    attack.close_all();
    attack.stats
}

/// Returns a peer with three joined connections, on which streams can be resumed or not.
fn connected(engine_side: Side, can_resume: bool) -> Peer {
    let config = match engine_side {
        Side::Server => Config::server(),
        Side::Client => Config::client(),
    };
    let resumption = can_resume.then(ResumptionConfig::default);
    let smig = SmigConfig { resumption, ..SmigConfig::default() };
    let setup = Setup::new(Config { smig: Some(smig), ..config });
    let setup = setup.with_setting(setting::SMIG_RESUME, if can_resume { 20 } else { 0 });
    let mut peer = match engine_side {
        Side::Server => Peer::for_server(setup),
        Side::Client => Peer::for_client(setup),
    };
    for _ in HANDLES {
        peer.connect();
    }
    peer
}

/// The part of an [`Event`] that the application here uses.
enum AppEvent {
    Request(StreamKey),
    Pushed(StreamKey),
    Readable(StreamKey),
    Failed(StreamKey),
    Offered(StreamKey),
    Migrated,
    Closed,
    Other,
}

impl AppEvent {
    fn from_event(event: &Event) -> Self {
        match *event {
            Event::Request { stream, .. } => Self::Request(stream),
            Event::Pushed { stream, .. } => Self::Pushed(stream),
            Event::Readable { stream } => Self::Readable(stream),
            Event::Failed { stream, .. } => Self::Failed(stream),
            Event::MigrationOffered { stream } => Self::Offered(stream),
            Event::Migrated { .. } => Self::Migrated,
            Event::Closed { .. } => Self::Closed,
            _ => Self::Other,
        }
    }
}

struct Attack<'a> {
    engine_side: Side,
    peer: Peer,
    input: &'a [u8],
    /// Streams that the application has not released.
    keys: Vec<StreamKey>,
    /// Current and former locations of streams.
    locations: Vec<(ConnHandle, u32)>,
    /// The peer's next stream id on each connection.
    next_ids: [u32; 3],
    stats: AttackStats,
}

impl Attack<'_> {
    fn next_byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        first
    }

    fn next_bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.next_byte() % 32).min(self.input.len());
        let (taken, rest) = self.input.split_at(length);
        self.input = rest;
        taken.to_vec()
    }

    fn open_handles(&self) -> impl Iterator<Item = ConnHandle> {
        HANDLES.into_iter().filter(|&handle| !self.peer.is_closed(handle))
    }

    /// Selects an open connection.
    fn pick_handle(&mut self) -> Option<ConnHandle> {
        let selector = usize::from(self.next_byte());
        let open: Vec<_> = self.open_handles().collect();
        (!open.is_empty()).then(|| open[selector % open.len()])
    }

    /// Selects the id of a stream that is or was on the connection; rarely an arbitrary id.
    fn pick_stream_id(&mut self, handle: ConnHandle) -> Option<u32> {
        let selector = self.next_byte();
        if selector >= 250 {
            return Some(if selector == 255 { 0x7fff_ffff } else { u32::from(selector - 250) });
        }
        let current_locations =
            self.keys.iter().filter_map(|&key| self.peer.session().stream(key)).map(|view| {
                (
                    HANDLES
                        .into_iter()
                        .find(|&handle| self.peer.conn_id(handle) == view.connection),
                    view.id.value(),
                )
            });
        for (handle, id) in current_locations.collect::<Vec<_>>() {
            let location = (handle.unwrap_or(C1), id);
            if !self.locations.contains(&location) {
                self.locations.push(location);
            }
        }
        let excess = self.locations.len().saturating_sub(2 * MAX_OPEN_STREAMS);
        self.locations.drain(..excess);
        let ids: Vec<u32> =
            self.locations.iter().filter(|(on, _)| *on == handle).map(|&(_, id)| id).collect();
        ids.get(usize::from(selector) % ids.len().max(1)).copied()
    }

    /// Returns the next id that the peer may use for a new stream.
    fn next_id(&mut self, handle: ConnHandle) -> u32 {
        let at = HANDLES.iter().position(|&other| other == handle).unwrap_or(0);
        let id = self.next_ids[at];
        self.next_ids[at] += 2;
        id
    }

    fn pick_key(&mut self) -> Option<StreamKey> {
        let selector = usize::from(self.next_byte());
        (!self.keys.is_empty()).then(|| self.keys[selector % self.keys.len()])
    }

    fn step(&mut self) {
        match self.next_byte() {
            0..176 => self.send_frame(),
            176..178 => {
                if let Some(handle) = self.pick_handle() {
                    let bytes = self.next_bytes();
                    self.peer.send_bytes(handle, &bytes);
                }
            }
            178..190 => {
                let millis = u64::from(self.next_byte()).pow(2);
                self.peer.advance(Duration::from_millis(millis));
            }
            190..192 => {
                if let Some(handle) = self.pick_handle() {
                    self.peer.lose(handle);
                }
            }
            _ => self.run_command(),
        }
    }

    /// Sends one frame: well formed, or of any type with any payload.
    fn send_frame(&mut self) {
        let (Some(handle), Some(destination)) = (self.pick_handle(), self.pick_handle()) else {
            return;
        };
        let (mut selector, mut stream_id) =
            (self.next_byte(), self.pick_stream_id(handle).unwrap_or(0));
        if self.engine_side == Side::Server && (selector % 64 < 8 || stream_id == 0) {
            // A new request.
            (selector, stream_id) = (0, self.next_id(handle));
        }
        if stream_id == 0 {
            return;
        }
        let cid = self.peer.cid(destination);
        let has_end_stream = self.next_byte() % 2 == 1;
        let frame = match selector % 64 {
            0..16 => {
                let head = match (self.engine_side, has_end_stream) {
                    (Side::Server, true) => headers(stream_id).get("/").end(),
                    (Side::Server, false) => headers(stream_id).post("/"),
                    (Side::Client, true) => headers(stream_id).status(200).end(),
                    (Side::Client, false) => headers(stream_id).status(200),
                };
                return self.peer.send(handle, head);
            }
            16..24 if has_end_stream => data(stream_id, self.next_bytes()).end(),
            16..24 => data(stream_id, self.next_bytes()),
            // Sent by a server that has responded and needs no more of the request.
            24..26 => reset(stream_id, ErrorCode::NoError),
            26..28 => reset(stream_id, ErrorCode::Cancel),
            28..32 => window_update(stream_id, 1 + (u32::from(self.next_byte()) << 8)),
            32 => {
                settings(&[(u16::from(self.next_byte() % 10), u32::from(self.next_byte()) << 10)])
            }
            33..45 => migrate(stream_id, cid, self.next_id(destination)),
            45..51 => accept(stream_id, cid, self.pick_stream_id(destination).unwrap_or(stream_id)),
            51..54 => decline(stream_id),
            54..57 => offer(stream_id),
            57 if has_end_stream => goaway(stream_id, ErrorCode::NoError),
            57..60 => ping([selector; 8]),
            60 if self.engine_side == Side::Server => {
                let s0 = self.pick_stream_id(destination).unwrap_or(stream_id);
                let (id, attempt) = (self.next_id(handle), u32::from(self.next_byte() % 4));
                resume(id, (cid, s0), attempt, self.resume_point())
            }
            60 if has_end_stream => {
                resume_refused(stream_id, self.next_byte() % 8, ErrorCode::Cancel)
            }
            60 => resumed(stream_id, self.resume_point()),
            61 => lost(cid),
            62 => receipt(self.next_byte().into()),
            _ => {
                const KINDS: [u8; 17] =
                    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0x77];
                let kind = KINDS[usize::from(self.next_byte()) % KINDS.len()];
                let flags = self.next_byte();
                raw(kind, flags, stream_id, self.next_bytes())
            }
        };
        self.peer.send(handle, frame);
    }

    fn resume_point(&mut self) -> ResumePoint {
        ResumePoint {
            received: u64::from(self.next_byte() % 64),
            window: u32::from(self.next_byte()) << 8,
            flags: self.next_byte() & (flag::RESUME_HEAD | flag::RESUME_WHOLE),
        }
    }

    /// Performs one action of the application.
    fn run_command(&mut self) {
        let action = self.next_byte();
        if self.engine_side == Side::Client
            && action.is_multiple_of(4)
            && self.stream_count() < MAX_OPEN_STREAMS
        {
            let head =
                request_head(if action < 128 { http::Method::GET } else { http::Method::POST });
            let end = if action < 128 { EndStream::Yes } else { EndStream::No };
            if let Ok(key) =
                self.peer.with_session(|session, now| session.open(now, None, &head, end))
            {
                self.track(key);
            }
            return;
        }
        let Some(key) = self.pick_key() else { return };
        let body = self.next_bytes();
        let end = if action % 8 == 1 { EndStream::Yes } else { EndStream::No };
        match action % 32 {
            0..16 => {
                let sent =
                    self.peer.with_session(|session, _| session.send_data(key, body.into(), end));
                self.stats.ended_directions += u32::from(end.is_end() && sent.is_ok());
            }
            16..22 => drop(
                self.peer
                    .with_session(|session, now| session.migrate(now, key, MigrationTarget::Spare)),
            ),
            22..24 => {
                let Some(handle) = self.pick_handle() else { return };
                let to = self.peer.conn_id(handle);
                // The stream may be where it cannot be pulled from.
                let _ = self.peer.with_session(|session, _| session.pull(key, to));
            }
            24..28 => self.peer.with_session(|session, _| session.reset(key, ErrorCode::Cancel)),
            28..30 => self.peer.with_session(|session, _| session.reset(key, ErrorCode::NoError)),
            _ => self.release(key),
        }
    }

    /// Returns the number of streams in the engine, including released ones that have not ended.
    fn stream_count(&self) -> usize {
        self.peer.session().stream_count()
    }

    fn track(&mut self, key: StreamKey) {
        self.stats.streams += 1;
        self.keys.push(key);
    }

    /// Runs the application: it responds to requests, reads the bodies and releases ended streams.
    fn run_application(&mut self) {
        while let Some(event) = self.peer.try_take_event(|event| Some(AppEvent::from_event(event)))
        {
            match event {
                AppEvent::Request(key) => {
                    self.track(key);
                    let head = smig_proto::ResponseHead {
                        status: http::StatusCode::OK,
                        headers: http::HeaderMap::new(),
                    };
                    // The stream may have ended already.
                    let _ = self.peer.with_session(|session, _| {
                        session.send_response(key, &head, EndStream::No)
                    });
                }
                AppEvent::Pushed(key) => self.track(key),
                AppEvent::Readable(key) => {
                    self.peer.with_session(|session, _| {
                        while matches!(session.read(key), ReadResult::Data(_)) {}
                    });
                }
                AppEvent::Failed(key) => self.release(key),
                AppEvent::Offered(key) => {
                    self.peer.with_session(|session, _| session.decline_offer(key));
                }
                AppEvent::Migrated => self.stats.migrations += 1,
                AppEvent::Closed => self.stats.closed_connections += 1,
                AppEvent::Other => {}
            }
        }
        if let Some(&oldest) = self.keys.first()
            && self.keys.len() > MAX_OPEN_STREAMS
        {
            self.release(oldest);
        }
    }

    fn release(&mut self, key: StreamKey) {
        self.keys.retain(|&other| other != key);
        self.peer.with_session(|session, _| session.release(key));
    }

    fn check(&self) {
        let violations = self.peer.session().check_invariants();
        assert!(violations.is_empty(), "{violations:#?}");
        let max_streams = Config::server().max_concurrent_streams as usize + 2 * MAX_OPEN_STREAMS;
        let streams = self.stream_count();
        assert!(streams <= max_streams, "{streams} streams");
    }

    /// Closes all connections, and checks that the engine keeps no state.
    fn close_all(&mut self) {
        for handle in HANDLES {
            if !self.peer.is_closed(handle) {
                self.peer.lose(handle);
            }
        }
        self.run_application();
        for key in std::mem::take(&mut self.keys) {
            self.release(key);
        }
        for _ in 0..4 {
            // What is remembered of a connection is remembered for a time once more.
            self.peer.advance(Duration::from_secs(3600));
        }
        self.run_application();
        self.check();
        let session = self.peer.session();
        let remaining: Vec<ConnId> = session.connections().map(|view| view.id).collect();
        assert!(remaining.is_empty(), "connections are left: {remaining:?}");
        let left: Vec<_> = session.streams().collect();
        assert_eq!(Session::stream_count(session), 0, "streams are left: {left:?}");
        assert!(session.is_closed(), "the session lingers");
    }
}
