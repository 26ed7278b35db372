//! Frames of a script: to send, and to expect.
//!
//! Every function creates one frame. [`raw`] creates those that no other function can: wrong lengths, unknown
//! types, reserved bits.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use smig_proto::{Cid, EndStream, ErrorCode};

/// One frame; a header block is one [`Frame::Headers`] or [`Frame::PushPromise`] with all its fields.
#[derive(Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the RFCs and of spec/smig.md section 2")]
pub enum Frame {
    Data { stream: u32, data: Bytes, end: EndStream },
    Headers { stream: u32, fields: Fields, end: EndStream },
    Reset { stream: u32, code: ErrorCode },
    Settings(Vec<(u16, u32)>),
    SettingsAck,
    PushPromise { stream: u32, promised_stream: u32, fields: Fields },
    Ping([u8; 8]),
    Pong([u8; 8]),
    GoAway { last_stream_id: u32, code: ErrorCode, debug: Bytes },
    WindowUpdate { stream: u32, increment: u32 },
    PriorityUpdate { stream: u32, value: Bytes },
    Migrate { stream: u32, ack: Ack, dst: Option<(Cid, u32)>, end: EndStream },
    Join { nonce: [u8; 16], mac: [u8; 32], ack: Ack },
    JoinRefused(u8),
    Raw { kind: u8, flags: u8, stream: u32, payload: Bytes },
}

/// Whether a MIGRATE or a JOIN is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// It has no ACK flag.
    No,
    /// It has the ACK flag.
    Yes,
}

/// A header section, in order.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(Bytes, Bytes)>);

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        f.debug_map().entries(self.0.iter().map(|(n, v)| (text(n), text(v)))).finish()
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end_stream = |end: &EndStream| if end.is_end() { " END_STREAM" } else { "" };
        match self {
            Self::Data { stream, data, end } => {
                let shown = &data[..data.len().min(24)];
                write!(
                    f,
                    "DATA({stream}, {} bytes {:?}",
                    data.len(),
                    Bytes::copy_from_slice(shown)
                )?;
                write!(f, "{})", end_stream(end))
            }
            Self::Headers { stream, fields, end } => {
                write!(f, "HEADERS({stream}, {fields:?}{})", end_stream(end))
            }
            Self::Reset { stream, code } => write!(f, "RST_STREAM({stream}, {code})"),
            Self::Settings(entries) => write!(f, "SETTINGS({entries:x?})"),
            Self::SettingsAck => f.write_str("SETTINGS(ACK)"),
            Self::PushPromise { stream, promised_stream: promised, fields } => {
                write!(f, "PUSH_PROMISE({stream}, {promised}, {fields:?})")
            }
            Self::Ping(opaque) => write!(f, "PING({opaque:x?})"),
            Self::Pong(opaque) => write!(f, "PING(ACK, {opaque:x?})"),
            Self::GoAway { last_stream_id: last, code, debug } => {
                write!(f, "GOAWAY({last}, {code}, {debug:?})")
            }
            Self::WindowUpdate { stream, increment } => {
                write!(f, "WINDOW_UPDATE({stream}, +{increment})")
            }
            Self::PriorityUpdate { stream, value } => {
                write!(f, "PRIORITY_UPDATE({stream}, {value:?})")
            }
            Self::Migrate { stream, ack, dst, end } => {
                let ack_text = if *ack == Ack::Yes { "ACK, " } else { "" };
                write!(f, "MIGRATE({ack_text}{stream} -> ")?;
                match dst {
                    Some((cid, id)) => write!(f, "{cid} {id}")?,
                    None => f.write_str("none")?,
                }
                write!(f, "{})", end_stream(end))
            }
            Self::Join { ack, .. } => {
                f.write_str(if *ack == Ack::Yes { "JOIN(ACK)" } else { "JOIN" })
            }
            Self::JoinRefused(reason) => write!(f, "JOIN(REFUSED, {reason})"),
            Self::Raw { kind, flags, stream, payload } => {
                write!(
                    f,
                    "frame {kind:#04x}({stream}, flags {flags:#04x}, {} bytes)",
                    payload.len()
                )
            }
        }
    }
}

/// Builder of a HEADERS frame.
#[derive(Clone, Debug)]
pub struct HeadersBuilder {
    stream: u32,
    fields: Fields,
    end: EndStream,
}

/// Creates HEADERS without fields.
#[must_use]
pub fn headers(stream: u32) -> HeadersBuilder {
    HeadersBuilder { stream, fields: Fields::default(), end: EndStream::No }
}

