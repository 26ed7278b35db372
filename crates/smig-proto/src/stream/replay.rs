//! Frames that a direction sent after its unanswered barrier: stored until the answer, and sent
//! again after a decline (SMIG-5.7/replay, SMIG-6.8/resume).

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;

use super::SendState;
use crate::head::ResponseHead;
use crate::ids::Side;
use crate::wire::EndStream;

/// Whether the mover sends before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendBeforeAnswer {
    /// A server does, to save a round trip (SMIG-5.5/server-at-once). It stores what it sends, and
    /// pauses at this number of bytes.
    UpToReplayLimit(usize),
    /// A client does not (SMIG-5.6/client-holds).
    No,
}

impl SendBeforeAnswer {
    pub(crate) const fn for_side(side: Side, replay_limit: usize) -> Self {
        match side {
            Side::Server => Self::UpToReplayLimit(replay_limit),
            Side::Client => Self::No,
        }
    }
}

/// The frames that were sent after the barrier.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(super) before_answer: SendBeforeAnswer,
    pub(super) heads: Vec<(ResponseHead, EndStream)>,
    pub(super) data: VecDeque<Bytes>,
    pub(super) bytes: usize,
    pub(super) trailers: Option<HeaderMap>,
    /// Whether DATA with END_STREAM is among them.
    pub(super) end: EndStream,
    /// The state of the direction at the barrier.
    pub(super) state_at_barrier: SendState,
}

impl Replay {
    pub(super) const fn new(state: SendState, before_answer: SendBeforeAnswer) -> Self {
        Self {
            before_answer,
            heads: Vec::new(),
            data: VecDeque::new(),
            bytes: 0,
            trailers: None,
            end: EndStream::No,
            state_at_barrier: state,
        }
    }

    /// Returns whether neither HEADERS nor DATA were sent after the barrier.
    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty()
            && self.data.is_empty()
            && self.trailers.is_none()
            && !self.end.is_end()
    }

    /// Returns whether more may be sent before the answer.
    pub(super) const fn may_send(&self) -> bool {
        match self.before_answer {
            SendBeforeAnswer::UpToReplayLimit(limit) => self.bytes < limit,
            SendBeforeAnswer::No => false,
        }
    }
}
