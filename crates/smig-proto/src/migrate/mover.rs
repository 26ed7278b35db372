//! What a mover decides (spec/smig.md sections 5, 6 and 8), from what it knows and without an
//! effect. The session performs it.

use super::{MigrateError, MigrationState, OpenMigration, PendingAnswer};
use crate::error::{Cause, ErrorCode};
use crate::ids::{Cid, ConnId, Side, StreamAddr, StreamId};

/// What decides whether this side may migrate or offer a stream.
#[derive(Debug)]
pub(crate) struct Departure<'a> {
    pub(crate) migration: &'a MigrationState,
    /// The stream is complete or has failed.
    pub(crate) ended: bool,
    pub(crate) moves: u8,
    pub(crate) max_moves: u8,
    pub(crate) c1_joined: bool,
    /// The peer's MIGRATE of the stream waits for a JOIN (SMIG-5.12/join-pending).
    pub(crate) deferred: bool,
    /// This side's open migrations and offers in the session.
    pub(crate) open_migrations: usize,
    /// The peer's SETTINGS_SMIG on C1.
    pub(crate) tolerated: u32,
}

impl Departure<'_> {
    /// Checks the rules that a MIGRATE and an offer have in common (SMIG-5.8/one-open-move,
    /// SMIG-5.9/open-limit).
    pub(crate) const fn check(&self) -> Result<(), MigrateError> {
        if self.ended {
            return Err(MigrateError::Ended);
        }
        match self.migration {
            MigrationState::Idle | MigrationState::OfferReceived => {}
            MigrationState::Offered | MigrationState::Open(_) => {
                return Err(MigrateError::InProgress);
            }
        }
        if self.moves >= self.max_moves {
            return Err(MigrateError::LimitReached);
        }
        if !self.c1_joined {
            return Err(MigrateError::Disabled);
        }
        // The peer's move takes precedence.
        if self.deferred {
            return Err(MigrateError::InProgress);
        }
        if self.open_migrations >= self.tolerated as usize {
            return Err(MigrateError::TooMany);
        }
        Ok(())
    }
}

/// Checks whether a stream may be offered, if it may be moved at all (SMIG-6.1/offer,
/// SMIG-6.4/offered-once).
pub(crate) const fn check_offer(side: Side, was_offered: bool) -> Result<(), MigrateError> {
    match side {
        Side::Client => Err(MigrateError::NotServer),
        Side::Server if was_offered => Err(MigrateError::LimitReached),
        Side::Server => Ok(()),
    }
}

/// What an answer does to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The client declines the offer.
    OfferDeclined,
    /// The follower's barrier: its further frames arrive on the carrier
    /// (SMIG-5.11/follower-barrier).
    Accepted,
    /// Both directions resume at their barriers (SMIG-6.8/resume).
    Declined,
}

impl MigrationState {
    /// Handles an answer that was read at `at`, of a stream whose S1 is `s1`
    /// (SMIG-2.7/stray-answer).
    pub(crate) fn on_answer(
        &self,
        s1: StreamAddr,
        at: StreamAddr,
        dst: Option<(Cid, StreamId)>,
    ) -> Result<Answer, Cause> {
        match (self, dst) {
            (Self::Offered, None) => Ok(Answer::OfferDeclined),
            (Self::Open(_), None) if at == s1 => Ok(Answer::Declined),
            (Self::Open(open), Some(dst)) if at == s1 && dst == open.dst() => Ok(Answer::Accepted),
            (Self::Idle | Self::Offered | Self::OfferReceived | Self::Open(_), _) => {
                Err(Cause::UnexpectedMigrateAck)
            }
        }
    }
}

impl PendingAnswer {
    /// Handles the answer after the stream has ended. Returns the code of an RST_STREAM that is due
    /// on S1 (SMIG-8.3/reset-remembered).
    pub(crate) fn on_answer(
        self,
        dst: Option<(Cid, StreamId)>,
    ) -> Result<Option<ErrorCode>, Cause> {
        match dst {
            None => Ok(self.reset),
            Some(dst) if dst == self.dst => Ok(None),
            Some(_) => Err(Cause::UnexpectedMigrateAck),
        }
    }
}

