//! Migration of running streams: feeds the engine's policy with what the sockets report, and does what it decides.
//!
//! The policy of each end decides about what that end sends: a server's about responses, a client's about request bodies,
//! that of both about tunnels. [`MigrationHint::Migrate`] and [`MigrationMode::At`] migrate a stream whichever end sends on
//! it, and the application's own requests ([`migrate`]) do not pass through the policy. [`path`] samples the sockets.

pub(crate) mod balance;
mod path;

use std::time::Duration;

use smig_proto::policy::{
    Decision, Interference, MigrationHint, MigrationPolicy, PolicyInput, StayReason, Transfer,
};
use smig_proto::{BulkHint, Instant, MigrationTarget, StreamKey, StreamView};

use crate::driver::TurnCx;
use crate::snapshot::{MigrationCause, PendingMigration, PolicyDecision, StreamRecord};

use path::{MeasuredPath, PathWatch};

/// Bytes of body between two evaluations of the rules for a stream.
const EVALUATION_STEP_BYTES: u64 = 32 << 10;
/// How long a stream counts as recently opened.
const RECENT_TIME: Duration = Duration::from_secs(1);
/// Bytes of body after which a migration that the peer has declined is tried again: it may have been too busy. Twice as
/// many after each further time, because what was sent to the other connection meanwhile is sent again.
const RETRY_STEP_BYTES: u64 = 1 << 20;
/// After this number of declines, a stream stays.
const MAX_DECLINES: u32 = 4;

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
    /// Over how many connections a server spreads the responses of one session.
    pub connections: Connections,
}

/// Over how many connections a server spreads the responses of one session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connections {
    /// They stay on the connection of their requests, but for those that the [policy](MigrationMode::Policy) moves.
    #[default]
    One,
    /// Where two round trips at least show that a single congestion window is what limits them (packets that are lost at
    /// random, or a path that grows, which congestion control takes for a queue), they are spread over as many connections as
    /// the session may have, six at most, until that carries no more. Needs a client with the extension.
    Adaptive,
}

/// What decides that a stream migrates.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum MigrationMode {
    /// Only the application, by [`MigrationHint::Migrate`] or [`StreamInfo::migrate`](crate::StreamInfo::migrate): the rules of
    /// this endpoint migrate no stream. The peer may migrate any, and a client accepts a server's offers.
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
    /// No attempt before this offset.
    retry_offset: u64,
    declines: u32,
    state: CandidateState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CandidateState {
    Initial,
    Offered,
    /// The peer has declined a migration.
    Declined,
    /// MIGRATE is sent, and not answered.
    Migrating,
    Migrated,
}

/// State of the session that the rules take into account.
#[derive(Debug, Default)]
pub(crate) struct RulesContext {
    open_times: [Option<Instant>; 4],
    next_index: usize,
    path: PathWatch,
}

impl RulesContext {
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
}

