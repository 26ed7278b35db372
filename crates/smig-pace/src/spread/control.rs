//! When a session spreads its streams over several connections, and when it goes back to one.

use std::time::Duration;

use smig_proto::Instant;

use super::evidence::{WindowEvidence, WindowLimit, WindowWatch};
use super::round::{Backlog, WindowRound};
use crate::pacer::MIN_PACED_RTT;
use crate::sample::ConnSample;

/// A spread takes a handshake and some rounds: it is for what takes more than this number of windows, and these bytes.
const MIN_WINDOWS_LEFT: u64 = 4;
const MIN_BYTES_LEFT: u64 = 64 << 10;
/// Rounds whose mean is the rate that a spread must exceed, by this factor: since the loss, and without what slow start sent before.
const REFERENCE_ROUNDS: usize = 4;
const MIN_GAIN: f64 = 1.25;
/// Rounds since the last connection was added, which begins with slow start, until their rate is judged by the mean of the last few.
const TRIAL_ROUNDS: u32 = 8;
const JUDGED_ROUNDS: usize = 4;
/// Rounds without another connection until the trial ends.
const MAX_WAITING_ROUNDS: u32 = 40;
/// Rounds in which other connections are opened: three handshakes and a retransmission.
const OPENING_ROUNDS: u32 = 12;
/// Rounds in a row that show no more gain.
const FRUITLESS_ROUNDS: u32 = 8;
/// Rounds in a row with a queue until bulk is paced again, and without one until it is not.
const QUEUE_ROUNDS: u32 = 2;
/// Time until the next trial after one that did not help; doubled each time.
const MIN_RETRY: Duration = Duration::from_secs(5);
const MAX_RETRY_DOUBLINGS: u32 = 5;
/// How long what a spread has confirmed holds for streams that begin later: then one connection has to show it again.
const CONFIRMED_TIME: Duration = Duration::from_secs(180);

/// What the owner measures of a session that sends.
#[derive(Clone, Copy, Debug)]
pub struct SpreadSample {
    /// The connection that carries most of what is left.
    pub busiest: ConnSample,
    /// What limits it.
    pub backlog: Backlog,
    /// All connections together: bytes acknowledged and in flight, packets retransmitted, windows; the round trip is that of
    /// the busiest.
    pub all: ConnSample,
    /// Bytes that are left to send.
    pub left_bytes: u64,
    /// Streams that have something left.
    pub streams: usize,
    /// Connections that carry one of them.
    pub lanes: usize,
}

/// What the owner must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpreadDecision {
    /// Spread the streams over several connections.
    Spread(WindowEvidence),
    /// Spread no more streams, and let those that run end where they are.
    End(EndReason),
}

/// Why streams are no longer spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Several connections carry no more than one did.
    NoGain,
    /// The peer has opened no other connection.
    NoConnection,
    /// Nothing is left to send, or one stream.
    Complete,
}

impl EndReason {
    /// Returns the text for logs and users.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoGain => "several connections carry no more than one did",
            Self::NoConnection => "the peer has opened no other connection",
            Self::Complete => "nothing is left to spread",
        }
    }
}

/// Decides, by evidence of at least two rounds, whether a session's streams are spread.
#[derive(Debug, Default)]
pub struct SpreadControl {
    watch: WindowWatch,
    state: SpreadState,
    retry_at: Option<Instant>,
    failures: u32,
    confirmed: Option<Confirmed>,
}

/// What a spread has confirmed.
#[derive(Clone, Copy, Debug)]
struct Confirmed {
    /// When its evidence was there.
    since: Instant,
    evidence: WindowEvidence,
    reference_rate: f64,
}

#[derive(Debug, Default)]
enum SpreadState {
    #[default]
    Single,
    Spread(Box<Spread>),
}

#[derive(Debug)]
struct Spread {
    since: Instant,
    evidence: WindowEvidence,
    /// The rate before, bytes per second.
    reference_rate: f64,
    /// All connections together.
    rounds: WindowWatch,
    /// Rounds in a row with one connection, and rounds with as many as at most.
    waiting_rounds: u32,
    /// All of them.
    opening_rounds: u32,
    lane_rounds: u32,
    most_lanes: usize,
    fruitless_rounds: u32,
    /// Rounds in a row with a queue, and without.
    queue_rounds: u32,
    empty_rounds: u32,
    is_confirmed: bool,
    is_paced: bool,
}

impl SpreadControl {
    /// Returns whether streams are spread now.
    #[must_use]
    pub const fn is_spread(&self) -> bool {
        matches!(self.state, SpreadState::Spread(_))
    }

    /// Returns whether further connections may still be opened for what is spread.
    #[must_use]
    pub fn awaits_connections(&self) -> bool {
        matches!(&self.state, SpreadState::Spread(spread) if spread.opening_rounds < OPENING_ROUNDS)
    }

    /// Returns whether bulk may be sent as congestion control allows: what is sent is spread, and makes no queue.
    #[must_use]
    pub fn lifts_pacing(&self) -> bool {
        matches!(&self.state, SpreadState::Spread(spread) if !spread.is_paced)
    }

    /// Records that another connection carries most from now on: its counters begin elsewhere.
    pub fn on_other_busiest(&mut self) {
        self.watch.forget_round();
    }

    /// Records that nothing is left to send. What was spread has ended, and what it has confirmed is kept.
    pub fn on_complete(&mut self, now: Instant) {
        self.end(now, EndReason::Complete);
    }

    /// Records a sample, and decides.
    pub fn on_sample(&mut self, now: Instant, sample: &SpreadSample) -> Option<SpreadDecision> {
        match &mut self.state {
            SpreadState::Single => self.on_single(now, sample),
            SpreadState::Spread(spread) => {
                let reason = spread.on_sample(now, sample)?;
                self.end(now, reason);
                Some(SpreadDecision::End(reason))
            }
        }
    }

