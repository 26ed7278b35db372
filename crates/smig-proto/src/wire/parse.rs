//! Parses one frame into a [`Frame`] or [`DataFrame`], with every check that needs no state.

use bytes::Bytes;

use super::{
    CodePoints, EndStream, FrameHeader, Join, Migrate, Resume, SettingsPayload, flag, kind,
};
use crate::error::{Cause, ErrorCode, InputError};
use crate::ids::{Cid, StreamId};
use crate::priority::Priority;

/// A DATA frame that passed the stateless checks. Unlike that of other frames, its payload is retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataFrame {
    pub(crate) stream: StreamId,
    pub(crate) data: Bytes,
    /// The payload's length including padding, which flow control counts.
    pub(crate) charged_bytes: u32,
    pub(crate) end: EndStream,
}

/// Any other frame that passed the stateless checks for its type. Borrows the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Headers {
        stream: StreamId,
        block: &'a [u8],
        end: EndStream,
        last: LastFragment,
    },
    /// RFC 7540's priorities are parsed and ignored (RFC 9113 section 5.3.2).
    Priority,
    Reset {
        stream: StreamId,
        code: ErrorCode,
    },
    Settings(SettingsPayload<'a>),
    SettingsAck,
    PushPromise {
        stream: StreamId,
        promised: StreamId,
        block: &'a [u8],
        last: LastFragment,
    },
    Ping([u8; 8]),
    Pong([u8; 8]),
    GoAway {
        last_id: StreamId,
        code: ErrorCode,
        debug: &'a [u8],
    },
    WindowUpdate {
        stream: StreamId,
        increment: u32,
    },
    Continuation {
        stream: StreamId,
        block: &'a [u8],
        last: LastFragment,
    },
    PriorityUpdate {
        stream: StreamId,
        priority: Priority,
    },
    Migrate {
        stream: StreamId,
        migrate: Migrate,
        end: EndStream,
    },
    MigrateAck {
        stream: StreamId,
        migrate: Migrate,
        end: EndStream,
    },
    Join(Join),
    Resume {
        stream: StreamId,
        resume: Resume,
    },
    Lost(Cid),
    Receipt(u64),
    Unknown,
}

/// The extensions that are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extensions<'a> {
    /// Code points, if SMig is on.
    pub(crate) smig: Option<&'a CodePoints>,
    /// Whether resumption is on as well.
    pub(crate) is_resumption_on: bool,
}

/// Whether a field block ends with this frame (END_HEADERS flag).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastFragment {
    No,
    Yes,
}

impl LastFragment {
    const fn from_flags(flags: u8) -> Self {
        if flags & flag::END_HEADERS == 0 { Self::No } else { Self::Yes }
    }
}

/// Parses a frame other than DATA from its header and its complete payload.
///
/// The frames of an extension that is off are unknown frames.
pub(crate) fn parse<'a>(
    header: FrameHeader,
    payload: &'a [u8],
    extensions: Extensions<'_>,
) -> Result<Frame<'a>, InputError> {
    match header.kind {
        kind::HEADERS => parse_headers(header, payload),
        kind::PRIORITY => parse_priority(header, payload),
        kind::RST_STREAM => parse_reset(header, payload),
        kind::SETTINGS => parse_settings(header, payload),
        kind::PUSH_PROMISE => parse_push_promise(header, payload),
        kind::PING => parse_ping(header, payload),
        kind::GOAWAY => parse_goaway(header, payload),
        kind::WINDOW_UPDATE => parse_window_update(header, payload),
        kind::CONTINUATION => {
            check_on_stream(header)?;
            let last = LastFragment::from_flags(header.flags);
            Ok(Frame::Continuation { stream: header.stream, block: payload, last })
        }
        kind::PRIORITY_UPDATE => parse_priority_update(header, payload),
        other => match extensions.smig {
            Some(points) if other == points.migrate => parse_migrate(header, payload),
            Some(points) if other == points.join => parse_join(header, payload),
            Some(points) if extensions.is_resumption_on => {
                parse_resumption(header, payload, points)
            }
            _ => Ok(Frame::Unknown),
        },
    }
}

/// Parses a frame of resumption.
fn parse_resumption<'a>(
    header: FrameHeader,
    payload: &'a [u8],
    code_points: &CodePoints,
) -> Result<Frame<'a>, InputError> {
    if header.kind == code_points.resume {
        return parse_resume(header, payload);
    }
    if header.kind == code_points.lost {
        check_on_connection(header)?;
        return Ok(Frame::Lost(Cid::from_wire(exact_payload(payload)?)));
    }
    if header.kind == code_points.receipt {
        check_on_connection(header)?;
        return Ok(Frame::Receipt(u64::from_be_bytes(exact_payload(payload)?)));
    }
    Ok(Frame::Unknown)
}

fn check_on_stream(header: FrameHeader) -> Result<(), InputError> {
    if header.stream.is_connection() { Err(Cause::FrameOnStreamZero.into()) } else { Ok(()) }
}

fn check_on_connection(header: FrameHeader) -> Result<(), InputError> {
    if header.stream.is_connection() { Ok(()) } else { Err(Cause::FrameNotOnStreamZero.into()) }
}

