//! What a session sends, on which of its connections, and what the sockets report of them.

use smig_pace::{Backlog, ConnSample, SpreadSample};
use smig_proto::{ConnId, StreamKey, StreamView};

use super::reach::Reach;
use crate::driver::TurnCx;
use crate::migration::balance::{BalancedStream, Mobility, SendState};

/// A stream that has something left to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) key: StreamKey,
    pub(super) view: StreamView,
    pub(super) left_bytes: u64,
    /// Whether it may move at all.
    pub(super) mobility: Mobility,
    pub(super) flow: Flow,
}

impl Sending {
    /// Returns whether it may move now.
    pub(super) fn mobility_now(&self) -> Mobility {
        match self.flow {
            Flow::Open if !self.view.is_migrating => self.mobility,
            _ => Mobility::Fixed,
        }
    }

    /// Returns what decides where it moves; `None` if its connection is none of `open`.
    pub(super) fn balanced(&self, open: &[ConnId]) -> Option<BalancedStream> {
        Some(BalancedStream {
            key: self.key,
            lane: open.iter().position(|&lane| lane == self.view.connection)?,
            left_bytes: self.left_bytes,
            progress: match self.view.sent_bytes {
                0 => SendState::Waiting,
                _ => SendState::Started,
            },
            mobility: self.mobility_now(),
        })
    }
}

/// Whether its own flow-control window lets a stream send. That one moves with it, so that it would send no more elsewhere; a
/// connection's window stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    Stalled,
}

impl Flow {
    pub(super) const fn of(view: &StreamView) -> Self {
        if view.send_window > 0 { Self::Open } else { Self::Stalled }
    }
}

/// What is left to send on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnLoad {
    conn: ConnId,
    /// Of streams that may send.
    left_bytes: u64,
    /// Of all of them.
    total_bytes: u64,
}

/// A measurement of the session's connections.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) sample: SpreadSample,
    pub(super) busiest: ConnId,
    /// The connections that are summed up.
    pub(super) conns: Vec<ConnId>,
}

/// Returns the connections over which streams are spread: those that carry some, then spares, by their numbers.
pub(super) fn open_lanes(turn: &TurnCx<'_>, sending: &[Sending], max_lanes: usize) -> Vec<ConnId> {
    let is_busy = |conn| sending.iter().any(|stream| stream.view.connection == conn);
    let joined = turn.session.connections().filter(|conn| conn.is_joined && conn.accepts_streams);
    let mut lanes: Vec<_> = joined.map(|conn| (!is_busy(conn.id), conn.cid, conn.id)).collect();
    lanes.sort_by_key(|&(is_idle, cid, _)| (is_idle, cid));
    lanes.into_iter().take(max_lanes).map(|(_, _, id)| id).collect()
}

