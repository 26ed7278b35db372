//! The specification of an exchange: its method, its bodies, and their content.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use smig_proto::{RequestHead, ResponseHead};

use crate::mesh::link::Side;
use crate::mesh::rng::{Rng, mix};

/// A direction's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Length in bytes.
    pub length: u32,
    /// Whether content-length announces it.
    pub announced: bool,
    /// Whether trailers follow.
    pub trailers: bool,
}

impl Flow {
    /// Returns a body with content-length and without trailers.
    #[must_use]
    pub const fn plain(length: u32) -> Self {
        Self { length, announced: true, trailers: false }
    }

    /// Returns whether the message is only a head.
    pub(crate) const fn is_bare(self) -> bool {
        self.length == 0 && !self.trailers
    }
}

/// The kind of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A download.
    Get,
    /// A request for a response's head only.
    Head,
    /// A request with a body, answered immediately or later.
    Post,
    /// A tunnel: each direction ends on its own.
    Connect,
}

/// An exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its kind.
    pub kind: Kind,
    /// The request's body; none for GET and HEAD.
    pub up: Flow,
    /// The response's body.
    pub down: Flow,
    /// Number of 1xx responses before the final one.
    pub informational: u8,
    /// Bytes of padding in each head: above 16384 it needs CONTINUATION.
    pub padding: u16,
    /// Whether the server answers as soon as it reads the request, or later.
    pub prompt: bool,
}

impl Plan {
    /// Returns a download of `length` bytes.
    #[must_use]
    pub const fn download(length: u32) -> Self {
        Self {
            kind: Kind::Get,
            up: Flow::plain(0),
            down: Flow::plain(length),
            informational: 0,
            padding: 0,
            prompt: true,
        }
    }

    /// Returns an upload of `length` bytes, answered by `answer` bytes.
    #[must_use]
    pub const fn upload(length: u32, answer: u32) -> Self {
        Self { kind: Kind::Post, up: Flow::plain(length), ..Self::download(answer) }
    }

    /// Returns a random plan.
    pub fn random(rng: &mut Rng) -> Self {
        let kind =
            rng.pick(&[Kind::Get, Kind::Get, Kind::Post, Kind::Post, Kind::Connect, Kind::Head]);
        let flow = |rng: &mut Rng| {
            let most = rng.pick(&[100, 3000, 20_000, 20_000, 150_000]);
            let tunnel = kind == Kind::Connect;
            Flow {
                length: rng.length(most),
                announced: !tunnel && rng.chance(50),
                trailers: !tunnel && rng.chance(15),
            }
        };
        let up = match kind {
            Kind::Get | Kind::Head => Flow::plain(0),
            Kind::Post | Kind::Connect => flow(rng),
        };
        let down = flow(rng);
        let informational = if rng.chance(15) { 1 } else { 0 };
        let padding = if rng.chance(4) { 20_000 } else { 0 };
        Self { kind, up, down, informational, padding, prompt: rng.chance(70) }
    }

    /// Returns a random plan for a push.
    pub fn random_push(rng: &mut Rng) -> Self {
        Self { kind: Kind::Get, up: Flow::plain(0), ..Self::random(rng) }
    }

    /// Returns what `side` sends. A response to HEAD has no body.
    pub(crate) const fn flow_of(&self, side: Side) -> Flow {
        match (side, self.kind) {
            (Side::Client, _) => self.up,
            (Side::Server, Kind::Head) => Flow::plain(0),
            (Side::Server, _) => self.down,
        }
    }

    /// Returns whether the head of `side` ends its direction.
    pub(crate) const fn is_bare(&self, side: Side) -> bool {
        match (side, self.kind) {
            (_, Kind::Connect) => false,
            (Side::Client, Kind::Post) => false,
            (Side::Client, Kind::Get | Kind::Head) | (Side::Server, Kind::Head) => true,
            (Side::Server, Kind::Get | Kind::Post) => self.down.is_bare(),
        }
    }

    pub(crate) fn request(&self, number: usize) -> RequestHead {
        let (method, uri) = match self.kind {
            Kind::Get => (Method::GET, format!("https://mesh.test/{number}")),
            Kind::Head => (Method::HEAD, format!("https://mesh.test/{number}")),
            Kind::Post => (Method::POST, format!("https://mesh.test/{number}")),
            Kind::Connect => (Method::CONNECT, format!("t{number}:1")),
        };
        let mut headers = HeaderMap::new();
        if self.kind == Kind::Post && self.up.announced {
            headers.insert("content-length", HeaderValue::from(self.up.length));
        }
        self.identify(&mut headers, number);
        let uri = uri.parse().expect("made of digits and letters");
        RequestHead { method, uri, protocol: None, headers }
    }

    pub(crate) fn response(&self, number: usize) -> ResponseHead {
        let mut headers = HeaderMap::new();
        if self.kind != Kind::Connect && self.down.announced {
            headers.insert("content-length", HeaderValue::from(self.down.length));
        }
        self.identify(&mut headers, number);
        ResponseHead { status: StatusCode::OK, headers }
    }

    fn identify(&self, headers: &mut HeaderMap, number: usize) {
        headers.insert("x-number", HeaderValue::from(number));
        if self.padding > 0 {
            let padding = "&".repeat(self.padding.into());
            let value = HeaderValue::from_str(&padding).expect("printable");
            headers.insert("x-padding", value);
        }
    }

    pub(crate) fn early_hints(number: usize) -> ResponseHead {
        let mut headers = HeaderMap::new();
        headers.insert("x-number", HeaderValue::from(number));
        ResponseHead { status: StatusCode::EARLY_HINTS, headers }
    }

    pub(crate) fn trailers(number: usize, side: Side) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-end", HeaderValue::from(number * 2 + side.index()));
        trailers
    }
}

/// Returns the number of an exchange, from one of its heads.
pub(crate) fn number_of(headers: &HeaderMap) -> Option<usize> {
    headers.get("x-number")?.to_str().ok()?.parse().ok()
}

/// A prime, so that it divides no frame or window size.
const PERIOD: usize = 65_521;

fn pattern() -> &'static Bytes {
    static PATTERN: OnceLock<Bytes> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut rng = Rng::new(7);
        let once: Vec<u8> = (0..PERIOD).map(|_| rng.bits() as u8).collect();
        Bytes::from([&once[..], &once[..]].concat())
    })
}

fn start(number: usize, side: Side, offset: u64) -> usize {
    let turn = mix((number as u64) * 2 + side.index() as u64) % PERIOD as u64;
    usize::try_from((turn + offset) % PERIOD as u64).unwrap_or(0)
}

/// Returns the bytes from `offset` of what `side` sends in exchange `number`.
pub(crate) fn content(number: usize, side: Side, offset: u64, bytes: usize) -> Bytes {
    let from = start(number, side, offset);
    pattern().slice(from..from + bytes.min(PERIOD))
}

/// Returns the offset of the first byte of `data`, received at `offset`, that differs from what was
/// sent.
pub(crate) fn first_wrong(number: usize, side: Side, offset: u64, data: &[u8]) -> Option<u64> {
    for (at, part) in data.chunks(PERIOD).enumerate() {
        let offset = offset + (at * PERIOD) as u64;
        let sent = content(number, side, offset, part.len());
        if sent != part {
            let wrong = sent.iter().zip(part).position(|(a, b)| a != b).unwrap_or(0);
            return Some(offset + wrong as u64);
        }
    }
    None
}
