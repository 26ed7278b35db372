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
/// The first recovery alone shows it after this number of rounds, if none of them had half of what counts as a queue, and no more
/// than a little of the window was lost: what overruns a queue loses more, and fills it first.
const MIN_ROUNDS_BEFORE: usize = 2;
/// In flight, of what was in the last recovery, in the one that follows at once.
const FALLEN_WINDOW: f64 = 0.8;
/// Rounds in a row, in each of which less is in flight and the round trip longer than before: a path that grows.
const GROWING_ROUNDS: usize = 4;
/// By how much less is in flight after them, and by how much longer the round trip is: than before, and than the least.
const FALLEN_IN_FLIGHT: f64 = 0.9;
const GROWN_RTT: f64 = 1.3;
const LONG_RTT: u32 = 3;
/// Rounds in a row, after one of so many, with at most half of it in flight and a round trip that is as long, and the same in all of
/// them: with half of it missing, a queue of this side's would be shorter, and one of others' varies.
const FLAT_ROUNDS: usize = 3;
const FLAT_AFTER_ROUNDS: usize = 8;
const FLAT_RTT: f64 = 0.95;
const STEADY_RTT: f64 = 1.1;
/// Rounds in a row in which deliveries follow what is in flight, and the round trip does not.
const ELASTIC_ROUNDS: usize = 6;
/// By how much what is in flight differs between them. If by more, the window is still growing fast.
const MIN_VARIATION: f64 = 1.15;
const MAX_VARIATION: f64 = 2.0;
/// The part of that difference that the round trip may show: with a queue of this side's it shows all of it.
const MAX_QUEUE_SHARE: f64 = 0.25;
/// A path has carried more before if the rate has fallen to this part of the highest.
const FALLEN_RATE: f64 = 0.6;

/// Why a single window is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowLimit {
    /// Packets are lost although no queue stands: not by what is sent too fast.
    RandomLoss,
    /// Deliveries follow what is in flight, no queue stands, and nothing is lost: the window grows, but slowly.
    SlowGrowth,
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
            Self::SlowGrowth => "no queue stands, and the window grows slowly",
            Self::LongerPath => {
                "the round trip grew, and did not fall when less was in flight, so that it is no queue"
            }
        }
    }
}

/// Two rounds that show that a single window is the limit. Only rounds that were watched make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEvidence {
    limit: WindowLimit,
    earlier: WindowRound,
    later: WindowRound,
}

impl WindowEvidence {
    pub(super) const fn later(&self) -> &WindowRound {
        &self.later
    }

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

    /// Forgets the round that has begun: its counters have changed by more than what it sent.
    pub(super) const fn forget_round(&mut self) {
        self.meter = RoundMeter::new();
    }

    fn push(&mut self, round: WindowRound) {
        if self.rounds.len() == MAX_ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(round);
    }

    /// Returns the mean rate of the last `count` rounds with deliveries, bytes per second: a path that was dead carries as much
    /// as before when it returns.
    pub(super) fn rate(&self, count: usize) -> f64 {
        let has_delivered = |round: &&WindowRound| round.delivered > 0;
        let last = self.rounds.iter().rev().filter(has_delivered).take(count);
        let (bytes, seconds) = last.fold((0.0, 0.0), |(bytes, seconds), round| {
            (bytes + round.delivered as f64, seconds + round.duration.as_secs_f64())
        });
        if seconds > 0.0 { bytes / seconds } else { 0.0 }
    }

    /// Returns what the rounds show together.
    pub(super) fn evidence(&self) -> Option<WindowEvidence> {
        self.first_loss()
            .or_else(|| self.random_loss())
            .or_else(|| self.growing_path())
            .or_else(|| self.flat_path())
            .or_else(|| self.elastic())
    }

    /// One recovery that has ended, on a path that has shown no queue at all.
    fn first_loss(&self) -> Option<WindowEvidence> {
        let is_lossy = |round: &WindowRound| round.retransmitted > 0;
        let (begin, later) = (self.rounds.iter().position(is_lossy)?, *self.rounds.back()?);
        let earlier = *self.rounds.get(begin)?;
        let lost: u64 = self.rounds.iter().map(|round| round.retransmitted).sum();
        let is_light = WindowRound { retransmitted: lost, ..earlier }.has_light_loss();
        let is_empty = self.rounds.iter().all(WindowRound::has_no_queue_at_all);
        let is_evident = begin >= MIN_ROUNDS_BEFORE
            && !is_lossy(&later)
            && is_light
            && is_empty
            && earlier.is_limited
            && later.is_limited;
        is_evident.then_some(WindowEvidence { limit: WindowLimit::RandomLoss, earlier, later })
    }

