//! The payloads of RESUME, LOST and RECEIPT (spec/resumption.md).

use super::flag;
use crate::error::ErrorCode;
use crate::ids::{Cid, StreamId, StreamName};

/// What the sender of a RESUME has, and what its peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// Bytes of body that were received, in order, without padding.
    pub(crate) received: u64,
    /// The stream's window from now on; 0 stands for a negative one.
    pub(crate) window: u32,
    /// The peer's direction has come whole, with its trailers.
    pub(crate) whole: bool,
}

/// The reason why a server refuses a RESUME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumeRefusal {
    /// 1: the request was never processed, and never will be.
    NeverProcessed,
    /// 2: what was asked for is no longer kept.
    Gone,
    /// 3: the stream was reset, with this code.
    WasReset(ErrorCode),
    /// 4: a limit; the client may try again later.
    Limit,
    /// 5: a later attempt has come before.
    OlderAttempt,
    /// 6: everything was read.
    Complete,
}

impl ResumeRefusal {
    /// Returns reason and code as they are written.
    pub(crate) const fn to_wire(self) -> (u8, u32) {
        match self {
            Self::NeverProcessed => (1, 0),
            Self::Gone => (2, 0),
            Self::WasReset(code) => (3, code.to_wire()),
            Self::Limit => (4, 0),
            Self::OlderAttempt => (5, 0),
            Self::Complete => (6, 0),
        }
    }

    /// Converts reason and code. Unknown reasons count as "gone".
    pub(crate) const fn from_wire(reason: u8, code: u32) -> Self {
        match reason {
            1 => Self::NeverProcessed,
            3 => Self::WasReset(ErrorCode::from_wire(code)),
            4 => Self::Limit,
            5 => Self::OlderAttempt,
            6 => Self::Complete,
            _ => Self::Gone,
        }
    }
}

/// The payload of RESUME, by its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// The client's. `has_head`: the final response's head has come.
    Request { name: StreamName, attempt: u32, point: ResumePoint, has_head: bool },
    /// The server's, on the ID on which the client has asked.
    Accepted(ResumePoint),
    /// The server's.
    Refused(ResumeRefusal),
}

impl Resume {
    /// Parses a payload; `None` if its length is wrong. A CID of zeros names no connection: such a
    /// stream is unknown.
    pub(crate) fn parse(flags: u8, payload: &[u8]) -> Option<Self> {
        let is_answer = flags & flag::SMIG_ACK != 0;
        if is_answer && flags & flag::RESUME_REFUSED != 0 {
            let &[reason, c0, c1, c2, c3] = payload else { return None };
            let code = u32::from_be_bytes([c0, c1, c2, c3]);
            return Some(Self::Refused(ResumeRefusal::from_wire(reason, code)));
        }
        let (head, point) = payload.split_last_chunk::<12>()?;
        let point = ResumePoint::parse(flags, *point);
        if is_answer {
            return head.is_empty().then_some(Self::Accepted(point));
        }
        let (&cid, rest) = head.split_first_chunk::<12>()?;
        let (&id, rest) = rest.split_first_chunk::<4>()?;
        let attempt = u32::from_be_bytes(rest.try_into().ok()?);
        let name = StreamName { cid: Cid::from_wire(cid), id: StreamId::from_wire(id) };
        Some(Self::Request { name, attempt, point, has_head: flags & flag::RESUME_HEAD != 0 })
    }
}

impl ResumePoint {
    pub(crate) const fn flag(self) -> u8 {
        if self.whole { flag::RESUME_WHOLE } else { 0 }
    }

    fn parse(flags: u8, payload: [u8; 12]) -> Self {
        let [r0, r1, r2, r3, r4, r5, r6, r7, w0, w1, w2, w3] = payload;
        Self {
            received: u64::from_be_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
            window: u32::from_be_bytes([w0, w1, w2, w3]) & 0x7fff_ffff,
            whole: flags & flag::RESUME_WHOLE != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AppId;
    use crate::wire::{CodePoints, FRAME_HEADER_BYTES, write_resume};
    use bytes::BytesMut;

    fn round_trip(resume: Resume) -> (Resume, usize) {
        let mut out = BytesMut::new();
        write_resume(&mut out, &CodePoints::default(), StreamId::new(7), resume);
        let payload = &out[FRAME_HEADER_BYTES..];
        (Resume::parse(out[4], payload).unwrap(), payload.len())
    }

    #[test]
    fn a_resume_is_read_as_it_was_written() {
        let name = StreamName { cid: Cid { app: AppId::new(9), number: 3 }, id: StreamId::new(5) };
        let point = ResumePoint { received: 1 << 40, window: 0x7fff_ffff, whole: false };
        for (has_head, whole) in [(false, false), (true, false), (true, true), (false, true)] {
            let point = ResumePoint { whole, ..point };
            let request = Resume::Request { name, attempt: 2, point, has_head };
            assert_eq!(round_trip(request), (request, 32));
            let answer = Resume::Accepted(point);
            assert_eq!(round_trip(answer), (answer, 12));
        }
        for refusal in [
            ResumeRefusal::NeverProcessed,
            ResumeRefusal::Gone,
            ResumeRefusal::WasReset(ErrorCode::InternalError),
            ResumeRefusal::Limit,
            ResumeRefusal::OlderAttempt,
            ResumeRefusal::Complete,
        ] {
            let refused = Resume::Refused(refusal);
            assert_eq!(round_trip(refused), (refused, 5));
        }
        assert_eq!(ResumeRefusal::from_wire(77, 1), ResumeRefusal::Gone);
    }

    #[test]
    fn a_resume_of_another_length_is_none() {
        for length in (0..40).filter(|length| *length != 32) {
            assert_eq!(Resume::parse(0, &vec![1; length]), None, "{length}");
        }
        for length in (0..40).filter(|length| *length != 12) {
            assert_eq!(Resume::parse(flag::SMIG_ACK, &vec![1; length]), None, "{length}");
        }
        let refused = flag::SMIG_ACK | flag::RESUME_REFUSED;
        for length in (0..40).filter(|length| *length != 5) {
            assert_eq!(Resume::parse(refused, &vec![1; length]), None, "{length}");
        }
    }
}
