//! Spreads a session's responses over several of its connections while a single congestion window is what limits them.
//!
//! [`SpreadControl`] decides when, by what the sockets report; [`balance`](crate::migration::balance) decides which streams
//! move. This module samples, and moves or offers them, within the limits of engine and client.

use std::time::Duration;

use smig_pace::{Backlog, ConnSample, SpreadControl, SpreadDecision, SpreadSample};
use smig_proto::policy::{MigrationHint, MigrationReason};
use smig_proto::{ConnId, ConnectionRole, Instant, MigrationTarget, StreamKey, StreamView};

use super::ServerSession;
use crate::driver::{PacingLift, TurnCx};
use crate::migration::Connections;
use crate::migration::balance::{BalancedStream, Mobility, SendState, plan};
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
/// What a body of unknown length is taken to have left.
const UNKNOWN_LEFT_BYTES: u64 = 64 << 10;
/// Moves of one stream: fewer than the peer follows.
const MAX_MOVES_PER_STREAM: u8 = 2;
/// Moves at once, and per second, of a session: below what a client follows by default.
const MAX_MOVES: f64 = 36.0;
const MOVES_PER_S: f64 = 8.0;

/// What a session's spreading keeps.
#[derive(Debug)]
pub(super) struct SpreadStreams {
    control: SpreadControl,
    next_sample: Option<Instant>,
    /// Whether [`Self::next_sample`] must be kept, or only if something else happens.
    has_deadline: bool,
    /// Streams whose offers the client has not answered.
    offered: Vec<StreamKey>,
    /// Whether the client has declined one since streams are spread.
    has_declined: bool,
    busiest: Option<ConnId>,
    moves: f64,
    moves_at: Option<Instant>,
}

impl Default for SpreadStreams {
    fn default() -> Self {
        Self {
            control: SpreadControl::default(),
            next_sample: None,
            has_deadline: false,
            offered: Vec::new(),
            has_declined: false,
            busiest: None,
            moves: MAX_MOVES,
            moves_at: None,
        }
    }
}

impl SpreadStreams {
    /// Returns when the session must sample again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next_sample.filter(|_| self.has_deadline)
    }

    pub(super) const fn is_spread(&self) -> bool {
        self.control.is_spread()
    }

    /// Records that the client has declined a move or an offer: others would only cost it as much. It opens no more connections,
    /// or follows too many streams.
    pub(super) fn on_declined(&mut self, stream: StreamKey) {
        if self.offered.contains(&stream) {
            self.has_declined = true;
        } else {
            self.moves = 0.0;
        }
    }

    /// Returns how many streams may move now.
    fn refill(&mut self, now: Instant) -> usize {
        let since = self.moves_at.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
        self.moves_at = Some(now);
        self.moves = (self.moves + since.as_secs_f64() * MOVES_PER_S).min(MAX_MOVES);
        self.moves as usize
    }
}

/// A stream that has something left to send.
#[derive(Clone, Copy, Debug)]
struct Sending {
    key: StreamKey,
    view: StreamView,
    left_bytes: u64,
    mobility: Mobility,
}

