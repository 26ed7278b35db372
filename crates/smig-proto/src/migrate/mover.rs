//! The decisions of a mover (spec/smig.md sections 5, 6 and 8), as functions that change nothing but
//! the migration's state. The session performs them.

use super::{MigrateError, MigrationState, OpenMigration, PendingAnswer};
use crate::error::{Cause, ErrorCode};
use crate::ids::{Cid, ConnId, Side, StreamAddr, StreamId};

/// The state that decides whether this side may migrate or offer a stream.
#[derive(Debug)]
pub(crate) struct MigrationPreconditions<'a> {
    pub(crate) migration: &'a MigrationState,
    /// The stream is complete or has failed.
    pub(crate) has_ended: bool,
    pub(crate) migrations: u8,
    pub(crate) max_migrations: u8,
    pub(crate) c1_joined: bool,
    /// The peer's MIGRATE of the stream waits for a JOIN (SMIG-5.12/join-pending).
    pub(crate) is_deferred: bool,
    /// This side's open migrations and offers in the session.
    pub(crate) open_migrations: usize,
    /// The peer's SETTINGS_SMIG on C1.
    pub(crate) max_open_migrations: u32,
}

impl MigrationPreconditions<'_> {
    /// Checks the rules that a MIGRATE and an offer have in common (SMIG-5.8/one-open-move,
    /// SMIG-5.9/open-limit).
    pub(crate) const fn check(&self) -> Result<(), MigrateError> {
        if self.has_ended {
            return Err(MigrateError::Ended);
        }
        match self.migration {
            MigrationState::Idle | MigrationState::OfferReceived => {}
            MigrationState::Offered | MigrationState::Open(_) => {
                return Err(MigrateError::InProgress);
            }
        }
        if self.migrations >= self.max_migrations {
            return Err(MigrateError::LimitReached);
        }
        if !self.c1_joined {
            return Err(MigrateError::Disabled);
        }
        // The peer's move takes precedence.
        if self.is_deferred {
            return Err(MigrateError::InProgress);
        }
        if self.open_migrations >= self.max_open_migrations as usize {
            return Err(MigrateError::TooManyOpen);
        }
        Ok(())
    }
}

/// Checks whether a stream that may be moved may also be offered (SMIG-6.1/offer,
/// SMIG-6.4/offered-once).
pub(crate) const fn check_offer(side: Side, was_offered: bool) -> Result<(), MigrateError> {
    match side {
        Side::Client => Err(MigrateError::NotServer),
        Side::Server if was_offered => Err(MigrateError::LimitReached),
        Side::Server => Ok(()),
    }
}

/// Effect of an answer on a stream. The migration or offer has ended.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The client declines the offer.
    OfferDeclined,
    /// The follower's barrier: its further frames arrive on the carrier
    /// (SMIG-5.11/follower-barrier).
    Accepted(Box<OpenMigration>),
    /// Both directions resume at their barriers (SMIG-6.8/resume).
    Declined(Box<OpenMigration>),
}

/// Effect of the loss of a connection on a stream.
#[derive(Debug)]
pub(crate) enum LossEffect {
    /// C2 of an open migration: nothing is sent on S2 any more, and the answer on C1 decides
    /// (SMIG-8.9/c2-ends-early).
    AwaitAnswer,
    /// The stream fails: it has only this connection, or it was C1 (SMIG-8.8/c1-ends-at-mover).
    Fail,
    /// C1 of an open migration: the stream is complete, and the follower may still read the frames
    /// in flight on S2.
    Complete(Box<OpenMigration>),
}

