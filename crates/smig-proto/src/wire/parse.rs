//! Parses one frame into a [`Frame`], with every check that needs no state.

use bytes::{Buf, Bytes};

use super::{CodePoints, EndStream, FrameHeader, Join, Migrate, SettingsPayload, flag, kind};
use crate::error::{Cause, ErrorCode, InputError};
use crate::ids::StreamId;
use crate::priority::Priority;

/// A frame that passed the stateless checks for its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// `charged_bytes` is the payload's length including padding, which flow control counts.
    Data {
        stream: StreamId,
        data: Bytes,
        charged_bytes: u32,
        end: EndStream,
    },
    Headers {
        stream: StreamId,
        block: Bytes,
        end: EndStream,
        last: LastFragment,
    },
    /// RFC 7540's priorities are parsed and ignored (RFC 9113 section 5.3.2).
    Priority,
    Reset {
        stream: StreamId,
        code: ErrorCode,
    },
    Settings(SettingsPayload),
    SettingsAck,
    PushPromise {
        stream: StreamId,
        promised: StreamId,
        block: Bytes,
        last: LastFragment,
    },
    Ping([u8; 8]),
    Pong([u8; 8]),
    GoAway {
        last_id: StreamId,
        code: ErrorCode,
        debug: Bytes,
    },
    WindowUpdate {
        stream: StreamId,
        increment: u32,
    },
    Continuation {
        stream: StreamId,
        block: Bytes,
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
    Unknown,
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

/// Parses a frame from its header and its complete payload.
///
/// While the extension is off (`code_points` is `None`), SMig's frames are unknown frames.
pub(crate) fn parse(
    header: FrameHeader,
    payload: Bytes,
    code_points: Option<&CodePoints>,
) -> Result<Frame, InputError> {
    match header.kind {
        kind::DATA => parse_data(header, payload),
        kind::HEADERS => parse_headers(header, payload),
        kind::PRIORITY => parse_priority(header, &payload),
        kind::RST_STREAM => parse_reset(header, &payload),
        kind::SETTINGS => parse_settings(header, payload),
        kind::PUSH_PROMISE => parse_push_promise(header, payload),
        kind::PING => parse_ping(header, &payload),
        kind::GOAWAY => parse_goaway(header, payload),
        kind::WINDOW_UPDATE => parse_window_update(header, &payload),
        kind::CONTINUATION => {
            check_on_stream(header)?;
            let last = LastFragment::from_flags(header.flags);
            Ok(Frame::Continuation { stream: header.stream, block: payload, last })
        }
        kind::PRIORITY_UPDATE => parse_priority_update(header, &payload),
        other => match code_points {
            Some(points) if other == points.migrate => parse_migrate(header, &payload),
            Some(points) if other == points.join => parse_join(header, &payload),
            _ => Ok(Frame::Unknown),
        },
    }
}

fn check_on_stream(header: FrameHeader) -> Result<(), InputError> {
    if header.stream.is_connection() { Err(Cause::FrameOnStreamZero.into()) } else { Ok(()) }
}

fn check_on_connection(header: FrameHeader) -> Result<(), InputError> {
    if header.stream.is_connection() { Ok(()) } else { Err(Cause::FrameNotOnStreamZero.into()) }
}

/// Removes padding (RFC 9113 section 6.1).
fn unpad(header: FrameHeader, mut payload: Bytes) -> Result<Bytes, InputError> {
    if header.flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let Some(&pad) = payload.first() else {
        return Err(Cause::FrameSize.into());
    };
    payload.advance(1);
    match payload.len().checked_sub(usize::from(pad)) {
        Some(rest) => {
            payload.truncate(rest);
            Ok(payload)
        }
        None => Err(Cause::PaddingTooLong.into()),
    }
}

fn parse_data(header: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
    check_on_stream(header)?;
    let data = unpad(header, payload)?;
    Ok(Frame::Data {
        stream: header.stream,
        data,
        charged_bytes: header.length,
        end: EndStream::from_flags(header.flags),
    })
}

fn parse_headers(header: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
    check_on_stream(header)?;
    let mut block = unpad(header, payload)?;
    if header.flags & flag::PRIORITY != 0 {
        let Some(&dependency) = block.first_chunk::<4>() else {
            return Err(Cause::FrameSize.into());
        };
        if block.len() < 5 {
            return Err(Cause::FrameSize.into());
        }
        if StreamId::from_wire(dependency) == header.stream {
            // A connection error: the field block is not decoded, so the HPACK contexts would
            // diverge.
            return Err(Cause::SelfDependency.into());
        }
        block.advance(5);
    }
    Ok(Frame::Headers {
        stream: header.stream,
        block,
        end: EndStream::from_flags(header.flags),
        last: LastFragment::from_flags(header.flags),
    })
}

fn parse_priority(header: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
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

fn parse_reset(header: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_stream(header)?;
    let code = ErrorCode::from_wire(u32::from_be_bytes(exact_payload(payload)?));
    Ok(Frame::Reset { stream: header.stream, code })
}

fn parse_settings(header: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
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

fn parse_push_promise(header: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
    check_on_stream(header)?;
    let mut block = unpad(header, payload)?;
    let Some(&promised) = block.first_chunk::<4>() else {
        return Err(Cause::FrameSize.into());
    };
    block.advance(4);
    Ok(Frame::PushPromise {
        stream: header.stream,
        promised: StreamId::from_wire(promised),
        block,
        last: LastFragment::from_flags(header.flags),
    })
}

fn parse_ping(header: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_connection(header)?;
    let opaque = exact_payload(payload)?;
    Ok(if header.flags & flag::ACK == 0 { Frame::Ping(opaque) } else { Frame::Pong(opaque) })
}

fn parse_goaway(header: FrameHeader, mut payload: Bytes) -> Result<Frame, InputError> {
    check_on_connection(header)?;
    let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = payload.first_chunk::<8>() else {
        return Err(Cause::FrameSize.into());
    };
    payload.advance(8);
    Ok(Frame::GoAway {
        last_id: StreamId::from_wire([l0, l1, l2, l3]),
        code: ErrorCode::from_wire(u32::from_be_bytes([c0, c1, c2, c3])),
        debug: payload,
    })
}

fn parse_window_update(header: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    let increment = u32::from_be_bytes(exact_payload(payload)?) & 0x7fff_ffff;
    if increment == 0 {
        return Err(InputError::for_stream(header.stream, Cause::ZeroIncrement));
    }
    Ok(Frame::WindowUpdate { stream: header.stream, increment })
}

fn parse_priority_update(header: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
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

fn parse_migrate(header: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_stream(header)?;
    let migrate = Migrate::parse(payload).ok_or(Cause::FrameSize)?;
    let (stream, end) = (header.stream, EndStream::from_flags(header.flags));
    Ok(if header.flags & flag::SMIG_ACK == 0 {
        Frame::Migrate { stream, migrate, end }
    } else {
        Frame::MigrateAck { stream, migrate, end }
    })
}

fn parse_join(header: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_connection(header)?;
    Join::parse(header.flags, payload).map(Frame::Join).ok_or_else(|| Cause::FrameSize.into())
}
