//! The decisions of a follower (spec/smig.md sections 2, 5 and 6), as functions that change nothing
//! but the migration's state. The session performs them.

use super::{MigrationState, OpenMigration, PendingAnswer};
use crate::error::{Cause, ErrorCode};
use crate::ids::{ConnId, Side, StreamAddr, StreamId};
use crate::wire::Migrate;

/// Checks a MIGRATE without ACK that `side` reads: only a server offers, and S2 is an id that its
/// sender may open and that is not in use (SMIG-2.5/zero-cid, SMIG-2.6/bad-destination).
pub(crate) const fn check_migrate(
    side: Side,
    migrate: Migrate,
    s2_in_use: bool,
) -> Result<(), Cause> {
    let allowed = match (migrate.dst, side) {
        (None, Side::Client) => true,
        (None, Side::Server) => false,
        (Some((_, s2)), _) => !s2.is_connection() && s2.is_opened_by(side.peer()) && !s2_in_use,
    };
    if allowed { Ok(()) } else { Err(Cause::BadMigrate) }
}

/// Relation of a received MIGRATE to this side's own migration of the stream.
#[derive(Debug)]
pub(crate) enum Collision {
    /// No migration: this side follows, or declines.
    None,
    /// An offer of this side, which it answers. It is followed like any other
    /// (SMIG-6.3/offer-stays-open).
    AnswersOffer,
    /// The server's own migration continues; the client's is not answered (SMIG-6.5/server-wins).
    LocalPrevails,
    /// The client reverts its own migration and then follows (SMIG-6.6/client-yields).
    LocalYields(Box<OpenMigration>),
}

/// Response to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferResponse {
    /// The application decides.
    AskApplication,
    Decline,
    /// This side's open MIGRATE is the answer (SMIG-6.2/offer-answered).
    AlreadyAnswered,
}

impl MigrationState {
    /// Handles a MIGRATE that `side` reads, on S1 and in the stream's order. It ends an offer of
    /// either side, unless this side's own MIGRATE answers the offer.
    pub(crate) fn on_migrate(&mut self, side: Side) -> Collision {
        match (core::mem::replace(self, Self::Idle), side) {
            (Self::Idle | Self::OfferReceived, _) => Collision::None,
            (Self::Offered, _) => Collision::AnswersOffer,
            (Self::Open(open), Side::Client) => Collision::LocalYields(open),
            (open @ Self::Open(_), Side::Server) => {
                *self = open;
                Collision::LocalPrevails
            }
        }
    }

    /// Client: handles an offer. `was_declined`: this side has declined an offer of the stream before
    /// (SMIG-6.4/offered-once). `c1_joined`: its connection is in the session;
    /// streams of a former member do not move (SMIG-4.8/new-session).
    pub(crate) fn on_offer(
        &mut self,
        was_declined: bool,
        c1_joined: bool,
    ) -> Result<OfferResponse, Cause> {
        match self {
            Self::Idle if was_declined || !c1_joined => Ok(OfferResponse::Decline),
            Self::Idle => {
                *self = Self::OfferReceived;
                Ok(OfferResponse::AskApplication)
            }
            Self::Open(_) => Ok(OfferResponse::AlreadyAnswered),
            Self::Offered | Self::OfferReceived => Err(Cause::BadMigrate),
        }
    }

    /// Client: ends an offer by a decline. Returns whether there was one.
    pub(crate) fn decline_offer(&mut self) -> bool {
        let offered = matches!(self, Self::OfferReceived);
        if offered {
            *self = Self::Idle;
        }
        offered
    }
}

/// The state that decides whether a follower may use the carrier that a MIGRATE names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedCarrier {
    pub(crate) c1: ConnId,
    pub(crate) c1_joined: bool,
    pub(crate) c2: ConnId,
    pub(crate) c2_joined: bool,
    pub(crate) s2: StreamId,
    pub(crate) s2_closed: bool,
    /// The last id of a GOAWAY that this side sent on C2.
    pub(crate) goaway_last_id: Option<StreamId>,
}

