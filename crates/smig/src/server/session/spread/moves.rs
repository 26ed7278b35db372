//! Which streams move to other connections and which are offered, within what the configuration, the engine and the client allow.

use smig_proto::{
    ConnId, DEFAULT_MIGRATIONS_PER_SECOND, Instant, MIGRATION_BURST_SECONDS, MigrateError,
    MigrationTarget, SmigConfig, StreamKey, TokenBucket,
};

use crate::migration::Offers;
use crate::migration::balance::{BalancedStream, Mobility, plan};

/// Moves of one stream, if the session allows so many: fewer than a client follows by default.
const MAX_MOVES_PER_STREAM: u8 = 2;
/// Moves of a session at once, and per second: below what a client follows by default, whose clock is another.
const MAX_MOVES: u32 = DEFAULT_MIGRATIONS_PER_SECOND * MIGRATION_BURST_SECONDS / 10 * 9;
const MOVES_PER_S: u32 = DEFAULT_MIGRATIONS_PER_SECOND / 5 * 4;

/// Returns how often a stream may move in all.
pub(super) fn max_moves_per_stream(smig: &SmigConfig) -> u8 {
    smig.max_migrations_per_stream.min(MAX_MOVES_PER_STREAM)
}

/// The connections over which streams are spread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes<'a> {
    /// Those that are there.
    pub(super) open: &'a [ConnId],
    /// The most that may be there.
    pub(super) max: usize,
    /// Whether the client may be offered to open more.
    pub(super) offers: Offers,
    /// Whether it may still do so in time.
    pub(super) growth: Growth,
}

/// Whether connections may still be added to those over which streams are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    Awaited,
    Over,
}

/// The moves and offers of a session, and what the client has declined.
#[derive(Debug)]
pub(super) struct StreamMoves {
    /// Streams whose offers the client has not answered.
    offered: Vec<StreamKey>,
    /// Streams that it would not follow since streams are spread.
    declined: Vec<StreamKey>,
    /// Whether it has declined an offer since then: it opens no more connections.
    has_declined_offer: bool,
    budget: TokenBucket,
}