impl HeadersBuilder {
    /// Adds a field without validation.
    #[must_use]
    pub fn field(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        let copy = Bytes::copy_from_slice;
        self.fields.0.push((copy(name.as_ref()), copy(value.as_ref())));
        self
    }

    /// Adds the pseudo-header fields of a `method` request for `path` at `https://example.com`.
    #[must_use]
    pub fn request(self, method: &str, path: &str) -> Self {
        self.field(":method", method)
            .field(":scheme", "https")
            .field(":authority", "example.com")
            .field(":path", path)
    }

    /// Adds those of a GET request.
    #[must_use]
    pub fn get(self, path: &str) -> Self {
        self.request("GET", path)
    }

    /// Adds those of a POST request.
    #[must_use]
    pub fn post(self, path: &str) -> Self {
        self.request("POST", path)
    }

    /// Adds those of a CONNECT request.
    #[must_use]
    pub fn connect(self, authority: &str) -> Self {
        self.field(":method", "CONNECT").field(":authority", authority)
    }

    /// Adds `:status`.
    #[must_use]
    pub fn status(self, status: u16) -> Self {
        self.field(":status", status.to_string())
    }

    /// Sets END_STREAM.
    #[must_use]
    pub const fn end(mut self) -> Self {
        self.end = EndStream::Yes;
        self
    }

    /// Returns only the fields.
    #[must_use]
    pub fn into_fields(self) -> Fields {
        self.fields
    }
}

impl From<HeadersBuilder> for Frame {
    fn from(HeadersBuilder { stream, fields, end }: HeadersBuilder) -> Self {
        Self::Headers { stream, fields, end }
    }
}

impl Frame {
    /// Sets END_STREAM.
    ///
    /// # Panics
    ///
    /// If the frame cannot carry it.
    #[must_use]
    pub fn end(mut self) -> Self {
        match &mut self {
            Self::Data { end, .. } | Self::Headers { end, .. } | Self::Migrate { end, .. } => {
                *end = EndStream::Yes;
            }
            other => panic!("{other:?} cannot carry END_STREAM"),
        }
        self
    }
}

/// DATA.
#[must_use]
pub fn data(stream: u32, data: impl AsRef<[u8]>) -> Frame {
    Frame::Data { stream, data: Bytes::copy_from_slice(data.as_ref()), end: EndStream::No }
}

/// RST_STREAM.
#[must_use]
pub const fn reset(stream: u32, code: ErrorCode) -> Frame {
    Frame::Reset { stream, code }
}

/// SETTINGS.
#[must_use]
pub fn settings(entries: &[(u16, u32)]) -> Frame {
    Frame::Settings(entries.to_vec())
}

/// SETTINGS with ACK.
#[must_use]
pub const fn settings_ack() -> Frame {
    Frame::SettingsAck
}

/// PUSH_PROMISE with the fields of `head`.
#[must_use]
pub fn push_promise(stream: u32, promised_stream: u32, head: HeadersBuilder) -> Frame {
    Frame::PushPromise { stream, promised_stream, fields: head.into_fields() }
}

/// PING.
#[must_use]
pub const fn ping(opaque: [u8; 8]) -> Frame {
    Frame::Ping(opaque)
}

/// PING with ACK.
#[must_use]
pub const fn pong(opaque: [u8; 8]) -> Frame {
    Frame::Pong(opaque)
}

/// GOAWAY without debug data.
#[must_use]
pub const fn goaway(last_stream_id: u32, code: ErrorCode) -> Frame {
    Frame::GoAway { last_stream_id, code, debug: Bytes::new() }
}

/// WINDOW_UPDATE.
#[must_use]
pub const fn window_update(stream: u32, increment: u32) -> Frame {
    Frame::WindowUpdate { stream, increment }
}

/// PRIORITY_UPDATE.
#[must_use]
pub fn priority_update(stream: u32, value: &str) -> Frame {
    Frame::PriorityUpdate { stream, value: Bytes::copy_from_slice(value.as_bytes()) }
}

/// MIGRATE without ACK, from `stream` to `to` on the connection named `cid`.
#[must_use]
pub const fn migrate(stream: u32, cid: Cid, to: u32) -> Frame {
    Frame::Migrate { stream, ack: Ack::No, dst: Some((cid, to)), end: EndStream::No }
}

/// The accepting answer to a MIGRATE.
#[must_use]
pub const fn accept(stream: u32, cid: Cid, to: u32) -> Frame {
    Frame::Migrate { stream, ack: Ack::Yes, dst: Some((cid, to)), end: EndStream::No }
}