impl NamedCarrier {
    /// Returns the carrier's address, unless the follower must decline (SMIG-5.13/must-decline).
    pub(crate) fn usable_addr(self) -> Option<StreamAddr> {
        let excluded = self.goaway_last_id.is_some_and(|last| self.s2 > last);
        let joined = self.c1_joined && self.c2_joined;
        let usable = self.c1 != self.c2 && joined && !self.s2_closed && !excluded;
        usable.then_some(StreamAddr { conn: self.c2, id: self.s2 })
    }
}

/// Response to a MIGRATE for a stream that has ended at the follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrayMigrateResponse {
    /// None: this side's own MIGRATE prevails (SMIG-6.5/server-wins), or answers the offer
    /// (SMIG-6.2/offer-answered).
    LocalPrevails,
    /// The client abandons its own MIGRATE, accepts the server's, and sends the reset on the
    /// server's carrier, where the stream is now. No END_STREAM: the server must not take a
    /// truncated request for a complete one (SMIG-8.3/reset-remembered).
    AcceptAndReset(StreamAddr, ErrorCode),
    /// A decline (SMIG-5.10/always-answer, SMIG-8.1/reset-crosses), and before it a reset on S1:
    /// after the decline it would be too late to revoke END_STREAM.
    Decline { reset: Option<ErrorCode> },
}

