//! The specification of an exchange: its method, its bodies, and their content.

use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use smig_proto::{RequestHead, ResponseHead};

use crate::mesh::link::Side;
use crate::mesh::rng::{Rng, mix};

/// The body of one direction of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPlan {
    /// Length in bytes.
    pub length: u32,
    /// Whether content-length announces it.
    pub has_content_length: bool,
    /// Whether trailers follow.
    pub has_trailers: bool,
}

impl BodyPlan {
    /// Returns a body with content-length and without trailers.
    #[must_use]
    pub const fn of_length(length: u32) -> Self {
        Self { length, has_content_length: true, has_trailers: false }
    }

    /// Returns whether there is neither a body nor trailers.
    pub(crate) const fn is_empty(self) -> bool {
        self.length == 0 && !self.has_trailers
    }
}

/// The kind of an exchange, given by its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// A download.
    Get,
    /// A request for a response's head only.
    Head,
    /// A request with a body, answered immediately or later.
    Post,
    /// A tunnel: each direction ends on its own.
    Connect,
}

/// Specification of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its kind.
    pub kind: ExchangeKind,
    /// The request's body; none for GET and HEAD.
    pub up: BodyPlan,
    /// The response's body.
    pub down: BodyPlan,
    /// Number of 1xx responses before the final one.
    pub informational_count: u8,
    /// Bytes of padding in each head: above 16384 it needs CONTINUATION.
    pub padding: u16,
    /// Whether the server sends its response head as soon as it reads the request.
    pub responds_at_once: bool,
}

impl Plan {
    /// Returns a download of `length` bytes.
    #[must_use]
    pub const fn download(length: u32) -> Self {
        Self {
            kind: ExchangeKind::Get,
            up: BodyPlan::of_length(0),
            down: BodyPlan::of_length(length),
            informational_count: 0,
            padding: 0,
            responds_at_once: true,
        }
    }

    /// Returns an upload of `length` bytes with a response of `response_length` bytes.
    #[must_use]
    pub const fn upload(length: u32, response_length: u32) -> Self {
        Self {
            kind: ExchangeKind::Post,
            up: BodyPlan::of_length(length),
            ..Self::download(response_length)
        }
    }

    /// Returns a random plan.
    pub fn random(rng: &mut Rng) -> Self {
        let kind = rng.pick(&[
            ExchangeKind::Get,
            ExchangeKind::Get,
            ExchangeKind::Post,
            ExchangeKind::Post,
            ExchangeKind::Connect,
            ExchangeKind::Head,
        ]);
        let body = |rng: &mut Rng| {
            let max = rng.pick(&[100, 3000, 20_000, 20_000, 150_000]);
            let is_tunnel = kind == ExchangeKind::Connect;
            BodyPlan {
                length: rng.log_uniform(max),
                has_content_length: !is_tunnel && rng.chance(50),
                has_trailers: !is_tunnel && rng.chance(15),
            }
        };
        let up = match kind {
            ExchangeKind::Get | ExchangeKind::Head => BodyPlan::of_length(0),
            ExchangeKind::Post | ExchangeKind::Connect => body(rng),
        };
        let down = body(rng);
        let informational_count = if rng.chance(15) { 1 } else { 0 };
        let padding = if rng.chance(4) { 20_000 } else { 0 };
        Self { kind, up, down, informational_count, padding, responds_at_once: rng.chance(70) }
    }

    /// Returns a random plan for a push.
    pub fn random_push(rng: &mut Rng) -> Self {
        Self { kind: ExchangeKind::Get, up: BodyPlan::of_length(0), ..Self::random(rng) }
    }

    /// Returns the body that `side` sends; a response to HEAD has none.
    pub(crate) const fn body_of(&self, side: Side) -> BodyPlan {
        match (side, self.kind) {
            (Side::Client, _) => self.up,
            (Side::Server, ExchangeKind::Head) => BodyPlan::of_length(0),
            (Side::Server, _) => self.down,
        }
    }

    /// Returns whether the head of `side` ends its direction.
    pub(crate) const fn is_head_only(&self, side: Side) -> bool {
        match (side, self.kind) {
            (_, ExchangeKind::Connect) => false,
            (Side::Client, ExchangeKind::Post) => false,
            (Side::Client, ExchangeKind::Get | ExchangeKind::Head)
            | (Side::Server, ExchangeKind::Head) => true,
            (Side::Server, ExchangeKind::Get | ExchangeKind::Post) => self.down.is_empty(),
        }
    }

    pub(crate) fn request(&self, number: usize) -> RequestHead {
        let (method, uri) = match self.kind {
            ExchangeKind::Get => (Method::GET, format!("https://mesh.test/{number}")),
            ExchangeKind::Head => (Method::HEAD, format!("https://mesh.test/{number}")),
            ExchangeKind::Post => (Method::POST, format!("https://mesh.test/{number}")),
            ExchangeKind::Connect => (Method::CONNECT, format!("t{number}:1")),
        };
        let mut headers = HeaderMap::new();
        if self.kind == ExchangeKind::Post && self.up.has_content_length {
            headers.insert("content-length", HeaderValue::from(self.up.length));
        }
        self.add_number(&mut headers, number);
        let uri = uri.parse().expect("made of digits and letters");
        RequestHead { method, uri, protocol: None, headers }
    }

    pub(crate) fn response(&self, number: usize) -> ResponseHead {
        let mut headers = HeaderMap::new();
        if self.kind != ExchangeKind::Connect && self.down.has_content_length {
            headers.insert("content-length", HeaderValue::from(self.down.length));
        }
        self.add_number(&mut headers, number);
        ResponseHead { status: StatusCode::OK, headers }
    }

    fn add_number(&self, headers: &mut HeaderMap, number: usize) {
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
const PATTERN_BYTES: usize = 65_521;

fn pattern() -> &'static Bytes {
    static PATTERN: OnceLock<Bytes> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let mut rng = Rng::new(7);
        let period: Vec<u8> = (0..PATTERN_BYTES).map(|_| rng.bits() as u8).collect();
        Bytes::from([&period[..], &period[..]].concat())
    })
}

fn pattern_offset(number: usize, side: Side, offset: u64) -> usize {
    let shift = mix((number as u64) * 2 + side.index() as u64) % PATTERN_BYTES as u64;
    usize::try_from((shift + offset) % PATTERN_BYTES as u64).unwrap_or(0)
}

/// Returns the bytes from `offset` of what `side` sends in exchange `number`.
pub(crate) fn content(number: usize, side: Side, offset: u64, bytes: usize) -> Bytes {
    let from = pattern_offset(number, side, offset);
    pattern().slice(from..from + bytes.min(PATTERN_BYTES))
}

/// Returns the offset of the first byte of `data`, received at `offset`, that differs from what was
/// sent.
pub(crate) fn first_mismatch(number: usize, side: Side, offset: u64, data: &[u8]) -> Option<u64> {
    for (at, chunk) in data.chunks(PATTERN_BYTES).enumerate() {
        let offset = offset + (at * PATTERN_BYTES) as u64;
        let sent = content(number, side, offset, chunk.len());
        if sent != chunk {
            let mismatch = sent.iter().zip(chunk).position(|(a, b)| a != b).unwrap_or(0);
            return Some(offset + mismatch as u64);
        }
    }
    None
}
