//! Rules that can be left out, to prove that the model detects a violation.

use std::fmt;

/// One rule of `spec/` that the endpoints do not follow.
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
    /// A client whose accepting answer was lost with its connection stays where the answer bound it (SMIG-13.2/adrift).
    LostAnswerUnnoticed,
    /// A server obeys a RESUME that a later one has overtaken (SMIG-13.3/attempts).
    OlderAttemptTaken,
    /// A unit is let go as soon as it was read, though one before it was not (SMIG-13.5/no-gap).
    FreedAcrossGap,
    /// What was sent behind an accepting answer is let go though the answer was not read (SMIG-13.5/no-gap).
    FreedBehindAnswer,
    /// A client sends receipts for frames that it drops, before the answer to RESUME (SMIG-13.6/no-receipts-now).
    ReceiptWhileResuming,
    /// A server that has read RESUME still takes what comes on the stream's earlier IDs (SMIG-13.7/earlier-void).
    EarlierIdServed,
    /// A client that resumes delivers what it kept for the answer to its MIGRATE (SMIG-13.7/earlier-void).
    EarlyUsedAfterResume,
    /// RESUME adds its window to the credit that its sender gave before (SMIG-13.8/absolute).
    OldCreditKept,
    /// A server processes a request that it has refused to resume (SMIG-13.9/never-processed).
    TombstoneForgotten,
    /// A server takes a stream that it has reset for one that it never processed (SMIG-13.9/never-processed).
    ResetTakenForUnknown,
    /// A client lets go of what it has kept, before the answer to RESUME (SMIG-13.10/kept-until-answer).
    KeptFreedWhileResuming,
    /// A client resets a stream only on the ID of a RESUME that was lost (SMIG-13.11/reset-earlier).
    ResetEarlierForgotten,
    /// A client that has lost or closed a connection does not tell the server (SMIG-13.12/lost-last).
    CancelNotTold,
    /// LOST is sent on another connection than the RESUME that it has to follow (SMIG-13.12/lost-last).
    LostOvertakes,
    /// A receipt for a unit's first copy, which the peer has dropped, lets go of the unit
    /// (SMIG-13.15/copies).
    EarlierCopyCovered,
    /// A server forgets a stream that it has sent whole, though it was not read whole (SMIG-13.14/kept-to-the-end).
    ForgottenWhenSent,
}

impl Omission {
    /// All rules that can be left out.
    pub const ALL: [Self; 38] = [
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
        Self::LostAnswerUnnoticed,
        Self::OlderAttemptTaken,
        Self::FreedAcrossGap,
        Self::FreedBehindAnswer,
        Self::ReceiptWhileResuming,
        Self::EarlierIdServed,
        Self::EarlyUsedAfterResume,
        Self::OldCreditKept,
        Self::TombstoneForgotten,
        Self::ResetTakenForUnknown,
        Self::KeptFreedWhileResuming,
        Self::ResetEarlierForgotten,
        Self::CancelNotTold,
        Self::LostOvertakes,
        Self::EarlierCopyCovered,
        Self::ForgottenWhenSent,
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
            Self::LostAnswerUnnoticed => "SMIG-13.2/adrift",
            Self::OlderAttemptTaken => "SMIG-13.3/attempts",
            Self::FreedAcrossGap | Self::FreedBehindAnswer => "SMIG-13.5/no-gap",
            Self::ReceiptWhileResuming => "SMIG-13.6/no-receipts-now",
            Self::EarlierIdServed | Self::EarlyUsedAfterResume => "SMIG-13.7/earlier-void",
            Self::OldCreditKept => "SMIG-13.8/absolute",
            Self::TombstoneForgotten | Self::ResetTakenForUnknown => "SMIG-13.9/never-processed",
            Self::KeptFreedWhileResuming => "SMIG-13.10/kept-until-answer",
            Self::ResetEarlierForgotten => "SMIG-13.11/reset-earlier",
            Self::CancelNotTold | Self::LostOvertakes => "SMIG-13.12/lost-last",
            Self::EarlierCopyCovered => "SMIG-13.15/copies",
            Self::ForgottenWhenSent => "SMIG-13.14/kept-to-the-end",
        }
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "without {} ({self:?})", self.rule())
    }
}
