//! Spreads a session's responses over several of its connections while a single congestion window is what limits them.
//!
//! [`SpreadControl`] decides when, by what [`measure`](mod@measure) finds; [`reach`] says over how many connections, and
//! [`balance`](crate::migration::balance) which streams move; [`moves`] knows what engine and client allow of that.

mod measure;
mod moves;
mod reach;

use std::time::Duration;

use smig_pace::{SpreadControl, SpreadDecision};
use smig_proto::policy::{MigrationHint, MigrationReason};
use smig_proto::{
    ConnId, ConnectionRole, Instant, MigrateError, MigrationTarget, SmigConfig, StreamKey,
    StreamView,
};

use self::measure::{Flow, Measured, Sending, measure, open_lanes};
use self::moves::{Growth, Lanes, StreamMoves, max_moves_per_stream};
use self::reach::{Intake, Reach};
use super::{ServerSession, SessionState};
use crate::driver::{PacingLift, TurnCx};
use crate::migration::balance::Mobility;
use crate::migration::{Connections, Offers};
use crate::server::exchange::BodySendState;
use crate::server::service::{HttpService, ResponseBody};
use crate::snapshot::{MigrationCause, PendingMigration};

/// Connections over which streams are spread at most, whatever the session allows (four by default): what browsers open for
/// HTTP/1.1.
const MAX_LANES: usize = 6;
/// Samples per round trip, and the bounds of the interval between two.
const SAMPLES_PER_RTT: u32 = 4;
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// A peer from which nothing arrives for this time, and for so many round trips, wakes no session.
const MAX_SILENCE: Duration = Duration::from_secs(1);
const MAX_SILENT_RTTS: u32 = 4;
/// What a body of unknown length is taken to have left.
const UNKNOWN_LEFT_BYTES: u64 = 64 << 10;

/// What a session's spreading keeps.
#[derive(Debug)]
pub(super) struct SpreadStreams {
    control: SpreadControl,
    next_sample: Option<Instant>,
    /// Whether [`Self::next_sample`] must be kept, or only if something else happens.
    has_deadline: bool,
    deliveries: DeliveryWatch,
    busiest: Option<ConnId>,
    /// The connections of the last sample.
    conns: Vec<ConnId>,
    moves: StreamMoves,
}

impl SpreadStreams {
    /// One of a session with the extension's configuration `smig`: without it, no stream moves.
    pub(super) fn new(now: Instant, smig: Option<&SmigConfig>) -> Self {
        let answer_timeout = smig.map_or(Duration::ZERO, |smig| smig.answer_timeout);
        Self {
            control: SpreadControl::default(),
            next_sample: None,
            has_deadline: false,
            deliveries: DeliveryWatch::default(),
            busiest: None,
            conns: Vec::new(),
            moves: StreamMoves::new(now, answer_timeout),
        }
    }

