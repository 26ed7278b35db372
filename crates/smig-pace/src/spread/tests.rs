//! What a simulated session's rounds decide.

use std::time::Duration;

use smig_proto::Instant;

use super::control::MIN_RETRY;
use super::{Backlog, EndReason, SpreadControl, SpreadDecision, SpreadSample};
use crate::pacer::MIN_PACED_RTT;
use crate::sample::ConnSample;

const RTT: Duration = Duration::from_millis(40);
const WINDOW: u64 = 14_480;

/// A session whose every round delivers a window on each connection.
struct Simulation {
    control: SpreadControl,
    now: Instant,
    round: u64,
    all: ConnSample,
    busiest: ConnSample,
    streams: usize,
    max_lanes: usize,
}

impl Simulation {
    fn new() -> Self {
        let sample = ConnSample {
            in_flight: WINDOW,
            outstanding: 2 * WINDOW,
            rtt: RTT,
            min_rtt: RTT,
            congestion_window: WINDOW,
            mss: 1448,
            ..ConnSample::default()
        };
        let now = Instant::from_nanos(1);
        let control = SpreadControl::default();
        Self { control, now, round: 0, all: sample, busiest: sample, streams: 6, max_lanes: 4 }
    }

    /// Runs a round, in which `lanes` connections deliver so many bytes together.
    fn run(
        &mut self,
        lanes: usize,
        delivered: u64,
        lost: u64,
        rtt: Duration,
    ) -> Option<SpreadDecision> {
        let mut decision = None;
        for _ in 0..4 {
            self.now = self.now + rtt / 4;
            for sample in [&mut self.all, &mut self.busiest] {
                sample.rtt = rtt;
            }
            self.all.acknowledged += delivered / 4;
            self.all.in_flight = delivered;
            self.busiest.acknowledged += delivered / 4 / lanes as u64;
            let sample = SpreadSample {
                busiest: self.busiest,
                backlog: Backlog::Window,
                all: self.all,
                left_bytes: 1 << 20,
                streams: self.streams,
                lanes,
                max_lanes: self.max_lanes,
            };
            let decided = self.control.on_sample(self.now, &sample);
            decision = decision.or(decided);
        }
        self.round += 1;
        self.all.retransmitted += lost;
        self.busiest.retransmitted += lost;
        decision
    }

    /// Until streams are spread, by losses in each fourth round.
    fn spread(&mut self) {
        for round in 0..40 {
            let lost = u64::from(round % 4 == 0);
            if let Some(decision) = self.run(1, WINDOW, lost, RTT) {
                assert!(matches!(decision, SpreadDecision::Spread(_)), "{decision:?}");
                return;
            }
        }
        panic!("no evidence");
    }
}

#[test]
fn a_path_without_losses_is_left_alone() {
    let mut simulation = Simulation::new();
    for _ in 0..100 {
        assert_eq!(simulation.run(1, WINDOW, 0, RTT), None);
    }
    for _ in 0..100 {
        // A queue stands, and drops.
        assert_eq!(simulation.run(1, WINDOW, 1, RTT * 2), None);
    }
    assert!(!simulation.control.is_spread());
}

#[test]
fn a_path_without_a_round_trip_to_speak_of_is_left_alone() {
    let mut simulation = Simulation::new();
    let rtt = MIN_PACED_RTT / 2;
    for sample in [&mut simulation.all, &mut simulation.busiest] {
        sample.min_rtt = rtt;
    }
    for round in 0..100_u64 {
        assert_eq!(simulation.run(1, WINDOW, u64::from(round.is_multiple_of(4)), rtt), None);
    }
}

#[test]
fn streams_stay_spread_while_that_carries_more() {
    let mut simulation = Simulation::new();
    simulation.spread();
    assert!(simulation.control.lifts_pacing());
    for _ in 0..100 {
        assert_eq!(simulation.run(4, 3 * WINDOW, 1, RTT), None);
    }
    assert!(simulation.control.is_spread());
}