impl StreamMoves {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            offered: Vec::new(),
            declined: Vec::new(),
            has_declined_offer: false,
            budget: TokenBucket::new(MAX_MOVES, MOVES_PER_S, now),
        }
    }

    /// Forgets what the client has declined: it may do more in another trial. Offers that it has not answered stay.
    pub(super) fn forget_declined(&mut self) {
        self.declined.clear();
        self.has_declined_offer = false;
    }

    /// Records that the client has declined an offer or a move. Other offers would only cost it as much; and it may follow too
    /// many streams, so that others wait a moment.
    pub(super) fn on_declined(&mut self, stream: StreamKey) {
        if self.offered.contains(&stream) {
            self.has_declined_offer = true;
        } else {
            self.declined.push(stream);
            self.budget.take_up_to(u32::MAX);
        }
    }

    /// Returns whether the client would not follow the stream.
    pub(super) fn has_declined(&self, stream: StreamKey) -> bool {
        self.declined.contains(&stream)
    }

    /// Forgets offers that were answered, and streams that have ended; `is_migrating` returns `None` for those.
    pub(super) fn retain(&mut self, is_migrating: impl Fn(StreamKey) -> Option<bool>) {
        self.offered.retain(|&stream| is_migrating(stream) == Some(true));
        self.declined.retain(|&stream| is_migrating(stream).is_some());
    }

    /// Returns whether the client may still open a connection for an offer.
    pub(super) const fn has_open_offers(&self) -> bool {
        !self.offered.is_empty()
    }

    /// Returns whether a stream may be offered now.
    pub(super) fn may_offer(&self, offers: Offers) -> bool {
        offers == Offers::WhenNoSpare && !self.has_declined_offer
    }

    /// Moves streams from the busiest connection to the others, and offers some where there are too few; `migrate` returns why
    /// the engine does not.
    pub(super) fn balance(
        &mut self,
        now: Instant,
        streams: &[BalancedStream],
        lanes: Lanes<'_>,
        mut migrate: impl FnMut(StreamKey, MigrationTarget) -> Result<(), MigrateError>,
    ) {
        let may_offer = self.may_offer(lanes.offers);
        // Connections that the client may open soon have their share as well, or what moves now would have to move again.
        let may_grow = lanes.growth == Growth::Awaited && (may_offer || self.has_open_offers());
        let planned_lanes = if may_grow { lanes.max } else { lanes.open.len() };
        let max_moves = self.budget.available(now) as usize;
        for (key, to) in plan(planned_lanes, streams, max_moves) {
            let Some(&to) = lanes.open.get(to) else { continue };
            match migrate(key, MigrationTarget::Connection(to)) {
                Ok(()) => self.budget.take_up_to(1),
                // It is all that the client tolerates at once. Other errors are about this stream or connection.
                Err(MigrateError::TooManyOpen) => return,
                Err(_) => {}
            }
        }
        if may_offer {
            self.offer(streams, lanes, migrate);
        }
    }

    fn offer(
        &mut self,
        streams: &[BalancedStream],
        lanes: Lanes<'_>,
        mut migrate: impl FnMut(StreamKey, MigrationTarget) -> Result<(), MigrateError>,
    ) {
        // The last ones wait longest: an answer takes a handshake.
        for stream in streams.iter().rev().filter(|it| it.mobility == Mobility::Mobile) {
            let lane_count = lanes.open.len() + self.offered.len();
            if lane_count >= lanes.max.min(streams.len()) {
                return;
            }
            match migrate(stream.key, MigrationTarget::Offer) {
                Ok(()) => {
                    self.budget.take_up_to(1);
                    self.offered.push(stream.key);
                }
                Err(MigrateError::TooManyOpen) => return,
                // It was offered before, or moves now.
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
impl StreamMoves {
    /// Records that a stream was offered.
    pub(super) fn insert_offer(&mut self, stream: StreamKey) {
        self.offered.push(stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::balance::{SendState, tests as samples};

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    /// Connections of a session, and streams with 500 kB each on the first of them.
    fn session(lane_count: usize, streams: usize) -> (Vec<ConnId>, Vec<BalancedStream>) {
        let stream = |key| BalancedStream {
            key,
            lane: 0,
            left_bytes: 500_000,
            progress: SendState::Waiting,
            mobility: Mobility::Mobile,
        };
        (samples::conns(lane_count), samples::keys(streams).into_iter().map(stream).collect())
    }

    /// What is moved and offered; the engine refuses what `refuses` says.
    fn balance(
        moves: &mut StreamMoves,
        (conns, streams): &(Vec<ConnId>, Vec<BalancedStream>),
        offers: Offers,
        refuses: impl Fn(StreamKey) -> Option<MigrateError>,
    ) -> (Vec<StreamKey>, Vec<StreamKey>) {
        let (mut moved, mut offered) = (Vec::new(), Vec::new());
        let lanes = Lanes { open: conns, max: 4, offers, growth: Growth::Awaited };
        moves.balance(at(1), streams, lanes, |key, to| {
            if moved.contains(&key) {
                return Err(MigrateError::InProgress);
            }
            match refuses(key) {
                Some(error) => return Err(error),
                None if to == MigrationTarget::Offer => offered.push(key),
                None => moved.push(key),
            }
            Ok(())
        });
        (moved, offered)
    }

    #[test]
    fn a_session_moves_fewer_streams_than_a_client_follows() {
        let mut moves = StreamMoves::new(at(1));
        assert_eq!(moves.budget.available(at(1)), 36);
        moves.budget.take_up_to(36);
        assert_eq!((moves.budget.available(at(1)), moves.budget.available(at(2))), (0, 8));
        assert_eq!(moves.budget.available(at(100)), 36);
    }

    #[test]
    fn a_stream_moves_no_more_often_than_the_session_allows() {
        let max_moves = |max_migrations_per_stream| {
            max_moves_per_stream(&SmigConfig { max_migrations_per_stream, ..SmigConfig::default() })
        };
        assert_eq!([0, 1, 2, 4].map(max_moves), [0, 1, 2, 2]);
    }

    #[test]
    fn what_a_client_declines_is_not_tried_with_its_other_streams_at_once() {
        let streams = samples::keys(2);
        let mut moves = StreamMoves { offered: vec![streams[0]], ..StreamMoves::new(at(1)) };
        moves.on_declined(streams[0]);
        assert!(!moves.may_offer(Offers::WhenNoSpare), "it opens no more connections");
        assert_eq!(moves.budget.available(at(1)), 36, "those that are there are used");
        moves.on_declined(streams[1]);
        assert_eq!(moves.budget.available(at(1)), 0, "it follows no more for now");
        assert!(moves.has_declined(streams[1]) && !moves.has_declined(streams[0]));
        moves.forget_declined();
        assert!(moves.may_offer(Offers::WhenNoSpare) && !moves.has_declined(streams[1]));
    }

    #[test]
    fn no_stream_is_offered_where_offers_are_off() {
        let session = session(1, 6);
        let offers = |offers| balance(&mut StreamMoves::new(at(1)), &session, offers, |_| None).1;
        assert_eq!(offers(Offers::Never), []);
        assert_eq!(offers(Offers::WhenNoSpare).len(), 3);
    }

    #[test]
    fn connections_that_nobody_opens_have_no_share() {
        let session = session(2, 4);
        let moved = |offers| balance(&mut StreamMoves::new(at(1)), &session, offers, |_| None).0;
        assert_eq!(moved(Offers::Never).len(), 2, "of two");
        assert_eq!(moved(Offers::WhenNoSpare).len(), 1, "of four");
    }

    #[test]
    fn a_stream_that_cannot_move_is_in_nobodys_way() {
        let session = session(4, 4);
        let mut moves = StreamMoves::new(at(1));
        let last = session.1[3].key;
        let refuses = |key| (key == last).then_some(MigrateError::NoTarget);
        assert_eq!(balance(&mut moves, &session, Offers::Never, refuses).0.len(), 2);
        let all = |_| Some(MigrateError::TooManyOpen);
        assert_eq!(balance(&mut moves, &session, Offers::Never, all).0, []);
    }

    #[test]
    fn offers_that_are_refused_are_made_of_other_streams() {
        let session = session(1, 8);
        let mut moves = StreamMoves::new(at(1));
        let last: Vec<StreamKey> = session.1[5..].iter().map(|stream| stream.key).collect();
        let refuses = |key| last.contains(&key).then_some(MigrateError::LimitReached);
        let (_, offered) = balance(&mut moves, &session, Offers::WhenNoSpare, refuses);
        assert_eq!(offered.len(), 3);
        assert!(moves.has_open_offers());
        assert_eq!(balance(&mut moves, &session, Offers::WhenNoSpare, |_| None).1, []);
    }

    #[test]
    fn offers_stay_open_until_they_are_answered() {
        let session = session(1, 2);
        let mut moves = StreamMoves::new(at(1));
        let (_, offered) = balance(&mut moves, &session, Offers::WhenNoSpare, |_| None);
        assert_eq!(offered.len(), 1);
        moves.forget_declined();
        moves.retain(|_| Some(true));
        assert!(moves.has_open_offers());
        moves.retain(|key| (key != offered[0]).then_some(false));
        assert!(!moves.has_open_offers());
    }

    #[test]
    fn a_stream_that_was_declined_is_forgotten_when_it_has_ended() {
        let streams = samples::keys(2);
        let mut moves = StreamMoves::new(at(1));
        streams.iter().for_each(|&stream| moves.on_declined(stream));
        moves.retain(|key| (key == streams[1]).then_some(false));
        assert_eq!(moves.declined, [streams[1]]);
    }
}