/// Measures the connections of streams that send, of which `watched` was the busiest before; `None` if no stream does.
pub(super) fn measure(
    turn: &mut TurnCx<'_>,
    sending: &[Sending],
    watched: Option<ConnId>,
    reach: Reach,
) -> Option<Measured> {
    let SendLoad { conns: loads, lanes, streams, left_bytes } = SendLoad::of(sending);
    let mut has_sent = |conn| turn.conns.sample(conn).conn_sample().in_flight > 0;
    let busiest_conn = busiest_of(&loads, watched.map(|conn| (conn, has_sent(conn))))?;
    let busiest = turn.conns.sample(busiest_conn).conn_sample();
    let mut all = ConnSample { acknowledged: 0, in_flight: 0, retransmitted: 0, ..busiest };
    (all.outstanding, all.congestion_window) = (0, 0);
    let conns: Vec<ConnId> = turn.session.connections().map(|conn| conn.id).collect();
    for &conn in &conns {
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
    let max_lanes = reach.lanes();
    let sample = SpreadSample { busiest, backlog, all, left_bytes, streams, lanes, max_lanes };
    Some(Measured { sample, busiest: busiest_conn, conns })
}

/// What is left to send, and may be sent now.
#[derive(Debug, Default, PartialEq, Eq)]
struct SendLoad {
    /// By connection.
    conns: Vec<ConnLoad>,
    /// Connections with a stream that may send.
    lanes: usize,
    /// Such streams.
    streams: usize,
    left_bytes: u64,
}

impl SendLoad {
    fn of(sending: &[Sending]) -> Self {
        let mut load = Self::default();
        sending.iter().for_each(|stream| load.add(stream));
        load.lanes = load.conns.iter().filter(|conn| conn.left_bytes > 0).count();
        load
    }

    fn add(&mut self, &Sending { view, left_bytes, flow, .. }: &Sending) {
        let conn = view.connection;
        let open_bytes = if flow == Flow::Open { left_bytes } else { 0 };
        match self.conns.iter_mut().find(|load| load.conn == conn) {
            // An origin may announce any length.
            Some(load) => {
                load.left_bytes = load.left_bytes.saturating_add(open_bytes);
                load.total_bytes = load.total_bytes.saturating_add(left_bytes);
            }
            None => {
                let load = ConnLoad { conn, left_bytes: open_bytes, total_bytes: left_bytes };
                self.conns.push(load);
            }
        }
        self.left_bytes = self.left_bytes.saturating_add(open_bytes);
        self.streams += usize::from(flow == Flow::Open);
    }
}

/// Returns the connection with most left to send. One that is watched stays it until another has twice as much left, what its
/// streams' windows hold back for a moment included: each change costs the rounds that were watched. Of `watched`, the second
/// says whether anything is in flight.
fn busiest_of(loads: &[ConnLoad], watched: Option<(ConnId, bool)>) -> Option<ConnId> {
    let most = loads.iter().max_by_key(|load| (load.left_bytes, load.total_bytes))?;
    let is_still = |load: &&ConnLoad| {
        // What its client has stopped reading is no longer in flight, and holds up no other.
        let has_sent = |(conn, has_sent)| conn == load.conn && (has_sent || load.left_bytes > 0);
        watched.is_some_and(has_sent) && load.total_bytes >= most.left_bytes.div_ceil(2)
    };
    Some(loads.iter().find(is_still).unwrap_or(most).conn)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::migration::balance::tests as samples;

    /// Streams of one connection with so many bytes left.
    pub(in super::super) fn sending<const N: usize>(left_bytes: [u64; N]) -> [Sending; N] {
        let (session, keys) = samples::session(N);
        let mut keys = keys.into_iter();
        left_bytes.map(|left_bytes| {
            let key = keys.next().unwrap();
            let view = session.stream(key).unwrap();
            Sending { key, view, left_bytes, mobility: Mobility::Mobile, flow: Flow::Open }
        })
    }

    #[test]
    fn sums_of_announced_lengths_do_not_overflow() {
        let [huge, other] = sending([u64::MAX - 7; 2]);
        let load = SendLoad::of(&[huge, other]);
        let conn = huge.view.connection;
        let all = ConnLoad { conn, left_bytes: u64::MAX, total_bytes: u64::MAX };
        assert_eq!((load.conns, load.left_bytes), (vec![all], u64::MAX));
    }

    #[test]
    fn the_busiest_connection_stays_watched_until_another_has_twice_as_much_left() {
        let conns = samples::conns(2);
        let load = |index: usize, left_bytes| ConnLoad {
            conn: conns[index],
            left_bytes,
            total_bytes: left_bytes,
        };
        let first = Some((conns[0], true));
        assert_eq!(busiest_of(&[], None), None);
        assert_eq!(busiest_of(&[load(0, 9), load(1, 10)], None), Some(conns[1]));
        assert_eq!(busiest_of(&[load(0, 5), load(1, 10)], first), Some(conns[0]));
        assert_eq!(busiest_of(&[load(0, 4), load(1, 10)], first), Some(conns[1]));
        assert_eq!(busiest_of(&[load(1, 10)], first), Some(conns[1]));
    }

    #[test]
    fn a_stall_for_a_moment_changes_no_watched_connection() {
        let conns = samples::conns(2);
        let stalled = ConnLoad { conn: conns[0], left_bytes: 0, total_bytes: 90 };
        let partly = ConnLoad { left_bytes: 1, ..stalled };
        let other = ConnLoad { conn: conns[1], left_bytes: 100, total_bytes: 100 };
        assert_eq!(busiest_of(&[stalled, other], Some((conns[0], true))), Some(conns[0]));
        assert_eq!(busiest_of(&[partly, other], Some((conns[0], false))), Some(conns[0]));
        assert_eq!(busiest_of(&[stalled, other], Some((conns[0], false))), Some(conns[1]));
        assert_eq!(busiest_of(&[stalled, other], None), Some(conns[1]));
    }

    #[test]
    fn what_its_own_window_holds_back_cannot_send() {
        let [open, other] = sending([500, 700]);
        let flow = |send_window| Flow::of(&StreamView { send_window, ..open.view });
        assert_eq!([1, 0, -5].map(flow), [Flow::Open, Flow::Stalled, Flow::Stalled]);
        let stalled = Sending { flow: Flow::Stalled, ..other };
        let load = SendLoad::of(&[open, stalled]);
        assert_eq!((load.streams, load.lanes, load.left_bytes), (1, 1, 500));
        assert_eq!(load.conns[0].total_bytes, 1200);
        let load = SendLoad::of(&[stalled]);
        assert_eq!((load.streams, load.lanes, load.left_bytes), (0, 0, 0));
        assert_eq!(load.conns.len(), 1, "it is not complete");
    }

    #[test]
    fn what_cannot_send_or_moves_already_does_not_move() {
        let [stream] = sending([500]);
        let conn = stream.view.connection;
        let mobility = |stream: Sending| stream.balanced(&[conn]).map(|it| it.mobility);
        assert_eq!(mobility(stream), Some(Mobility::Mobile));
        let stalled = Sending { flow: Flow::Stalled, ..stream };
        assert_eq!(mobility(stalled), Some(Mobility::Fixed));
        let view = StreamView { is_migrating: true, ..stream.view };
        assert_eq!(mobility(Sending { view, ..stream }), Some(Mobility::Fixed));
        assert!(stream.balanced(&[]).is_none(), "its connection takes no streams");
        assert_eq!(stream.balanced(&[conn]).map(|it| it.progress), Some(SendState::Waiting));
        let view = StreamView { sent_bytes: 1, ..stream.view };
        let started = Sending { view, ..stream }.balanced(&[conn]);
        assert_eq!(started.map(|it| it.progress), Some(SendState::Started));
    }
}
