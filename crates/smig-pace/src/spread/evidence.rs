//! What shows that a single window is the limit: never a single round.

use std::collections::VecDeque;
use std::fmt;

use smig_proto::Instant;

use super::round::{Backlog, RoundMeter, WindowRound};
use crate::sample::ConnSample;

/// The last rounds that count.
const MAX_ROUNDS: usize = 32;
/// Separate recoveries with an empty queue from which on losses are random.
const MIN_RECOVERIES: usize = 2;
/// By how much less must be in flight for the round trip to show whether the queue is this side's.
const FALLEN_IN_FLIGHT: f64 = 0.9;
/// The round trip has grown by this factor, and the rate has fallen to this part of the highest.
const GROWN_RTT: u32 = 2;
const FALLEN_RATE: f64 = 0.6;

/// Why a single window is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLimit {
    /// Packets are lost although no queue stands: not by what is sent too fast.
    RandomLoss,
    /// The round trip grew and did not fall when less was in flight: the path is longer, and what goes by delays
    /// takes it for a queue.
    LongerPath,
}

impl WindowLimit {
    /// Returns the text for logs and users.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RandomLoss => "packets are lost again and again although no queue stands",
            Self::LongerPath => {
                "the round trip grew, and did not fall when less was in flight, so that it is no queue"
            }
        }
    }
}

/// Two rounds that show that a single window is the limit. Only [`WindowWatch`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEvidence {
    limit: WindowLimit,
    earlier: WindowRound,
    later: WindowRound,
}

impl WindowEvidence {
    /// Returns what the rounds show.
    #[must_use]
    pub const fn limit(&self) -> WindowLimit {
        self.limit
    }
}

impl fmt::Display for WindowEvidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let round = |f: &mut fmt::Formatter<'_>, round: &WindowRound| {
            let kb = |bytes: u64| bytes / 1000;
            write!(
                f,
                "{} kB in flight, {} ms, {} ms of them queue, {} retransmitted",
                kb(round.in_flight),
                round.rtt.as_millis(),
                round.max_queue.as_millis(),
                round.retransmitted
            )
        };
        write!(f, "{} (", self.limit.as_str())?;
        round(f, &self.earlier)?;
        write!(f, "; ")?;
        round(f, &self.later)?;
        write!(f, ")")
    }
}

/// Watches the connection that carries most, and collects rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct WindowWatch {
    meter: RoundMeter,
    rounds: VecDeque<WindowRound>,
}

impl WindowWatch {
    /// Records a sample. Returns the round that it ends.
    pub(super) fn on_sample(
        &mut self,
        now: Instant,
        sample: &ConnSample,
        backlog: Backlog,
    ) -> Option<WindowRound> {
        let round = self.meter.on_sample(now, sample, backlog)?;
        tracing::trace!(?round, "round");
        self.push(round);
        Some(round)
    }

    fn push(&mut self, round: WindowRound) {
        if self.rounds.len() == MAX_ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(round);
    }

    /// Returns the mean rate of the last `count` rounds, bytes per second.
    pub(super) fn rate(&self, count: usize) -> f64 {
        let last = self.rounds.iter().rev().take(count);
        let (bytes, seconds) = last.fold((0.0, 0.0), |(bytes, seconds), round| {
            (bytes + round.delivered as f64, seconds + round.duration.as_secs_f64())
        });
        if seconds > 0.0 { bytes / seconds } else { 0.0 }
    }

    /// Returns what the rounds show together.
    pub(super) fn evidence(&self) -> Option<WindowEvidence> {
        self.random_loss().or_else(|| self.longer_path())
    }

    /// Recoveries, of which each may take several rounds, while no queue stands; and more of them than of those with one.
    fn random_loss(&self) -> Option<WindowEvidence> {
        let mut recoveries: [Option<WindowRound>; 2] = [None; 2];
        let (mut random, mut congested) = (0, 0);
        let mut was_lossy = false;
        for round in &self.rounds {
            let is_lossy = round.retransmitted > 0;
            if is_lossy && !was_lossy {
                if round.has_empty_queue() && round.is_limited {
                    random += 1;
                    recoveries = [recoveries[1], Some(*round)];
                } else if !round.has_empty_queue() {
                    congested += 1;
                }
            }
            was_lossy = is_lossy;
        }
        let [Some(earlier), Some(later)] = recoveries else { return None };
        let is_enough = random >= MIN_RECOVERIES && random > congested;
        is_enough.then_some(WindowEvidence { limit: WindowLimit::RandomLoss, earlier, later })
    }