#[test]
fn what_does_not_help_ends_and_is_tried_again_later_and_later() {
    let mut simulation = Simulation::new();
    let mut trials = Vec::new();
    for _ in 0..3 {
        simulation.spread();
        let ended = (0..20).find_map(|_| simulation.run(4, WINDOW, 1, RTT));
        assert_eq!(ended, Some(SpreadDecision::End(EndReason::NoGain)));
        let ended_at = simulation.now;
        let mut rounds = 0_u32;
        while simulation.run(1, WINDOW, u64::from(rounds.is_multiple_of(4)), RTT).is_none() {
            rounds += 1;
        }
        trials.push(simulation.now.saturating_duration_since(ended_at));
        let ended = (0..20).find_map(|_| simulation.run(4, WINDOW, 1, RTT));
        assert_eq!(ended, Some(SpreadDecision::End(EndReason::NoGain)));
        simulation.now = simulation.now + Duration::from_secs(200);
    }
    assert!(trials[0] >= MIN_RETRY && trials[1] > trials[0] * 2, "{trials:?}");
}

#[test]
fn a_trial_lasts_until_its_last_connection_has_left_slow_start() {
    let mut simulation = Simulation::new();
    simulation.spread();
    for lanes in [2, 3, 4] {
        for _ in 0..5 {
            assert_eq!(simulation.run(lanes, WINDOW, 0, RTT), None);
        }
    }
    for _ in 0..20 {
        assert_eq!(simulation.run(4, 3 * WINDOW, 0, RTT), None);
    }
    assert!(simulation.control.is_spread());
}

#[test]
fn a_client_that_opens_no_connection_is_not_waited_for() {
    let mut simulation = Simulation::new();
    simulation.spread();
    let ended = (0..60).find_map(|_| simulation.run(1, WINDOW, 0, RTT));
    assert_eq!(ended, Some(SpreadDecision::End(EndReason::NoConnection)));
}

#[test]
fn what_a_spread_has_confirmed_is_kept_for_the_streams_that_follow() {
    let mut simulation = Simulation::new();
    simulation.spread();
    for _ in 0..20 {
        simulation.run(4, 3 * WINDOW, 1, RTT);
    }
    simulation.control.on_complete(simulation.now);
    assert!(!simulation.control.is_spread());
    let decision = (0..2).find_map(|_| simulation.run(1, WINDOW, 0, RTT));
    assert!(matches!(decision, Some(SpreadDecision::Spread(_))), "{decision:?}");
}

#[test]
fn a_page_that_ends_before_a_trial_does_confirms_it_if_it_carried_more() {
    for (delivered, is_confirmed) in [(3 * WINDOW, true), (WINDOW, false)] {
        let mut simulation = Simulation::new();
        simulation.spread();
        for _ in 0..6 {
            assert_eq!(simulation.run(4, delivered, 1, RTT), None);
        }
        simulation.control.on_complete(simulation.now);
        let decision = (0..2).find_map(|_| simulation.run(1, WINDOW, 0, RTT));
        assert_eq!(decision.is_some(), is_confirmed);
    }
}

#[test]
fn a_stream_that_is_left_alone_is_paced_again() {
    let mut simulation = Simulation::new();
    simulation.spread();
    for _ in 0..20 {
        simulation.run(4, 3 * WINDOW, 1, RTT);
    }
    let ended = (0..20).find_map(|_| simulation.run(1, WINDOW, 0, RTT));
    assert_eq!(ended, Some(SpreadDecision::End(EndReason::Complete)));
    assert!(!simulation.control.lifts_pacing());
}

#[test]
fn counters_of_two_connections_make_no_round() {
    let mut simulation = Simulation::new();
    for round in 0..100 {
        assert_eq!(simulation.run(1, WINDOW, 0, RTT), None);
        let (own, other) = (simulation.busiest, &mut simulation.busiest);
        other.retransmitted = if round % 2 == 0 { own.retransmitted + 1 } else { 0 };
        simulation.control.on_other_busiest();
    }
}

#[test]
fn rounds_of_two_connections_are_no_evidence() {
    let mut simulation = Simulation::new();
    for round in 0..100_u64 {
        // Few rounds of each, in the first of which a packet is lost.
        assert_eq!(simulation.run(1, WINDOW, u64::from(round % 4 == 0), RTT), None);
        if round % 4 == 3 {
            simulation.control.on_other_busiest();
        }
    }
}

#[test]
fn a_path_that_was_dead_is_no_low_rate_to_exceed() {
    let mut simulation = Simulation::new();
    for _ in 0..4 {
        simulation.run(1, WINDOW, 0, RTT);
    }
    simulation.run(1, WINDOW, 1, RTT);
    for _ in 0..12 {
        // Retransmissions of a dead path are no random losses either.
        assert_eq!(simulation.run(1, 0, 1, RTT), None);
    }
    simulation.spread();
    let ended = (0..20).find_map(|_| simulation.run(4, WINDOW, 1, RTT));
    assert_eq!(ended, Some(SpreadDecision::End(EndReason::NoGain)));
}

