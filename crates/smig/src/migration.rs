//! Migration of running streams: feeds the engine's policy with what the sockets report.
//!
//! The policy decides, not this module. Used by the server for what it sends, and by the client for what it
//! sends or receives.

use std::time::Duration;

use smig_proto::policy::{
    Decision, MigrationHint, MigrationPolicy, PolicyInput, StayReason, Transfer,
};
use smig_proto::{ConnId, Instant, MigrationTarget, StreamKey};

use crate::driver::TurnCx;
use crate::snapshot::{MigrationCause, PendingMigration, PolicyOutcome, StreamRecord};

/// Bytes of body between two evaluations of the rules for a stream.
const EVALUATION_STEP_BYTES: u64 = 32 << 10;
/// How long a stream counts as recently opened.
const RECENT_TIME: Duration = Duration::from_secs(1);
/// Shortest interval between two reads of a connection's delivery rate.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// The rules by which an endpoint migrates streams.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MigrationConfig {
    /// What decides.
    pub mode: MigrationMode,
    /// Thresholds for [`MigrationMode::Policy`].
    pub policy: MigrationPolicy,
    /// What a server does when no spare connection is available.
    pub offers: Offers,
}

/// What decides that a stream migrates.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MigrationMode {
    /// Nothing but [`MigrationHint::Migrate`]: this endpoint migrates no other stream. The peer may
    /// migrate any.
    Never,
    /// The policy and its thresholds.
    #[default]
    Policy,
    /// For tests: each stream migrates when its body reaches these offsets in bytes, in ascending order.
    At(Vec<u64>),
}

/// What a server does when a stream is to migrate and the session has no spare connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offers {
    /// The stream stays.
    Never,
    /// It requests, once per stream, that the client open one and migrate the stream there.
    #[default]
    WhenNoSpare,
}

/// State of the rules for one stream.
#[derive(Debug)]
pub(crate) struct Candidate {
    transfer: Transfer,
    hint: MigrationHint,
    opened: Instant,
    next_evaluation: u64,
    forced: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Home,
    Offered,
    Settled,
}

/// State of the session that the rules take into account.
#[derive(Debug, Default)]
pub(crate) struct RecentStreams {
    recent: [Option<Instant>; 4],
    next: usize,
    sample: Option<(ConnId, Instant, Option<u64>)>,
}

impl RecentStreams {
    /// Records that a stream was opened.
    pub(crate) fn on_open(&mut self, now: Instant) {
        if let Some(place) = self.recent.get_mut(self.next) {
            *place = Some(now);
        }
        self.next = (self.next + 1) % self.recent.len();
    }

    /// Returns the number of streams besides one that is open: of `open`, or of those opened within the last
    /// second if these are more.
    fn others(&self, now: Instant, open: usize) -> usize {
        let fresh = |at: &&Instant| now.saturating_duration_since(**at) < RECENT_TIME;
        let recent = self.recent.iter().flatten().filter(fresh).count();
        recent.max(open).saturating_sub(1)
    }

    /// Returns the connection's delivery rate in bytes per second, at most [`SAMPLE_INTERVAL`] old.
    fn rate(&mut self, turn: &mut TurnCx<'_>, conn: ConnId) -> Option<u64> {
        if let Some((of, at, rate)) = self.sample
            && of == conn
            && turn.now.saturating_duration_since(at) < SAMPLE_INTERVAL
        {
            return rate;
        }
        let rate = turn.conns.sample(conn).delivery_rate;
        self.sample = Some((conn, turn.now, rate));
        rate
    }
}

impl Candidate {
    /// Starts to track a stream; `None` if the rules can never migrate it.
    pub(crate) fn new(
        rules: &MigrationConfig,
        transfer: Transfer,
        hint: MigrationHint,
        opened: Instant,
    ) -> Option<Self> {
        let small = matches!(transfer, Transfer::Sized(size) if size < rules.policy.min_size);
        let watched = match rules.mode {
            MigrationMode::Never => hint == MigrationHint::Migrate,
            MigrationMode::Policy => {
                hint != MigrationHint::Stay && (!small || hint == MigrationHint::Migrate)
            }
            MigrationMode::At(_) => true,
        };
        watched.then_some(Self {
            transfer,
            hint,
            opened,
            next_evaluation: 0,
            forced: 0,
            state: State::Home,
        })
    }

