//! What a session sends, on which of its connections, and what the sockets report of them.

use smig_pace::{Backlog, ConnSample, SpreadSample};
use smig_proto::{ConnId, StreamKey, StreamView};

use crate::driver::TurnCx;
use crate::migration::balance::Mobility;

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
}

/// Whether HTTP/2's flow control lets a stream send. What it holds back sends no more on another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    Stalled,
}

impl Flow {
    /// Returns whether a stream may send, by its own window and that of its connection.
    pub(super) const fn of(view: &StreamView, conn_window: i64) -> Self {
        if view.send_window > 0 && conn_window > 0 { Self::Open } else { Self::Stalled }
    }
}

/// What is left to send on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ConnLoad {
    conn: ConnId,
    left_bytes: u64,
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
/// There may be `max_lanes` connections for them.
pub(super) fn measure(
    turn: &mut TurnCx<'_>,
    sending: &[Sending],
    watched: Option<ConnId>,
    max_lanes: usize,
) -> Option<Measured> {
    let SendLoad { conns: loads, lanes, streams, left_bytes, is_mobile } = SendLoad::of(sending);
    let busiest_conn = busiest_of(&loads, watched)?;
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
    // Where no stream may ever move, one is all.
    let max_lanes = if is_mobile { max_lanes } else { 1 };
    let sample = SpreadSample { busiest, backlog, all, left_bytes, streams, lanes, max_lanes };
    Some(Measured { sample, busiest: busiest_conn, conns })
}

/// What is left to send, and may be sent now.
#[derive(Debug, Default, PartialEq, Eq)]
struct SendLoad {
    /// By connection; if flow control holds back all streams, of those.
    conns: Vec<ConnLoad>,
    /// Connections with a stream that may send.
    lanes: usize,
    /// Such streams.
    streams: usize,
    left_bytes: u64,
    /// Whether any stream may move, now or later.
    is_mobile: bool,
}

impl SendLoad {
    fn of(sending: &[Sending]) -> Self {
        let may_send = |stream: &&Sending| stream.flow == Flow::Open;
        let is_mobile =
            |stream: &Sending| stream.mobility == Mobility::Mobile || stream.view.is_migrating;
        let mut load = Self { is_mobile: sending.iter().any(is_mobile), ..Self::default() };
        for stream in sending.iter().filter(may_send) {
            load.add(stream);
            load.streams += 1;
            // An origin may announce any length.
            load.left_bytes = load.left_bytes.saturating_add(stream.left_bytes);
        }
        load.lanes = load.conns.len();
        if load.streams == 0 {
            sending.iter().for_each(|stream| load.add(stream));
        }
        load
    }

    fn add(&mut self, &Sending { view, left_bytes, .. }: &Sending) {
        match self.conns.iter_mut().find(|load| load.conn == view.connection) {
            Some(load) => load.left_bytes = load.left_bytes.saturating_add(left_bytes),
            None => self.conns.push(ConnLoad { conn: view.connection, left_bytes }),
        }
    }
}

/// Returns the connection with most left to send. One that is watched stays it until another has twice as much left: each
/// change costs the rounds that were watched.
fn busiest_of(loads: &[ConnLoad], watched: Option<ConnId>) -> Option<ConnId> {
    let most = loads.iter().max_by_key(|load| load.left_bytes)?;
    let is_still = |load: &&ConnLoad| {
        Some(load.conn) == watched && load.left_bytes >= most.left_bytes.div_ceil(2)
    };
    Some(loads.iter().find(is_still).unwrap_or(most).conn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::balance::tests as samples;

    /// Streams of one connection with so many bytes left.
    fn sending<const N: usize>(left_bytes: [u64; N]) -> [Sending; N] {
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
        let conn = ConnLoad { conn: huge.view.connection, left_bytes: u64::MAX };
        assert_eq!((load.conns, load.left_bytes), (vec![conn], u64::MAX));
    }

    #[test]
    fn the_busiest_connection_stays_watched_until_another_has_twice_as_much_left() {
        let conns = samples::conns(2);
        let load = |index: usize, left_bytes| ConnLoad { conn: conns[index], left_bytes };
        assert_eq!(busiest_of(&[], None), None);
        assert_eq!(busiest_of(&[load(0, 9), load(1, 10)], None), Some(conns[1]));
        assert_eq!(busiest_of(&[load(0, 5), load(1, 10)], Some(conns[0])), Some(conns[0]));
        assert_eq!(busiest_of(&[load(0, 4), load(1, 10)], Some(conns[0])), Some(conns[1]));
        assert_eq!(busiest_of(&[load(1, 10)], Some(conns[0])), Some(conns[1]));
    }

    #[test]
    fn what_flow_control_holds_back_cannot_send() {
        let [open, other] = sending([500, 700]);
        let flow = |send_window, conn_window| {
            Flow::of(&StreamView { send_window, ..open.view }, conn_window)
        };
        assert_eq!(flow(1, 1), Flow::Open);
        for (stream_window, conn_window) in [(0, 1), (-5, 1), (1, 0)] {
            assert_eq!(flow(stream_window, conn_window), Flow::Stalled);
        }
        let stalled = Sending { flow: Flow::Stalled, ..other };
        let load = SendLoad::of(&[open, stalled]);
        assert_eq!((load.streams, load.lanes, load.left_bytes), (1, 1, 500));
        let load = SendLoad::of(&[stalled]);
        assert_eq!((load.streams, load.lanes, load.left_bytes), (0, 0, 0));
        assert_eq!(load.conns.len(), 1, "it is not complete");
        assert!(load.is_mobile, "it may move later");
        assert_eq!(
            [open, stalled].map(|it| it.mobility_now()),
            [Mobility::Mobile, Mobility::Fixed]
        );
    }

    #[test]
    fn streams_that_may_never_move_are_not_spread() {
        let [stream] = sending([500]);
        let fixed = Sending { mobility: Mobility::Fixed, ..stream };
        assert!(SendLoad::of(&[fixed, stream]).is_mobile);
        assert!(!SendLoad::of(&[fixed]).is_mobile);
        let view = StreamView { is_migrating: true, ..stream.view };
        let offered = Sending { view, ..fixed };
        assert!(SendLoad::of(&[offered]).is_mobile, "the client may move it");
        assert_eq!(offered.mobility_now(), Mobility::Fixed);
    }
}
