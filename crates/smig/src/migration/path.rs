//! What the sockets report of a connection's path, for the migration policy.

use std::time::Duration;

use smig_pace::MIN_PACED_RTT;
use smig_proto::policy::Interference;
use smig_proto::{ConnId, Instant};

use crate::driver::TurnCx;

/// Shortest interval between two samples of a connection's path.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// What the sockets report of a connection's path, and what bulk does there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeasuredPath {
    /// Bytes per second.
    pub(super) delivery_rate: Option<u64>,
    /// How bulk affects the other streams; `None` if the path is too short for pacing.
    pub(super) interference: Option<Interference>,
}

/// Samples the path of a session's connection.
#[derive(Debug, Default)]
pub(super) struct PathWatch {
    sample: Option<(ConnId, Instant, MeasuredPath)>,
}

impl PathWatch {
    /// Returns the path of a connection, at most [`SAMPLE_INTERVAL`] old.
    pub(super) fn get(&mut self, turn: &mut TurnCx<'_>, conn: ConnId) -> MeasuredPath {
        if let Some((sampled, at, path)) = self.sample
            && sampled == conn
            && turn.now.saturating_duration_since(at) < SAMPLE_INTERVAL
        {
            return path;
        }
        let path = Self::measure(turn, conn);
        self.sample = Some((conn, turn.now, path));
        path
    }

    /// Forgets the last sample: a stream that it was taken with has migrated.
    pub(super) fn forget_sample(&mut self) {
        self.sample = None;
    }

    fn measure(turn: &mut TurnCx<'_>, conn: ConnId) -> MeasuredPath {
        let sample = turn.conns.sample(conn);
        let is_paced = sample.min_rtt >= MIN_PACED_RTT;
        MeasuredPath {
            delivery_rate: sample.delivery_rate,
            interference: is_paced.then(|| turn.conns.bulk_interference()),
        }
    }
}

#[cfg(test)]
impl PathWatch {
    /// One that has just sampled a connection.
    pub(super) const fn measured(conn: ConnId, now: Instant, path: MeasuredPath) -> Self {
        Self { sample: Some((conn, now, path)) }
    }
}