/// What the loss of a connection does to an open migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// C2: nothing is sent on S2 any more, and the answer on C1 decides (SMIG-8.9/c2-ends-early).
    AwaitAnswer,
    /// C1: the stream fails.
    Fail,
    /// C1: the stream is complete, and the follower may still read what is on its way to S2.
    Complete,
}

/// How a stream ends whose MIGRATE is unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyEnd {
    /// This side resets the stream.
    Reset(ErrorCode),
    /// The peer's RST_STREAM arrived there, on S1 or S2.
    ResetByPeer(StreamAddr, ErrorCode),
    /// The peer's GOAWAY on C1 excludes S1.
    ExcludedS1,
    /// C1 was lost.
    LostC1,
}

/// What is due after the end of a stream whose MIGRATE is unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aftermath {
    /// The code of an RST_STREAM on S2.
    pub(crate) reset_s2: Option<ErrorCode>,
    /// What to do with the answer, unless C1 is gone and there will be none: the code of an
    /// RST_STREAM on S1 after a decline (SMIG-8.3/reset-remembered).
    pub(crate) on_decline: Option<ErrorCode>,
}

impl OpenMigration {
    /// Handles the loss of C1 or C2. `complete`: both directions have ended
    /// (SMIG-8.8/c1-ends-at-mover).
    pub(crate) fn on_connection_lost(&self, lost: ConnId, complete: bool) -> Loss {
        if self.to.conn == lost {
            Loss::AwaitAnswer
        } else if complete {
            Loss::Complete
        } else {
            Loss::Fail
        }
    }

