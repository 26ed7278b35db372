//! One stream during its lifetime: the state that survives a migration.
//!
//! Owns offsets, windows, buffered body, half-closed state, priority and identity. What is bound to
//! a connection is the [`Binding`]; a migration replaces it. Does not handle frames.

mod arena;
mod binding;
mod chunk_queue;
mod kept;
mod recv;
mod resumption;
mod send;
mod stall;

pub(crate) use arena::Arena;
pub use arena::StreamKey;
pub(crate) use binding::Binding;
pub(crate) use kept::{FRAME_MEMORY, Kept, KeptHead, SendBeforeAnswer};
pub(crate) use recv::{RecvHalf, RecvItem, RecvState};
pub(crate) use resumption::{Phase, StreamResumption};
pub(crate) use send::{Payload, SendEnd, SendHalf, SendState};
pub use stall::StallClock;

use core::time::Duration;

use crate::error::{Cause, Processed, StreamError};
use crate::ids::StreamAddr;
use crate::migrate::OpenMigration;
use crate::priority::Priority;
use crate::role::ConnectionRole;
use crate::time::Instant;
use crate::wire::ResumePoint;

/// The side that opened a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opener {
    Local,
    Peer,
}

/// Whether the application has released the stream's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    Held,
    Released,
    /// Server: the response is complete, and the rest of the request is read and dropped. Most
    /// clients end the request soon, and few expect RST_STREAM after a response. Counts timer
    /// ticks; at the third, the client is requested to stop sending.
    Discarding(u8),
}

impl KeyState {
    /// Counts a tick of a request that its client continues to send after the response. Returns
    /// whether there were more than two.
    pub(crate) const fn count_discard_tick(&mut self) -> bool {
        match self {
            Self::Discarding(ticks) => {
                *ticks = ticks.saturating_add(1);
                *ticks > 2
            }
            Self::Held | Self::Released => false,
        }
    }
}

/// Kind of exchange, by the request's method and the response's status. Determines whether the
/// response may have a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeKind {
    Ordinary,
    Head,
    Tunnel,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) opener: Opener,
    pub(crate) exchange_kind: ExchangeKind,
    /// What a migration replaces; the rest stays.
    pub(crate) binding: Binding,
    pub(crate) send: SendHalf,
    pub(crate) recv: RecvHalf,
    pub(crate) priority: Priority,
    /// Client: the server sent a frame of the stream other than RST_STREAM, or moved it, so it may
    /// have processed the request.
    pub(crate) frame_received: bool,
    /// Server: the stream was offered, and the client has not answered with a MIGRATE. Client: the application declined an
    /// offer. No second offer (SMIG-6.4/offered-once).
    pub(crate) was_offered_or_declined: bool,
    /// Server: the role of the connection that the client migrates it to for an offer, however late.
    pub(crate) offered_role: Option<ConnectionRole>,
    pub(crate) key_state: KeyState,
    /// Server: request that the client stop sending, once the response is complete and no decline
    /// can require it to be sent again.
    pub(crate) stop_due: bool,
    pub(crate) stall: StallClock,
    pub(crate) error: Option<StreamError>,
    /// If the stream can be resumed.
    pub(crate) resumption: Option<Box<StreamResumption>>,
}

impl Stream {
    pub(crate) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Returns whether its place is not certain to both ends: nothing is sent until the client has resumed it.
    pub(crate) fn is_resuming(&self) -> bool {
        self.resumption.as_ref().is_some_and(|resumption| resumption.phase() != Phase::Bound)
    }

    /// Returns whether the peer may have processed the request, given that it reports at `at` that
    /// it did not (RFC 9113 section 8.7). The report counts only on the address where the request
    /// was sent, and only if no other frame of the stream was received: a refused carrier says
    /// nothing about the request, and a peer that has responded has processed it.
    pub(crate) fn processed_if_refused(&self, at: StreamAddr) -> Processed {
        if self.frame_received || at != self.binding.recv_addr() {
            Processed::Maybe
        } else {
            Processed::No
        }
    }

    /// Returns whether both directions have ended.
    pub(crate) fn has_ended_both_directions(&self) -> bool {
        self.send.state() == SendState::Ended && self.recv.state() == RecvState::Ended
    }

    /// Returns whether both directions have ended and no MIGRATE of this side is unanswered.
    pub(crate) fn is_complete(&self) -> bool {
        self.has_ended_both_directions() && self.binding.open_migration().is_none()
    }

    /// Server: returns whether the complete response has been framed and no decline can require it
    /// to be sent again. False for a tunnel: the end of one direction implies nothing about the
    /// other.
    pub(crate) fn has_sent_response(&self) -> bool {
        self.opener == Opener::Peer
            && self.exchange_kind != ExchangeKind::Tunnel
            && self.send.state() == SendState::Ended
            && self.binding.open_migration().is_none()
    }

    /// Returns whether a frame was sent on the carrier of its open migration, so that the carrier
    /// must be closed if it is abandoned (SMIG-6.11/close-abandoned).
    pub(crate) fn has_used_carrier(&self, open: &OpenMigration) -> bool {
        open.increments_on_carrier > 0 || self.send.has_sent_behind_barrier()
    }

    /// Updates the stall clock. Returns whether a stream with data to send has sent fewer than
    /// `min_bytes` within `timeout`.
    pub(crate) fn check_stalled(
        &mut self,
        now: Instant,
        min_bytes: u64,
        timeout: Duration,
    ) -> bool {
        let sent = self.send.sent_bytes();
        if self.has_failed() || self.send.queued_bytes() == 0 {
            self.stall.restart(now, sent);
            return false;
        }
        !self.is_resuming() && self.stall.check_stalled(now, sent, min_bytes, timeout)
    }

    /// Continues to send where the peer's copy ends, as [`SendHalf::restart`]. The time in which the stream had no place
    /// does not count as stalled. What came before does if something was waiting to be sent, or a client could keep a
    /// stalled stream open by resuming it.
    pub(crate) fn restart_sending(
        &mut self,
        now: Instant,
        point: ResumePoint,
        has_head: bool,
    ) -> Result<Option<Vec<KeptHead>>, Cause> {
        let was_waiting = self.send.queued_bytes() > 0;
        let heads = self.send.restart(point, has_head)?;
        let adrift_since = self.resumption.as_ref().and_then(|it| it.adrift_since);
        match adrift_since {
            _ if !was_waiting => self.stall.restart(now, self.send.sent_bytes()),
            Some(since) => self.stall.exclude(now.saturating_duration_since(since)),
            None => {}
        }
        Ok(heads)
    }

    /// Returns whether this side has frames to send now, except for the connection's window.
    pub(crate) fn has_frames(&self) -> bool {
        let lost = self.binding.open_migration().is_some_and(|open| open.carrier_lost);
        !self.has_failed() && !lost && !self.is_resuming() && self.send.has_frames()
    }
}
