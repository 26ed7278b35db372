//! What is moved and offered, and what a client's answers change of that.

use super::*;
use crate::migration::balance::tests as samples;

use super::super::reach::tests::REACH;

const TIMEOUT: Duration = Duration::from_secs(30);

fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

fn moves() -> StreamMoves {
    StreamMoves::new(at(1), TIMEOUT)
}

/// Connections of a session, and streams with 500 kB each on the first of them.
struct Scene {
    conns: Vec<ConnId>,
    streams: Vec<BalancedStream>,
    offers: Offers,
    growth: Growth,
    /// What the engine has begun.
    moved: Vec<StreamKey>,
    offered: Vec<StreamKey>,
    calls: usize,
}

impl Scene {
    fn new(lane_count: usize, streams: usize, offers: Offers) -> Self {
        Self {
            conns: samples::conns(lane_count),
            streams: samples::keys(streams).into_iter().map(samples::stream).collect(),
            offers,
            growth: Growth::Awaited,
            moved: Vec::new(),
            offered: Vec::new(),
            calls: 0,
        }
    }

    /// Balances; the engine refuses what `refuses` says. Returns how many streams were moved and offered in all.
    fn balance(
        &mut self,
        moves: &mut StreamMoves,
        mut refuses: impl FnMut(StreamKey) -> Option<MigrateError>,
    ) -> (usize, usize) {
        let Self { conns, streams, offers, growth, moved, offered, calls } = self;
        let reach = Reach {
            open: conns.len(),
            movable: streams.len(),
            offerable: streams.len() - offered.len(),
            offering: moves.offering(*offers),
            open_offers: moves.open_offers(at(1)),
            ..REACH
        };
        let lanes = Lanes { open: conns, reach, growth: *growth };
        moves.balance(at(1), streams, lanes, |key, to| {
            *calls += 1;
            if moved.contains(&key) || offered.contains(&key) {
                return Err(MigrateError::InProgress);
            }
            match refuses(key) {
                Some(error) => return Err(error),
                None if to == MigrationTarget::Offer => offered.push(key),
                None => moved.push(key),
            }
            Ok(())
        });
        (moved.len(), offered.len())
    }
}

/// The view of a stream whose offer or move is unanswered.
pub(in super::super) fn unanswered(by: MigrationTarget) -> StreamView {
    let (session, keys) = samples::session(1);
    let offer = match by {
        MigrationTarget::Offer => OfferState::Unanswered,
        _ => OfferState::Available,
    };
    StreamView { is_migrating: true, offer, ..session.stream(keys[0]).unwrap() }
}

const NEVER: fn(StreamKey) -> Option<MigrateError> = |_| None;

#[test]
fn a_session_moves_fewer_streams_than_a_client_follows() {
    let mut moves = moves();
    assert_eq!(moves.budget.available(at(1)), 36);
    moves.budget.take_up_to(36);
    assert_eq!((moves.budget.available(at(1)), moves.budget.available(at(2))), (0, 8));
    assert_eq!(moves.budget.available(at(100)), 36);
}

#[test]
fn moves_and_offers_cost_what_a_client_follows() {
    let mut moves = moves();
    let mut scene = Scene::new(2, 6, Offers::WhenNoSpare);
    let (moved, offered) = scene.balance(&mut moves, NEVER);
    assert_eq!((moved, offered), (2, 2), "the third connection and the fourth are offered");
    assert_eq!(moves.budget.available(at(1)), 36 - 4);
    moves.budget.empty(at(1));
    let none = Scene::new(2, 6, Offers::WhenNoSpare).balance(&mut moves, NEVER);
    assert_eq!(none, (0, 0), "nothing is left");
    let mut moves = self::moves();
    moves.budget.take_up_to(35);
    let mut scene = Scene::new(1, 6, Offers::WhenNoSpare);
    assert_eq!(scene.balance(&mut moves, NEVER), (0, 1));
    moves.budget = TokenBucket::new(1, 1, at(1));
    assert_eq!(Scene::new(2, 6, Offers::WhenNoSpare).balance(&mut moves, NEVER), (1, 0));
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
    let mut moves = moves();
    let mut scene = Scene::new(2, 6, Offers::WhenNoSpare);
    scene.balance(&mut moves, NEVER);
    moves.on_declined(at(1), scene.offered[0]);
    assert_eq!(moves.offering(Offers::WhenNoSpare), Offering::Ended, "it opens no more");
    assert_eq!(moves.open_offers(at(1)), 1);
    assert_eq!(moves.budget.available(at(1)), 32, "those that are there are used");
    // What was gained since the last sample is none.
    moves.on_declined(at(3), scene.moved[0]);
    assert_eq!(moves.budget.available(at(3)), 0, "it follows no more for now");
    assert_eq!(moves.budget.available(at(4)), 8);
    assert!(moves.has_declined(scene.moved[0]) && !moves.has_declined(scene.offered[0]));
    moves.forget_declined();
    assert_eq!(moves.offering(Offers::WhenNoSpare), Offering::Allowed);
    assert!(!moves.has_declined(scene.moved[0]));
}

