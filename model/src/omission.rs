//! Rules that can be left out, to prove that the model detects a violation.

use std::fmt;

/// One rule of `spec/smig.md` that the endpoints do not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Omission {
    /// The server ignores a MIGRATE's END_STREAM in a collision, and a decline does not repeat it
    /// (SMIG-5.4/end-stream).
    EndLostInCollision,
    /// A client that moves sends data before the answer (SMIG-5.6/client-holds).
    ClientDoesNotHold,
    /// A mover forgets a stream that completes before the answer (SMIG-5.7/replay).
    ForgetAtEnd,
    /// A follower does not answer for a closed stream (SMIG-5.10/always-answer).
    NoAnswerWhenClosed,
    /// Data on the new carrier is delivered immediately (SMIG-5.15/kept-in-order).
    NoOrder,
    /// A server treats the follower's next move as a collision (SMIG-5.16/next-move-kept).
    NextMoveIgnored,
    /// A follower accepts a carrier that was reset while it was unbound (SMIG-5.25/unbound-reset,
    /// SMIG-5.13/must-decline).
    ClosedCarrierAccepted,
    /// The server withdraws an offer and moves the stream itself (SMIG-6.3/offer-stays-open).
    OfferWithdrawn,
    /// A server stops an upload before the answer to its own move (SMIG-8.19/stop-after-answer).
    StopBeforeAnswer,
    /// A client processes RST_STREAM(NO_ERROR) on its carrier immediately (SMIG-5.30/stop-kept).
    StopTakenAtOnce,
    /// RST_STREAM(NO_ERROR) that crosses the client's MIGRATE fails the stream
    /// (SMIG-8.20/stop-crosses).
    StopFailsTheMove,
    /// Both sides of a collision follow the other (SMIG-6.5/server-wins).
    ServerFollowsInCollision,
    /// A mover continues after the data that it sent on the declined carrier (SMIG-6.8/resume).
    ResumeElsewhere,
    /// Bytes on a declined carrier remain counted (SMIG-6.9/lost-bytes).
    DroppedBytesCount,
    /// Credit sent on an abandoned carrier is not sent again (SMIG-6.10/lost-credit).
    CreditNotRepeated,
    /// A carrier starts with the initial window of its connection (SMIG-7.1/windows-move).
    InitialWindowOfCarrier,
    /// Credit for an unbound carrier is dropped (SMIG-7.3/unbound-credit).
    UnboundCreditDropped,
    /// A declined barrier prevents changes of the initial window (SMIG-7.5/undone-barrier).
    SettingsSkipped,
    /// A mover forgets that it reset the stream before the answer (SMIG-8.3/reset-remembered).
    ResetForgotten,
    /// A client resets its upload on a carrier and then gives the carrier up. It declines the
    /// server's move before it sends the reset again (SMIG-8.3/reset-remembered).
    CutTakenForWhole,
    /// C1 ends before the answer: the mover assumes acceptance if the peer's direction is closed
    /// (SMIG-8.8/c1-ends-at-mover).
    AnswerTakenAsGiven,
    /// GOAWAY excludes an accepted carrier (SMIG-8.16/bound-is-processed).
    GoAwayBelowBound,
}

impl Omission {
    /// All rules that can be left out.
    pub const ALL: [Self; 22] = [
        Self::EndLostInCollision,
        Self::ClientDoesNotHold,
        Self::ForgetAtEnd,
        Self::NoAnswerWhenClosed,
        Self::NoOrder,
        Self::NextMoveIgnored,
        Self::ClosedCarrierAccepted,
        Self::OfferWithdrawn,
        Self::ServerFollowsInCollision,
        Self::ResumeElsewhere,
        Self::DroppedBytesCount,
        Self::CreditNotRepeated,
        Self::InitialWindowOfCarrier,
        Self::UnboundCreditDropped,
        Self::SettingsSkipped,
        Self::ResetForgotten,
        Self::CutTakenForWhole,
        Self::AnswerTakenAsGiven,
        Self::GoAwayBelowBound,
        Self::StopBeforeAnswer,
        Self::StopTakenAtOnce,
        Self::StopFailsTheMove,
    ];

    /// Returns the rule's ID in `spec/smig.md`.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Self::EndLostInCollision => "SMIG-5.4/end-stream",
            Self::ClientDoesNotHold => "SMIG-5.6/client-holds",
            Self::ForgetAtEnd => "SMIG-5.7/replay",
            Self::NoAnswerWhenClosed => "SMIG-5.10/always-answer",
            Self::NoOrder => "SMIG-5.15/kept-in-order",
            Self::NextMoveIgnored => "SMIG-5.16/next-move-kept",
            Self::ClosedCarrierAccepted => "SMIG-5.25/unbound-reset",
            Self::OfferWithdrawn => "SMIG-6.3/offer-stays-open",
            Self::ServerFollowsInCollision => "SMIG-6.5/server-wins",
            Self::ResumeElsewhere => "SMIG-6.8/resume",
            Self::DroppedBytesCount => "SMIG-6.9/lost-bytes",
            Self::CreditNotRepeated => "SMIG-6.10/lost-credit",
            Self::InitialWindowOfCarrier => "SMIG-7.1/windows-move",
            Self::UnboundCreditDropped => "SMIG-7.3/unbound-credit",
            Self::SettingsSkipped => "SMIG-7.5/undone-barrier",
            Self::ResetForgotten | Self::CutTakenForWhole => "SMIG-8.3/reset-remembered",
            Self::AnswerTakenAsGiven => "SMIG-8.8/c1-ends-at-mover",
            Self::GoAwayBelowBound => "SMIG-8.16/bound-is-processed",
            Self::StopBeforeAnswer => "SMIG-8.19/stop-after-answer",
            Self::StopTakenAtOnce => "SMIG-5.30/stop-kept",
            Self::StopFailsTheMove => "SMIG-8.20/stop-crosses",
        }
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "without {} ({self:?})", self.rule())
    }
}
