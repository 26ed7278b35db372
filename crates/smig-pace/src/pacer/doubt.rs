//! Whose queue it is, while that is not known: bulk sends less for a few rounds.
//!
//! A download that was there first keeps the queue full. Bulk's first rate is then a share, and a small share of a fast
//! path looks like the whole of a slow one: what is in flight, the round-trip time and the rate agree in both. They
//! differ in what follows when bulk sends less. Its own queue shrinks in proportion; others' hardly does.

use std::time::Duration;

use smig_proto::Instant;

use super::Pacer;
use super::crowding::FIRST_TEST;
use crate::sample::RateSample;
use crate::sharing::{AloneRate, Experience};

/// Rounds after which the question is given up, and if they have shown nothing.
const MAX_ROUNDS: u32 = 8;
const MAX_BLIND_ROUNDS: u32 = 3;
/// A sample with less than this part of the most in flight is one with less. So many of them are an answer.
const LESS: f64 = 0.75;
const MIN_SAMPLES: u32 = 3;
/// They would have to be shorter, without others, by this part of the round trip without a queue, by this time, and by twice the
/// jitter.
const MIN_EXPECTED: f64 = 0.25;
const MIN_EXPECTED_TIME: Duration = Duration::from_millis(10);
/// Rounds after which bulk sends less than it would anyhow, after the overshoot of startup.
const PATIENT_ROUNDS: u32 = 2;
/// If they are shorter by less than this part of that, the queue is others'. Alone it is 0.7 to 1, beside others 0.45
/// at most.
const MIN_ANSWER: f64 = 0.5;
/// A queue that lasts for so many rounds, and takes this part of the round trip, raises the question again, at
/// intervals that double.
const STANDING_ROUNDS: u32 = 6;
const STANDING_DIVISOR: u32 = 4;
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MIN_PROVEN_INTERVAL: Duration = Duration::from_secs(2);
const MAX_INTERVAL: Duration = Duration::from_secs(32);

/// The time of a packet, for what counts as jitter: little, since the path's rate is what is in question.
const PACKET: Duration = Duration::from_millis(1);

/// A round-trip time, and the bytes in flight at its beginning.
type Trip = (Duration, f64);

/// What bulk has learned by sending less.
#[derive(Debug)]
struct Doubt {
    /// Packets retransmitted when this round began. While some are missing, a byte's number shows another one's time.
    retransmitted: u64,
    /// The sample with the most in flight, and the shortest round trip with less.
    most: Option<Trip>,
    shortest: Option<Trip>,
    /// The number of samples with less.
    samples: u32,
    rounds: u32,
    /// When bulk begins to send less for it.
    patience: u32,
}

impl Doubt {
    const fn new(retransmitted: u64, patience: u32) -> Self {
        Self { retransmitted, most: None, shortest: None, samples: 0, rounds: 0, patience }
    }

    fn on_trip(&mut self, rtt: Duration, in_flight: f64) {
        match self.most {
            Some((_, most)) if in_flight < most * LESS => {
                self.samples += 1;
                if self.shortest.is_none_or(|(shortest, _)| rtt < shortest) {
                    self.shortest = Some((rtt, in_flight));
                }
            }
            Some((_, most)) if in_flight <= most => {}
            _ => {
                self.most = Some((rtt, in_flight));
                (self.samples, self.shortest) = (0, None);
            }
        }
    }

    /// Returns whether the queue is others'; `None` while that is open.
    fn answer(&self, base: Duration, jitter: Duration) -> Option<bool> {
        let ((most_rtt, most), (rtt, in_flight)) = (self.most?, self.shortest?);
        // Without others, and with a queue, it is what is in flight over the path's rate.
        let alone = most_rtt.mul_f64(in_flight / most).max(base);
        let expected = most_rtt.saturating_sub(alone);
        let is_others = most_rtt.saturating_sub(rtt) < expected.mul_f64(MIN_ANSWER);
        let least = base.mul_f64(MIN_EXPECTED).max(MIN_EXPECTED_TIME).max(jitter * 2);
        // A single short round trip shows that the queue shrinks; a long one may be late.
        let is_clear = expected > least && (self.samples >= MIN_SAMPLES || !is_others);
        is_clear.then_some(is_others)
    }

    /// Returns what that shows of the whole path's rate.
    fn experience(&self) -> Experience {
        let mut experience = Experience::default();
        if let (Some((most_rtt, most)), Some((rtt, in_flight))) = (self.most, self.shortest) {
            experience.add(most - in_flight, most_rtt.as_secs_f64() - rtt.as_secs_f64());
        }
        experience
    }
}

/// What is known of whose queue it is, and when that is asked again.
#[derive(Debug)]
pub(super) struct QueueOwner {
    /// While it is not known.
    doubt: Option<Doubt>,
    /// Whether bulk has found a queue to be its own: then its rate was the path's.
    is_proven: bool,
    /// Consecutive rounds with a queue, and when they may raise a doubt.
    standing_rounds: u32,
    next_doubt: Instant,
    interval: Duration,
}

