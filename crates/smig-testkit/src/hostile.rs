//! A fuzzing peer: frames in any order and with any content, and bytes that are not frames.
//!
//! Derives an attack from any input, on one engine with three joined connections and an application
//! that responds. Checks the invariants: no panic, the engine's audit passes, the number of streams
//! stays within its limit, and no state is left once the connections are closed.

use core::time::Duration;

use smig_proto::{
    Config, ConnId, EndStream, ErrorCode, Event, MigrationTarget, Read, Session, Side, StreamKey,
};

use crate::script::frame::{
    accept, data, decline, goaway, headers, migrate, offer, ping, raw, reset, settings,
    window_update,
};
use crate::script::{C1, C2, C3, ConnHandle, Peer, request_head};

const LINES: [ConnHandle; 3] = [C1, C2, C3];
/// Maximum number of streams that the application keeps open towards the peer.
const MOST_OPEN: usize = 8;

/// Statistics of an attack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Steps until every connection was closed.
    pub steps: u32,
    /// Streams opened by the peer or the application.
    pub streams: u32,
    /// Migrations that the engine completed.
    pub moves: u32,
    /// Directions that the application ended.
    pub ends: u32,
    /// Connections closed by the engine.
    pub closed: u32,
}

/// Runs the attack given by `input` against an engine of this role.
///
/// # Panics
///
/// When the engine violates an invariant.
pub fn attack(role: Side, input: &[u8]) -> Outcome {
    let peer = match role {
        Side::Server => Peer::of_server(Config::server()),
        Side::Client => Peer::of_client(Config::client()),
    };
    let peer = peer.with_spare().with_spare();
    let fresh = if role == Side::Server { [1; 3] } else { [2; 3] };
    let mut attack = Attack {
        role,
        peer,
        input,
        keys: Vec::new(),
        places: Vec::new(),
        fresh,
        outcome: Outcome::default(),
    };
    while !attack.input.is_empty() && attack.open().next().is_some() {
        attack.step();
        attack.answer();
        attack.check();
        attack.outcome.steps += 1;
    }
    attack.end();
    attack.outcome
}

/// An event that the application here responds to.
enum SeenEvent {
    Request(StreamKey),
    Pushed(StreamKey),
    Readable(StreamKey),
    Reset(StreamKey),
    Offered(StreamKey),
    Migrated,
    Closed,
    Else,
}

impl SeenEvent {
    fn of(event: &Event) -> Self {
        match *event {
            Event::Request { stream, .. } => Self::Request(stream),
            Event::Pushed { stream, .. } => Self::Pushed(stream),
            Event::Readable { stream } => Self::Readable(stream),
            Event::Reset { stream, .. } => Self::Reset(stream),
            Event::MigrationOffered { stream } => Self::Offered(stream),
            Event::Migrated { .. } => Self::Migrated,
            Event::Closed { .. } => Self::Closed,
            _ => Self::Else,
        }
    }
}

struct Attack<'a> {
    role: Side,
    peer: Peer,
    input: &'a [u8],
    /// Streams that the application has not released.
    keys: Vec<StreamKey>,
    /// Current and former positions of streams.
    places: Vec<(ConnHandle, u32)>,
    /// The peer's next stream id on each connection.
    fresh: [u32; 3],
    outcome: Outcome,
}

