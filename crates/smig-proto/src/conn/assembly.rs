//! Reassembly of a field block from HEADERS or PUSH_PROMISE and its CONTINUATION frames, between
//! which no other frame is permitted (RFC 9113 section 6.10).

use bytes::{Bytes, BytesMut};

use crate::config::Limits;
use crate::error::Cause;
use crate::ids::StreamId;
use crate::time::Instant;
use crate::wire::EndStream;

/// The frame type that started the field block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Headers(EndStream),
    Promise(StreamId),
}

#[derive(Debug)]
pub(crate) struct FieldBlockAssembly {
    pub(crate) stream: StreamId,
    pub(crate) kind: BlockKind,
    block: BytesMut,
    continuations: u32,
    pub(crate) started_at: Instant,
}

impl FieldBlockAssembly {
    pub(crate) fn new(
        stream: StreamId,
        kind: BlockKind,
        first_fragment: &[u8],
        now: Instant,
    ) -> Self {
        Self {
            stream,
            kind,
            block: BytesMut::from(first_fragment),
            continuations: 0,
            started_at: now,
        }
    }

    /// Appends the fragment of a CONTINUATION frame, within the limits (VU#421644).
    pub(crate) fn push(&mut self, fragment: &[u8], limits: &Limits) -> Result<(), Cause> {
        self.continuations += 1;
        if self.continuations > limits.max_continuations {
            return Err(Cause::TooManyContinuations);
        }
        if self.block.len() + fragment.len() > limits.max_header_block {
            return Err(Cause::HeaderBlockTooLarge);
        }
        self.block.extend_from_slice(fragment);
        Ok(())
    }

    pub(crate) fn into_block(self) -> Bytes {
        self.block.freeze()
    }
}
