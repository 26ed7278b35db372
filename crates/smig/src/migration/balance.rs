//! Which streams move so that several connections end at about the same time: a pure function.

use smig_proto::StreamKey;

/// A move that relieves the busiest connection by less than this is not worth its frames, in bytes.
const MIN_RELIEF_BYTES: u64 = 16 << 10;

/// A stream with something left to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BalancedStream {
    pub(crate) key: StreamKey,
    /// The index of its connection.
    pub(crate) lane: usize,
    /// Bytes that are left to send.
    pub(crate) left_bytes: u64,
    pub(crate) progress: SendState,
    pub(crate) mobility: Mobility,
}

/// Whether a stream has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SendState {
    /// What it sent would be ahead of what it sends elsewhere.
    Started,
    Waiting,
}

/// Whether a stream may move now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mobility {
    Fixed,
    Mobile,
}

/// Returns up to `max_moves` moves, each of a stream to the connection with that index. Streams that wait go first, and of those
/// the ones that relieve the busiest connection most; of equal ones the last, which would wait longest.
pub(crate) fn plan(
    lane_count: usize,
    streams: &[BalancedStream],
    max_moves: usize,
) -> Vec<(StreamKey, usize)> {
    let mut streams = streams.to_vec();
    let mut moves = Vec::new();
    while moves.len() < max_moves
        && let Some((index, to)) = next_move(lane_count, &streams)
        && let Some(stream) = streams.get_mut(index)
    {
        (stream.lane, stream.mobility) = (to, Mobility::Fixed);
        moves.push((stream.key, to));
    }
    moves
}

/// Returns the index of the stream that moves next, and where to.
fn next_move(lane_count: usize, streams: &[BalancedStream]) -> Option<(usize, usize)> {
    let load = |lane: usize| -> u64 {
        let on_lane = streams.iter().filter(|stream| stream.lane == lane);
        // An origin may announce any length.
        on_lane.fold(0, |sum: u64, stream| sum.saturating_add(stream.left_bytes))
    };
    let loads: Vec<u64> = (0..lane_count).map(load).collect();
    let (to, least) = loads.iter().copied().enumerate().min_by_key(|&(_, load)| load)?;
    let (from, most) = loads.iter().copied().enumerate().max_by_key(|&(_, load)| load)?;
    let gap = most - least;
    let relief =
        |stream: &BalancedStream| stream.left_bytes.min(gap.saturating_sub(stream.left_bytes));
    streams
        .iter()
        .enumerate()
        .filter(|(_, stream)| stream.lane == from && stream.mobility == Mobility::Mobile)
        .filter(|(_, stream)| relief(stream) >= MIN_RELIEF_BYTES)
        .max_by_key(|(index, stream)| (stream.progress, relief(stream), *index))
        .map(|(index, _)| (index, to))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use smig_proto::{
        AppId, Config, ConnId, ConnectionSpec, EndStream, Identity, Instant, RequestHead,
    };
    use smig_proto::{Security, Session};

    const NOW: Instant = Instant::from_nanos(1);

    fn add_connection(session: &mut Session) -> ConnId {
        let spec = ConnectionSpec { security: Security::Ineligible, identity: Identity([0; 32]) };
        session.add_connection(NOW, spec)
    }

    /// Handles of so many connections: only a session makes them.
    pub(crate) fn conns(count: usize) -> Vec<ConnId> {
        let mut session = Session::client(Config::client(), AppId::new(1), NOW);
        (0..count).map(|_| add_connection(&mut session)).collect()
    }

    /// Keys of so many streams.
    pub(crate) fn keys(count: usize) -> Vec<StreamKey> {
        session(count).1
    }

    /// A stream with 500 kB on the first connection.
    pub(crate) const fn stream(key: StreamKey) -> BalancedStream {
        BalancedStream {
            key,
            lane: 0,
            left_bytes: 500_000,
            progress: SendState::Waiting,
            mobility: Mobility::Mobile,
        }
    }

    /// A session with so many streams on one connection.
    pub(crate) fn session(count: usize) -> (Session, Vec<StreamKey>) {
        let mut session = Session::client(Config::client(), AppId::new(1), NOW);
        let conn = add_connection(&mut session);
        let head = RequestHead {
            method: http::Method::GET,
            uri: "https://localhost/".parse().unwrap(),
            protocol: None,
            headers: http::HeaderMap::new(),
        };
        let mut open = || session.open(NOW, Some(conn), &head, EndStream::Yes).unwrap();
        let keys = (0..count).map(|_| open()).collect();
        (session, keys)
    }

    /// Streams with so many kilobytes left, all on the first connection; the first has begun.
    fn streams(left_kb: &[u64]) -> Vec<BalancedStream> {
        let keys = keys(left_kb.len());
        let stream = |(index, (&kb, &key)): (usize, (&u64, &StreamKey))| BalancedStream {
            key,
            lane: 0,
            left_bytes: kb * 1000,
            progress: if index == 0 { SendState::Started } else { SendState::Waiting },
            mobility: Mobility::Mobile,
        };
        left_kb.iter().zip(&keys).enumerate().map(stream).collect()
    }

    /// The kilobytes left on each connection after the moves, and their number.
    fn loads(lane_count: usize, streams: &[BalancedStream]) -> (Vec<u64>, usize) {
        let moves = plan(lane_count, streams, 100);
        let lane = |stream: &BalancedStream| {
            moves.iter().find(|(key, _)| *key == stream.key).map_or(stream.lane, |&(_, to)| to)
        };
        let load = |index| {
            streams.iter().filter(|stream| lane(stream) == index).map(|s| s.left_bytes / 1000).sum()
        };
        ((0..lane_count).map(load).collect(), moves.len())
    }

    #[test]
    fn equal_streams_are_spread_evenly() {
        assert_eq!(loads(4, &streams(&[60; 48])), (vec![720; 4], 36));
        let (loads, moves) = loads(4, &streams(&[500; 6]));
        assert_eq!((loads.iter().max(), moves), (Some(&1000), 4));
    }

    #[test]
    fn sums_of_announced_lengths_do_not_overflow() {
        let huge = BalancedStream { left_bytes: u64::MAX - 7, ..streams(&[1])[0] };
        let others = streams(&[500, 500]);
        assert_eq!(plan(2, &[huge, others[0], others[1]], 9).len(), 2);
    }

    #[test]
    fn a_stream_alone_stays() {
        assert_eq!(loads(4, &streams(&[500])), (vec![500, 0, 0, 0], 0));
        assert_eq!(loads(1, &streams(&[500; 6])), (vec![3000], 0));
    }

    #[test]
    fn what_waits_moves_first_and_the_last_of_all() {
        let streams = streams(&[500, 500, 500]);
        let moves = plan(2, &streams, 1);
        assert_eq!(moves, vec![(streams[2].key, 1)]);
    }

    #[test]
    fn streams_that_may_not_move_stay() {
        let mut streams = streams(&[500, 500, 500]);
        for stream in &mut streams[1..] {
            stream.mobility = Mobility::Fixed;
        }
        assert_eq!(plan(2, &streams, 9), vec![(streams[0].key, 1)]);
        streams[0].mobility = Mobility::Fixed;
        assert_eq!(plan(2, &streams, 9), vec![]);
    }
}
