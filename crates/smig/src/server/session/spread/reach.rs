//! Over how many connections a session's streams may be spread: a pure function of what is there.

use smig_proto::{ConnId, OfferState};

use super::measure::{Flow, Sending};
use crate::migration::balance::Mobility;

/// Whether the session takes requests. One that drains takes no streams on other connections either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intake {
    Open,
    Draining,
}

/// Whether the client may be offered to open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offering {
    Allowed,
    /// By the configuration, or since it has declined.
    Ended,
}

/// What limits the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) intake: Intake,
    /// The most that the session may have.
    pub(super) max_lanes: usize,
    /// Those that streams may move to, at most so many.
    pub(super) open: usize,
    /// Those of them with a stream that sends.
    pub(super) busy: usize,
    /// Streams on one of them that may move, now or later.
    pub(super) movable: usize,
    /// Streams of those that may still be offered.
    pub(super) offerable: usize,
    pub(super) offering: Offering,
    /// Offers that the client may still answer, each by another connection.
    pub(super) open_offers: usize,
}

impl Reach {
    /// Counts streams and connections, of which `open` take streams.
    pub(super) fn of(
        sending: &[Sending],
        open: &[ConnId],
        intake: Intake,
        max_lanes: usize,
        (offering, open_offers): (Offering, usize),
    ) -> Self {
        let is_open = |stream: &&Sending| open.contains(&stream.view.connection);
        // One with an unanswered offer is the client's to move.
        let is_movable = |stream: &&Sending| {
            is_open(stream)
                && stream.mobility == Mobility::Mobile
                && stream.view.offer != OfferState::Unanswered
        };
        let sends = |conn: ConnId| {
            sending.iter().any(|it| it.view.connection == conn && it.flow == Flow::Open)
        };
        let movable = || sending.iter().filter(is_movable);
        Self {
            intake,
            max_lanes,
            open: open.len(),
            busy: open.iter().filter(|&&conn| sends(conn)).count(),
            movable: movable().count(),
            offerable: movable()
                .filter(|stream| stream.view.offer == OfferState::Available)
                .count(),
            offering,
            open_offers,
        }
    }

    /// Returns whether no stream can move to another connection any more, because of the session's end.
    pub(super) const fn is_over(self) -> bool {
        matches!(self.intake, Intake::Draining) || self.open == 0
    }

    /// Returns whether connections may be opened for streams that are offered now.
    pub(super) fn may_offer(self) -> bool {
        self.offering == Offering::Allowed && self.offerable > 0 && !self.is_over()
    }

    /// Returns how many connections may carry streams that send: those that do, and as many more as there are streams that may
    /// move to one, or bring one.
    pub(super) fn lanes(self) -> usize {
        if self.is_over() {
            return self.busy.min(1);
        }
        let offerable = if self.may_offer() { self.offerable } else { 0 };
        let idle = self.open - self.busy;
        let added = (idle + offerable).min(self.movable) + self.open_offers;
        (self.busy + added).min(self.max_lanes)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use smig_proto::StreamView;

    use super::super::measure::tests::sending;
    use super::*;
    use crate::migration::balance::tests as samples;

    /// Six streams on one of two connections.
    pub(in super::super) const REACH: Reach = Reach {
        intake: Intake::Open,
        max_lanes: 4,
        open: 2,
        busy: 1,
        movable: 6,
        offerable: 6,
        offering: Offering::Allowed,
        open_offers: 0,
    };

    #[test]
    fn connections_are_reached_by_spares_and_by_offers() {
        assert_eq!((REACH.lanes(), REACH.may_offer()), (4, true));
        let never = Reach { offering: Offering::Ended, ..REACH };
        assert_eq!((never.lanes(), never.may_offer()), (2, false), "the spare");
        let offered = Reach { offerable: 0, ..REACH };
        assert_eq!((offered.lanes(), offered.may_offer()), (2, false), "none a second time");
        let awaited = Reach { open_offers: 1, ..offered };
        assert_eq!(awaited.lanes(), 3);
        let one = Reach { movable: 1, offerable: 1, ..REACH };
        assert_eq!(one.lanes(), 2, "one stream is on one connection");
    }

    #[test]
    fn nothing_is_reached_beyond_what_is_there() {
        let busy = Reach { open: 4, busy: 4, ..REACH };
        assert_eq!(busy.lanes(), 4);
        let busy = Reach { busy: 2, offering: Offering::Ended, ..REACH };
        assert_eq!(busy.lanes(), 2);
        let fixed = Reach { movable: 0, offerable: 0, ..REACH };
        assert_eq!(fixed.lanes(), 1, "spares are no use to it");
    }

    #[test]
    fn a_session_that_ends_reaches_no_other_connection() {
        let draining = Reach { intake: Intake::Draining, open_offers: 2, ..REACH };
        assert!(draining.is_over() && !draining.may_offer());
        assert_eq!(draining.lanes(), 1);
        // The client has sent GOAWAY.
        let gone = Reach { open: 0, busy: 0, ..REACH };
        assert!(gone.is_over() && !gone.may_offer());
        assert_eq!(gone.lanes(), 0);
        assert!(!REACH.is_over());
    }

    fn of(sending: &[Sending], open: &[ConnId]) -> Reach {
        Reach::of(sending, open, Intake::Open, 4, (Offering::Allowed, 0))
    }

    fn with_view(stream: Sending, change: impl Fn(&mut StreamView)) -> Sending {
        let mut view = stream.view;
        change(&mut view);
        Sending { view, ..stream }
    }

    #[test]
    fn only_streams_that_may_move_from_a_connection_that_takes_streams_count() {
        let [first, second] = sending([500, 500]);
        let conns = samples::conns(2);
        let spare = conns[1];
        let open = [first.view.connection, spare];
        let both = Reach { movable: 2, offerable: 2, ..REACH };
        assert_eq!(of(&[first, second], &open), both);
        let fixed = Sending { mobility: Mobility::Fixed, ..second };
        let one = Reach { movable: 1, offerable: 1, ..REACH };
        assert_eq!(of(&[first, fixed], &open), one);
        assert_eq!(of(&[fixed], &open).lanes(), 1);
        // Its connection has gone away, and only the spare takes streams.
        let stays = of(&[first, second], &[spare]);
        assert_eq!((stays.busy, stays.movable, stays.lanes()), (0, 0, 0));
        let stalled = Sending { flow: Flow::Stalled, ..second };
        assert_eq!(of(&[stalled], &open), Reach { busy: 0, ..one }, "it may move later");
    }

    #[test]
    fn what_was_offered_is_not_offered_again_nor_moved() {
        let [stream] = sending([500]);
        let open = [stream.view.connection];
        let answered = with_view(stream, |view| view.offer = OfferState::Spent);
        let reach = of(&[answered], &open);
        assert_eq!((reach.movable, reach.offerable, reach.may_offer()), (1, 0, false));
        let unanswered = with_view(answered, |view| view.offer = OfferState::Unanswered);
        assert_eq!(of(&[unanswered], &open).movable, 0);
    }
}
