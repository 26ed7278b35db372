//! Frames on the wire: RFC 9113 sections 4 and 6, RFC 9218 section 7.1, and SMig's own.
//!
//! Owns the byte format: parses one frame into [`Frame`] or [`DataFrame`], and serializes frames. Has no state, and
//! makes no decision that depends on a stream or a connection: that is the task of [`crate::conn`]
//! and [`crate::session`].

mod encode;
mod parse;
mod resume;
mod settings;
mod smig;

pub(crate) use encode::*;
pub(crate) use parse::{DataFrame, Extensions, Frame, LastFragment, parse, parse_data};
pub(crate) use resume::{Resume, ResumePoint, ResumeRefusal};
pub use settings::CodePoints;
pub(crate) use settings::{Setting, SettingsPayload};
pub use smig::JoinRefusal;
pub(crate) use smig::{Join, Migrate};

use crate::ids::StreamId;

/// The client connection preface (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header in bytes (RFC 9113 section 4.1).
pub(crate) const FRAME_HEADER_BYTES: usize = 9;

/// The lowest value of SETTINGS_MAX_FRAME_SIZE, and its initial value (RFC 9113 section 6.5.2).
pub(crate) const MIN_MAX_FRAME_SIZE: u32 = 16_384;

/// Frame types (RFC 9113 section 6, RFC 9218 section 7.1). SMig's are in [`CodePoints`].
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x00;
    pub(crate) const HEADERS: u8 = 0x01;
    pub(crate) const PRIORITY: u8 = 0x02;
    pub(crate) const RST_STREAM: u8 = 0x03;
    pub(crate) const SETTINGS: u8 = 0x04;
    pub(crate) const PUSH_PROMISE: u8 = 0x05;
    pub(crate) const PING: u8 = 0x06;
    pub(crate) const GOAWAY: u8 = 0x07;
    pub(crate) const WINDOW_UPDATE: u8 = 0x08;
    pub(crate) const CONTINUATION: u8 = 0x09;
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

/// Frame flags (RFC 9113 section 6; spec/smig.md section 2; spec/resumption.md).
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 0x01;
    pub(crate) const ACK: u8 = 0x01;
    pub(crate) const END_HEADERS: u8 = 0x04;
    pub(crate) const PADDED: u8 = 0x08;
    pub(crate) const PRIORITY: u8 = 0x20;
    /// The ACK flag of MIGRATE, JOIN and RESUME.
    pub(crate) const SMIG_ACK: u8 = 0x02;
    pub(crate) const JOIN_REFUSED: u8 = 0x04;
    pub(crate) const RESUME_WHOLE: u8 = 0x01;
    pub(crate) const RESUME_REFUSED: u8 = 0x04;
    pub(crate) const RESUME_HEAD: u8 = 0x08;
}

/// Whether a frame ends its sender's direction of the stream (END_STREAM flag).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndStream {
    /// More frames of this direction follow.
    No,
    /// The frame is the last one of its direction.
    Yes,
}

impl EndStream {
    pub(crate) const fn from_flags(flags: u8) -> Self {
        if flags & flag::END_STREAM == 0 { Self::No } else { Self::Yes }
    }

    pub(crate) const fn flag(self) -> u8 {
        match self {
            Self::No => 0,
            Self::Yes => flag::END_STREAM,
        }
    }

    /// Returns whether this is [`EndStream::Yes`].
    #[must_use]
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Yes)
    }
}

/// The nine-byte frame header (RFC 9113 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: StreamId,
}

impl FrameHeader {
    /// Parses a frame header from the first nine bytes of `buf`; `None` if there are fewer.
    pub(crate) fn parse(buf: &[u8]) -> Option<Self> {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *buf.first_chunk::<FRAME_HEADER_BYTES>()?;
        Some(Self {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            stream: StreamId::from_wire([s0, s1, s2, s3]),
        })
    }

    /// Returns the nine bytes of this header. `length` must fit 24 bits.
    pub(crate) const fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let [_, l0, l1, l2] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.value().to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }
}
