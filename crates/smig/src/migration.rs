//! Migration of running streams: feeds the engine's policy with what the sockets report.
//!
//! The decision is that of the policy. The server uses this module for what it sends, the client for what it
//! sends or receives.

use std::time::Duration;

use smig_proto::policy::{
    Decision, MigrationHint, MigrationPolicy, PolicyInput, StayReason, Transfer,
};
use smig_proto::{ConnId, Instant, MigrationTarget, StreamKey};

use crate::driver::TurnCx;
use crate::snapshot::{MigrationCause, PendingMigration, PolicyDecision, StreamRecord};

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
    /// It offers, once per stream, that the client open one and migrate the stream there.
    #[default]
    WhenNoSpare,
}

/// State of the rules for one stream.
#[derive(Debug)]
pub(crate) struct Candidate {
    transfer: Transfer,
    hint: MigrationHint,
    opened_at: Instant,
    next_evaluation_offset: u64,
    next_offset_index: usize,
    state: CandidateState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CandidateState {
    Initial,
    Offered,
    Migrated,
}

/// State of the session that the rules take into account.
#[derive(Debug, Default)]
pub(crate) struct RecentStreams {
    open_times: [Option<Instant>; 4],
    next_index: usize,
    sample: Option<(ConnId, Instant, Option<u64>)>,
}

impl RecentStreams {
    /// Records that a stream was opened.
    pub(crate) fn on_open(&mut self, now: Instant) {
        if let Some(entry) = self.open_times.get_mut(self.next_index) {
            *entry = Some(now);
        }
        self.next_index = (self.next_index + 1) % self.open_times.len();
    }

    /// Returns the number of streams beside an open one: the larger of `open_streams` and of the number, at most four,
    /// opened within the last second, minus one.
    pub(crate) fn count_other_streams(&self, now: Instant, open_streams: usize) -> usize {
        let is_recent = |at: &&Instant| now.saturating_duration_since(**at) < RECENT_TIME;
        let recent = self.open_times.iter().flatten().filter(is_recent).count();
        recent.max(open_streams).saturating_sub(1)
    }

    /// Returns the connection's delivery rate in bytes per second, at most [`SAMPLE_INTERVAL`] old.
    fn delivery_rate(&mut self, turn: &mut TurnCx<'_>, conn: ConnId) -> Option<u64> {
        if let Some((sampled, at, rate)) = self.sample
            && sampled == conn
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
        opened_at: Instant,
    ) -> Option<Self> {
        let is_small = matches!(transfer, Transfer::Sized(size) if size < rules.policy.min_size);
        let is_candidate = match rules.mode {
            MigrationMode::Never => hint == MigrationHint::Migrate,
            MigrationMode::Policy => {
                hint != MigrationHint::Stay && (!is_small || hint == MigrationHint::Migrate)
            }
            MigrationMode::At(_) => true,
        };
        is_candidate.then_some(Self {
            transfer,
            hint,
            opened_at,
            next_evaluation_offset: 0,
            next_offset_index: 0,
            state: CandidateState::Initial,
        })
    }

    /// Records that the stream is on another connection now.
    pub(crate) fn on_migrated(&mut self) {
        self.state = CandidateState::Migrated;
    }

    /// Returns whether a migration of the stream has begun, also if it was declined later.
    pub(crate) fn has_begun_migration(&self) -> bool {
        self.state == CandidateState::Migrated
    }

    /// Evaluates the rules, and migrates the stream if they require it. `open_streams` is the number of the session's
    /// open streams, itself included; a server leaves out those that have migrated. Returns the decision if it differs
    /// from the previous one.
    pub(crate) fn evaluate(
        &mut self,
        turn: &mut TurnCx<'_>,
        rules: &MigrationConfig,
        recent_streams: &mut RecentStreams,
        key: StreamKey,
        open_streams: usize,
        record: &mut StreamRecord,
    ) -> Option<PolicyDecision> {
        if self.state == CandidateState::Migrated && !matches!(rules.mode, MigrationMode::At(_)) {
            return None;
        }
        let view = turn.session.stream(key)?;
        let transferred = view.sent_bytes + view.received_bytes;
        if let MigrationMode::At(offsets) = &rules.mode {
            let due = offsets.get(self.next_offset_index).is_some_and(|&at| transferred >= at);
            if due
                && migrate(turn, key, rules.offers, MigrationCause::Offset, record)
                    == MigrationAttempt::Migrated
            {
                self.next_offset_index += 1;
            }
            return None;
        }
        if transferred < self.next_evaluation_offset && self.hint != MigrationHint::Migrate {
            return None;
        }
        let other_streams = recent_streams.count_other_streams(turn.now, open_streams);
        if other_streams < rules.policy.min_concurrent_for(self.transfer)
            && self.hint != MigrationHint::Migrate
        {
            return record.record_decision(PolicyDecision::Stays(StayReason::NoConcurrency));
        }
        self.next_evaluation_offset = transferred + EVALUATION_STEP_BYTES;
        let input = PolicyInput {
            transfer: self.transfer,
            transferred_bytes: transferred,
            age: turn.now.saturating_duration_since(self.opened_at),
            priority: view.priority,
            other_streams,
            delivery_bytes_per_s: recent_streams.delivery_rate(turn, view.connection),
            hint: self.hint,
        };
        let why = match rules.policy.decide(&input) {
            Decision::Migrate(why) => why,
            Decision::Stay(why) => return record.record_decision(PolicyDecision::Stays(why)),
        };
        let offers =
            if self.state == CandidateState::Initial { rules.offers } else { Offers::Never };
        match migrate(turn, key, offers, MigrationCause::Policy(why), record) {
            MigrationAttempt::Migrated => {
                tracing::debug!(?key, why = why.as_str(), transferred, "stream migrates");
                self.state = CandidateState::Migrated;
                record.record_decision(PolicyDecision::Migrates(why))
            }
            MigrationAttempt::Offered => {
                self.state = CandidateState::Offered;
                record.record_decision(PolicyDecision::Offered(why))
            }
            // An offer may still be unanswered.
            MigrationAttempt::NotNow if self.state == CandidateState::Offered => None,
            MigrationAttempt::NotNow => record.record_decision(PolicyDecision::Waits(why)),
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
    let offset = turn.session.stream(key).map(|view| view.sent_bytes + view.received_bytes);
    if turn.session.migrate(turn.now, key, MigrationTarget::Spare).is_ok() {
        record.pending_migration = Some(PendingMigration { why, offset });
        return MigrationAttempt::Migrated;
    }
    if offers == Offers::WhenNoSpare
        && turn.session.migrate(turn.now, key, MigrationTarget::Offer).is_ok()
    {
        record.pending_migration = Some(PendingMigration { why, offset: None });
        return MigrationAttempt::Offered;
    }
    MigrationAttempt::NotNow
}