impl<S, B> ServerSession<S, B>
where
    S: HttpService<B>,
    B: ResponseBody,
{
    /// Samples the session if that is due, and moves streams.
    pub(super) fn spread_streams(&mut self, turn: &mut TurnCx<'_>) {
        let is_on = self.worker.shared.migration.connections == Connections::Adaptive;
        let is_early = self.spread.next_sample.is_some_and(|at| turn.now < at);
        if !is_on || self.app_id.is_none() || is_early {
            return;
        }
        let sending = self.sending_streams(turn);
        let may_spread = sending.len() >= 2 || self.spread.is_spread();
        let Some((sample, busiest)) = measure(turn, &sending).filter(|_| may_spread) else {
            self.spread.has_deadline = false;
            if self.spread.is_spread() {
                self.spread.control.on_complete(turn.now);
                self.end_spread(turn);
            }
            self.spread.next_sample = Some(turn.now + MIN_SAMPLE_INTERVAL);
            return;
        };
        let interval = sample.busiest.rtt / SAMPLES_PER_RTT;
        let interval = interval.clamp(MIN_SAMPLE_INTERVAL, MAX_SAMPLE_INTERVAL);
        self.spread.next_sample = Some(turn.now + interval);
        // A peer that takes nothing must not make the session run again and again.
        self.spread.has_deadline = sample.all.in_flight > 0;
        if self.spread.busiest.replace(busiest) != Some(busiest) {
            self.spread.control.on_other_busiest();
        }
        match self.spread.control.on_sample(turn.now, &sample) {
            Some(SpreadDecision::Spread(evidence)) => {
                tracing::debug!(%evidence, left = sample.left_bytes, "streams are spread");
                self.spread.has_declined = false;
                turn.session.set_carrier_role(ConnectionRole::Interactive);
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
            self.balance(turn, &sending);
        }
    }

    /// Returns the streams that have something left to send.
    fn sending_streams(&self, turn: &TurnCx<'_>) -> Vec<Sending> {
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
            let left_bytes = view.queued_bytes as u64 + unqueued;
            let may_move = exchange.is_some_and(|it| it.hint != MigrationHint::Stay)
                && !view.is_migrating
                && !view.is_tunnel
                && view.migrations < MAX_MOVES_PER_STREAM;
            let mobility = if may_move { Mobility::Mobile } else { Mobility::Fixed };
            (left_bytes > 0 && !view.is_tunnel).then_some(Sending {
                key,
                view,
                left_bytes,
                mobility,
            })
        };
        turn.session.streams().filter_map(sending).collect()
    }

    /// Moves streams from the busiest connection to the others, and offers some where there are too few.
    fn balance(&mut self, turn: &mut TurnCx<'_>, sending: &[Sending]) {
        let max_lanes = self.worker.shared.engine_config.smig.as_ref();
        let max_lanes = max_lanes.map_or(1, |smig| smig.max_connections).min(MAX_LANES);
        let lanes = lanes(turn, sending, max_lanes);
        let streams: Vec<BalancedStream> = sending
            .iter()
            .filter_map(|stream| {
                Some(BalancedStream {
                    key: stream.key,
                    lane: lanes.iter().position(|&lane| lane == stream.view.connection)?,
                    left_bytes: stream.left_bytes,
                    progress: match stream.view.sent_bytes {
                        0 => SendState::Waiting,
                        _ => SendState::Started,
                    },
                    mobility: stream.mobility,
                })
            })
            .collect();
        let is_open = |key: &StreamKey| turn.session.stream(*key).is_some_and(|it| it.is_migrating);
        self.spread.offered.retain(is_open);
        // Connections that the client may open soon have their share as well, or what moves now would have to move again.
        let may_grow = self.spread.control.awaits_connections() && !self.spread.has_declined;
        let planned_lanes = if may_grow { max_lanes } else { lanes.len() };
        let max_moves = self.spread.refill(turn.now);
        for (key, to) in plan(planned_lanes, &streams, max_moves) {
            let Some(&to) = lanes.get(to) else { continue };
            if !self.move_stream(turn, key, MigrationTarget::Connection(to)) {
                break;
            }
        }
        if self.spread.has_declined {
            return;
        }
        let missing = max_lanes.saturating_sub(lanes.len() + self.spread.offered.len());
        // The last ones wait longest: an answer takes a handshake.
        for stream in
            streams.iter().rev().filter(|it| it.mobility == Mobility::Mobile).take(missing)
        {
            if streams.len() > lanes.len() + self.spread.offered.len()
                && self.move_stream(turn, stream.key, MigrationTarget::Offer)
            {
                self.spread.offered.push(stream.key);
            }
        }
    }

    /// Returns whether the stream has begun to move, or was offered.
    fn move_stream(&mut self, turn: &mut TurnCx<'_>, key: StreamKey, to: MigrationTarget) -> bool {
        let offset = turn.session.stream(key).map(|view| view.sent_bytes + view.received_bytes);
        if let Err(error) = turn.session.migrate(turn.now, key, to) {
            tracing::trace!(?key, %error, "cannot move");
            return false;
        }
        self.spread.moves -= 1.0;
        let slot = self.stream_slots.get(key);
        if let Some((exchange, _)) = slot.and_then(|slot| self.slots.entry(slot)) {
            let why = MigrationCause::Policy(MigrationReason::SmallWindow);
            let offset = offset.filter(|_| to != MigrationTarget::Offer);
            exchange.record.pending_migration = Some(PendingMigration { why, offset });
        }
        true
    }

    /// Spreads no more. What runs ends where it is: on one connection again, streams would share a window that may be too small
    /// after all, and have no moves left.
    fn end_spread(&mut self, turn: &mut TurnCx<'_>) {
        self.spread.offered.clear();
        turn.session.set_carrier_role(ConnectionRole::Bulk);
        turn.conns.lift_pacing(PacingLift::None);
    }
}