#[test]
fn a_trial_is_not_judged_while_the_path_is_dead() {
    let mut simulation = Simulation::new();
    simulation.spread();
    for _ in 0..2 {
        assert_eq!(simulation.run(4, WINDOW, 1, RTT), None);
    }
    for _ in 0..100 {
        assert_eq!(simulation.run(4, 0, 0, RTT), None);
    }
    for _ in 0..20 {
        assert_eq!(simulation.run(4, 3 * WINDOW, 1, RTT), None);
    }
    assert!(simulation.control.is_spread());
}

#[test]
fn a_connection_that_is_closed_does_not_end_a_trial() {
    let mut simulation = Simulation::new();
    simulation.spread();
    for _ in 0..6 {
        assert_eq!(simulation.run(4, 2 * WINDOW, 1, RTT), None);
    }
    // What it had sent is missing in the sum from now on.
    simulation.all.acknowledged -= 5 * WINDOW;
    simulation.control.on_other_connections();
    for _ in 0..20 {
        assert_eq!(simulation.run(3, 2 * WINDOW, 1, RTT), None);
    }
    assert!(simulation.control.is_spread());
}

#[test]
fn no_trial_begins_where_no_connection_can_be_added() {
    let mut simulation = Simulation::new();
    for (lanes, streams, max_lanes) in [(4, 6, 4), (2, 2, 4), (1, 6, 1)] {
        (simulation.streams, simulation.max_lanes) = (streams, max_lanes);
        for round in 0..100_u64 {
            let lost = u64::from(round.is_multiple_of(4));
            assert_eq!(simulation.run(lanes, 4 * WINDOW, lost, RTT), None, "{lanes} {streams}");
            assert!(!simulation.control.lifts_pacing());
        }
    }
    // None of that has delayed the trial that helps.
    (simulation.streams, simulation.max_lanes) = (6, 4);
    simulation.spread();
}

#[test]
fn what_ran_on_several_connections_before_is_the_rate_to_exceed() {
    for (delivered, is_gain) in [(4, false), (6, true)] {
        let mut simulation = Simulation::new();
        let mut lossy = (0..40).map(|round| u64::from(round % 4 == 0));
        let decision = lossy.find_map(|lost| simulation.run(2, 4 * WINDOW, lost, RTT));
        assert!(matches!(decision, Some(SpreadDecision::Spread(_))), "{decision:?}");
        let ended = (0..20).find_map(|_| simulation.run(4, delivered * WINDOW, 1, RTT));
        let no_gain = Some(SpreadDecision::End(EndReason::NoGain));
        assert_eq!(ended, no_gain.filter(|_| !is_gain));
    }
}

#[test]
fn a_trial_to_which_no_connection_is_added_is_not_judged() {
    let mut simulation = Simulation::new();
    let mut lossy = (0..40).map(|round| u64::from(round % 4 == 0));
    assert!(lossy.any(|lost| simulation.run(2, 4 * WINDOW, lost, RTT).is_some()));
    for _ in 0..20 {
        assert_eq!(simulation.run(2, 4 * WINDOW, 1, RTT), None);
    }
    // One of them carries no more, and another one is added.
    assert_eq!(simulation.run(1, 4 * WINDOW, 1, RTT), None);
    for _ in 0..40 {
        assert_eq!(simulation.run(2, 8 * WINDOW, 1, RTT), None);
    }
    simulation.control.on_complete(simulation.now);
    assert!(lossy.any(|lost| simulation.run(1, WINDOW, lost, RTT).is_some()), "it has helped");
}

