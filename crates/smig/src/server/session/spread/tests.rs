//! What a session's samples do to what it keeps.

use smig_pace::{Backlog, ConnSample, SpreadSample};
use smig_proto::MigrationTarget;

use super::measure::tests::sending;
use super::moves::tests::unanswered;
use super::*;
use crate::migration::balance::tests as samples;

const RTT: Duration = Duration::from_millis(40);
const WINDOW: u64 = 14_480;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn spread_streams() -> SpreadStreams {
    SpreadStreams::new(at(0), Some(&SmigConfig::default()))
}

fn measured(acknowledged: u64, conns: &[ConnId]) -> Measured {
    let busiest = ConnSample {
        acknowledged,
        in_flight: WINDOW,
        outstanding: 2 * WINDOW,
        congestion_window: WINDOW,
        rtt: RTT,
        min_rtt: RTT,
        mss: 1448,
        ..ConnSample::default()
    };
    let sample = SpreadSample {
        busiest,
        backlog: Backlog::Window,
        all: busiest,
        left_bytes: 1 << 20,
        streams: 6,
        lanes: 1,
        max_lanes: 4,
    };
    Measured { sample, busiest: conns[0], conns: conns.to_vec() }
}

/// A session in which each fourth round of its first connection loses a packet.
struct Session {
    spread: SpreadStreams,
    ms: u64,
    acknowledged: u64,
    retransmitted: u64,
    conns: Vec<ConnId>,
}

impl Session {
    fn new() -> Self {
        let (spread, conns) = (spread_streams(), samples::conns(3));
        Self { spread, ms: 0, acknowledged: 0, retransmitted: 0, conns }
    }

    /// Runs a round with `conns`, of which the first is the busiest.
    fn run(&mut self, conns: &[ConnId], lanes: usize) -> Option<SpreadDecision> {
        let mut decision = None;
        for _ in 0..4 {
            self.ms += 10;
            self.acknowledged += WINDOW / 4;
            let mut measured = measured(self.acknowledged, conns);
            for sample in [&mut measured.sample.busiest, &mut measured.sample.all] {
                sample.retransmitted = self.retransmitted;
            }
            measured.sample.lanes = lanes;
            let decided = self.spread.record(at(self.ms), measured);
            decision = decision.or(decided);
        }
        self.retransmitted += u64::from(self.ms / 40 % 4 == 1);
        decision
    }

    fn spread() -> Self {
        let mut session = Self::new();
        let conns = session.conns[..1].to_vec();
        assert!((0..20).any(|_| session.run(&conns, 1).is_some()));
        assert!(session.spread.is_spread());
        session
    }
}

#[test]
fn a_peer_that_has_vanished_wakes_no_session() {
    let (mut spread, conns) = (spread_streams(), samples::conns(1));
    for ms in (0..=1000).step_by(10) {
        assert_eq!(spread.record(at(ms), measured(7, &conns)), None);
        assert_eq!(spread.deadline(), Some(at(ms + 10)));
    }
    spread.record(at(1010), measured(7, &conns));
    assert_eq!(spread.deadline(), None);
    spread.record(at(60_000), measured(8, &conns));
    assert_eq!(spread.deadline(), Some(at(60_010)), "it is there again");
}

#[test]
fn a_pause_of_the_service_is_no_silence_of_the_peer() {
    let (mut spread, conns) = (spread_streams(), samples::conns(1));
    spread.record(at(0), measured(7, &conns));
    let mut idle = measured(7, &conns);
    idle.sample.all.in_flight = 0;
    spread.record(at(10), idle);
    assert_eq!(spread.deadline(), None);
    spread.record(at(5000), measured(7, &conns));
    assert_eq!(spread.deadline(), Some(at(5010)), "the service goes on");
    // Nor is one without streams that send.
    assert!(!spread.pause(at(5020)));
    assert_eq!(spread.deadline(), None);
    spread.record(at(9000), measured(7, &conns));
    assert_eq!(spread.deadline(), Some(at(9010)));
}

#[test]
fn rounds_of_two_connections_are_no_evidence() {
    let mut session = Session::new();
    for round in 0..40 {
        let mut conns = session.conns[..2].to_vec();
        // Few rounds of each.
        conns.rotate_left(round / 3 % 2);
        assert_eq!(session.run(&conns, 1), None, "{round}");
    }
    let conns = session.conns[..2].to_vec();
    assert!((0..20).any(|_| session.run(&conns, 1).is_some()));
}

#[test]
fn what_a_connection_that_is_added_or_closed_has_sent_is_in_no_round() {
    let conns = samples::conns(3);
    let (all, first, last) = (&conns[..], &conns[..2], &conns[1..]);
    for (before, after) in [(first, all), (all, first), (first, last)] {
        let mut session = Session::spread();
        for _ in 0..6 {
            assert_eq!(session.run(before, 2), None);
        }
        session.acknowledged += 100 * WINDOW;
        let ended = (0..4).find_map(|_| session.run(after, 2));
        assert!(matches!(ended, Some(SpreadDecision::End(_))), "it is no gain");
    }
}