/// The declining answer to a MIGRATE.
#[must_use]
pub const fn decline(stream: u32) -> Frame {
    Frame::Migrate { stream, ack: Ack::Yes, dst: None, end: EndStream::No }
}

/// A MIGRATE that is an offer.
#[must_use]
pub const fn offer(stream: u32) -> Frame {
    Frame::Migrate { stream, ack: Ack::No, dst: None, end: EndStream::No }
}

/// JOIN with REFUSED.
#[must_use]
pub const fn join_refused(reason: u8) -> Frame {
    Frame::JoinRefused(reason)
}

/// What a RESUME of the client, or its acceptance, says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of spec/resumption.md")]
pub struct ResumePoint {
    pub received: u64,
    pub window: u32,
    pub flags: u8,
}

/// A client's RESUME on `stream`, of what it has opened as `name`.
#[must_use]
pub fn resume(stream: u32, name: (Cid, u32), attempt: u32, point: ResumePoint) -> Frame {
    let mut payload = BytesMut::new();
    payload.put_slice(&super::codec::cid_bytes(name.0));
    payload.put_u32(name.1);
    payload.put_u32(attempt);
    put_resume_point(&mut payload, point);
    raw(kind::RESUME, point.flags, stream, payload)
}

/// A server's acceptance of a RESUME.
#[must_use]
pub fn resumed(stream: u32, point: ResumePoint) -> Frame {
    let mut payload = BytesMut::new();
    put_resume_point(&mut payload, point);
    raw(kind::RESUME, point.flags | flag::SMIG_ACK, stream, payload)
}

fn put_resume_point(payload: &mut BytesMut, point: ResumePoint) {
    payload.put_u64(point.received);
    payload.put_u32(point.window);
}

/// A server's refusal of a RESUME.
#[must_use]
pub fn resume_refused(stream: u32, reason: u8, code: ErrorCode) -> Frame {
    let mut payload = BytesMut::from(&[reason][..]);
    payload.put_u32(code.to_wire());
    raw(kind::RESUME, flag::SMIG_ACK | flag::REFUSED, stream, payload)
}

/// LOST.
#[must_use]
pub fn lost(cid: Cid) -> Frame {
    raw(kind::LOST, 0, 0, super::codec::cid_bytes(cid))
}

/// RECEIPT.
#[must_use]
pub fn receipt(count: u64) -> Frame {
    raw(kind::RECEIPT, 0, 0, count.to_be_bytes())
}

/// A frame with arbitrary content.
#[must_use]
pub fn raw(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Frame {
    Frame::Raw { kind, flags, stream, payload: Bytes::copy_from_slice(payload.as_ref()) }
}

/// DATA with `padding` bytes of padding.
#[must_use]
pub fn padded_data(stream: u32, data: impl AsRef<[u8]>, padding: u8) -> Frame {
    let mut payload = BytesMut::from(&[padding][..]);
    payload.extend_from_slice(data.as_ref());
    payload.put_bytes(0, padding.into());
    raw(kind::DATA, flag::PADDED, stream, payload)
}

/// Frame types.
#[expect(missing_docs, reason = "named as in RFC 9113 section 6, RFC 9218 and spec/smig.md")]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
    pub const PRIORITY_UPDATE: u8 = 0x10;
    pub const MIGRATE: u8 = 0xf5;
    pub const JOIN: u8 = 0xf6;
    pub const LOST: u8 = 0xf7;
    pub const RESUME: u8 = 0xf8;
    pub const RECEIPT: u8 = 0xf9;
}

/// Flags.
#[expect(missing_docs, reason = "named as in RFC 9113 section 6 and spec/smig.md section 2")]
pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
    pub const SMIG_ACK: u8 = 0x2;
    pub const REFUSED: u8 = 0x4;
    pub const RESUME_WHOLE: u8 = 0x1;
    pub const RESUME_HEAD: u8 = 0x8;
}

/// SETTINGS identifiers.
#[expect(missing_docs, reason = "named as in RFC 9113 section 6.5.2, RFC 8441 and spec/smig.md")]
pub mod setting {
    pub const HEADER_TABLE_SIZE: u16 = 1;
    pub const ENABLE_PUSH: u16 = 2;
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    pub const MAX_FRAME_SIZE: u16 = 5;
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
    pub const SMIG: u16 = 0xf5e1;
    pub const SMIG_CID_HI: u16 = 0xf5e2;
    pub const SMIG_CID_MID: u16 = 0xf5e3;
    pub const SMIG_CID_LO: u16 = 0xf5e4;
    pub const SMIG_RESUME: u16 = 0xf5e6;
}