    /// Records that the stream is on another connection now.
    pub(crate) fn on_moved(&mut self) {
        self.state = State::Settled;
    }

    /// Returns whether the stream has left the connection on which it was opened.
    pub(crate) fn is_settled(&self) -> bool {
        self.state == State::Settled
    }

    /// Evaluates the rules, and migrates the stream if they say so; `open` streams share its connection, itself
    /// included. Returns the verdict if it differs from the previous one.
    pub(crate) fn evaluate(
        &mut self,
        turn: &mut TurnCx<'_>,
        rules: &MigrationConfig,
        recent: &mut RecentStreams,
        key: StreamKey,
        open: usize,
        record: &mut StreamRecord,
    ) -> Option<PolicyOutcome> {
        if self.state == State::Settled && !matches!(rules.mode, MigrationMode::At(_)) {
            return None;
        }
        let view = turn.session.stream(key)?;
        let transferred = view.sent + view.received;
        if let MigrationMode::At(offsets) = &rules.mode {
            let due = offsets.get(self.forced).is_some_and(|&at| transferred >= at);
            if due
                && migrate(turn, key, rules.offers, MigrationCause::Offset, record)
                    == MigrationAttempt::Migrated
            {
                self.forced += 1;
            }
            return None;
        }
        if transferred < self.next_evaluation && self.hint != MigrationHint::Migrate {
            return None;
        }
        let others = recent.others(turn.now, open);
        if others < rules.policy.min_concurrent_for(self.transfer)
            && self.hint != MigrationHint::Migrate
        {
            return record.judge(PolicyOutcome::Stays(StayReason::NoConcurrency));
        }
        self.next_evaluation = transferred + EVALUATION_STEP_BYTES;
        let input = PolicyInput {
            transfer: self.transfer,
            transferred,
            age: turn.now.saturating_duration_since(self.opened),
            priority: view.priority,
            other_streams: others,
            delivery_rate: recent.rate(turn, view.connection),
            hint: self.hint,
        };
        let why = match rules.policy.decide(&input) {
            Decision::Migrate(why) => why,
            Decision::Stay(why) => return record.judge(PolicyOutcome::Stays(why)),
        };
        let offers = if self.state == State::Home { rules.offers } else { Offers::Never };
        match migrate(turn, key, offers, MigrationCause::Policy(why), record) {
            MigrationAttempt::Migrated => {
                tracing::debug!(?key, why = why.as_str(), transferred, "stream moves");
                self.state = State::Settled;
                record.judge(PolicyOutcome::Migrates(why))
            }
            MigrationAttempt::Offered => {
                self.state = State::Offered;
                record.judge(PolicyOutcome::Offered(why))
            }
            // An offer may still be unanswered.
            MigrationAttempt::NotNow if self.state == State::Offered => None,
            MigrationAttempt::NotNow => record.judge(PolicyOutcome::Waits(why)),
        }
    }
}

/// Result of an attempt to migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigrationAttempt {
    Migrated,
    Offered,
    NotNow,
}

/// Migrates a stream to a spare, or offers the migration, and records the cause.
pub(crate) fn migrate(
    turn: &mut TurnCx<'_>,
    key: StreamKey,
    offers: Offers,
    why: MigrationCause,
    record: &mut StreamRecord,
) -> MigrationAttempt {
    let offset = turn.session.stream(key).map(|view| view.sent + view.received);
    if turn.session.migrate(turn.now, key, MigrationTarget::Spare).is_ok() {
        record.pending = Some(PendingMigration { why, offset });
        return MigrationAttempt::Migrated;
    }
    if offers == Offers::WhenNoSpare
        && turn.session.migrate(turn.now, key, MigrationTarget::Offer).is_ok()
    {
        record.pending = Some(PendingMigration { why, offset: None });
        return MigrationAttempt::Offered;
    }
    MigrationAttempt::NotNow
}