#[test]
fn what_a_client_has_declined_is_forgotten_with_the_trial() {
    for is_paused in [false, true] {
        let key = samples::keys(1)[0];
        let mut session = Session::spread();
        let conns = session.conns[..1].to_vec();
        decline(&mut session.spread, at(session.ms), key);
        assert!(session.spread.moves.has_declined(key), "no move of it in this trial");
        if is_paused {
            assert!(session.spread.pause(at(session.ms)));
        } else {
            assert!((0..50).any(|_| session.run(&conns, 2).is_some()));
        }
        assert!(!session.spread.moves.has_declined(key));
        // Neither is what it declines later.
        decline(&mut session.spread, at(session.ms), key);
        assert!(!session.spread.moves.has_declined(key));
    }
}

/// Moves a stream, which the client declines.
fn decline(spread: &mut SpreadStreams, now: Instant, key: StreamKey) {
    let stream = samples::stream(key);
    let conns = samples::conns(2);
    let reach = Reach { open: 2, ..reach::tests::REACH };
    let streams = [samples::stream(samples::keys(2)[1]), stream];
    let lanes = Lanes { open: &conns, reach, growth: Growth::Over };
    let is_it = |moved| if moved == key { Ok(()) } else { Err(MigrateError::Ended) };
    spread.moves.balance(now, &streams, lanes, |moved, _| is_it(moved));
    spread.on_declined(now, key);
}

#[test]
fn only_a_trial_holds_off_the_rules_and_gives_a_role() {
    let key = samples::keys(1)[0];
    let mut session = Session::spread();
    assert!(!session.spread.allows_rules());
    assert_eq!(session.spread.carrier_role(), ConnectionRole::Interactive);
    let offered = [(key, unanswered(MigrationTarget::Offer))];
    session.spread.moves.settle(at(session.ms), &offered);
    assert!(session.spread.pause(at(session.ms)));
    assert_eq!(session.spread.moves.open_offers(at(session.ms)), 1);
    assert!(session.spread.allows_rules());
    assert_eq!(session.spread.carrier_role(), ConnectionRole::Bulk);
}

#[test]
fn what_is_counted_is_what_is_there_now() {
    const RULES: SpreadRules =
        SpreadRules { intake: Intake::Open, max_lanes: 4, max_moves: 2, offers: Offers::Never };
    let streams = sending([500, 500]);
    let open = [streams[0].view.connection];
    let mut spread = spread_streams();
    let mut lanes = |views: &[(StreamKey, StreamView)], rules| {
        spread.reach(at(0), views, &streams, &open, rules).lanes()
    };
    let offered = (samples::keys(1)[0], unanswered(MigrationTarget::Offer));
    assert_eq!(lanes(&[], RULES), 1);
    assert_eq!(lanes(&[offered], RULES), 2, "of the rules");
    assert_eq!(lanes(&[], RULES), 1, "it was answered");
    assert_eq!(lanes(&[], SpreadRules { offers: Offers::WhenNoSpare, ..RULES }), 3);
    assert_eq!(lanes(&[offered], SpreadRules { intake: Intake::Draining, ..RULES }), 1);
}

#[test]
fn what_drains_or_is_alone_is_not_spread() {
    let reach = reach::tests::REACH;
    let draining = Reach { intake: Intake::Draining, ..reach };
    let streams = sending([500, 500]);
    let single = spread_streams();
    assert!(single.may_spread(&streams, reach));
    assert!(!single.may_spread(&streams[..1], reach) && !single.may_spread(&streams, draining));
    let spread = Session::spread().spread;
    assert!(spread.may_spread(&streams[..1], reach));
    assert!(!spread.may_spread(&streams, draining), "it ends then");
}

#[test]
fn connections_are_awaited_at_the_beginning_of_a_trial() {
    let mut session = Session::spread();
    let conns = session.conns[..1].to_vec();
    let growth = |spread: &SpreadStreams| spread.lanes(&[], reach::tests::REACH).growth;
    assert_eq!(growth(&session.spread), Growth::Awaited);
    for _ in 0..13 {
        assert_eq!(session.run(&conns, 1), None);
    }
    assert_eq!(growth(&session.spread), Growth::Over);
}

#[test]
fn what_may_not_move_is_fixed() {
    let (session, keys) = samples::session(1);
    let (key, view) = (keys[0], session.stream(keys[0]).unwrap());
    let mut spread = Session::spread().spread;
    let none = MigrationHint::None;
    assert_eq!(spread.mobility(key, &view, none, 2), Mobility::Mobile);
    assert_eq!(spread.mobility(key, &view, MigrationHint::Stay, 2), Mobility::Fixed);
    let moved = StreamView { migrations: 1, ..view };
    assert_eq!(spread.mobility(key, &moved, none, 1), Mobility::Fixed);
    decline(&mut spread, at(0), key);
    assert_eq!(spread.mobility(key, &view, none, 2), Mobility::Fixed);
}
