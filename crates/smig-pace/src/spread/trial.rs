//! One trial: whether several connections carry more than one did, and whether bulk is paced meanwhile.

use smig_proto::Instant;

use super::evidence::{WindowEvidence, WindowLimit, WindowWatch};
use super::round::{Backlog, WindowRound};
use crate::sample::ConnSample;

/// What streams must carry together while they are spread, as a part of the rate before.
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
    /// Streams that have something left, and that their own flow-control windows let send.
    pub streams: usize,
    /// Connections that carry one of them.
    pub lanes: usize,
    /// Connections that may carry one: those, spares, and what the peer may still open for an offer, as far as streams may move.
    pub max_lanes: usize,
}

/// Why streams are no longer spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The connections that were added carry no more.
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
            Self::NoGain => "the connections that were added carry no more",
            Self::NoConnection => "the peer has opened no other connection",
            Self::Complete => "nothing is left to spread",
        }
    }
}

/// Why streams are spread, and what that must exceed.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialBasis {
    /// When its evidence was there.
    pub(super) since: Instant,
    pub(super) evidence: WindowEvidence,
    /// The rate before, bytes per second.
    pub(super) reference_rate: f64,
    pub(super) source: BasisSource,
}

/// Where the basis of a trial is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BasisSource {
    /// The rounds before the trial.
    Observed,
    /// An earlier trial, which has confirmed it.
    Confirmed,
}

/// Streams that are spread.
#[derive(Debug)]
pub(super) struct SpreadTrial {
    basis: TrialBasis,
    /// All connections together.
    rounds: WindowWatch,
    /// Rounds in a row without another connection than at the beginning, or with a single one.
    waiting_rounds: u32,
    /// All of them.
    opening_rounds: u32,
    /// Rounds since the last connection was added.
    lane_rounds: u32,
    /// Connections at the beginning, and at most.
    first_lanes: usize,
    most_lanes: usize,
    fruitless_rounds: u32,
    /// Rounds in a row with a queue, and without.
    queue_rounds: u32,
    empty_rounds: u32,
    is_confirmed: bool,
    is_paced: bool,
}

impl SpreadTrial {
    pub(super) fn new(basis: TrialBasis, lanes: usize) -> Self {
        let lanes = lanes.max(1);
        Self {
            basis,
            rounds: WindowWatch::default(),
            waiting_rounds: 0,
            opening_rounds: 0,
            lane_rounds: 0,
            first_lanes: lanes,
            most_lanes: lanes,
            fruitless_rounds: 0,
            queue_rounds: 0,
            empty_rounds: 0,
            is_confirmed: false,
            is_paced: false,
        }
    }

    pub(super) const fn basis(&self) -> TrialBasis {
        self.basis
    }

    /// Returns whether further connections may still be opened.
    pub(super) const fn awaits_connections(&self) -> bool {
        self.opening_rounds < OPENING_ROUNDS
    }

    /// Returns whether bulk may be sent as congestion control allows.
    pub(super) const fn lifts_pacing(&self) -> bool {
        !self.is_paced
    }

    /// Records that connections were added or closed: the sum of all differs by what those had.
    pub(super) const fn on_other_connections(&mut self) {
        self.rounds.forget_round();
    }

    /// Records a sample. Returns why the trial ends, if it does.
    pub(super) fn on_sample(&mut self, now: Instant, sample: &SpreadSample) -> Option<EndReason> {
        let round = self.rounds.on_sample(now, &sample.all, sample.backlog)?;
        if round.delivered == 0 {
            // A dead path shows neither a queue nor whether more connections help.
            return None;
        }
        self.note_queue(&round);
        self.opening_rounds = self.opening_rounds.saturating_add(1);
        if sample.lanes > self.most_lanes {
            (self.most_lanes, self.lane_rounds) = (sample.lanes, 0);
        }
        if !self.has_grown() {
            return self.on_no_other_lane(sample);
        }
        if sample.lanes < 2 {
            self.waiting_rounds += 1;
            // There is only one stream left: what is not spread must be paced again.
            return (self.waiting_rounds >= TRIAL_ROUNDS).then_some(EndReason::Complete);
        }
        self.waiting_rounds = 0;
        self.lane_rounds += 1;
        if self.lane_rounds < TRIAL_ROUNDS {
            return None;
        }
        if self.has_gain(JUDGED_ROUNDS) {
            (self.is_confirmed, self.fruitless_rounds) = (true, 0);
            return None;
        }
        self.fruitless_rounds += 1;
        let is_over = !self.is_confirmed || self.fruitless_rounds >= FRUITLESS_ROUNDS;
        is_over.then_some(EndReason::NoGain)
    }

    /// Returns whether several connections carry more: all rounds together, if it has ended before it was judged.
    pub(super) fn has_helped(&self) -> bool {
        let has_carried_more =
            self.lane_rounds >= JUDGED_ROUNDS as u32 && self.has_gain(usize::MAX);
        self.is_confirmed || has_carried_more
    }

    fn has_gain(&self, rounds: usize) -> bool {
        self.rounds.rate(rounds) >= self.basis.reference_rate * MIN_GAIN
    }

    /// Returns whether any connection was added.
    const fn has_grown(&self) -> bool {
        self.most_lanes > self.first_lanes
    }

    /// Before the first connection is added: there is nothing to judge.
    fn on_no_other_lane(&mut self, sample: &SpreadSample) -> Option<EndReason> {
        // Where one of them carries nothing any more, the next that does is another one.
        self.first_lanes = sample.lanes.max(1);
        self.most_lanes = self.first_lanes;
        self.waiting_rounds += 1;
        let can_grow = sample.max_lanes > sample.lanes;
        (!can_grow || self.waiting_rounds >= MAX_WAITING_ROUNDS).then_some(EndReason::NoConnection)
    }

    /// Bulk is paced while there is a queue. What made the path longer is none, but what doubles that is.
    fn note_queue(&mut self, round: &WindowRound) {
        let is_empty = match self.basis.evidence.limit() {
            WindowLimit::RandomLoss | WindowLimit::SlowGrowth => round.has_empty_queue(),
            WindowLimit::LongerPath => round.rtt <= self.basis.evidence.later().rtt * 2,
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