    /// Returns when the session must sample again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_sample.filter(|_| self.has_deadline)
    }

    const fn is_spread(&self) -> bool {
        self.control.is_spread()
    }

    /// Returns whether the rules may move streams: not while they are spread, but while an offer of a former trial is unanswered.
    pub(super) const fn allows_rules(&self) -> bool {
        !self.is_spread()
    }

    /// Returns whether there is anything to spread or to watch.
    const fn may_spread(&self, sending: &[Sending], reach: Reach) -> bool {
        (sending.len() >= 2 || self.is_spread()) && !reach.is_over()
    }

    /// Returns the role of connections that streams move to now. What was offered keeps that of its trial.
    const fn carrier_role(&self) -> ConnectionRole {
        if self.is_spread() { ConnectionRole::Interactive } else { ConnectionRole::Bulk }
    }

    /// Records that the client has declined a move or an offer, of a trial that may be over.
    pub(super) fn on_declined(&mut self, now: Instant, stream: StreamKey) {
        self.moves.on_declined(now, stream);
        if !self.is_spread() {
            self.moves.forget_declined();
        }
    }

    /// Returns whether a stream may move, unless something holds it back for the moment.
    fn mobility(
        &self,
        key: StreamKey,
        view: &StreamView,
        hint: MigrationHint,
        max_moves: u8,
    ) -> Mobility {
        let may_move = hint != MigrationHint::Stay
            && !view.is_tunnel
            && view.migrations < max_moves
            && !self.moves.has_declined(key);
        if may_move { Mobility::Mobile } else { Mobility::Fixed }
    }

    /// Records what was measured, until the next sample is due.
    fn record(&mut self, now: Instant, measured: Measured) -> Option<SpreadDecision> {
        let Measured { sample, busiest, conns } = measured;
        let interval = sample.busiest.rtt / SAMPLES_PER_RTT;
        let interval = interval.clamp(MIN_SAMPLE_INTERVAL, MAX_SAMPLE_INTERVAL);
        self.next_sample = Some(now + interval);
        // A peer that takes nothing, or has vanished, must not make the session run again and again.
        let max_silence = MAX_SILENCE.max(sample.busiest.rtt * MAX_SILENT_RTTS);
        let is_silent = self.deliveries.silence(now, sample.all.acknowledged) > max_silence;
        self.has_deadline = sample.all.in_flight > 0 && !is_silent;
        if sample.all.in_flight == 0 {
            // Nothing can be acknowledged: what follows a pause of the service is not silent since now.
            self.deliveries = DeliveryWatch::default();
        }
        if self.busiest.replace(busiest) != Some(busiest) {
            self.control.on_other_busiest();
        }
        let is_known = |conn| self.conns.contains(conn);
        if conns.len() != self.conns.len() || !conns.iter().all(is_known) {
            self.control.on_other_connections();
        }
        self.conns = conns;
        let decision = self.control.on_sample(now, &sample);
        if matches!(decision, Some(SpreadDecision::End(_))) {
            self.moves.forget_declined();
        }
        decision
    }

    /// Records that there is nothing to spread, until the next sample is due. Returns whether there was before.
    fn pause(&mut self, now: Instant) -> bool {
        self.has_deadline = false;
        self.next_sample = Some(now + MIN_SAMPLE_INTERVAL);
        // What begins after a pause is not silent since then.
        self.deliveries = DeliveryWatch::default();
        let was_spread = self.is_spread();
        self.control.on_complete(now);
        self.moves.forget_declined();
        was_spread
    }

    /// Counts what limits the number of connections now, of which `open` take streams.
    fn reach(
        &mut self,
        now: Instant,
        streams: &[(StreamKey, StreamView)],
        sending: &[Sending],
        open: &[ConnId],
        rules: SpreadRules,
    ) -> Reach {
        self.moves.settle(now, streams);
        let offers = (self.moves.offering(rules.offers), self.moves.open_offers(now));
        Reach::of(sending, open, rules.intake, rules.max_lanes, offers)
    }

    /// Returns what decides about moves to `open` connections.
    fn lanes<'a>(&self, open: &'a [ConnId], reach: Reach) -> Lanes<'a> {
        let growth = if self.control.awaits_connections() { Growth::Awaited } else { Growth::Over };
        Lanes { open, reach, growth }
    }
}

/// What the session allows.
#[derive(Clone, Copy, Debug)]
struct SpreadRules {
    intake: Intake,
    /// The most connections over which streams are spread.
    max_lanes: usize,
    max_moves: u8,
    offers: Offers,
}

/// Watches since when nothing was acknowledged.
#[derive(Debug, Default)]
struct DeliveryWatch(Option<(u64, Instant)>);

impl DeliveryWatch {
    fn silence(&mut self, now: Instant, acknowledged: u64) -> Duration {
        match self.0 {
            Some((before, since)) if before == acknowledged => now.saturating_duration_since(since),
            _ => {
                self.0 = Some((acknowledged, now));
                Duration::ZERO
            }
        }
    }
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Samples the session if that is due, and moves streams.
    pub(super) fn spread_streams(&mut self, turn: &mut TurnCx<'_>) {
        let is_early = self.spread.next_sample.is_some_and(|at| turn.now < at);
        let Some(rules) = self.spread_rules().filter(|_| !is_early) else { return };
        let streams: Vec<(StreamKey, StreamView)> = turn.session.streams().collect();
        let sending = self.sending_streams(&streams, rules.max_moves);
        let open = open_lanes(turn, &sending, rules.max_lanes);
        let reach = self.spread.reach(turn.now, &streams, &sending, &open, rules);
        let measured = match self.spread.may_spread(&sending, reach) {
            true => measure(turn, &sending, self.spread.busiest, reach),
            false => None,
        };
        let Some(measured) = measured else {
            if self.spread.pause(turn.now) {
                self.end_spread(turn);
            }
            return;
        };
        match self.spread.record(turn.now, measured) {
            Some(SpreadDecision::Spread(evidence)) => {
                tracing::debug!(%evidence, "streams are spread");
                turn.session.set_carrier_role(self.spread.carrier_role());
            }
            Some(SpreadDecision::End(why)) => {
                tracing::debug!(why = why.as_str(), "streams are no longer spread");
                return self.end_spread(turn);
            }
            None => {}
        }
        let lifts = self.spread.control.lifts_pacing();
        turn.conns.lift_pacing(if lifts { PacingLift::Lifted } else { PacingLift::None });
        if self.spread.is_spread() {
            self.balance(turn, &sending, &open, reach);
        }
    }