/// Returns how many of a session's `open_streams` have not left the connection on which they were opened, as far as this
/// side's rules know: a stream that only the peer's rules track counts even if the peer has moved it.
pub(crate) fn count_unmigrated<'a>(
    open_streams: usize,
    candidates: impl Iterator<Item = &'a Candidate>,
) -> usize {
    let migrated_count = candidates.filter(|candidate| candidate.has_begun_migration()).count();
    open_streams.saturating_sub(migrated_count)
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
            retry_offset: 0,
            declines: 0,
            state: CandidateState::Initial,
        })
    }

    /// Records that the stream is on another connection now.
    pub(crate) fn on_migrated(&mut self) {
        if self.state == CandidateState::Offered {
            // The peer has accepted: this offset is not due again.
            self.next_offset_index += 1;
        }
        self.state = CandidateState::Migrated;
    }

    /// Records that the peer has declined. The stream goes on where it was, and the rules look at it again.
    pub(crate) fn on_declined(&mut self) {
        if self.state == CandidateState::Migrating {
            self.state = CandidateState::Declined;
            self.retry_offset = match self.declines {
                declines if declines + 1 < MAX_DECLINES => {
                    self.next_evaluation_offset + (RETRY_STEP_BYTES << declines)
                }
                _ => u64::MAX,
            };
            self.declines += 1;
        }
    }

    /// Returns whether the stream has left the connection on which it was opened, or is about to.
    fn has_begun_migration(&self) -> bool {
        matches!(self.state, CandidateState::Migrating | CandidateState::Migrated)
    }

    /// Evaluates the rules, and migrates the stream if they require it; `open_streams` streams share the
    /// connection on which it was opened, itself included. Returns the decision if it differs from the previous one.
    pub(crate) fn evaluate(
        &mut self,
        turn: &mut TurnCx<'_>,
        rules: &MigrationConfig,
        rules_context: &mut RulesContext,
        key: StreamKey,
        open_streams: usize,
        record: &mut StreamRecord,
    ) -> Option<PolicyDecision> {
        if self.has_begun_migration() && !matches!(rules.mode, MigrationMode::At(_)) {
            return None;
        }
        let view = turn.session.stream(key)?;
        let transferred = view.sent_bytes + view.received_bytes;
        if let MigrationMode::At(offsets) = &rules.mode {
            if offsets.get(self.next_offset_index).is_some_and(|&at| transferred >= at) {
                match migrate(turn, key, rules.offers, MigrationCause::Offset, record) {
                    MigrationAttempt::Begun => {
                        self.next_offset_index += 1;
                        self.state = CandidateState::Initial;
                    }
                    MigrationAttempt::Offered => self.state = CandidateState::Offered,
                    MigrationAttempt::NotNow => {}
                }
            }
            return None;
        }
        let is_evaluated = transferred < self.next_evaluation_offset;
        if (is_evaluated && self.hint != MigrationHint::Migrate) || transferred < self.retry_offset
        {
            return None;
        }
        let other_streams = rules_context.count_other_streams(turn.now, open_streams);
        if other_streams < rules.policy.min_concurrent_for(self.transfer)
            && self.hint != MigrationHint::Migrate
        {
            return record.record_decision(PolicyDecision::Stays(StayReason::NoConcurrency));
        }
        if view.sent_bytes == 0 && view.queued_bytes == 0 && self.hint != MigrationHint::Migrate {
            // Whether it is bulk is known when there is something to send.
            return None;
        }
        self.next_evaluation_offset = transferred + EVALUATION_STEP_BYTES;
        let path = rules_context.path.get(turn, view.connection);
        let input = self.policy_input(turn.now, &view, other_streams, path);
        let why = match rules.policy.decide(&input) {
            Decision::Migrate(why) => why,
            // An offer may still be unanswered: the stream may migrate yet.
            Decision::Stay(StayReason::Paced) if self.state == CandidateState::Offered => {
                return None;
            }
            Decision::Stay(why) => return record.record_decision(PolicyDecision::Stays(why)),
        };
        let offers =
            if self.state == CandidateState::Initial { rules.offers } else { Offers::Never };
        match migrate(turn, key, offers, MigrationCause::Policy(why), record) {
            MigrationAttempt::Begun => {
                tracing::debug!(?key, why = why.as_str(), transferred, "stream migrates");
                self.state = CandidateState::Migrating;
                rules_context.path.forget_sample();
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

    fn policy_input(
        &self,
        now: Instant,
        view: &StreamView,
        other_streams: usize,
        path: MeasuredPath,
    ) -> PolicyInput {
        PolicyInput {
            transfer: self.transfer,
            transferred_bytes: view.sent_bytes,
            age: now.saturating_duration_since(self.opened_at),
            priority: view.priority,
            other_streams,
            delivery_bytes_per_s: path.delivery_rate,
            interference: self.interference(view, path),
            hint: self.hint,
        }
    }
}

impl Candidate {
    /// Returns how what this side sends affects the other streams. Only bulk is paced. A tunnel, or a body of unknown
    /// length, is none while its source is slower than the path, but then it fills no queue either.
    fn interference(&self, view: &StreamView, path: MeasuredPath) -> Interference {
        let may_be_bulk = view.bulk_hint != BulkHint::Interactive;
        let is_sparse = may_be_bulk && !matches!(self.transfer, Transfer::Sized(_));
        let is_paced = view.bulk.is_some() || is_sparse;
        path.interference.filter(|_| is_paced).unwrap_or(Interference::Queue)
    }
}

/// Result of an attempt to migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MigrationAttempt {
    /// MIGRATE was sent; the peer may still decline.
    Begun,
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
        return MigrationAttempt::Begun;
    }
    if offers == Offers::WhenNoSpare
        && turn.session.migrate(turn.now, key, MigrationTarget::Offer).is_ok()
    {
        record.pending_migration = Some(PendingMigration { why, offset: None });
        return MigrationAttempt::Offered;
    }
    MigrationAttempt::NotNow
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use http::header::CONTENT_LENGTH;
    use smig_proto::{
        AppId, Config, ConnectionSpec, EndStream, Identity, RequestHead, Security, Session,
        policy::MigrationReason,
    };

    use super::*;
    use crate::driver::{ConnOptions, ConnSet, Pacing};
    use crate::socket::SocketOptions;

    const LENGTH: u64 = 10 << 20;
    const NOW: Instant = Instant::from_nanos(1);

    /// A session that uploads a large body on a connection that measured `path`.
    struct Upload {
        session: Session,
        conns: ConnSet,
        rules_context: RulesContext,
        key: StreamKey,
        record: StreamRecord,
    }

    impl Upload {
        fn new(path: MeasuredPath) -> Self {
            let mut upload = Self::without_bytes(path);
            upload.send();
            upload
        }

        fn send(&mut self) {
            let bytes = Bytes::from_static(&[0; 1000]);
            self.session.send_data(self.key, bytes, EndStream::No).unwrap();
        }

        fn without_bytes(path: MeasuredPath) -> Self {
            let mut session = Session::client(Arc::new(Config::client()), AppId::new(1), NOW);
            let spec =
                ConnectionSpec { security: Security::Ineligible, identity: Identity([0; 32]) };
            let conn = session.add_connection(NOW, spec);
            let head = RequestHead {
                method: http::Method::POST,
                uri: "https://localhost/".parse().unwrap(),
                protocol: None,
                headers: [(CONTENT_LENGTH, LENGTH.into())].into_iter().collect(),
            };
            let key = session.open(NOW, Some(conn), &head, EndStream::No).unwrap();
            let options = ConnOptions {
                interactive_options: SocketOptions::interactive(),
                bulk_options: SocketOptions::bulk(),
                pacing: Pacing::On,
                receive_pacing: Pacing::Off,
                max_bulk_deferral: Duration::ZERO,
            };
            Self {
                session,
                conns: ConnSet::new(Arc::new(options)),
                rules_context: RulesContext {
                    path: PathWatch::measured(conn, NOW, path),
                    ..RulesContext::default()
                },
                key,
                record: StreamRecord::new(NOW, None),
            }
        }

        /// Evaluates the rules beside another stream.
        fn evaluate(&mut self, candidate: &mut Candidate) -> Option<PolicyDecision> {
            let Self { session, conns, rules_context, key, record } = self;
            let mut turn = TurnCx { session, conns, now: NOW };
            let rules = MigrationConfig::default();
            candidate.evaluate(&mut turn, &rules, rules_context, *key, 2, record)
        }
    }

    fn candidate(hint: MigrationHint) -> Candidate {
        let rules = MigrationConfig::default();
        Candidate::new(&rules, Transfer::Sized(LENGTH), hint, NOW).unwrap()
    }

    /// 10 Mbit/s, where bulk is paced.
    const PACED: MeasuredPath =
        MeasuredPath { delivery_rate: Some(1_250_000), interference: Some(Interference::Little) };

    #[test]
    fn a_paced_stream_stays_and_says_why() {
        let mut upload = Upload::new(PACED);
        let stays = PolicyDecision::Stays(StayReason::Paced);
        let mut candidate_without_hint = candidate(MigrationHint::None);
        assert_eq!(upload.evaluate(&mut candidate_without_hint), Some(stays));
        assert!(!candidate_without_hint.has_begun_migration());
        assert_eq!(upload.record.decision, Some(stays));
        assert_eq!(stays.to_string(), "stays: it is paced, and delays the others little");
        // No connection is there for the others: they wait for one.
        let hinted = upload.evaluate(&mut candidate(MigrationHint::Migrate));
        assert!(matches!(hinted, Some(PolicyDecision::Waits(_))), "{hinted:?}");
        let mut unmeasured = Upload::new(MeasuredPath { interference: None, ..PACED });
        let decision = unmeasured.evaluate(&mut candidate(MigrationHint::None));
        assert!(matches!(decision, Some(PolicyDecision::Waits(_))), "{decision:?}");
    }

    #[test]
    fn a_paced_stream_that_stayed_moves_when_packets_are_lost_again_and_again() {
        let mut upload = Upload::new(PACED);
        let mut candidate = candidate(MigrationHint::None);
        assert!(upload.evaluate(&mut candidate).is_some());
        let conn = upload.session.stream(upload.key).unwrap().connection;
        let lossy = MeasuredPath { interference: Some(Interference::Loss), ..PACED };
        upload.rules_context.path = PathWatch::measured(conn, NOW, lossy);
        candidate.next_evaluation_offset = 0;
        let waits = PolicyDecision::Waits(MigrationReason::Loss);
        assert_eq!(upload.evaluate(&mut candidate), Some(waits), "there is no spare yet");
    }

    #[test]
    fn what_is_not_bulk_is_not_paced_where_it_is() {
        let upload = Upload::new(PACED);
        let view = upload.session.stream(upload.key).unwrap();
        let interference_of = |view: &StreamView| {
            candidate(MigrationHint::None).policy_input(NOW, view, 1, PACED).interference
        };
        assert_eq!(interference_of(&view), Interference::Little);
        let other = StreamView { bulk: None, ..view };
        assert_eq!(interference_of(&other), Interference::Queue);
        // One that sends less than the path carries is no bulk, and is in nobody's way.
        let tunnel = Candidate { transfer: Transfer::Tunnel, ..candidate(MigrationHint::None) };
        let of_tunnel = |view: &StreamView| tunnel.policy_input(NOW, view, 1, PACED).interference;
        assert_eq!(of_tunnel(&other), Interference::Little);
        let excluded = StreamView { bulk_hint: BulkHint::Interactive, ..other };
        assert_eq!(of_tunnel(&excluded), Interference::Queue);
    }

    #[test]
    fn what_is_received_is_for_the_peer_to_migrate() {
        let upload = Upload::new(PACED);
        let view = upload.session.stream(upload.key).unwrap();
        let download = StreamView { sent_bytes: 700, received_bytes: 9 << 20, ..view };
        let tunnel = Candidate { transfer: Transfer::Tunnel, ..candidate(MigrationHint::None) };
        let input = tunnel.policy_input(NOW, &download, 1, PACED);
        assert_eq!(input.transferred_bytes, 700);
        let decision = MigrationPolicy::default().decide(&input);
        assert_eq!(decision, Decision::Stay(StayReason::FewBytesSoFar));
    }

    #[test]
    fn a_body_without_a_first_byte_is_not_decided_about() {
        let mut upload = Upload::without_bytes(PACED);
        let mut candidate = candidate(MigrationHint::None);
        assert_eq!(upload.evaluate(&mut candidate), None);
        upload.send();
        let stays = PolicyDecision::Stays(StayReason::Paced);
        assert_eq!(upload.evaluate(&mut candidate), Some(stays));
    }

    #[test]
    fn an_upload_does_not_count_as_a_part_of_its_response() {
        let upload = Upload::new(PACED);
        let view = upload.session.stream(upload.key).unwrap();
        let view = StreamView { sent_bytes: 3, received_bytes: LENGTH, ..view };
        let input = candidate(MigrationHint::None).policy_input(NOW, &view, 1, PACED);
        assert_eq!(input.transferred_bytes, 3);
    }

    #[test]
    fn a_declined_stream_is_counted_where_it_is_and_tried_again_later() {
        let mut upload = Upload::new(MeasuredPath::default());
        let mut candidate = candidate(MigrationHint::Migrate);
        candidate.state = CandidateState::Migrating;
        assert_eq!(count_unmigrated(2, [&candidate].into_iter()), 1);
        candidate.on_declined();
        assert_eq!(count_unmigrated(2, [&candidate].into_iter()), 2);
        assert_eq!(upload.evaluate(&mut candidate), None, "not at once");
        candidate.retry_offset = 0;
        candidate.state = CandidateState::Initial;
        assert!(upload.evaluate(&mut candidate).is_some());
        for declines in 1..MAX_DECLINES {
            assert_ne!(candidate.retry_offset, u64::MAX, "{declines}");
            candidate.state = CandidateState::Migrating;
            candidate.on_declined();
        }
        assert_eq!(candidate.retry_offset, u64::MAX, "it stays");
        // A further migration of a stream that has left, declined.
        candidate.on_migrated();
        candidate.on_declined();
        assert!(candidate.has_begun_migration());
    }
}