/// Removes padding (RFC 9113 section 6.1).
fn unpad(header: FrameHeader, payload: &[u8]) -> Result<&[u8], InputError> {
    if header.flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let Some((&pad, rest)) = payload.split_first() else {
        return Err(Cause::FrameSize.into());
    };
    let unpadded = rest.len().checked_sub(usize::from(pad)).and_then(|length| rest.get(..length));
    unpadded.ok_or_else(|| Cause::PaddingTooLong.into())
}

/// Parses a DATA frame from its header and its complete payload.
pub(crate) fn parse_data(header: FrameHeader, payload: Bytes) -> Result<DataFrame, InputError> {
    check_on_stream(header)?;
    let unpadded = unpad(header, &payload)?;
    let data = if unpadded.len() == payload.len() { payload } else { payload.slice_ref(unpadded) };
    Ok(DataFrame {
        stream: header.stream,
        data,
        charged_bytes: header.length,
        end: EndStream::from_flags(header.flags),
    })
}

fn parse_headers(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_stream(header)?;
    let mut block = unpad(header, payload)?;
    if header.flags & flag::PRIORITY != 0 {
        let Some((&[d0, d1, d2, d3, _weight], rest)) = block.split_first_chunk::<5>() else {
            return Err(Cause::FrameSize.into());
        };
        if StreamId::from_wire([d0, d1, d2, d3]) == header.stream {
            // A connection error: the field block is not decoded, so the HPACK contexts would
            // diverge.
            return Err(Cause::SelfDependency.into());
        }
        block = rest;
    }
    Ok(Frame::Headers {
        stream: header.stream,
        block,
        end: EndStream::from_flags(header.flags),
        last: LastFragment::from_flags(header.flags),
    })
}

fn parse_priority(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_stream(header)?;
    let Some(&dependency) = payload.first_chunk::<4>() else {
        return Err(InputError::Stream(header.stream, Cause::FrameSize));
    };
    if payload.len() != 5 {
        return Err(InputError::Stream(header.stream, Cause::FrameSize));
    }
    if StreamId::from_wire(dependency) == header.stream {
        return Err(InputError::Stream(header.stream, Cause::SelfDependency));
    }
    Ok(Frame::Priority)
}

fn exact_payload<const N: usize>(payload: &[u8]) -> Result<[u8; N], InputError> {
    payload.try_into().map_err(|_| Cause::FrameSize.into())
}

fn parse_reset(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_stream(header)?;
    let code = ErrorCode::from_wire(u32::from_be_bytes(exact_payload(payload)?));
    Ok(Frame::Reset { stream: header.stream, code })
}

fn parse_settings(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_connection(header)?;
    if header.flags & flag::ACK != 0 {
        return if payload.is_empty() {
            Ok(Frame::SettingsAck)
        } else {
            Err(Cause::FrameSize.into())
        };
    }
    SettingsPayload::new(payload).map(Frame::Settings).ok_or_else(|| Cause::FrameSize.into())
}

fn parse_push_promise(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_stream(header)?;
    let unpadded = unpad(header, payload)?;
    let Some((&promised, block)) = unpadded.split_first_chunk::<4>() else {
        return Err(Cause::FrameSize.into());
    };
    Ok(Frame::PushPromise {
        stream: header.stream,
        promised: StreamId::from_wire(promised),
        block,
        last: LastFragment::from_flags(header.flags),
    })
}

fn parse_ping(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_connection(header)?;
    let opaque = exact_payload(payload)?;
    Ok(if header.flags & flag::ACK == 0 { Frame::Ping(opaque) } else { Frame::Pong(opaque) })
}

fn parse_goaway(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_connection(header)?;
    let Some((&[l0, l1, l2, l3, c0, c1, c2, c3], debug)) = payload.split_first_chunk::<8>() else {
        return Err(Cause::FrameSize.into());
    };
    Ok(Frame::GoAway {
        last_id: StreamId::from_wire([l0, l1, l2, l3]),
        code: ErrorCode::from_wire(u32::from_be_bytes([c0, c1, c2, c3])),
        debug,
    })
}

fn parse_window_update(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    let increment = u32::from_be_bytes(exact_payload(payload)?) & 0x7fff_ffff;
    if increment == 0 {
        return Err(InputError::for_stream(header.stream, Cause::ZeroIncrement));
    }
    Ok(Frame::WindowUpdate { stream: header.stream, increment })
}

fn parse_priority_update(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_connection(header)?;
    let Some((&id, value)) = payload.split_first_chunk::<4>() else {
        return Err(Cause::FrameSize.into());
    };
    let stream = StreamId::from_wire(id);
    if stream.is_connection() {
        return Err(Cause::FrameOnStreamZero.into());
    }
    Ok(Frame::PriorityUpdate { stream, priority: Priority::parse(value) })
}

fn parse_migrate(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_stream(header)?;
    let migrate = Migrate::parse(payload).ok_or(Cause::FrameSize)?;
    let (stream, end) = (header.stream, EndStream::from_flags(header.flags));
    Ok(if header.flags & flag::SMIG_ACK == 0 {
        Frame::Migrate { stream, migrate, end }
    } else {
        Frame::MigrateAck { stream, migrate, end }
    })
}

fn parse_join(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_connection(header)?;
    Join::parse(header.flags, payload).map(Frame::Join).ok_or_else(|| Cause::FrameSize.into())
}

fn parse_resume(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, InputError> {
    check_on_stream(header)?;
    let resume = Resume::parse(header.flags, payload).ok_or(Cause::FrameSize)?;
    Ok(Frame::Resume { stream: header.stream, resume })
}
