//! Parses one frame into a [`Frame`], with every check that needs no state.

use bytes::{Buf, Bytes};

use super::{CodePoints, EndStream, FrameHeader, Join, Migrate, SettingsPayload, flag, kind};
use crate::error::{Cause, ErrorCode, InputError};
use crate::ids::StreamId;
use crate::priority::Priority;

/// A frame that passed the stateless checks for its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// `charged` is the length of the payload including padding, which flow control counts.
    Data {
        stream: StreamId,
        data: Bytes,
        charged: u32,
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
        last: StreamId,
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
/// While the extension is off (`points` is `None`), SMig's frames are unknown frames.
pub(crate) fn parse(
    head: FrameHeader,
    payload: Bytes,
    points: Option<&CodePoints>,
) -> Result<Frame, InputError> {
    match head.kind {
        kind::DATA => data(head, payload),
        kind::HEADERS => headers(head, payload),
        kind::PRIORITY => priority(head, &payload),
        kind::RST_STREAM => reset(head, &payload),
        kind::SETTINGS => settings(head, payload),
        kind::PUSH_PROMISE => push_promise(head, payload),
        kind::PING => ping(head, &payload),
        kind::GOAWAY => goaway(head, payload),
        kind::WINDOW_UPDATE => window_update(head, &payload),
        kind::CONTINUATION => {
            check_on_stream(head)?;
            let last = LastFragment::from_flags(head.flags);
            Ok(Frame::Continuation { stream: head.stream, block: payload, last })
        }
        kind::PRIORITY_UPDATE => priority_update(head, &payload),
        other => match points {
            Some(points) if other == points.migrate => migrate(head, &payload),
            Some(points) if other == points.join => join(head, &payload),
            _ => Ok(Frame::Unknown),
        },
    }
}

fn check_on_stream(head: FrameHeader) -> Result<(), InputError> {
    if head.stream.is_connection() { Err(Cause::FrameOnStreamZero.into()) } else { Ok(()) }
}

fn check_on_connection(head: FrameHeader) -> Result<(), InputError> {
    if head.stream.is_connection() { Ok(()) } else { Err(Cause::FrameNotOnStreamZero.into()) }
}

/// Removes padding (RFC 9113 section 6.1).
fn unpad(head: FrameHeader, mut payload: Bytes) -> Result<Bytes, InputError> {
    if head.flags & flag::PADDED == 0 {
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

fn data(head: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
    check_on_stream(head)?;
    let data = unpad(head, payload)?;
    Ok(Frame::Data {
        stream: head.stream,
        data,
        charged: head.length,
        end: EndStream::from_flags(head.flags),
    })
}

fn headers(head: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
    check_on_stream(head)?;
    let mut block = unpad(head, payload)?;
    if head.flags & flag::PRIORITY != 0 {
        let Some(&dependency) = block.first_chunk::<4>() else {
            return Err(Cause::FrameSize.into());
        };
        if block.len() < 5 {
            return Err(Cause::FrameSize.into());
        }
        if StreamId::from_wire(dependency) == head.stream {
            // A connection error: the field block is not decoded, so the HPACK contexts would
            // diverge.
            return Err(Cause::SelfDependency.into());
        }
        block.advance(5);
    }
    Ok(Frame::Headers {
        stream: head.stream,
        block,
        end: EndStream::from_flags(head.flags),
        last: LastFragment::from_flags(head.flags),
    })
}

fn priority(head: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_stream(head)?;
    let Some(&dependency) = payload.first_chunk::<4>() else {
        return Err(InputError::Stream(head.stream, Cause::FrameSize));
    };
    if payload.len() != 5 {
        return Err(InputError::Stream(head.stream, Cause::FrameSize));
    }
    if StreamId::from_wire(dependency) == head.stream {
        return Err(InputError::Stream(head.stream, Cause::SelfDependency));
    }
    Ok(Frame::Priority)
}

fn exact_payload<const N: usize>(payload: &[u8]) -> Result<[u8; N], InputError> {
    payload.try_into().map_err(|_| Cause::FrameSize.into())
}

fn reset(head: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_stream(head)?;
    let code = ErrorCode::from_wire(u32::from_be_bytes(exact_payload(payload)?));
    Ok(Frame::Reset { stream: head.stream, code })
}

fn settings(head: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
    check_on_connection(head)?;
    if head.flags & flag::ACK != 0 {
        return if payload.is_empty() {
            Ok(Frame::SettingsAck)
        } else {
            Err(Cause::FrameSize.into())
        };
    }
    SettingsPayload::new(payload).map(Frame::Settings).ok_or_else(|| Cause::FrameSize.into())
}

fn push_promise(head: FrameHeader, payload: Bytes) -> Result<Frame, InputError> {
    check_on_stream(head)?;
    let mut block = unpad(head, payload)?;
    let Some(&promised) = block.first_chunk::<4>() else {
        return Err(Cause::FrameSize.into());
    };
    block.advance(4);
    Ok(Frame::PushPromise {
        stream: head.stream,
        promised: StreamId::from_wire(promised),
        block,
        last: LastFragment::from_flags(head.flags),
    })
}

fn ping(head: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_connection(head)?;
    let opaque = exact_payload(payload)?;
    Ok(if head.flags & flag::ACK == 0 { Frame::Ping(opaque) } else { Frame::Pong(opaque) })
}

fn goaway(head: FrameHeader, mut payload: Bytes) -> Result<Frame, InputError> {
    check_on_connection(head)?;
    let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = payload.first_chunk::<8>() else {
        return Err(Cause::FrameSize.into());
    };
    payload.advance(8);
    Ok(Frame::GoAway {
        last: StreamId::from_wire([l0, l1, l2, l3]),
        code: ErrorCode::from_wire(u32::from_be_bytes([c0, c1, c2, c3])),
        debug: payload,
    })
}

fn window_update(head: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    let increment = u32::from_be_bytes(exact_payload(payload)?) & 0x7fff_ffff;
    if increment == 0 {
        return Err(InputError::for_stream(head.stream, Cause::ZeroIncrement));
    }
    Ok(Frame::WindowUpdate { stream: head.stream, increment })
}

fn priority_update(head: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_connection(head)?;
    let Some((&id, value)) = payload.split_first_chunk::<4>() else {
        return Err(Cause::FrameSize.into());
    };
    let stream = StreamId::from_wire(id);
    if stream.is_connection() {
        return Err(Cause::FrameOnStreamZero.into());
    }
    Ok(Frame::PriorityUpdate { stream, priority: Priority::parse(value) })
}

fn migrate(head: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_stream(head)?;
    let migrate = Migrate::parse(payload).ok_or(Cause::FrameSize)?;
    let (stream, end) = (head.stream, EndStream::from_flags(head.flags));
    Ok(if head.flags & flag::SMIG_ACK == 0 {
        Frame::Migrate { stream, migrate, end }
    } else {
        Frame::MigrateAck { stream, migrate, end }
    })
}

fn join(head: FrameHeader, payload: &Bytes) -> Result<Frame, InputError> {
    check_on_connection(head)?;
    Join::parse(head.flags, payload).map(Frame::Join).ok_or_else(|| Cause::FrameSize.into())
}
