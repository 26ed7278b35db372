//! When a running stream moves: the engine's policy fed with what the sockets report.
//!
//! Decides nothing itself. Used by the server for what it sends and by the client for what it
//! sends or receives.

use std::time::Duration;

use smig_proto::policy::{Decision, Hint, Policy, Situation, StayReason, Transfer};
use smig_proto::{ConnId, Instant, StreamKey, Target};

use crate::driver::Turn;
use crate::snapshot::{Departure, MoveCause, Record, Verdict};

/// How often the rules are asked again while a stream runs, in octets.
const STEP: u64 = 32 << 10;
/// What counts as "seen in the last second".
const RECENT: Duration = Duration::from_secs(1);
/// How often TCP is asked for its rate.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);

/// The rules by which an endpoint moves streams.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MoveRules {
    /// Who decides.
    pub mode: MoveMode,
    /// Thresholds for [`MoveMode::Policy`].
    pub policy: Policy,
    /// What a server does when no spare connection is there.
    pub offers: Offers,
}

/// Who decides that a stream moves.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MoveMode {
    /// Nobody: this side moves no stream (the peer may).
    Never,
    /// The policy.
    #[default]
    Policy,
    /// For tests: each stream moves when its body has reached these offsets, in ascending order.
    At(Vec<u64>),
}

/// What a server does when a stream is to move and the session has no spare connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offers {
    /// The stream stays.
    Never,
    /// It asks the client, once a stream, to open one and to move the stream there.
    #[default]
    WhenNoSpare,
}

/// What the rules know of one stream.
#[derive(Debug)]
pub(crate) struct Tracked {
    transfer: Transfer,
    hint: Hint,
    opened: Instant,
    next_look: u64,
    forced: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Home,
    Offered,
    Settled,
}

/// The session's surroundings of a stream.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    recent: [Option<Instant>; 4],
    next: usize,
    sample: Option<(ConnId, Instant, Option<u64>)>,
}

impl Surroundings {
    /// A stream was opened.
    pub(crate) fn on_open(&mut self, now: Instant) {
        if let Some(place) = self.recent.get_mut(self.next) {
            *place = Some(now);
        }
        self.next = (self.next + 1) % self.recent.len();
    }

    /// Streams beside one that is open, out of `open`, or opened within the last second.
    fn others(&self, now: Instant, open: usize) -> usize {
        let fresh = |at: &&Instant| now.saturating_duration_since(**at) < RECENT;
        let recent = self.recent.iter().flatten().filter(fresh).count();
        recent.max(open).saturating_sub(1)
    }

    /// The delivery rate of a connection, measured lately.
    fn rate(&mut self, turn: &mut Turn<'_>, conn: ConnId) -> Option<u64> {
        if let Some((of, at, rate)) = self.sample
            && of == conn
            && turn.now.saturating_duration_since(at) < SAMPLE_EVERY
        {
            return rate;
        }
        let rate = turn.links.sample(conn).delivery_rate;
        self.sample = Some((conn, turn.now, rate));
        rate
    }
}

impl Tracked {
    /// A stream to watch; `None` if the rules can never move it.
    pub(crate) fn new(
        rules: &MoveRules,
        transfer: Transfer,
        hint: Hint,
        opened: Instant,
    ) -> Option<Self> {
        let small = matches!(transfer, Transfer::Sized(size) if size < rules.policy.min_size);
        let watched = match rules.mode {
            MoveMode::Never => hint == Hint::Move,
            MoveMode::Policy => hint != Hint::Stay && (!small || hint == Hint::Move),
            MoveMode::At(_) => true,
        };
        watched.then_some(Self {
            transfer,
            hint,
            opened,
            next_look: 0,
            forced: 0,
            state: State::Home,
        })
    }

    /// The stream is on another connection now.
    pub(crate) fn on_moved(&mut self) {
        self.state = State::Settled;
    }

    /// Whether it left the connection that it was opened on.
    pub(crate) fn is_settled(&self) -> bool {
        self.state == State::Settled
    }

    /// Looks whether the stream is to move; `open` streams share its connection, itself included.
    /// Returns a verdict that differs from the one before.
    pub(crate) fn look(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &MoveRules,
        around: &mut Surroundings,
        key: StreamKey,
        open: usize,
        record: &mut Record,
    ) -> Option<Verdict> {
        if self.state == State::Settled && !matches!(rules.mode, MoveMode::At(_)) {
            return None;
        }
        let view = turn.session.stream(key)?;
        let transferred = view.sent + view.received;
        if let MoveMode::At(offsets) = &rules.mode {
            let due = offsets.get(self.forced).is_some_and(|&at| transferred >= at);
            if due && migrate(turn, key, rules.offers, MoveCause::Offset, record) == Outcome::Moved
            {
                self.forced += 1;
            }
            return None;
        }
        if transferred < self.next_look && self.hint != Hint::Move {
            return None;
        }
        let others = around.others(turn.now, open);
        if others < rules.policy.company(self.transfer) && self.hint != Hint::Move {
            return record.judge(Verdict::Stays(StayReason::Alone));
        }
        self.next_look = transferred + STEP;
        let situation = Situation {
            transfer: self.transfer,
            transferred,
            age: turn.now.saturating_duration_since(self.opened),
            priority: view.priority,
            others,
            delivery_rate: around.rate(turn, view.connection),
            hint: self.hint,
        };
        let why = match rules.policy.decide(&situation) {
            Decision::Move(why) => why,
            Decision::Stay(why) => return record.judge(Verdict::Stays(why)),
        };
        let offers = if self.state == State::Home { rules.offers } else { Offers::Never };
        match migrate(turn, key, offers, MoveCause::Policy(why), record) {
            Outcome::Moved => {
                tracing::debug!(?key, why = why.as_str(), transferred, "stream moves");
                self.state = State::Settled;
                record.judge(Verdict::Moves(why))
            }
            Outcome::Offered => {
                self.state = State::Offered;
                record.judge(Verdict::Offered(why))
            }
            // An offer may be waiting for its answer.
            Outcome::NotNow if self.state == State::Offered => None,
            Outcome::NotNow => record.judge(Verdict::Waits(why)),
        }
    }
}

/// What became of a wish to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Moved,
    Offered,
    NotNow,
}

/// Moves a stream to a spare, or offers it, and notes why.
pub(crate) fn migrate(
    turn: &mut Turn<'_>,
    key: StreamKey,
    offers: Offers,
    why: MoveCause,
    record: &mut Record,
) -> Outcome {
    let offset = turn.session.stream(key).map(|view| view.sent + view.received);
    if turn.session.migrate(turn.now, key, Target::Spare).is_ok() {
        record.departure = Some(Departure { why, offset });
        return Outcome::Moved;
    }
    if offers == Offers::WhenNoSpare && turn.session.migrate(turn.now, key, Target::Offer).is_ok() {
        record.departure = Some(Departure { why, offset: None });
        return Outcome::Offered;
    }
    Outcome::NotNow
}