impl MigrationState {
    /// Handles an answer that was read at `at`, of a stream whose S1 is `s1`
    /// (SMIG-2.7/stray-answer).
    pub(crate) fn on_answer(
        &mut self,
        s1: StreamAddr,
        at: StreamAddr,
        dst: Option<(Cid, StreamId)>,
    ) -> Result<Answer, Cause> {
        match (core::mem::replace(self, Self::Idle), dst) {
            (Self::Offered, None) => Ok(Answer::OfferDeclined),
            (Self::Open(open), None) if at == s1 => Ok(Answer::Declined(open)),
            (Self::Open(open), Some(dst)) if at == s1 && dst == open.dst() => {
                Ok(Answer::Accepted(open))
            }
            (state @ (Self::Idle | Self::Offered | Self::OfferReceived | Self::Open(_)), _) => {
                *self = state;
                Err(Cause::UnexpectedMigrateAck)
            }
        }
    }

    /// Handles the loss of a connection that carries the stream. `both_ended`: both directions have
    /// ended.
    pub(crate) fn on_connection_lost(&mut self, lost_conn: ConnId, both_ended: bool) -> LossEffect {
        match core::mem::replace(self, Self::Idle) {
            Self::Open(mut open) if open.to.conn == lost_conn => {
                open.carrier_lost = true;
                *self = Self::Open(open);
                LossEffect::AwaitAnswer
            }
            Self::Open(open) if both_ended => LossEffect::Complete(open),
            state @ (Self::Idle | Self::Offered | Self::OfferReceived | Self::Open(_)) => {
                *self = state;
                LossEffect::Fail
            }
        }
    }

    /// Handles a GOAWAY that excludes the stream's address `at`. Returns whether it excludes the
    /// carrier of an open migration: nothing is sent there any more, and the answer will be a
    /// decline (SMIG-8.17/goaway-excludes-s2).
    pub(crate) fn on_excluded(&mut self, at: StreamAddr) -> bool {
        match self {
            Self::Open(open) if open.to == at => {
                open.carrier_lost = true;
                true
            }
            Self::Open(_) | Self::Idle | Self::Offered | Self::OfferReceived => false,
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
            None => Ok(self.reset_s1_on_decline),
            Some(dst) if dst == self.dst => Ok(None),
            Some(_) => Err(Cause::UnexpectedMigrateAck),
        }
    }
}

/// How a stream with an unanswered MIGRATE ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndBeforeAnswer {
    /// This side resets the stream.
    Reset(ErrorCode),
    /// The peer's RST_STREAM arrived at this address, S1 or S2.
    ResetByPeer(StreamAddr, ErrorCode),
    /// The peer's GOAWAY on C1 excludes S1.
    ExcludedS1,
    /// C1 was lost.
    LostC1,
}

/// Resets that are due after the end of a stream with an unanswered MIGRATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueResets {
    /// The code of an RST_STREAM on S2.
    pub(crate) reset_s2: Option<ErrorCode>,
    /// The code of an RST_STREAM on S1 after a decline (SMIG-8.3/reset-remembered). If C1 is lost,
    /// there will be no answer.
    pub(crate) reset_s1_on_decline: Option<ErrorCode>,
}