    /// Recoveries, of which each may take several rounds, while no queue stands; and more of them than of those with one.
    fn random_loss(&self) -> Option<WindowEvidence> {
        let mut recoveries: [Option<WindowRound>; 2] = [None; 2];
        let (mut random, mut congested) = (0, 0);
        let mut was_lossy = false;
        let mut last_in_flight = 0;
        for round in &self.rounds {
            let is_lossy = round.retransmitted > 0;
            // A window is reduced once in a recovery: where it falls again, another one has begun.
            let falls_again = round.in_flight as f64 <= last_in_flight as f64 * FALLEN_WINDOW
                && round.has_light_loss()
                && round.has_empty_queue();
            if is_lossy && (!was_lossy || falls_again) {
                last_in_flight = round.in_flight;
                if !round.has_empty_queue() || round.has_heavy_loss() {
                    congested += 1;
                } else if round.is_limited {
                    random += 1;
                    recoveries = [recoveries[1], Some(*round)];
                }
            }
            was_lossy = is_lossy;
        }
        let [Some(earlier), Some(later)] = recoveries else { return None };
        let is_enough = random >= MIN_RECOVERIES && random > congested;
        is_enough.then_some(WindowEvidence { limit: WindowLimit::RandomLoss, earlier, later })
    }

    /// Less in flight in several rounds, one after the other, and each time a longer round trip.
    fn growing_path(&self) -> Option<WindowEvidence> {
        let rounds = self.last(GROWING_ROUNDS)?;
        let (earlier, later) = (*rounds.first()?, *rounds.last()?);
        let is_shown = rounds.is_sorted_by(|before, after| {
            after.in_flight <= before.in_flight && after.rtt >= before.rtt
        });
        let is_clean = rounds.iter().all(|round| round.is_limited && round.retransmitted == 0);
        let is_less = later.in_flight as f64 <= earlier.in_flight as f64 * FALLEN_IN_FLIGHT;
        let is_longer = later.rtt.as_secs_f64() >= earlier.rtt.as_secs_f64() * GROWN_RTT
            && later.rtt >= later.base * LONG_RTT;
        let is_evident = is_shown && is_clean && is_less && is_longer && self.has_fallen();
        is_evident.then_some(WindowEvidence { limit: WindowLimit::LongerPath, earlier, later })
    }

    /// Much less in flight for several rounds, and a long round trip that is none the shorter for it.
    fn flat_path(&self) -> Option<WindowEvidence> {
        let last = self.last(FLAT_ROUNDS)?;
        let later = *last.last()?;
        let is_clean = |round: &WindowRound| round.is_limited && round.retransmitted == 0;
        let longest = last.iter().map(|round| round.rtt).max()?;
        let shortest = last.iter().map(|round| round.rtt).min()?;
        let is_evident = last.iter().all(is_clean)
            && longest <= shortest.mul_f64(STEADY_RTT)
            && shortest >= later.base * LONG_RTT;
        let is_unanswered = |before: &&WindowRound| {
            is_clean(before)
                && last.iter().all(|round| round.in_flight * 2 <= before.in_flight)
                && shortest >= before.rtt.mul_f64(FLAT_RTT)
        };
        let mut before = self.rounds.iter().rev().skip(FLAT_ROUNDS).take(FLAT_AFTER_ROUNDS);
        let earlier = *before.find(is_unanswered).filter(|_| is_evident)?;
        Some(WindowEvidence { limit: WindowLimit::LongerPath, earlier, later })
    }