    /// Less in flight in two rounds, one after the other, and each time a longer round trip.
    fn longer_path(&self) -> Option<WindowEvidence> {
        let highest = self.rounds.iter().map(WindowRound::rate).fold(0.0, f64::max);
        let last = self.rounds.back()?;
        if last.rate() > highest * FALLEN_RATE || last.rtt < last.base * GROWN_RTT {
            return None;
        }
        let mut last_rounds = self.rounds.iter().rev();
        let (later, middle, earlier) =
            (last_rounds.next()?, last_rounds.next()?, last_rounds.next()?);
        let shows = |before: &WindowRound, after: &WindowRound| {
            after.in_flight <= before.in_flight && after.rtt >= before.rtt
        };
        let is_limited = [earlier, middle, later].iter().all(|round| round.is_limited);
        let has_loss = [earlier, middle, later].iter().any(|round| round.retransmitted > 0);
        let has_fallen = later.in_flight as f64 <= earlier.in_flight as f64 * FALLEN_IN_FLIGHT;
        let is_shown = shows(earlier, middle) && shows(middle, later);
        (is_limited && !has_loss && has_fallen && is_shown).then_some(WindowEvidence {
            limit: WindowLimit::LongerPath,
            earlier: *earlier,
            later: *later,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ROUND: WindowRound = WindowRound {
        duration: Duration::from_millis(40),
        delivered: 20_000,
        retransmitted: 0,
        rtt: Duration::from_millis(41),
        max_queue: Duration::from_millis(1),
        base: Duration::from_millis(40),
        in_flight: 20_000,
        is_limited: true,
    };
    const LOST: WindowRound = WindowRound { retransmitted: 1, ..ROUND };
    const QUEUED: Duration = Duration::from_millis(30);

    fn limit(rounds: &[WindowRound]) -> Option<WindowLimit> {
        let mut watch = WindowWatch::default();
        rounds.iter().for_each(|&round| watch.push(round));
        watch.evidence().map(|evidence| evidence.limit())
    }

    #[test]
    fn one_recovery_proves_nothing_however_long() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[ROUND, LOST, ROUND]), None);
        assert_eq!(limit(&[LOST, LOST, LOST, LOST]), None);
    }

    #[test]
    fn two_recoveries_with_an_empty_queue_are_random_loss() {
        assert_eq!(limit(&[ROUND, LOST, ROUND, LOST]), Some(WindowLimit::RandomLoss));
        let mut long_ago = vec![LOST];
        long_ago.extend([ROUND; 31]);
        long_ago.push(LOST);
        assert_eq!(limit(&long_ago), None);
    }

    #[test]
    fn losses_of_a_queue_that_stands_are_congestion() {
        let congested = WindowRound { max_queue: QUEUED, ..LOST };
        assert_eq!(limit(&[congested, ROUND, congested, ROUND, congested]), None);
        assert_eq!(limit(&[congested, ROUND, LOST, ROUND, LOST]), Some(WindowLimit::RandomLoss));
        assert_eq!(limit(&[congested, ROUND, congested, ROUND, LOST, ROUND, LOST]), None);
    }

    #[test]
    fn losses_of_a_connection_that_its_window_does_not_limit_do_not_count() {
        let unlimited = WindowRound { is_limited: false, ..LOST };
        assert_eq!(limit(&[unlimited, ROUND, unlimited, ROUND, unlimited]), None);
    }

    fn ms(rtt: u64, in_flight: u64) -> WindowRound {
        let rtt = Duration::from_millis(rtt);
        let (max_queue, delivered) = (rtt - ROUND.base, in_flight);
        WindowRound { rtt, duration: rtt, max_queue, in_flight, delivered, ..ROUND }
    }

    #[test]
    fn a_round_trip_that_grows_while_less_is_in_flight_is_a_longer_path() {
        let rounds = [ms(41, 90_000), ms(60, 90_000), ms(80, 85_000), ms(100, 80_000)];
        assert_eq!(limit(&rounds), Some(WindowLimit::LongerPath));
        assert_eq!(limit(&rounds[..3]), None, "it has not fallen by much yet");
    }

    #[test]
    fn a_round_trip_that_grows_with_what_is_in_flight_may_be_a_queue() {
        let rounds = [ms(41, 90_000), ms(80, 90_000), ms(120, 95_000), ms(160, 99_000)];
        assert_eq!(limit(&rounds), None);
        let falling = [ms(41, 90_000), ms(160, 90_000), ms(120, 75_000), ms(90, 50_000)];
        assert_eq!(limit(&falling), None, "it falls with it");
    }
}