impl OpenMigration {
    /// Returns the resets that are due after the end of the stream: the table of section 8.
    /// `carrier_used`: a frame was sent on S2, so S2 must be closed (SMIG-6.11/close-abandoned).
    pub(crate) fn on_end_before_answer(
        &self,
        end_kind: EndBeforeAnswer,
        carrier_used: bool,
    ) -> DueResets {
        let close_s2 = carrier_used.then_some(ErrorCode::Cancel);
        match end_kind {
            // SMIG-8.2/reset-on-s2
            EndBeforeAnswer::Reset(code) => {
                DueResets { reset_s2: Some(code), reset_s1_on_decline: Some(code) }
            }
            EndBeforeAnswer::ResetByPeer(at, code) if at == self.to => {
                DueResets { reset_s2: None, reset_s1_on_decline: Some(code) }
            }
            // It crossed the MIGRATE, which the peer will decline (SMIG-8.1/reset-crosses,
            // SMIG-8.20/stop-crosses).
            EndBeforeAnswer::ResetByPeer(..) => {
                DueResets { reset_s2: close_s2, reset_s1_on_decline: None }
            }
            // SMIG-8.15/goaway-excludes-s1
            EndBeforeAnswer::ExcludedS1 => {
                DueResets { reset_s2: close_s2, reset_s1_on_decline: Some(ErrorCode::Cancel) }
            }
            // SMIG-8.8/c1-ends-at-mover
            EndBeforeAnswer::LostC1 => {
                DueResets { reset_s2: Some(ErrorCode::Cancel), reset_s1_on_decline: None }
            }
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

    fn open_migration() -> OpenMigration {
        OpenMigration::new(S2, dst(2).0, Instant::from_nanos(0), 0)
    }

    #[test]
    fn a_stream_has_one_open_migration_within_the_limits() {
        let open_state = MigrationState::Open(Box::new(open_migration()));
        let check_with = |change: fn(&mut MigrationPreconditions<'_>),
                          migration: &MigrationState| {
            let mut preconditions = MigrationPreconditions {
                migration,
                has_ended: false,
                migrations: 3,
                max_migrations: 4,
                c1_joined: true,
                is_deferred: false,
                open_migrations: 7,
                max_open_migrations: 8,
            };
            change(&mut preconditions);
            preconditions.check()
        };
        let idle = MigrationState::Idle;
        assert_eq!(check_with(|_| {}, &idle), Ok(()));
        // A client's move answers the offer.
        assert_eq!(check_with(|_| {}, &MigrationState::OfferReceived), Ok(()));
        // SMIG-5.8/one-open-move
        assert_eq!(check_with(|_| {}, &MigrationState::Offered), Err(MigrateError::InProgress));
        assert_eq!(check_with(|_| {}, &open_state), Err(MigrateError::InProgress));
        // SMIG-5.9/open-limit
        assert_eq!(check_with(|it| it.open_migrations = 8, &idle), Err(MigrateError::TooManyOpen));
        assert_eq!(check_with(|it| it.migrations = 4, &idle), Err(MigrateError::LimitReached));
        assert_eq!(check_with(|it| it.has_ended = true, &idle), Err(MigrateError::Ended));
        assert_eq!(check_with(|it| it.c1_joined = false, &idle), Err(MigrateError::Disabled));
        // SMIG-5.12/join-pending
        assert_eq!(check_with(|it| it.is_deferred = true, &idle), Err(MigrateError::InProgress));
    }

    #[test]
    fn only_a_server_offers_and_only_once() {
        // SMIG-6.1/offer, SMIG-6.4/offered-once
        assert_eq!(check_offer(Side::Server, false), Ok(()));
        assert_eq!(check_offer(Side::Server, true), Err(MigrateError::LimitReached));
        assert_eq!(check_offer(Side::Client, false), Err(MigrateError::NotServer));
    }

    #[test]
    fn an_answer_must_match_its_migrate_or_offer_and_ends_it() {
        // SMIG-2.7/stray-answer
        let open_state = || MigrationState::Open(Box::new(open_migration()));
        let label = |answer| match answer {
            Ok(Answer::OfferDeclined) => "offer declined",
            Ok(Answer::Accepted(open)) if open.to == S2 => "accepted",
            Ok(Answer::Declined(open)) if open.to == S2 => "declined",
            Ok(_) => "another migration",
            Err(cause) => {
                assert_eq!(cause, Cause::UnexpectedMigrateAck);
                "error"
            }
        };
        for (mut state, at, answer, expected) in [
            (open_state(), S1, None, "declined"),
            (open_state(), S1, Some(dst(2)), "accepted"),
            (open_state(), S1, Some(dst(3)), "error"),
            (open_state(), S2, None, "error"),
            (open_state(), S2, Some(dst(2)), "error"),
            (MigrationState::Offered, S1, None, "offer declined"),
            (MigrationState::Offered, S1, Some(dst(2)), "error"),
            (MigrationState::OfferReceived, S1, None, "error"),
            (MigrationState::Idle, S1, None, "error"),
        ] {
            let before = core::mem::discriminant(&state);
            assert_eq!(label(state.on_answer(S1, at, answer)), expected, "{at:?} {answer:?}");
            let unchanged = core::mem::discriminant(&state) == before;
            assert_eq!(unchanged, expected == "error", "{state:?}");
        }
    }

    #[test]
    fn a_decline_after_the_end_requires_the_reset_on_s1() {
        // SMIG-8.3/reset-remembered
        let reset = Some(ErrorCode::Cancel);
        let pending = PendingAnswer { s1: S1.id, dst: dst(2), reset_s1_on_decline: reset };
        assert_eq!(pending.on_answer(None), Ok(reset));
        assert_eq!(pending.on_answer(Some(dst(2))), Ok(None));
        assert_eq!(pending.on_answer(Some(dst(3))), Err(Cause::UnexpectedMigrateAck));
    }

    #[test]
    fn after_loss_of_c2_the_answer_decides_after_loss_of_c1_the_stream_ends() {
        for complete in [false, true] {
            // SMIG-8.9/c2-ends-early
            let mut state = MigrationState::Open(Box::new(open_migration()));
            assert!(matches!(state.on_connection_lost(S2.conn, complete), LossEffect::AwaitAnswer));
            assert!(matches!(state, MigrationState::Open(open) if open.carrier_lost));
            assert!(matches!(
                MigrationState::Idle.on_connection_lost(S1.conn, complete),
                LossEffect::Fail
            ));
        }
        // SMIG-8.8/c1-ends-at-mover
        let mut state = MigrationState::Open(Box::new(open_migration()));
        assert!(matches!(state.on_connection_lost(S1.conn, false), LossEffect::Fail));
        assert!(matches!(state, MigrationState::Open(_)), "its end is in on_end_before_answer");
        assert!(matches!(state.on_connection_lost(S1.conn, true), LossEffect::Complete(_)));
        assert!(matches!(state, MigrationState::Idle));
    }

    #[test]
    fn after_a_goaway_on_c2_the_answer_decides() {
        // SMIG-8.17/goaway-excludes-s2
        let mut state = MigrationState::Open(Box::new(open_migration()));
        assert!(!state.on_excluded(S1));
        assert!(state.on_excluded(S2));
        assert!(matches!(state, MigrationState::Open(open) if open.carrier_lost));
        assert!(!MigrationState::Idle.on_excluded(S1));
    }

    #[test]
    fn resets_follow_the_table_of_section_8() {
        let (cancel, code) = (Some(ErrorCode::Cancel), ErrorCode::InternalError);
        let due_resets_after = |end, used| {
            let DueResets { reset_s2, reset_s1_on_decline: on_decline } =
                open_migration().on_end_before_answer(end, used);
            (reset_s2, on_decline)
        };
        for carrier_used in [false, true] {
            // SMIG-8.2/reset-on-s2, SMIG-8.3/reset-remembered
            assert_eq!(
                due_resets_after(EndBeforeAnswer::Reset(code), carrier_used),
                (Some(code), Some(code))
            );
            assert_eq!(
                due_resets_after(EndBeforeAnswer::ResetByPeer(S2, code), carrier_used),
                (None, Some(code))
            );
            // SMIG-8.8/c1-ends-at-mover
            assert_eq!(due_resets_after(EndBeforeAnswer::LostC1, carrier_used), (cancel, None));
            // SMIG-6.11/close-abandoned: an unused carrier needs no reset.
            let close = carrier_used.then_some(ErrorCode::Cancel);
            // SMIG-8.1/reset-crosses
            assert_eq!(
                due_resets_after(EndBeforeAnswer::ResetByPeer(S1, code), carrier_used),
                (close, None)
            );
            // SMIG-8.15/goaway-excludes-s1
            assert_eq!(
                due_resets_after(EndBeforeAnswer::ExcludedS1, carrier_used),
                (close, cancel)
            );
        }
    }
}
