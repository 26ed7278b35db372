//! Spreads a session's responses over several of its connections while a single congestion window is what limits them.
//!
//! [`SpreadControl`] decides when, by what [`measure`](mod@measure) finds; [`balance`](crate::migration::balance) decides which
//! streams move, and [`moves`] what engine and client allow of that.

mod measure;
mod moves;

use std::time::Duration;

use smig_pace::{SpreadControl, SpreadDecision};
use smig_proto::policy::{MigrationHint, MigrationReason};
use smig_proto::{
    ConnId, ConnectionRole, Instant, MigrateError, MigrationTarget, SmigConfig, StreamKey,
    StreamView,
};

use self::measure::{Flow, Measured, Sending, measure, open_lanes};
use self::moves::{Growth, Lanes, StreamMoves, max_moves_per_stream};
use super::ServerSession;
use crate::driver::{PacingLift, TurnCx};
use crate::migration::Connections;
use crate::migration::balance::{BalancedStream, Mobility, SendState};
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
    pub(super) fn new(now: Instant) -> Self {
        Self {
            control: SpreadControl::default(),
            next_sample: None,
            has_deadline: false,
            deliveries: DeliveryWatch::default(),
            busiest: None,
            conns: Vec::new(),
            moves: StreamMoves::new(now),
        }
    }

    /// Returns when the session must sample again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_sample.filter(|_| self.has_deadline)
    }

    /// Returns whether streams are spread, or will be by an offer that is not answered.
    pub(super) const fn is_active(&self) -> bool {
        self.control.is_spread() || self.moves.has_open_offers()
    }

    /// Returns the role of connections that streams move to now.
    const fn carrier_role(&self) -> ConnectionRole {
        if self.is_active() { ConnectionRole::Interactive } else { ConnectionRole::Bulk }
    }

    /// Records that the client has declined a move or an offer.
    pub(super) fn on_declined(&mut self, stream: StreamKey) {
        if self.control.is_spread() {
            self.moves.on_declined(stream);
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
        if self.busiest.replace(busiest) != Some(busiest) {
            self.control.on_other_busiest();
        }
        if self.conns.iter().any(|conn| !conns.contains(conn)) {
            self.control.on_other_connections();
        }
        self.conns = conns;
        self.control.on_sample(now, &sample)
    }
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

/// Returns the most connections over which streams are spread.
fn max_lanes(smig: &SmigConfig) -> usize {
    smig.max_connections.min(MAX_LANES)
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Samples the session if that is due, and moves streams.
    pub(super) fn spread_streams(&mut self, turn: &mut TurnCx<'_>) {
        self.settle_offers(turn);
        let shared = &self.worker.shared;
        let is_early = self.spread.next_sample.is_some_and(|at| turn.now < at);
        if shared.migration.connections != Connections::Adaptive
            || self.app_id.is_none()
            || is_early
        {
            return;
        }
        let Some(smig) = &shared.engine_config.smig else { return };
        let (max_lanes, max_moves) = (max_lanes(smig), max_moves_per_stream(smig));
        if max_lanes < 2 || max_moves == 0 {
            return;
        }
        let sending = self.sending_streams(turn, max_moves);
        let open = open_lanes(turn, &sending, max_lanes);
        let may_spread = sending.len() >= 2 || self.spread.control.is_spread();
        let offers = shared.migration.offers;
        let may_grow = self.spread.moves.may_offer(offers) || self.spread.moves.has_open_offers();
        let reachable = if may_grow { max_lanes } else { open.len() };
        let measured = match may_spread {
            true => measure(turn, &sending, self.spread.busiest, reachable),
            false => None,
        };
        let Some(measured) = measured else {
            self.spread.has_deadline = false;
            // What begins after a pause is not silent since then.
            self.spread.deliveries = DeliveryWatch::default();
            if self.spread.control.is_spread() {
                self.spread.control.on_complete(turn.now);
                self.end_spread(turn);
            }
            self.spread.next_sample = Some(turn.now + MIN_SAMPLE_INTERVAL);
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
        if self.spread.control.is_spread() {
            self.balance(turn, &sending, &open, max_lanes);
        }
    }

    /// Returns the streams that have something left to send.
    fn sending_streams(&self, turn: &TurnCx<'_>, max_moves: u8) -> Vec<Sending> {
        let sending = |(key, view): (StreamKey, StreamView)| {
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
            let conn_window = turn.session.connection(view.connection)?.send_window;
            let hint = exchange.map_or(MigrationHint::Stay, |exchange| exchange.hint);
            let mobility = self.spread.mobility(key, &view, hint, max_moves);
            Some(Sending { key, view, left_bytes, mobility, flow: Flow::of(&view, conn_window) })
        };
        turn.session.streams().filter_map(sending).collect()
    }

    /// Moves streams from the busiest connection to the others, and offers some where there are too few.
    fn balance(
        &mut self,
        turn: &mut TurnCx<'_>,
        sending: &[Sending],
        open: &[ConnId],
        max_lanes: usize,
    ) {
        let balanced = |stream: &Sending| {
            Some(BalancedStream {
                key: stream.key,
                lane: open.iter().position(|&lane| lane == stream.view.connection)?,
                left_bytes: stream.left_bytes,
                progress: match stream.view.sent_bytes {
                    0 => SendState::Waiting,
                    _ => SendState::Started,
                },
                mobility: stream.mobility_now(),
            })
        };
        let streams: Vec<BalancedStream> = sending.iter().filter_map(balanced).collect();
        let growth = match self.spread.control.awaits_connections() {
            true => Growth::Awaited,
            false => Growth::Over,
        };
        let offers = self.worker.shared.migration.offers;
        let lanes = Lanes { open, max: max_lanes, offers, growth };
        let Self { spread, slots, stream_slots, .. } = self;
        spread.moves.balance(turn.now, &streams, lanes, |key, to| {
            let pending = migrate(turn, key, to)?;
            if let Some((exchange, _)) = stream_slots.get(key).and_then(|slot| slots.entry(slot)) {
                exchange.record.pending_migration = Some(pending);
            }
            Ok(())
        });
    }

    /// Forgets the offers that were answered, and streams that have ended.
    fn settle_offers(&mut self, turn: &mut TurnCx<'_>) {
        if !self.spread.is_active() {
            return;
        }
        let is_migrating = |key| turn.session.stream(key).map(|stream| stream.is_migrating);
        self.spread.moves.retain(is_migrating);
        turn.session.set_carrier_role(self.spread.carrier_role());
    }

    /// Spreads no more. What runs ends where it is: on one connection again, streams would share a window that may be too small
    /// after all, and have no moves left. What was offered is not bulk either when the client moves it.
    fn end_spread(&mut self, turn: &mut TurnCx<'_>) {
        self.spread.moves.forget_declined();
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
mod tests {
    use super::*;
    use crate::migration::balance::tests as samples;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn measured(acknowledged: u64) -> Measured {
        let busiest = smig_pace::ConnSample {
            acknowledged,
            in_flight: 10_000,
            rtt: Duration::from_millis(40),
            min_rtt: Duration::from_millis(40),
            mss: 1448,
            ..smig_pace::ConnSample::default()
        };
        let sample = smig_pace::SpreadSample {
            busiest,
            backlog: smig_pace::Backlog::Window,
            all: busiest,
            left_bytes: 1 << 20,
            streams: 2,
            lanes: 1,
            max_lanes: 4,
        };
        let conns = samples::conns(1);
        Measured { sample, busiest: conns[0], conns }
    }

    #[test]
    fn a_peer_that_has_vanished_wakes_no_session() {
        let mut spread = SpreadStreams::new(at(0));
        for ms in (0..=1000).step_by(10) {
            assert_eq!(spread.record(at(ms), measured(7)), None);
            assert_eq!(spread.deadline(), Some(at(ms + 10)));
        }
        spread.record(at(1010), measured(7));
        assert_eq!(spread.deadline(), None);
        spread.record(at(60_000), measured(8));
        assert_eq!(spread.deadline(), Some(at(60_010)), "it is there again");
    }

    #[test]
    fn what_was_offered_is_not_bulk_when_it_moves_after_the_end() {
        let key = samples::keys(1)[0];
        let mut spread = SpreadStreams::new(at(0));
        spread.moves.insert_offer(key);
        spread.moves.forget_declined();
        assert_eq!(spread.carrier_role(), ConnectionRole::Interactive);
        spread.moves.retain(|_| Some(false));
        assert_eq!(spread.carrier_role(), ConnectionRole::Bulk);
    }

    #[test]
    fn what_may_not_move_is_fixed() {
        let (session, keys) = samples::session(1);
        let (key, view) = (keys[0], session.stream(keys[0]).unwrap());
        let mut spread = SpreadStreams::new(at(0));
        let none = MigrationHint::None;
        assert_eq!(spread.mobility(key, &view, none, 2), Mobility::Mobile);
        assert_eq!(spread.mobility(key, &view, MigrationHint::Stay, 2), Mobility::Fixed);
        let moved = StreamView { migrations: 1, ..view };
        assert_eq!(spread.mobility(key, &moved, none, 1), Mobility::Fixed);
        spread.moves.on_declined(key);
        assert_eq!(spread.mobility(key, &view, none, 2), Mobility::Fixed);
    }
}