    /// What is in flight differs from round to round, and the round trip does not with it: what is delivered does. If bulk is
    /// bounded, that may be what follows the path.
    fn elastic(&self) -> Option<WindowEvidence> {
        let mut rounds = self.last(ELASTIC_ROUNDS)?;
        let is_evident =
            |round: &WindowRound| round.is_limited && !round.is_paced && round.retransmitted == 0;
        if !rounds.iter().all(is_evident) {
            return None;
        }
        let is_empty = rounds.iter().all(WindowRound::has_empty_queue);
        let has_losses = self.rounds.iter().any(|round| round.retransmitted > 0);
        // A path that was full before may be again, and a control may send less for a while to measure it, as BBR does. Where
        // something queues, others may be the cause, unless the path has carried more before.
        if has_losses || self.has_fallen() == is_empty {
            return None;
        }
        rounds.sort_by_key(|round| round.in_flight);
        let (least, most) = rounds.split_at(ELASTIC_ROUNDS / 2);
        let (earlier, later) = (*least.first()?, *most.last()?);
        let mean = |rounds: &[WindowRound], value: fn(&WindowRound) -> f64| {
            rounds.iter().map(value).sum::<f64>() / rounds.len() as f64
        };
        let ratio = |value| mean(most, value) / mean(least, value).max(1e-9);
        let in_flight = ratio(|round| round.in_flight as f64);
        let rtt = ratio(|round| round.rtt.as_secs_f64());
        let variation = later.in_flight as f64 / earlier.in_flight.max(1) as f64;
        let is_elastic = (MIN_VARIATION..=MAX_VARIATION).contains(&variation)
            && rtt - 1.0 <= (in_flight - 1.0) * MAX_QUEUE_SHARE;
        let limit = if is_empty { WindowLimit::SlowGrowth } else { WindowLimit::LongerPath };
        is_elastic.then_some(WindowEvidence { limit, earlier, later })
    }

    /// Returns the last `count` rounds, if there are so many.
    fn last(&self, count: usize) -> Option<Vec<WindowRound>> {
        let skipped = self.rounds.len().checked_sub(count)?;
        Some(self.rounds.iter().skip(skipped).copied().collect())
    }

    /// Returns whether the path has carried more before.
    fn has_fallen(&self) -> bool {
        let highest = self.rounds.iter().map(WindowRound::rate).fold(0.0, f64::max);
        self.rate(GROWING_ROUNDS) <= highest * FALLEN_RATE
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
        is_paced: false,
    };
    const LOST: WindowRound = WindowRound { retransmitted: 1, ..ROUND };
    const QUEUED: Duration = Duration::from_millis(30);

    fn limit(rounds: &[WindowRound]) -> Option<WindowLimit> {
        let mut watch = WindowWatch::default();
        rounds.iter().for_each(|&round| watch.push(round));
        watch.evidence().map(|evidence| evidence.limit())
    }

    #[test]
    fn a_loss_proves_nothing_while_it_is_recovered_from_however_long() {
        assert_eq!(limit(&[]), None);
        assert_eq!(limit(&[ROUND, ROUND, LOST]), None);
        assert_eq!(limit(&[LOST, LOST, LOST, LOST]), None);
    }

    #[test]
    fn one_light_recovery_is_a_random_loss_only_where_no_queue_was_ever_seen() {
        let lost = WindowRound { in_flight: 40 * 1448, retransmitted: 3, ..ROUND };
        assert_eq!(limit(&[ROUND, ROUND, lost, ROUND]), Some(WindowLimit::RandomLoss));
        assert_eq!(limit(&[ROUND, lost, ROUND]), None, "hardly anything is known");
        let heavy = WindowRound { retransmitted: 4, ..lost };
        assert_eq!(limit(&[ROUND, ROUND, heavy, ROUND]), None);
        assert_eq!(limit(&[ROUND, ROUND, lost, lost, ROUND]), None, "more follow");
        let short = WindowRound { max_queue: Duration::from_millis(8), ..ROUND };
        assert!(short.has_empty_queue());
        assert_eq!(limit(&[ROUND, short, lost, ROUND]), None, "a queue that is hardly one");
        let unlimited = WindowRound { is_limited: false, ..ROUND };
        assert_eq!(limit(&[ROUND, ROUND, lost, unlimited]), None);
    }

    #[test]
    fn two_recoveries_with_an_empty_queue_are_random_loss() {
        let short = WindowRound { max_queue: Duration::from_millis(8), ..ROUND };
        assert_eq!(limit(&[short, LOST, ROUND, LOST]), Some(WindowLimit::RandomLoss));
        let mut long_ago = vec![LOST];
        long_ago.extend([ROUND; 31]);
        long_ago.push(LOST);
        assert_eq!(limit(&long_ago), None);
    }

