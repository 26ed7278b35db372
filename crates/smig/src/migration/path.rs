//! What the sockets report of a connection's path, for the migration policy.

use std::time::Duration;

use smig_pace::MIN_PACED_RTT;
use smig_proto::policy::PathState;
use smig_proto::{ConnId, Instant};

use crate::driver::TurnCx;
use crate::socket::{INITIAL_WINDOW_PACKETS, PathSample};

/// Shortest interval between two samples of a connection's path.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// A connection loses packets again and again if it lost one of so many...
const LOSSY_PATH_PACKETS: u64 = 1000;
/// ...in as many consecutive periods, ...
const LOSSY_PERIODS: u32 = 3;
/// ...each as long and with as many packets at least as these.
const MIN_LOSS_PERIOD: Duration = Duration::from_secs(1);
const LOSS_PERIOD_RTTS: u32 = 8;
const MIN_LOSS_PACKETS: u32 = 100;

/// What the sockets report of a connection's path, and of a migration away from it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeasuredPath {
    /// Bytes per second.
    pub(super) delivery_rate: Option<u64>,
    /// `None` if it is too short for pacing.
    pub(super) state: Option<PathState>,
}

/// Samples the path of a session's connection.
#[derive(Debug, Default)]
pub(super) struct PathWatch {
    sample: Option<(ConnId, Instant, MeasuredPath)>,
    losses: Option<(ConnId, LossWatch)>,
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
        let path = self.measure(turn, conn);
        self.sample = Some((conn, turn.now, path));
        path
    }

    /// Forgets the last sample: a stream has migrated, so the next one would get another connection.
    pub(super) fn forget_sample(&mut self) {
        self.sample = None;
    }

    /// Samples the path of a connection, and the window of the one to which streams would migrate.
    fn measure(&mut self, turn: &mut TurnCx<'_>, conn: ConnId) -> MeasuredPath {
        let sample = turn.conns.sample(conn);
        // One that must be opened has its initial window.
        let initial_window = u64::from(sample.mss) * u64::from(INITIAL_WINDOW_PACKETS);
        let target_window = match turn.session.spare(conn) {
            Some(spare) => turn.conns.sample(spare).congestion_window,
            None => initial_window,
        };
        let losses = match &mut self.losses {
            Some((watched, losses)) if *watched == conn => losses,
            other => &mut other.insert((conn, LossWatch::new(turn.now, &sample))).1,
        };
        let state = PathState {
            rtt: sample.min_rtt,
            window: sample.congestion_window,
            target_window,
            is_paced: turn.conns.paces_bulk(),
            is_lossy: losses.update(turn.now, &sample),
        };
        MeasuredPath {
            delivery_rate: sample.delivery_rate,
            state: (sample.min_rtt >= MIN_PACED_RTT).then_some(state),
        }
    }
}

/// Watches whether a connection loses packets again and again, not only when its slow start overruns a queue.
#[derive(Clone, Copy, Debug)]
struct LossWatch {
    since: Instant,
    /// Packets sent and retransmitted before.
    sent: u32,
    retransmitted: u32,
    /// Consecutive periods with losses.
    lossy_periods: u32,
}

impl LossWatch {
    const fn new(now: Instant, sample: &PathSample) -> Self {
        let PathSample { sent_packets: sent, retransmitted, .. } = *sample;
        Self { since: now, sent, retransmitted, lossy_periods: 0 }
    }

    /// Updates it with a sample, and returns whether packets are lost again and again.
    fn update(&mut self, now: Instant, sample: &PathSample) -> bool {
        let sent = sample.sent_packets.saturating_sub(self.sent);
        let period = MIN_LOSS_PERIOD.max(sample.rtt * LOSS_PERIOD_RTTS);
        if now.saturating_duration_since(self.since) >= period && sent >= MIN_LOSS_PACKETS {
            let lost = u64::from(sample.retransmitted.saturating_sub(self.retransmitted));
            let is_lossy = lost * LOSSY_PATH_PACKETS >= u64::from(sent);
            let lossy_periods = if is_lossy { self.lossy_periods.saturating_add(1) } else { 0 };
            *self = Self { lossy_periods, ..Self::new(now, sample) };
        }
        self.lossy_periods >= LOSSY_PERIODS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1);

    impl PathWatch {
        /// One that has just sampled a connection.
        pub(in crate::migration) fn measured(
            conn: ConnId,
            now: Instant,
            path: MeasuredPath,
        ) -> Self {
            Self { sample: Some((conn, now, path)), losses: None }
        }
    }

    #[test]
    fn losses_count_if_they_go_on() {
        let mut sample = PathSample { rtt: Duration::from_millis(50), ..PathSample::default() };
        let mut losses = LossWatch::new(NOW, &sample);
        let mut now = NOW;
        let mut after_a_second = |lost| {
            now = now + Duration::from_secs(1);
            sample.sent_packets += 1000;
            sample.retransmitted += lost;
            losses.update(now, &sample)
        };
        // Slow start overran a queue.
        assert_eq!([300, 100, 0, 0].map(&mut after_a_second), [false; 4]);
        assert_eq!([1, 1, 1, 1].map(&mut after_a_second), [false, false, true, true]);
        assert!(!after_a_second(0));
        // On a longer path, a recovery lasts longer.
        sample.rtt = Duration::from_millis(600);
        let mut losses = LossWatch::new(now, &sample);
        for _ in 0..14 {
            now = now + Duration::from_secs(1);
            sample.sent_packets += 1000;
            sample.retransmitted += 1;
            assert!(!losses.update(now, &sample));
        }
        // What sends little loses nothing that others would wait for.
        sample.rtt = Duration::from_millis(50);
        let mut losses = LossWatch::new(now, &sample);
        for _ in 0..9 {
            now = now + Duration::from_secs(1);
            sample.sent_packets += 10;
            sample.retransmitted += 1;
            assert!(!losses.update(now, &sample));
        }
    }
}