/// Handles a MIGRATE that `side` reads for a stream that has ended there. `own_pending`: its own
/// MIGRATE of the stream is unanswered. `carrier`: the one that the peer's names, if it is usable.
pub(crate) fn on_stray_migrate(
    side: Side,
    migrate: Migrate,
    own_pending: Option<PendingAnswer>,
    carrier: Option<StreamAddr>,
) -> StrayMigrateResponse {
    let Some(own_pending) = own_pending else {
        return StrayMigrateResponse::Decline { reset: None };
    };
    if side == Side::Server || migrate.dst.is_none() {
        return StrayMigrateResponse::LocalPrevails;
    }
    match (carrier, own_pending.reset_s1_on_decline) {
        (Some(carrier), Some(code)) => StrayMigrateResponse::AcceptAndReset(carrier, code),
        (_, reset) => StrayMigrateResponse::Decline { reset },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AppId, Cid};
    use crate::time::Instant;

    const S2: StreamAddr = StreamAddr { conn: ConnId(2), id: StreamId::new(6) };
    const OFFER: Migrate = Migrate { dst: None };

    fn migrate_to(id: u32) -> Migrate {
        Migrate { dst: Some((Cid { app: AppId::new(7), number: 2 }, StreamId::new(id))) }
    }

    fn open_state() -> MigrationState {
        let cid = Cid { app: AppId::new(7), number: 2 };
        let now = Instant::from_nanos(0);
        MigrationState::Open(Box::new(OpenMigration::new(S2, cid, now, 0)))
    }

    #[test]
    fn a_destination_is_an_unused_id_of_its_sender() {
        // SMIG-2.6/bad-destination
        let expected_error = Err(Cause::BadMigrate);
        for (reader, s2, in_use, expected) in [
            (Side::Client, 6, false, Ok(())),
            (Side::Client, 6, true, expected_error),
            (Side::Client, 5, false, expected_error),
            (Side::Client, 0, false, expected_error),
            (Side::Server, 5, false, Ok(())),
            (Side::Server, 6, false, expected_error),
            (Side::Server, 0, false, expected_error),
        ] {
            assert_eq!(check_migrate(reader, migrate_to(s2), in_use), expected, "{reader:?} {s2}");
        }
        // SMIG-2.5/zero-cid
        assert_eq!(check_migrate(Side::Client, OFFER, false), Ok(()));
        assert_eq!(check_migrate(Side::Server, OFFER, false), expected_error);
    }

    #[test]
    fn in_a_collision_the_servers_migration_prevails() {
        // SMIG-6.5/server-wins, SMIG-6.6/client-yields
        let mut state = open_state();
        assert!(matches!(state.on_migrate(Side::Server), Collision::LocalPrevails));
        assert!(matches!(state, MigrationState::Open(_)));
        let yielded = state.on_migrate(Side::Client);
        assert!(matches!(yielded, Collision::LocalYields(open) if open.to == S2));
        for side in [Side::Server, Side::Client] {
            assert!(matches!(state.on_migrate(side), Collision::None));
        }
        // SMIG-6.3/offer-stays-open
        let mut state = MigrationState::Offered;
        assert!(matches!(state.on_migrate(Side::Server), Collision::AnswersOffer));
        assert!(matches!(state, MigrationState::Idle));
    }

    #[test]
    fn an_offer_reaches_the_application_once_and_only_on_a_joined_connection() {
        let mut state = MigrationState::Idle;
        // SMIG-6.4/offered-once, SMIG-4.8/new-session
        assert_eq!(state.on_offer(true, true), Ok(OfferResponse::Decline));
        assert_eq!(state.on_offer(false, false), Ok(OfferResponse::Decline));
        assert_eq!(state.on_offer(false, true), Ok(OfferResponse::AskApplication));
        // SMIG-6.3/offer-stays-open
        assert_eq!(state.on_offer(false, true), Err(Cause::BadMigrate));
        assert!(state.decline_offer() && !state.decline_offer());
        // SMIG-6.2/offer-answered
        let mut state = open_state();
        assert_eq!(state.on_offer(false, true), Ok(OfferResponse::AlreadyAnswered));
        assert!(matches!(state, MigrationState::Open(_)) && !state.decline_offer());
    }

    #[test]
    fn a_carrier_is_an_open_id_on_another_joined_connection() {
        // SMIG-5.13/must-decline
        let usable_carrier = NamedCarrier {
            c1: ConnId(1),
            c1_joined: true,
            c2: S2.conn,
            c2_joined: true,
            s2: S2.id,
            s2_closed: false,
            goaway_last_id: None,
        };
        assert_eq!(usable_carrier.usable_addr(), Some(S2));
        assert_eq!(
            NamedCarrier { goaway_last_id: Some(S2.id), ..usable_carrier }.usable_addr(),
            Some(S2)
        );
        for unusable_carrier in [
            NamedCarrier { c1: S2.conn, ..usable_carrier },
            NamedCarrier { c1_joined: false, ..usable_carrier },
            NamedCarrier { c2_joined: false, ..usable_carrier },
            NamedCarrier { s2_closed: true, ..usable_carrier },
            NamedCarrier { goaway_last_id: Some(StreamId::new(4)), ..usable_carrier },
        ] {
            assert_eq!(unusable_carrier.usable_addr(), None, "{unusable_carrier:?}");
        }
    }

    #[test]
    fn a_migrate_for_an_ended_stream_is_answered_unless_this_sides_own_prevails() {
        let reset = Some(ErrorCode::Cancel);
        let own_pending_answer = |reset| {
            let (cid, id) = (Cid { app: AppId::new(7), number: 3 }, StreamId::new(9));
            Some(PendingAnswer { s1: StreamId::new(1), dst: (cid, id), reset_s1_on_decline: reset })
        };
        let (plain_decline, local_prevails) =
            (StrayMigrateResponse::Decline { reset: None }, StrayMigrateResponse::LocalPrevails);
        for (side, migrate, own_pending, carrier, expected) in [
            // SMIG-5.10/always-answer, SMIG-8.1/reset-crosses
            (Side::Server, migrate_to(5), None, Some(S2), plain_decline),
            (Side::Client, migrate_to(6), None, Some(S2), plain_decline),
            (Side::Client, OFFER, None, None, plain_decline),
            // SMIG-6.5/server-wins, SMIG-6.2/offer-answered
            (Side::Server, migrate_to(5), own_pending_answer(reset), Some(S2), local_prevails),
            (Side::Client, OFFER, own_pending_answer(reset), None, local_prevails),
            // SMIG-8.3/reset-remembered
            (Side::Client, migrate_to(6), own_pending_answer(None), Some(S2), plain_decline),
            (
                Side::Client,
                migrate_to(6),
                own_pending_answer(reset),
                None,
                StrayMigrateResponse::Decline { reset },
            ),
            (
                Side::Client,
                migrate_to(6),
                own_pending_answer(reset),
                Some(S2),
                StrayMigrateResponse::AcceptAndReset(S2, ErrorCode::Cancel),
            ),
        ] {
            let response = on_stray_migrate(side, migrate, own_pending, carrier);
            assert_eq!(response, expected, "{side:?} {migrate:?} {own_pending:?} {carrier:?}");
        }
    }
}
