//! Which connection brought which bytes of a stream, over time.
//!
//! The client calls this whenever it looks at a stream; connections are named by whoever calls.

use std::collections::BTreeMap;

use super::timeline::{Column, ConnectionName, Subject, Track, micros_after};
use crate::link::Time;

/// The bytes of one stream's body, by connection.
#[derive(Debug, Clone)]
pub struct Carried {
    stream: String,
    origin: Time,
    tracks: BTreeMap<ConnectionName, Track>,
}

impl Carried {
    /// Nothing has come of the stream.
    #[must_use]
    pub const fn new(stream: String, origin: Time) -> Self {
        Self { stream, origin, tracks: BTreeMap::new() }
    }

    /// What has come by a connection so far, all in all. Kept when it is more than before.
    pub fn record(&mut self, at: Time, connection: &ConnectionName, bytes: u64) {
        let track = self.tracks.entry(connection.clone()).or_insert_with(|| {
            let (name, connection) = (self.stream.clone(), connection.clone());
            Track::new(Subject::Stream { name, connection })
        });
        if track.last(Column::CarriedBytes).is_none_or(|before| bytes > before) {
            track.push(micros_after(self.origin, at), &[(Column::CarriedBytes, bytes)]);
        }
    }

    /// One track for each connection.
    #[must_use]
    pub fn into_tracks(self) -> Vec<Track> {
        self.tracks.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_progress_is_kept() {
        let mut carried = Carried::new("big".into(), Time::from_nanos(1_000_000));
        let (one, two) = (ConnectionName("1".into()), ConnectionName("2".into()));
        for (at_us, connection, bytes) in
            [(1_000, &one, 10), (1_500, &one, 10), (2_000, &two, 5), (3_000, &one, 20)]
        {
            carried.record(Time::from_nanos(at_us * 1_000), connection, bytes);
        }
        let tracks = carried.into_tracks();
        let points = |index: usize| tracks[index].points(Column::CarriedBytes).collect::<Vec<_>>();
        assert_eq!((points(0), points(1)), (vec![(0, 10), (2_000, 20)], vec![(1_000, 5)]));
    }
}