#[test]
fn what_others_move_and_offer_is_declined_to_them() {
    let streams = samples::keys(2);
    let mut moves = moves();
    moves.settle(at(1), &[(streams[0], unanswered(MigrationTarget::Offer))]);
    assert_eq!(moves.open_offers(at(1)), 1);
    moves.on_declined(at(1), streams[0]);
    moves.on_declined(at(1), streams[1]);
    assert_eq!(moves.offering(Offers::WhenNoSpare), Offering::Allowed);
    assert_eq!((moves.open_offers(at(1)), moves.budget.available(at(1))), (0, 36));
    assert!(!moves.has_declined(streams[0]) && !moves.has_declined(streams[1]));
}

#[test]
fn no_stream_is_offered_where_offers_are_off_or_too_late() {
    let offered = |offers, growth| {
        let mut scene = Scene { growth, ..Scene::new(1, 6, offers) };
        scene.balance(&mut moves(), NEVER).1
    };
    assert_eq!(offered(Offers::Never, Growth::Awaited), 0);
    assert_eq!(offered(Offers::WhenNoSpare, Growth::Over), 0);
    assert_eq!(offered(Offers::WhenNoSpare, Growth::Awaited), 3);
}

#[test]
fn what_others_offer_opens_connections_as_well() {
    let mut moves = moves();
    let other = (samples::keys(7)[6], unanswered(MigrationTarget::Offer));
    moves.settle(at(1), &[other]);
    assert_eq!(Scene::new(1, 6, Offers::WhenNoSpare).balance(&mut moves, NEVER).1, 2);
}

#[test]
fn connections_that_nobody_opens_have_no_share() {
    let moved = |offers, growth| {
        let mut scene = Scene { growth, ..Scene::new(2, 4, offers) };
        scene.balance(&mut moves(), NEVER).0
    };
    assert_eq!(moved(Offers::Never, Growth::Awaited), 2, "of two");
    assert_eq!(moved(Offers::WhenNoSpare, Growth::Over), 2, "of two");
    assert_eq!(moved(Offers::WhenNoSpare, Growth::Awaited), 1, "of four");
}

#[test]
fn a_stream_that_cannot_move_is_in_nobodys_way() {
    let mut scene = Scene::new(4, 4, Offers::Never);
    let last = scene.streams[3].key;
    let refuses = |key| (key == last).then_some(MigrateError::NoTarget);
    assert_eq!(scene.balance(&mut moves(), refuses), (2, 0));
}

#[test]
fn a_client_that_tolerates_no_more_is_left_alone() {
    for lane_count in [4, 1] {
        let mut scene = Scene::new(lane_count, 8, Offers::WhenNoSpare);
        let mut refusals = [MigrateError::TooManyOpen].into_iter();
        assert_eq!(scene.balance(&mut moves(), |_| refusals.next()), (0, 0));
        assert_eq!(scene.calls, 1, "of {lane_count}");
    }
}

#[test]
fn offers_that_are_refused_are_made_of_other_streams() {
    let mut scene = Scene::new(1, 8, Offers::WhenNoSpare);
    let mut moves = moves();
    let last: Vec<StreamKey> = scene.streams[5..].iter().map(|stream| stream.key).collect();
    let refuses = |key| last.contains(&key).then_some(MigrateError::LimitReached);
    assert_eq!(scene.balance(&mut moves, refuses).1, 3);
    assert_eq!(moves.open_offers(at(1)), 3);
    assert_eq!(scene.balance(&mut moves, NEVER).1, 3, "no more than that");
}

#[test]
fn offers_stay_open_until_they_are_answered_or_for_some_time() {
    let mut scene = Scene::new(1, 2, Offers::WhenNoSpare);
    let mut moves = moves();
    assert_eq!(scene.balance(&mut moves, NEVER).1, 1);
    let key = scene.offered[0];
    moves.forget_declined();
    let offered = (key, unanswered(MigrationTarget::Offer));
    moves.settle(at(2), &[offered]);
    assert_eq!([30, 31].map(|now| moves.open_offers(at(now))), [1, 0]);
    moves.settle(at(40), &[offered]);
    assert_eq!(moves.open_offers(at(40)), 0, "it is none of another");
    moves.settle(at(41), &[(key, StreamView { offer: OfferState::Spent, ..offered.1 })]);
    assert!(moves.offers.is_empty());
}

#[test]
fn what_has_ended_or_arrived_is_forgotten() {
    let mut scene = Scene::new(4, 4, Offers::Never);
    let mut moves = moves();
    scene.balance(&mut moves, NEVER);
    let [first, second, third] = [scene.moved[0], scene.moved[1], scene.moved[2]];
    moves.on_declined(at(1), first);
    moves.on_declined(at(1), second);
    let view = unanswered(MigrationTarget::Spare);
    moves.settle(at(1), &[(second, view), (third, view)]);
    assert_eq!((&moves.declined, &moves.moving), (&vec![second], &vec![third]));
    moves.settle(at(1), &[(third, StreamView { is_migrating: false, ..view })]);
    assert!(moves.declined.is_empty() && moves.moving.is_empty());
}
