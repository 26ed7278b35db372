//! A round trip that does not change: a queue that others fill does.

use std::time::Duration;

use super::SharedRound;

/// Changes up to the time of so many packets, within these limits in seconds, are none.
const TOLERANCE_PACKETS: f64 = 3.0;
const TOLERANCE_S: (f64, f64) = (0.001, 1.0);

/// How long the round trip has not changed.
#[derive(Debug)]
pub(super) struct FlatRtt {
    rounds: u32,
    shortest: Duration,
    longest: Duration,
}

impl FlatRtt {
    pub(super) const fn new() -> Self {
        Self { rounds: 0, shortest: Duration::MAX, longest: Duration::ZERO }
    }

    /// Returns the number of rounds.
    pub(super) const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the shortest of them.
    pub(super) const fn shortest(&self) -> Duration {
        self.shortest
    }

    /// Notes a round, on a path that is known to have had a rate of `path_rate`.
    pub(super) fn on_round(&mut self, round: &SharedRound, path_rate: f64) {
        let (shortest, longest) = (self.shortest.min(round.rtt), self.longest.max(round.rtt));
        let packets = TOLERANCE_PACKETS * f64::from(round.mss) / path_rate.max(round.rate).max(1.0);
        let tolerance = Duration::from_secs_f64(packets.clamp(TOLERANCE_S.0, TOLERANCE_S.1));
        *self = if longest - shortest > tolerance {
            Self { rounds: 0, shortest: round.rtt, longest: round.rtt }
        } else {
            Self { rounds: self.rounds + 1, shortest, longest }
        };
    }
}