impl QueueOwner {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            doubt: None,
            is_proven: false,
            standing_rounds: 0,
            next_doubt: now,
            interval: MIN_INTERVAL,
        }
    }

    /// Returns whether the question is open.
    pub(super) const fn is_open(&self) -> bool {
        self.doubt.is_some()
    }

    /// Returns whether bulk should send less, to find out.
    pub(super) fn is_asking(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.rounds >= doubt.patience)
    }

    /// Begins to ask.
    fn ask(&mut self, retransmitted: u64, patience: u32) {
        self.standing_rounds = 0;
        self.doubt = Some(Doubt::new(retransmitted, patience));
    }

    /// Ends the question: others are known to share the path, or it was in vain.
    pub(super) const fn stop_asking(&mut self) {
        self.doubt = None;
    }

    fn prove(&mut self, now: Instant) {
        self.doubt = None;
        self.is_proven = true;
        self.interval = self.interval.max(MIN_PROVEN_INTERVAL);
        self.next_doubt = self.next_doubt.max(now + self.interval);
    }
}

impl Pacer {
    /// Asks whose queue ended startup.
    pub(super) fn doubt_startup(&mut self, retransmitted: u64) {
        self.queue_owner.ask(retransmitted, PATIENT_ROUNDS);
    }

    pub(super) fn update_doubt(
        &mut self,
        now: Instant,
        sample: &RateSample,
        queue: Duration,
        is_round_end: bool,
    ) {
        let Some(doubt) = &mut self.queue_owner.doubt else { return };
        let is_lossless = sample.retransmitted == doubt.retransmitted;
        if let Some((rtt, in_flight)) = self.delivery.trip().filter(|_| is_lossless) {
            doubt.on_trip(rtt, in_flight as f64);
        }
        let answer = doubt.answer(self.base.value(), self.noise.jitter(self.base.value(), PACKET));
        if answer == Some(false) {
            return self.queue_owner.prove(now);
        }
        if !is_round_end {
            return;
        }
        doubt.rounds += 1;
        doubt.retransmitted = sample.retransmitted;
        let limit = if doubt.most.is_some() { MAX_ROUNDS } else { MAX_BLIND_ROUNDS };
        if answer == Some(true) {
            let experience = doubt.experience();
            if !self.queue_owner.is_proven {
                // What counted as the path's rate was a share.
                self.alone = AloneRate::new(now);
            }
            self.start_sharing(now, sample, queue, FIRST_TEST[0], experience);
        } else if doubt.rounds >= limit {
            self.queue_owner.stop_asking();
        }
    }

    /// Ends a round of which each round trip had this queue at least, although bulk keeps its bound.
    pub(super) fn note_standing(&mut self, now: Instant, retransmitted: u64, shortest: Duration) {
        let base = self.base.value();
        let least = (base / STANDING_DIVISOR).max(MIN_EXPECTED_TIME);
        let owner = &mut self.queue_owner;
        if shortest < least + self.noise.jitter(base, PACKET) || owner.doubt.is_some() {
            owner.standing_rounds = 0;
            return;
        }
        owner.standing_rounds += 1;
        if owner.standing_rounds >= STANDING_ROUNDS && now >= owner.next_doubt {
            owner.next_doubt = now + owner.interval;
            owner.interval = (owner.interval * 2).min(MAX_INTERVAL);
            owner.ask(retransmitted, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(50);

    /// Asks with these round trips: milliseconds, and packets in flight.
    fn answer(trips: &[(u64, u64)]) -> (Option<bool>, Option<f64>) {
        let mut doubt = Doubt::new(0, 0);
        for &(millis, packets) in trips {
            doubt.on_trip(Duration::from_millis(millis), (packets * 1250) as f64);
        }
        (doubt.answer(BASE, Duration::ZERO), doubt.experience().path_rate(0.0))
    }

    #[test]
    fn a_queue_that_shrinks_with_what_is_in_flight_is_bulks() {
        // 1 Mbit/s: each packet takes 10 ms.
        assert_eq!(answer(&[(110, 11), (170, 17), (80, 8), (60, 6), (50, 5)]).0, Some(false));
    }

    #[test]
    fn a_queue_that_stays_is_others_and_shows_the_path() {
        // 10 Mbit/s: each packet takes 1 ms, and others have 70.
        let (is_others, rate) = answer(&[(80, 10), (90, 20), (78, 8), (78, 8), (79, 9)]);
        assert_eq!(is_others, Some(true));
        assert!(rate.is_some_and(|rate| (1.2e6..1.3e6).contains(&rate)), "{rate:?}");
    }

    #[test]
    fn few_or_small_differences_are_no_answer() {
        assert_eq!(answer(&[(90, 20), (78, 8), (78, 8)]).0, None, "two samples");
        assert_eq!(answer(&[(59, 20), (57, 8), (57, 8), (57, 8)]).0, None, "jitter");
        assert_eq!(answer(&[(90, 20), (90, 18), (90, 18), (90, 18)]).0, None, "nearly as much");
    }
}
