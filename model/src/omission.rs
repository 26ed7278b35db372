//! Rules that can be left out, to prove that the model detects a violation.

use std::fmt;

/// One rule of `spec/smig.md` that the endpoints do not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Omission {
    /// The server ignores a MIGRATE's END_STREAM in a collision, and a decline does not repeat it
    /// (SMIG-5.4/end-stream).
    EndLostInCollision,
    /// A client that moves sends data before the answer (SMIG-5.6/client-holds).
    ClientSendsBeforeAnswer,
    /// A mover forgets a stream that completes before the answer (SMIG-5.7/replay).
    ForgetAtEnd,
    /// A follower does not answer for a closed stream (SMIG-5.10/always-answer).
    NoAnswerWhenClosed,
    /// Data on the new carrier is delivered immediately (SMIG-5.15/kept-in-order).
    EarlyDataDelivered,
    /// A server treats the follower's next move as a collision (SMIG-5.16/next-move-kept).
    NextMigrateIgnored,
    /// A follower accepts a carrier that was reset while it was unbound (SMIG-5.25/unbound-reset,
    /// SMIG-5.13/must-decline).
    ClosedCarrierAccepted,
    /// The server withdraws an offer and moves the stream itself (SMIG-6.3/offer-stays-open).
    OfferWithdrawn,
    /// A server stops an upload before the answer to its own move (SMIG-8.19/stop-after-answer).
    StopBeforeAnswer,
    /// A client processes RST_STREAM(NO_ERROR) on its carrier immediately (SMIG-5.30/stop-kept).
    StopProcessedAtOnce,
    /// RST_STREAM(NO_ERROR) that crosses the client's MIGRATE fails the stream
    /// (SMIG-8.20/stop-crosses).
    CrossingStopFailsStream,
    /// Both sides of a collision follow the other (SMIG-6.5/server-wins).
    ServerFollowsInCollision,
    /// A mover continues after the data that it sent on the declined carrier (SMIG-6.8/resume).
    ResumeAfterDroppedBytes,
    /// Bytes on a declined carrier remain counted (SMIG-6.9/lost-bytes).
    DroppedBytesStayCounted,
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
    /// A client resets its upload on a carrier and then abandons the carrier. It declines the
    /// server's move before it sends the reset again (SMIG-8.3/reset-remembered).
    TruncatedRequestAccepted,
    /// C1 ends before the answer: the mover assumes acceptance if the peer's direction is closed
    /// (SMIG-8.8/c1-ends-at-mover).
    AcceptanceAssumed,
    /// GOAWAY excludes an accepted carrier (SMIG-8.16/bound-is-processed).
    GoAwayExcludesBound,
}

impl Omission {
    /// All rules that can be left out.
    pub const ALL: [Self; 22] = [
        Self::EndLostInCollision,
        Self::ClientSendsBeforeAnswer,
        Self::ForgetAtEnd,
        Self::NoAnswerWhenClosed,
        Self::EarlyDataDelivered,
        Self::NextMigrateIgnored,
        Self::ClosedCarrierAccepted,
        Self::OfferWithdrawn,
        Self::ServerFollowsInCollision,
        Self::ResumeAfterDroppedBytes,
        Self::DroppedBytesStayCounted,
        Self::CreditNotRepeated,
        Self::InitialWindowOfCarrier,
        Self::UnboundCreditDropped,
        Self::SettingsSkipped,
        Self::ResetForgotten,
        Self::TruncatedRequestAccepted,
        Self::AcceptanceAssumed,
        Self::GoAwayExcludesBound,
        Self::StopBeforeAnswer,
        Self::StopProcessedAtOnce,
        Self::CrossingStopFailsStream,
    ];

    /// Returns the rule's ID in `spec/smig.md`.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Self::EndLostInCollision => "SMIG-5.4/end-stream",
            Self::ClientSendsBeforeAnswer => "SMIG-5.6/client-holds",
            Self::ForgetAtEnd => "SMIG-5.7/replay",
            Self::NoAnswerWhenClosed => "SMIG-5.10/always-answer",
            Self::EarlyDataDelivered => "SMIG-5.15/kept-in-order",
            Self::NextMigrateIgnored => "SMIG-5.16/next-move-kept",
            Self::ClosedCarrierAccepted => "SMIG-5.25/unbound-reset",
            Self::OfferWithdrawn => "SMIG-6.3/offer-stays-open",
            Self::ServerFollowsInCollision => "SMIG-6.5/server-wins",
            Self::ResumeAfterDroppedBytes => "SMIG-6.8/resume",
            Self::DroppedBytesStayCounted => "SMIG-6.9/lost-bytes",
            Self::CreditNotRepeated => "SMIG-6.10/lost-credit",
            Self::InitialWindowOfCarrier => "SMIG-7.1/windows-move",
            Self::UnboundCreditDropped => "SMIG-7.3/unbound-credit",
            Self::SettingsSkipped => "SMIG-7.5/undone-barrier",
            Self::ResetForgotten | Self::TruncatedRequestAccepted => "SMIG-8.3/reset-remembered",
            Self::AcceptanceAssumed => "SMIG-8.8/c1-ends-at-mover",
            Self::GoAwayExcludesBound => "SMIG-8.16/bound-is-processed",
            Self::StopBeforeAnswer => "SMIG-8.19/stop-after-answer",
            Self::StopProcessedAtOnce => "SMIG-5.30/stop-kept",
            Self::CrossingStopFailsStream => "SMIG-8.20/stop-crosses",
        }
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "without {} ({self:?})", self.rule())
    }
}