/// Returns the connections over which streams are spread: those that carry some, then spares, by their numbers.
fn lanes(turn: &TurnCx<'_>, sending: &[Sending], max_lanes: usize) -> Vec<ConnId> {
    let is_busy = |conn| sending.iter().any(|stream| stream.view.connection == conn);
    let joined = turn.session.connections().filter(|conn| conn.is_joined && conn.accepts_streams);
    let mut lanes: Vec<_> = joined.map(|conn| (!is_busy(conn.id), conn.cid, conn.id)).collect();
    lanes.sort_by_key(|&(is_idle, cid, _)| (is_idle, cid));
    lanes.into_iter().take(max_lanes).map(|(_, _, id)| id).collect()
}

/// Measures the connections of streams that send; `None` if no stream does. Also returns the busiest.
fn measure(turn: &mut TurnCx<'_>, sending: &[Sending]) -> Option<(SpreadSample, ConnId)> {
    let mut busy: Vec<(ConnId, u64)> = Vec::new();
    for stream in sending {
        let conn = stream.view.connection;
        match busy.iter_mut().find(|(id, _)| *id == conn) {
            Some((_, left)) => *left += stream.left_bytes,
            None => busy.push((conn, stream.left_bytes)),
        }
    }
    let &(busiest_conn, _) = busy.iter().max_by_key(|&&(_, left)| left)?;
    let busiest = turn.conns.sample(busiest_conn).conn_sample();
    let mut all = ConnSample { acknowledged: 0, in_flight: 0, retransmitted: 0, ..busiest };
    (all.outstanding, all.congestion_window) = (0, 0);
    let conns: Vec<ConnId> = turn.session.connections().map(|conn| conn.id).collect();
    for conn in conns {
        let sample = turn.conns.sample(conn).conn_sample();
        all.acknowledged += sample.acknowledged;
        all.in_flight += sample.in_flight;
        all.outstanding += sample.outstanding;
        all.retransmitted += sample.retransmitted;
        all.congestion_window += sample.congestion_window;
    }
    let demand = turn.session.transmit_demand(busiest_conn);
    let has_unsent = demand.interactive || busiest.outstanding > busiest.in_flight;
    let backlog = match (demand.bulk, has_unsent) {
        (true, _) if turn.conns.is_bulk_limited() => Backlog::Paced,
        (true, _) | (false, true) => Backlog::Window,
        // The service or the peer's flow control are what it waits for.
        (false, false) => Backlog::None,
    };
    let sample = SpreadSample {
        busiest,
        backlog,
        all,
        left_bytes: sending.iter().map(|stream| stream.left_bytes).sum(),
        streams: sending.len(),
        lanes: busy.len(),
    };
    Some((sample, busiest_conn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::balance;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_session_moves_fewer_streams_than_a_client_follows() {
        let mut spread = SpreadStreams::default();
        assert_eq!(spread.refill(at(1)), 36);
        spread.moves -= 36.0;
        assert_eq!((spread.refill(at(1)), spread.refill(at(2))), (0, 8));
        assert_eq!(spread.refill(at(100)), 36);
    }

    #[test]
    fn what_a_client_declines_is_not_tried_with_its_other_streams_at_once() {
        let streams = balance::tests::keys(2);
        let mut spread = SpreadStreams { offered: vec![streams[0]], ..SpreadStreams::default() };
        assert_eq!(spread.refill(at(1)), 36);
        spread.on_declined(streams[0]);
        assert!(spread.has_declined, "it opens no more connections");
        assert_eq!(spread.refill(at(1)), 36, "those that are there are used");
        spread.on_declined(streams[1]);
        assert_eq!(spread.refill(at(1)), 0, "it follows no more for now");
    }
}