    #[test]
    fn recoveries_that_follow_at_once_show_by_the_window_that_falls_again() {
        let lost = |in_flight: u64| WindowRound { in_flight: in_flight * 1448, ..LOST };
        let overrun = WindowRound { max_queue: QUEUED, retransmitted: 40, ..lost(200) };
        let falling = [overrun, lost(80), lost(50)];
        assert_eq!(limit(&falling), Some(WindowLimit::RandomLoss));
        assert_eq!(limit(&[overrun, lost(80), lost(70), lost(68)]), None, "one recovery");
        let many = |in_flight: u64| WindowRound { retransmitted: 9, ..lost(in_flight) };
        assert_eq!(limit(&[overrun, many(80), many(50)]), None, "what was overrun is repaired");
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
        let rounds =
            [ms(41, 90_000), ms(90, 90_000), ms(110, 85_000), ms(130, 80_000), ms(150, 75_000)];
        assert_eq!(limit(&rounds), Some(WindowLimit::LongerPath));
        assert_eq!(limit(&rounds[..3]), None, "it has not fallen for long");
    }

    #[test]
    fn a_round_trip_that_grows_with_what_is_in_flight_may_be_a_queue() {
        let rounds = [ms(41, 90_000), ms(80, 90_000), ms(120, 95_000), ms(160, 99_000)];
        assert_eq!(limit(&rounds), None);
        let falling = [ms(41, 90_000), ms(160, 90_000), ms(120, 75_000), ms(90, 50_000)];
        assert_eq!(limit(&falling), None, "it falls with it");
    }

    #[test]
    fn a_long_round_trip_that_half_of_what_was_in_flight_does_not_shorten_is_a_longer_path() {
        let flat = [ms(300, 60_000), ms(310, 30_000), ms(305, 12_000), ms(308, 3_000)];
        assert_eq!(limit(&flat), Some(WindowLimit::LongerPath));
        assert_eq!(limit(&flat[..3]), None, "acknowledgements may be late");
        let queue = [ms(300, 60_000), ms(260, 30_000), ms(260, 30_000), ms(260, 30_000)];
        assert_eq!(limit(&queue), None, "it is shorter");
        let others = [ms(300, 60_000), ms(300, 30_000), ms(350, 30_000), ms(310, 30_000)];
        assert_eq!(limit(&others), None, "others fill a queue");
        let short = [ms(80, 60_000), ms(80, 30_000), ms(80, 12_000), ms(80, 3_000)];
        assert_eq!(limit(&short), None);
    }

    #[test]
    fn a_window_that_grows_slowly_without_a_queue_is_too_small() {
        let growing = |rounds: u64| -> Vec<WindowRound> {
            (0..rounds).map(|round| ms(42, 10_000 + 800 * round)).collect()
        };
        assert_eq!(limit(&growing(6)), Some(WindowLimit::SlowGrowth));
        assert_eq!(limit(&growing(5)), None);
        let mut after_more = vec![ms(42, 90_000); 4];
        after_more.extend(growing(6));
        assert_eq!(limit(&after_more), None, "the path is measured");
        let slow_start: Vec<_> = (0..6).map(|round| ms(42, 10_000 << round)).collect();
        assert_eq!(limit(&slow_start), None);
        let queueing: Vec<_> =
            (0..6).map(|round| ms(40 + 2 * round, 10_000 + 500 * round)).collect();
        assert_eq!(limit(&queueing), None, "the path is full");
        let paced: Vec<_> =
            growing(6).into_iter().map(|round| WindowRound { is_paced: true, ..round }).collect();
        assert_eq!(limit(&paced), None);
    }

    #[test]
    fn rounds_without_deliveries_are_no_rate_to_exceed() {
        let dead = WindowRound { delivered: 0, is_limited: false, ..ROUND };
        let mut watch = WindowWatch::default();
        assert_eq!(watch.rate(4), 0.0);
        [ROUND, ROUND, dead, dead, dead].iter().for_each(|&round| watch.push(round));
        assert_eq!(watch.rate(4), ROUND.rate());
    }

    #[test]
    fn heavy_losses_are_an_answer_to_what_is_sent() {
        let policed = WindowRound { retransmitted: 9, ..LOST };
        assert_eq!(limit(&[policed, ROUND, policed, ROUND, policed]), None);
    }
}