    /// Returns what the session allows; `None` if nothing is spread.
    fn spread_rules(&self) -> Option<SpreadRules> {
        let shared = &self.worker.shared;
        let smig = shared.engine_config.smig.as_ref()?;
        let rules = SpreadRules {
            intake: match self.state {
                SessionState::Open => Intake::Open,
                SessionState::Draining => Intake::Draining,
            },
            max_lanes: smig.max_connections.min(MAX_LANES),
            max_moves: max_moves_per_stream(smig),
            offers: shared.migration.offers,
        };
        let is_on = shared.migration.connections == Connections::Adaptive && self.app_id.is_some();
        (is_on && rules.max_lanes >= 2 && rules.max_moves > 0).then_some(rules)
    }

    /// Returns the streams that have something left to send.
    fn sending_streams(&self, streams: &[(StreamKey, StreamView)], max_moves: u8) -> Vec<Sending> {
        let sending = |&(key, view): &(StreamKey, StreamView)| {
            let exchange = self.stream_slots.get(key).and_then(|slot| self.slots.get(slot));
            let unqueued = match exchange {
                Some(exchange) if exchange.send_state == BodySendState::Open => {
                    let is_unknown = view.sent_bytes > 0 || view.queued_bytes > 0;
                    let unknown = if is_unknown { UNKNOWN_LEFT_BYTES } else { 0 };
                    view.unqueued_bytes.unwrap_or(unknown)
                }
                _ => 0,
            };
            // An origin may announce any length.
            let left_bytes = unqueued.saturating_add(view.queued_bytes as u64);
            if left_bytes == 0 || view.is_tunnel {
                return None;
            }
            let hint = exchange.map_or(MigrationHint::Stay, |exchange| exchange.hint);
            let mobility = self.spread.mobility(key, &view, hint, max_moves);
            Some(Sending { key, view, left_bytes, mobility, flow: Flow::of(&view) })
        };
        streams.iter().filter_map(sending).collect()
    }

    /// Moves streams from the busiest connection to the others, and offers some where there are too few.
    fn balance(
        &mut self,
        turn: &mut TurnCx<'_>,
        sending: &[Sending],
        open: &[ConnId],
        reach: Reach,
    ) {
        let streams: Vec<_> = sending.iter().filter_map(|stream| stream.balanced(open)).collect();
        let lanes = self.spread.lanes(open, reach);
        let Self { spread, slots, stream_slots, .. } = self;
        spread.moves.balance(turn.now, &streams, lanes, |key, to| {
            let pending = migrate(turn, key, to)?;
            if let Some((exchange, _)) = stream_slots.get(key).and_then(|slot| slots.entry(slot)) {
                exchange.record.pending_migration = Some(pending);
            }
            Ok(())
        });
    }

    /// Spreads no more. What runs ends where it is: on one connection again, streams would share a window that may be too small
    /// after all, and have no moves left.
    fn end_spread(&mut self, turn: &mut TurnCx<'_>) {
        turn.conns.lift_pacing(PacingLift::None);
        turn.session.set_carrier_role(self.spread.carrier_role());
    }
}

/// Begins to move a stream, or offers it. Returns what its record says of that.
fn migrate(
    turn: &mut TurnCx<'_>,
    key: StreamKey,
    to: MigrationTarget,
) -> Result<PendingMigration, MigrateError> {
    let offset = turn.session.stream(key).map(|view| view.sent_bytes + view.received_bytes);
    turn.session.migrate(turn.now, key, to).inspect_err(|error| {
        tracing::trace!(?key, %error, "cannot move");
    })?;
    let offset = offset.filter(|_| to != MigrationTarget::Offer);
    Ok(PendingMigration { why: MigrationCause::Policy(MigrationReason::SmallWindow), offset })
}

#[cfg(test)]
mod tests;