    /// Returns what is due after the end of the stream: the table of section 8. `used`: a frame was
    /// sent on S2, which must be closed then (SMIG-6.11/close-abandoned).
    pub(crate) fn on_early_end(&self, end: EarlyEnd, used: bool) -> Aftermath {
        let close_s2 = used.then_some(ErrorCode::Cancel);
        match end {
            // SMIG-8.2/reset-on-s2
            EarlyEnd::Reset(code) => Aftermath { reset_s2: Some(code), on_decline: Some(code) },
            EarlyEnd::ResetByPeer(at, code) if at == self.to => {
                Aftermath { reset_s2: None, on_decline: Some(code) }
            }
            // It crossed the MIGRATE, which the peer will decline (SMIG-8.1/reset-crosses,
            // SMIG-8.20/stop-crosses).
            EarlyEnd::ResetByPeer(..) => Aftermath { reset_s2: close_s2, on_decline: None },
            // SMIG-8.15/goaway-excludes-s1
            EarlyEnd::ExcludedS1 => {
                Aftermath { reset_s2: close_s2, on_decline: Some(ErrorCode::Cancel) }
            }
            // SMIG-8.8/c1-ends-at-mover
            EarlyEnd::LostC1 => Aftermath { reset_s2: Some(ErrorCode::Cancel), on_decline: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::AppId;
    use crate::time::Instant;

    const S1: StreamAddr = StreamAddr { conn: ConnId(1), id: StreamId::new(5) };
    const S2: StreamAddr = StreamAddr { conn: ConnId(2), id: StreamId::new(2) };

    fn dst(number: u32) -> (Cid, StreamId) {
        (Cid { app: AppId::new(7), number }, S2.id)
    }

    fn open() -> OpenMigration {
        OpenMigration::new(S2, dst(2).0, Instant::from_nanos(0), 0)
    }

    #[test]
    fn a_stream_departs_once_at_a_time_and_within_the_limits() {
        let open = MigrationState::Open(Box::new(open()));
        let may = |change: fn(&mut Departure<'_>), migration: &MigrationState| {
            let mut departure = Departure {
                migration,
                ended: false,
                moves: 3,
                max_moves: 4,
                c1_joined: true,
                deferred: false,
                open_migrations: 7,
                tolerated: 8,
            };
            change(&mut departure);
            departure.check()
        };
        let idle = MigrationState::Idle;
        assert_eq!(may(|_| {}, &idle), Ok(()));
        // A client's move answers the offer.
        assert_eq!(may(|_| {}, &MigrationState::OfferReceived), Ok(()));
        // SMIG-5.8/one-open-move
        assert_eq!(may(|_| {}, &MigrationState::Offered), Err(MigrateError::InProgress));
        assert_eq!(may(|_| {}, &open), Err(MigrateError::InProgress));
        // SMIG-5.9/open-limit
        assert_eq!(may(|it| it.open_migrations = 8, &idle), Err(MigrateError::TooMany));
        assert_eq!(may(|it| it.moves = 4, &idle), Err(MigrateError::LimitReached));
        assert_eq!(may(|it| it.ended = true, &idle), Err(MigrateError::Ended));
        assert_eq!(may(|it| it.c1_joined = false, &idle), Err(MigrateError::Disabled));
        // SMIG-5.12/join-pending
        assert_eq!(may(|it| it.deferred = true, &idle), Err(MigrateError::InProgress));
    }

    #[test]
    fn only_a_server_offers_and_only_once() {
        // SMIG-6.1/offer, SMIG-6.4/offered-once
        assert_eq!(check_offer(Side::Server, false), Ok(()));
        assert_eq!(check_offer(Side::Server, true), Err(MigrateError::LimitReached));
        assert_eq!(check_offer(Side::Client, false), Err(MigrateError::NotServer));
    }

    #[test]
    fn an_answer_fits_what_was_asked() {
        // SMIG-2.7/stray-answer
        let wrong = Err(Cause::UnexpectedMigrateAck);
        let open = MigrationState::Open(Box::new(open()));
        for (state, at, answer, expected) in [
            (&open, S1, None, Ok(Answer::Declined)),
            (&open, S1, Some(dst(2)), Ok(Answer::Accepted)),
            (&open, S1, Some(dst(3)), wrong),
            (&open, S2, None, wrong),
            (&open, S2, Some(dst(2)), wrong),
            (&MigrationState::Offered, S1, None, Ok(Answer::OfferDeclined)),
            (&MigrationState::Offered, S1, Some(dst(2)), wrong),
            (&MigrationState::OfferReceived, S1, None, wrong),
            (&MigrationState::Idle, S1, None, wrong),
        ] {
            assert_eq!(state.on_answer(S1, at, answer), expected, "{state:?} {at:?} {answer:?}");
        }
    }

    #[test]
    fn after_the_end_a_decline_brings_the_reset_to_s1() {
        // SMIG-8.3/reset-remembered
        let reset = Some(ErrorCode::Cancel);
        let pending = PendingAnswer { s1: S1.id, dst: dst(2), reset };
        assert_eq!(pending.on_answer(None), Ok(reset));
        assert_eq!(pending.on_answer(Some(dst(2))), Ok(None));
        assert_eq!(pending.on_answer(Some(dst(3))), Err(Cause::UnexpectedMigrateAck));
    }

    #[test]
    fn the_loss_of_c2_waits_for_the_answer_and_that_of_c1_does_not() {
        for complete in [false, true] {
            // SMIG-8.9/c2-ends-early
            assert_eq!(open().on_connection_lost(S2.conn, complete), Loss::AwaitAnswer);
        }
        // SMIG-8.8/c1-ends-at-mover
        assert_eq!(open().on_connection_lost(S1.conn, false), Loss::Fail);
        assert_eq!(open().on_connection_lost(S1.conn, true), Loss::Complete);
    }

    #[test]
    fn resets_go_where_the_table_of_section_8_says() {
        let (cancel, code) = (Some(ErrorCode::Cancel), ErrorCode::InternalError);
        let after = |end, used| {
            let Aftermath { reset_s2, on_decline } = open().on_early_end(end, used);
            (reset_s2, on_decline)
        };
        for used in [false, true] {
            // SMIG-8.2/reset-on-s2, SMIG-8.3/reset-remembered
            assert_eq!(after(EarlyEnd::Reset(code), used), (Some(code), Some(code)));
            assert_eq!(after(EarlyEnd::ResetByPeer(S2, code), used), (None, Some(code)));
            // SMIG-8.8/c1-ends-at-mover
            assert_eq!(after(EarlyEnd::LostC1, used), (cancel, None));
            // SMIG-6.11/close-abandoned: an unused carrier needs no reset.
            let close = used.then_some(ErrorCode::Cancel);
            // SMIG-8.1/reset-crosses
            assert_eq!(after(EarlyEnd::ResetByPeer(S1, code), used), (close, None));
            // SMIG-8.15/goaway-excludes-s1
            assert_eq!(after(EarlyEnd::ExcludedS1, used), (close, cancel));
        }
    }
}