    fn on_single(&mut self, now: Instant, sample: &SpreadSample) -> Option<SpreadDecision> {
        let round = self.watch.on_sample(now, &sample.busiest, sample.backlog)?;
        if self.retry_at.is_some_and(|at| now < at) || !is_worthwhile(sample) {
            return None;
        }
        let found = self.watch.evidence().map(|evidence| Confirmed {
            since: now,
            evidence,
            reference_rate: self.watch.rate(REFERENCE_ROUNDS),
        });
        let is_recent = |it: &Confirmed| now.saturating_duration_since(it.since) < CONFIRMED_TIME;
        let confirmed = self.confirmed.filter(|it| is_recent(it) && round.is_limited);
        // What slow start sends is no rate to exceed: that of the first trial is.
        let Confirmed { since, evidence, reference_rate } = confirmed.or(found)?;
        self.state = SpreadState::Spread(Box::new(Spread {
            since,
            evidence,
            reference_rate,
            rounds: WindowWatch::default(),
            waiting_rounds: 0,
            opening_rounds: 0,
            lane_rounds: 0,
            most_lanes: 1,
            fruitless_rounds: 0,
            queue_rounds: 0,
            empty_rounds: 0,
            is_confirmed: false,
            is_paced: false,
        }));
        Some(SpreadDecision::Spread(evidence))
    }

    fn end(&mut self, now: Instant, reason: EndReason) {
        let SpreadState::Spread(spread) = core::mem::take(&mut self.state) else { return };
        self.watch = WindowWatch::default();
        match reason {
            EndReason::Complete => {
                if spread.is_confirmed || spread.has_carried_more() {
                    let Spread { since, evidence, reference_rate, .. } = *spread;
                    self.confirmed = Some(Confirmed { since, evidence, reference_rate });
                    self.failures = 0;
                }
            }
            EndReason::NoGain | EndReason::NoConnection => {
                self.confirmed = None;
                self.retry_at =
                    Some(now + MIN_RETRY * (1 << self.failures.min(MAX_RETRY_DOUBLINGS)));
                self.failures += 1;
            }
        }
    }
}

impl Spread {
    fn on_sample(&mut self, now: Instant, sample: &SpreadSample) -> Option<EndReason> {
        let round = self.rounds.on_sample(now, &sample.all, sample.backlog)?;
        self.note_queue(&round);
        self.opening_rounds = self.opening_rounds.saturating_add(1);
        if sample.lanes < 2 {
            return self.on_single_lane();
        }
        self.waiting_rounds = 0;
        if sample.lanes > self.most_lanes {
            (self.most_lanes, self.lane_rounds) = (sample.lanes, 0);
        }
        self.lane_rounds += 1;
        if self.lane_rounds < TRIAL_ROUNDS {
            return None;
        }
        if self.rounds.rate(JUDGED_ROUNDS) >= self.reference_rate * MIN_GAIN {
            (self.is_confirmed, self.fruitless_rounds) = (true, 0);
            return None;
        }
        self.fruitless_rounds += 1;
        let is_over = !self.is_confirmed || self.fruitless_rounds >= FRUITLESS_ROUNDS;
        is_over.then_some(EndReason::NoGain)
    }

    /// Returns whether all rounds together carried more, for what has ended before it was judged.
    fn has_carried_more(&self) -> bool {
        self.lane_rounds >= JUDGED_ROUNDS as u32
            && self.rounds.rate(usize::MAX) >= self.reference_rate * MIN_GAIN
    }

    /// Before the first other connection, or when there is only one stream left: what is not spread must be paced again.
    fn on_single_lane(&mut self) -> Option<EndReason> {
        self.waiting_rounds += 1;
        let (max_rounds, reason) = match self.most_lanes {
            0 | 1 => (MAX_WAITING_ROUNDS, EndReason::NoConnection),
            _ => (TRIAL_ROUNDS, EndReason::Complete),
        };
        (self.waiting_rounds >= max_rounds).then_some(reason)
    }

    /// Bulk is paced while there is a queue. What made the path longer is none, but what doubles that is.
    fn note_queue(&mut self, round: &WindowRound) {
        let is_empty = match self.evidence.limit() {
            WindowLimit::RandomLoss | WindowLimit::SlowGrowth => round.has_empty_queue(),
            WindowLimit::LongerPath => round.rtt <= self.evidence.later().rtt * 2,
        };
        if is_empty {
            (self.queue_rounds, self.empty_rounds) = (0, self.empty_rounds + 1);
            self.is_paced &= self.empty_rounds < QUEUE_ROUNDS;
        } else {
            (self.queue_rounds, self.empty_rounds) = (self.queue_rounds + 1, 0);
            self.is_paced |= self.queue_rounds >= QUEUE_ROUNDS;
        }
    }
}

/// Returns whether enough is left for other connections to help, on a path where a window that is too small matters.
fn is_worthwhile(sample: &SpreadSample) -> bool {
    if sample.busiest.min_rtt < MIN_PACED_RTT {
        return false;
    }
    let min_left = (sample.busiest.in_flight * MIN_WINDOWS_LEFT).max(MIN_BYTES_LEFT);
    sample.streams >= 2 && sample.left_bytes >= min_left
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);
    const WINDOW: u64 = 14_480;

    /// A session whose every round delivers a window on each connection.
    struct Simulation {
        control: SpreadControl,
        now: Instant,
        round: u64,
        all: ConnSample,
        busiest: ConnSample,
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
            Self { control: SpreadControl::default(), now, round: 0, all: sample, busiest: sample }
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
                    streams: 6,
                    lanes,
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
}