#[test]
fn what_a_new_connection_sent_before_is_no_rate() {
    let mut simulation = Simulation::new();
    for round in 0..40_u64 {
        if simulation.run(1, WINDOW, u64::from(round.is_multiple_of(4)), RTT).is_some() {
            break;
        }
        // Its TLS handshake.
        simulation.all.acknowledged += 5 * WINDOW;
        simulation.control.on_other_connections();
    }
    assert!(simulation.control.is_spread());
    for _ in 0..20 {
        assert_eq!(simulation.run(4, 3 * WINDOW, 1, RTT), None, "it is no rate to exceed");
    }
    let mut simulation = Simulation::new();
    simulation.spread();
    for _ in 0..6 {
        assert_eq!(simulation.run(4, WINDOW, 1, RTT), None);
    }
    simulation.all.acknowledged += 100 * WINDOW;
    simulation.control.on_other_connections();
    let ended = (0..4).find_map(|_| simulation.run(4, WINDOW, 1, RTT));
    assert_eq!(ended, Some(SpreadDecision::End(EndReason::NoGain)), "it is no gain");
}

#[test]
fn without_another_connection_nothing_is_tried_nor_waited_for() {
    let mut simulation = Simulation::new();
    simulation.max_lanes = 1;
    for round in 0..100_u64 {
        assert_eq!(simulation.run(1, WINDOW, u64::from(round.is_multiple_of(4)), RTT), None);
    }
    simulation.max_lanes = 4;
    simulation.spread();
    assert_eq!(simulation.run(1, WINDOW, 0, RTT), None);
    simulation.max_lanes = 1;
    let ended = (0..2).find_map(|_| simulation.run(1, WINDOW, 0, RTT));
    assert_eq!(ended, Some(SpreadDecision::End(EndReason::NoConnection)));
}

#[test]
fn what_ends_before_it_was_confirmed_is_tried_again_later_and_later() {
    let mut simulation = Simulation::new();
    let mut delays = Vec::new();
    for _ in 0..3 {
        simulation.spread();
        for _ in 0..2 {
            assert_eq!(simulation.run(2, WINDOW, 0, RTT), None);
        }
        simulation.control.on_complete(simulation.now);
        let ended_at = simulation.now;
        let mut rounds = 0_u32;
        while simulation.run(1, WINDOW, u64::from(rounds.is_multiple_of(4)), RTT).is_none() {
            rounds += 1;
        }
        delays.push(simulation.now.saturating_duration_since(ended_at));
        simulation.control.on_complete(simulation.now);
        simulation.now = simulation.now + Duration::from_secs(200);
    }
    assert!(delays[0] >= MIN_RETRY && delays[1] > delays[0] * 2, "{delays:?}");
}

#[test]
fn what_was_confirmed_holds_for_streams_that_are_too_few_to_show_it_again() {
    let mut simulation = Simulation::new();
    simulation.spread();
    for _ in 0..20 {
        simulation.run(4, 3 * WINDOW, 1, RTT);
    }
    for _ in 0..3 {
        simulation.control.on_complete(simulation.now);
        let decision = (0..2).find_map(|_| simulation.run(1, WINDOW, 0, RTT));
        assert!(matches!(decision, Some(SpreadDecision::Spread(_))), "{decision:?}");
    }
}

#[test]
fn what_doubles_the_round_trip_of_a_longer_path_is_paced_as_well() {
    let mut simulation = Simulation::new();
    let less = [(10, 2); 12];
    for (rtt, in_flight) in [(1, 8), (10, 8), (10, 8)].into_iter().chain(less) {
        if simulation.control.is_spread() {
            break;
        }
        for sample in [&mut simulation.all, &mut simulation.busiest] {
            sample.in_flight = in_flight * WINDOW;
            sample.congestion_window = sample.in_flight;
        }
        simulation.run(1, in_flight * WINDOW, 0, RTT * rtt);
    }
    assert!(simulation.control.lifts_pacing());
    for _ in 0..3 {
        simulation.run(4, 8 * WINDOW, 0, RTT * 10);
    }
    assert!(simulation.control.lifts_pacing(), "it is what it was");
    for _ in 0..4 {
        simulation.run(4, 8 * WINDOW, 0, RTT * 21);
    }
    assert!(!simulation.control.lifts_pacing());
}

#[test]
fn a_queue_is_paced_and_an_empty_one_is_not() {
    let mut simulation = Simulation::new();
    simulation.spread();
    for _ in 0..10 {
        simulation.run(4, 4 * WINDOW, 0, RTT);
    }
    for _ in 0..4 {
        simulation.run(4, 8 * WINDOW, 0, RTT * 2);
    }
    assert!(!simulation.control.lifts_pacing());
    for _ in 0..4 {
        simulation.run(4, 4 * WINDOW, 1, RTT);
    }
    assert!(simulation.control.lifts_pacing());
}
