//! What a stream needs to go on after the end of its connection (spec/resumption.md).

use crate::ids::{ConnId, StreamAddr, StreamName};
use crate::time::Instant;

/// How certain the stream's present place is to both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Both ends know it, or will.
    Bound,
    /// Its connection has ended: the client has to resume it (SMIG-13.2/adrift).
    Adrift,
    /// Client: RESUME was sent, and is not answered.
    Requested,
}

#[derive(Debug)]
pub(crate) struct StreamResumption {
    pub(crate) name: StreamName,
    phase: Phase,
    /// The last attempt that was sent or read.
    pub(crate) attempt: u32,
    /// IDs that were left while the peer may have the stream there, on connections that live.
    pub(crate) earlier: Vec<StreamAddr>,
    /// All connections on which it was since it was bound last: they are not reported as lost before RESUME is
    /// answered (SMIG-13.12/lost-last).
    pub(crate) left_conns: Vec<ConnId>,
    /// The first tick at which it was not bound.
    pub(crate) adrift_since: Option<Instant>,
    /// The first tick at which the last RESUME was unanswered.
    pub(crate) requested_since: Option<Instant>,
    /// Client: no RESUME before this time, because the server refused one for a limit.
    pub(crate) retry_at: Option<Instant>,
    /// How many RESUMEs the server refused for a limit.
    pub(crate) limited_count: u32,
}

impl StreamResumption {
    pub(crate) const fn new(name: StreamName) -> Self {
        Self {
            name,
            phase: Phase::Bound,
            attempt: 0,
            earlier: Vec::new(),
            left_conns: Vec::new(),
            adrift_since: None,
            requested_since: None,
            retry_at: None,
            limited_count: 0,
        }
    }

    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Both ends know the stream's place.
    pub(crate) fn set_bound(&mut self) {
        *self = Self { attempt: self.attempt, ..Self::new(self.name) };
    }

    /// The stream has to be resumed. What was left before stays so.
    pub(crate) const fn set_adrift(&mut self) {
        self.phase = Phase::Adrift;
        self.requested_since = None;
    }

    /// Client: RESUME is sent. Returns its number.
    pub(crate) const fn set_requested(&mut self) -> u32 {
        self.phase = Phase::Requested;
        self.attempt = self.attempt.saturating_add(1);
        self.attempt
    }
}
