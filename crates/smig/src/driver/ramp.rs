//! How fast a bulk connection may grow when it begins.
//!
//! BBR looks for the path's rate by sending at 2.9 times what it has seen so far; on a path with a
//! short queue that costs packets of the interactive connections beside it, and those few packets
//! are what people wait for. A cap above the measured rate lets it grow somewhat slower, and makes it
//! see the plateau. Pure: the driver measures and sets.

use std::time::Duration;

use smig_proto::Instant;

/// Octets that a new connection sends in its first round trip.
const INITIAL_WINDOW: u64 = 10 * 1448;
/// The cap is above the measured rate by this while the rate grows: more than the 1.25 that BBR
/// takes for growth.
const GROWTH: (u64, u64) = (2, 1);
/// A round that grows less is the plateau.
const FLAT: (u64, u64) = (5, 4);
/// Rounds at the plateau, until BBR believes it and the queue is short again.
const SETTLING: u32 = 3;
/// Rounds at most, whatever the samples say.
const MAX_ROUNDS: u32 = 40;
/// A round is at least so long: rates need packets to be measured.
const LEAST_ROUND: Duration = Duration::from_millis(4);

#[derive(Debug)]
pub(super) struct Ramp {
    best: u64,
    /// No cap is lower: what the application has not sent yet is no measure of the path.
    floor: u64,
    next: Instant,
    rounds: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Growing,
    Settling(u32),
}

/// What to do with the connection's pacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cap {
    /// Octets a second at most.
    At(u64),
    /// None from now on; the ramp is over.
    Off,
}

impl Ramp {
    /// A connection with this round-trip time begins; its first cap.
    pub(super) fn begin(now: Instant, rtt: Duration) -> (Self, u64) {
        let micros = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        let first = (2 * INITIAL_WINDOW).saturating_mul(1_000_000) / micros;
        // The first packets are acknowledged one round later.
        let next = now + rtt.max(LEAST_ROUND) * 5 / 4;
        (Self { best: 0, floor: first, next, rounds: 0, phase: Phase::Growing }, first)
    }

    /// Whether a round is over, so that a sample tells something.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// A round is over, in which the path delivered `rate` octets a second.
    pub(super) fn on_round(&mut self, now: Instant, rtt: Duration, rate: u64) -> Cap {
        self.next = now + rtt.max(LEAST_ROUND);
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Cap::Off;
        }
        let grew = rate > self.best.saturating_mul(FLAT.0) / FLAT.1;
        self.best = self.best.max(rate);
        match self.phase {
            Phase::Growing if grew || self.best == 0 => {}
            Phase::Growing => self.phase = Phase::Settling(SETTLING),
            // It was not the plateau: a round without data, or a path that has become faster.
            Phase::Settling(_) if grew => self.phase = Phase::Growing,
            Phase::Settling(0 | 1) => return Cap::Off,
            Phase::Settling(left) => self.phase = Phase::Settling(left - 1),
        }
        let cap = match self.phase {
            Phase::Growing => self.best.saturating_mul(GROWTH.0) / GROWTH.1,
            Phase::Settling(_) => self.best,
        };
        Cap::At(cap.max(self.floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that delivers up to `limit`: the caps, round by round.
    fn caps(limit: u64) -> Vec<u64> {
        let rtt = Duration::from_millis(50);
        let mut now = Instant::from_nanos(0);
        let (mut ramp, mut cap) = Ramp::begin(now, rtt);
        let mut caps = vec![cap];
        loop {
            now = now + rtt * 5 / 4;
            assert!(ramp.is_due(now));
            match ramp.on_round(now, rtt, cap.min(limit)) {
                Cap::At(next) => cap = next,
                Cap::Off => return caps,
            }
            caps.push(cap);
        }
    }

    #[test]
    fn it_grows_to_the_paths_rate_and_stays_there_for_some_rounds() {
        let limit = 1_200_000;
        let caps = caps(limit);
        assert!(caps.len() < 12, "{caps:?}");
        let over: Vec<_> = caps.iter().filter(|&&cap| cap > limit).collect();
        assert!(over.len() <= 2, "{caps:?}");
        assert!(over.iter().all(|&&cap| cap <= limit * 2), "{caps:?}");
        assert_eq!(caps.iter().filter(|&&cap| cap == limit).count(), SETTLING as usize);
    }

    #[test]
    fn a_sender_that_has_nothing_to_send_is_not_slowed_down() {
        let rtt = Duration::from_millis(50);
        let (mut ramp, first) = Ramp::begin(Instant::from_nanos(0), rtt);
        let mut now = Instant::from_nanos(0);
        for _ in 0..3 {
            now = now + rtt * 2;
            assert_eq!(ramp.on_round(now, rtt, 1000), Cap::At(first));
        }
    }

    #[test]
    fn it_ends_on_a_path_without_a_plateau() {
        assert!(caps(u64::MAX / 16).len() <= MAX_ROUNDS as usize + 1);
    }
}