impl Attack<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        first
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte() % 32).min(self.input.len());
        let (taken, rest) = self.input.split_at(length);
        self.input = rest;
        taken.to_vec()
    }

    fn open(&self) -> impl Iterator<Item = ConnHandle> {
        LINES.into_iter().filter(|&line| !self.peer.is_closed(line))
    }

    /// Selects an open connection.
    fn line(&mut self) -> Option<ConnHandle> {
        let at = usize::from(self.byte());
        let open: Vec<_> = self.open().collect();
        (!open.is_empty()).then(|| open[at % open.len()])
    }

    /// Selects the id of a stream that is or was on the connection; rarely an arbitrary id.
    fn stream(&mut self, line: ConnHandle) -> Option<u32> {
        let at = self.byte();
        if at >= 250 {
            return Some(if at == 255 { 0x7fff_ffff } else { u32::from(at - 250) });
        }
        let now = self.keys.iter().filter_map(|&key| self.peer.session().stream(key)).map(|view| {
            (
                LINES.into_iter().find(|&line| self.peer.conn(line) == view.connection),
                view.id.value(),
            )
        });
        for (line, id) in now.collect::<Vec<_>>() {
            let place = (line.unwrap_or(C1), id);
            if !self.places.contains(&place) {
                self.places.push(place);
            }
        }
        let old = self.places.len().saturating_sub(2 * MOST_OPEN);
        self.places.drain(..old);
        let here: Vec<u32> =
            self.places.iter().filter(|(on, _)| *on == line).map(|&(_, id)| id).collect();
        here.get(usize::from(at) % here.len().max(1)).copied()
    }

    /// Returns the next id that the peer may use for a new stream.
    fn fresh(&mut self, line: ConnHandle) -> u32 {
        let at = LINES.iter().position(|&other| other == line).unwrap_or(0);
        let id = self.fresh[at];
        self.fresh[at] += 2;
        id
    }

    fn key(&mut self) -> Option<StreamKey> {
        let at = usize::from(self.byte());
        (!self.keys.is_empty()).then(|| self.keys[at % self.keys.len()])
    }

    fn step(&mut self) {
        match self.byte() {
            0..176 => self.frame(),
            176..178 => {
                if let Some(line) = self.line() {
                    let bytes = self.bytes();
                    self.peer.send_bytes(line, &bytes);
                }
            }
            178..190 => {
                let millis = u64::from(self.byte()).pow(2);
                self.peer.advance(Duration::from_millis(millis));
            }
            190..192 => {
                if let Some(line) = self.line() {
                    self.peer.lose(line);
                }
            }
            _ => self.command(),
        }
    }

    /// Sends one frame: well formed, or of any type with any payload.
    fn frame(&mut self) {
        let (Some(line), Some(other)) = (self.line(), self.line()) else { return };
        let (mut kind, mut stream) = (self.byte(), self.stream(line).unwrap_or(0));
        if self.role == Side::Server && (kind % 64 < 8 || stream == 0) {
            // A new request.
            (kind, stream) = (0, self.fresh(line));
        }
        if stream == 0 {
            return;
        }
        let cid = self.peer.cid(other);
        let end = self.byte() % 2 == 1;
        let frame = match kind % 64 {
            0..16 => {
                let head = match (self.role, end) {
                    (Side::Server, true) => headers(stream).get("/").end(),
                    (Side::Server, false) => headers(stream).post("/"),
                    (Side::Client, true) => headers(stream).status(200).end(),
                    (Side::Client, false) => headers(stream).status(200),
                };
                return self.peer.send(line, head);
            }
            16..24 if end => data(stream, self.bytes()).end(),
            16..24 => data(stream, self.bytes()),
            // Sent by a server that has responded and needs no more of the request.
            24..26 => reset(stream, ErrorCode::NoError),
            26..28 => reset(stream, ErrorCode::Cancel),
            28..32 => window_update(stream, 1 + (u32::from(self.byte()) << 8)),
            32 => settings(&[(u16::from(self.byte() % 10), u32::from(self.byte()) << 10)]),
            33..45 => migrate(stream, cid, self.fresh(other)),
            45..51 => accept(stream, cid, self.stream(other).unwrap_or(stream)),
            51..54 => decline(stream),
            54..57 => offer(stream),
            57 if end => goaway(stream, ErrorCode::NoError),
            57..63 => ping([kind; 8]),
            _ => {
                const KINDS: [u8; 14] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x10, 0xf5, 0xf6, 0x77];
                let kind = KINDS[usize::from(self.byte()) % KINDS.len()];
                let flags = self.byte();
                raw(kind, flags, stream, self.bytes())
            }
        };
        self.peer.send(line, frame);
    }

    /// Performs one action of the application.
    fn command(&mut self) {
        let what = self.byte();
        if self.role == Side::Client && what.is_multiple_of(4) && self.streams() < MOST_OPEN {
            let head =
                request_head(if what < 128 { http::Method::GET } else { http::Method::POST });
            let end = if what < 128 { EndStream::Yes } else { EndStream::No };
            if let Ok(key) = self.peer.app(|session, now| session.open(now, None, &head, end)) {
                self.take(key);
            }
            return;
        }
        let Some(key) = self.key() else { return };
        let body = self.bytes();
        let end = if what % 8 == 1 { EndStream::Yes } else { EndStream::No };
        match what % 32 {
            0..16 => {
                let sent = self.peer.app(|session, _| session.send_data(key, body.into(), end));
                self.outcome.ends += u32::from(end.is_end() && sent.is_ok());
            }
            16..24 => drop(
                self.peer.app(|session, now| session.migrate(now, key, MigrationTarget::Spare)),
            ),
            24..28 => self.peer.app(|session, _| session.reset(key, ErrorCode::Cancel)),
            28..30 => self.peer.app(|session, _| session.reset(key, ErrorCode::NoError)),
            _ => self.release(key),
        }
    }

    /// Returns the number of streams in the engine, including released ones that have not ended.
    fn streams(&self) -> usize {
        self.peer.session().stream_count()
    }

    fn take(&mut self, key: StreamKey) {
        self.outcome.streams += 1;
        self.keys.push(key);
    }

    /// Runs the application: it responds to requests, reads the bodies and releases ended streams.
    fn answer(&mut self) {
        while let Some(said) = self.peer.find_event(|event| Some(SeenEvent::of(event))) {
            match said {
                SeenEvent::Request(stream) => {
                    self.take(stream);
                    let head = smig_proto::ResponseHead {
                        status: http::StatusCode::OK,
                        headers: http::HeaderMap::new(),
                    };
                    // The stream may have ended already.
                    let _ = self
                        .peer
                        .app(|session, _| session.send_response(stream, &head, EndStream::No));
                }
                SeenEvent::Pushed(stream) => self.take(stream),
                SeenEvent::Readable(stream) => {
                    self.peer.app(
                        |session, _| {
                            while matches!(session.read(stream), Read::Data(_)) {}
                        },
                    );
                }
                SeenEvent::Reset(stream) => self.release(stream),
                SeenEvent::Offered(stream) => {
                    self.peer.app(|session, _| session.decline_offer(stream));
                }
                SeenEvent::Migrated => self.outcome.moves += 1,
                SeenEvent::Closed => self.outcome.closed += 1,
                SeenEvent::Else => {}
            }
        }
        if let Some(&oldest) = self.keys.first()
            && self.keys.len() > MOST_OPEN
        {
            self.release(oldest);
        }
    }

    fn release(&mut self, key: StreamKey) {
        self.keys.retain(|&other| other != key);
        self.peer.app(|session, _| session.release(key));
    }

    fn check(&self) {
        let wrong = self.peer.session().check_invariants();
        assert!(wrong.is_empty(), "{wrong:#?}");
        let most = Config::server().max_concurrent_streams as usize + 2 * MOST_OPEN;
        let streams = self.streams();
        assert!(streams <= most, "{streams} streams");
    }

    /// Closes all connections, and checks that the engine keeps no state.
    fn end(&mut self) {
        for line in LINES {
            if !self.peer.is_closed(line) {
                self.peer.lose(line);
            }
        }
        self.answer();
        for key in std::mem::take(&mut self.keys) {
            self.release(key);
        }
        self.peer.advance(Duration::from_secs(3600));
        self.check();
        let session = self.peer.session();
        let left: Vec<ConnId> = session.connections().map(|view| view.id).collect();
        assert!(left.is_empty(), "connections are left: {left:?}");
        assert_eq!(Session::stream_count(session), 0, "streams are left");
    }
}
