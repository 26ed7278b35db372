//! Rules that can be left out, to show that the model notices.

use std::fmt;

/// One rule of `spec/smig.md` that an endpoint does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Omission {
    /// The server ignores a MIGRATE's END_STREAM in a collision, and a decline does not repeat it (SMIG-5.4).
    EndLostInCollision,
    /// A client that moves sends its data before the answer (SMIG-5.6).
    ClientDoesNotHold,
    /// A mover forgets a stream that is complete before the answer (SMIG-5.7).
    ForgetAtEnd,
    /// A follower does not answer for a stream that is closed (SMIG-5.10).
    NoAnswerWhenClosed,
    /// Data on the new carrier is handed on at once (SMIG-5.15).
    NoOrder,
    /// A server treats the follower's next move as a collision (SMIG-5.16).
    NextMoveIgnored,
    /// A follower accepts a carrier that was reset while it was unbound (SMIG-5.25, SMIG-5.13).
    ClosedCarrierAccepted,
    /// The server withdraws an offer and moves the stream itself (SMIG-6.3).
    OfferWithdrawn,
    /// Both sides of a collision follow the other (SMIG-6.5).
    ServerFollowsInCollision,
    /// A mover goes on behind what it sent on the declined carrier (SMIG-6.8).
    ResumeElsewhere,
    /// Bytes on a declined carrier stay counted (SMIG-6.9).
    DroppedBytesCount,
    /// Credit sent on an abandoned carrier is not sent again (SMIG-6.10).
    CreditNotRepeated,
    /// A carrier starts with the initial window of its connection (SMIG-7.1).
    InitialWindowOfCarrier,
    /// Credit for an unbound carrier is dropped (SMIG-7.3).
    UnboundCreditDropped,
    /// A declined barrier shields from changes of the initial window (SMIG-7.5).
    SettingsSkipped,
    /// A mover forgets that it reset the stream before the answer (SMIG-8.3).
    ResetForgotten,
    /// C1 ends before the answer: the mover takes it as given when the peer's direction is closed (SMIG-8.8).
    AnswerTakenAsGiven,
    /// GOAWAY excludes a carrier that was accepted (SMIG-8.16).
    GoAwayBelowBound,
}

impl Omission {
    /// Every rule that can be left out.
    pub const ALL: [Self; 18] = [
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
        Self::AnswerTakenAsGiven,
        Self::GoAwayBelowBound,
    ];

    /// The rule's id in `spec/smig.md`.
    #[must_use]
    pub fn rule(self) -> &'static str {
        match self {
            Self::EndLostInCollision => "SMIG-5.4",
            Self::ClientDoesNotHold => "SMIG-5.6",
            Self::ForgetAtEnd => "SMIG-5.7",
            Self::NoAnswerWhenClosed => "SMIG-5.10",
            Self::NoOrder => "SMIG-5.15",
            Self::NextMoveIgnored => "SMIG-5.16",
            Self::ClosedCarrierAccepted => "SMIG-5.25",
            Self::OfferWithdrawn => "SMIG-6.3",
            Self::ServerFollowsInCollision => "SMIG-6.5",
            Self::ResumeElsewhere => "SMIG-6.8",
            Self::DroppedBytesCount => "SMIG-6.9",
            Self::CreditNotRepeated => "SMIG-6.10",
            Self::InitialWindowOfCarrier => "SMIG-7.1",
            Self::UnboundCreditDropped => "SMIG-7.3",
            Self::SettingsSkipped => "SMIG-7.5",
            Self::ResetForgotten => "SMIG-8.3",
            Self::AnswerTakenAsGiven => "SMIG-8.8",
            Self::GoAwayBelowBound => "SMIG-8.16",
        }
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "without {} ({self:?})", self.rule())
    }
}
