//! Whether others are there at all: for three round trips, bulk sends nearly what the path carried while it was alone.
//!
//! A path that has become longer looks like a queue that others fill. It differs in what follows when bulk sends more: alone it
//! gets that, and the round trip stays as it is. Others keep a part, even after their windows have fallen, or the queue
//! becomes longer.

use std::time::Duration;

use smig_proto::Instant;

use super::SharedRound;

const ROUNDS: u32 = 3;
/// What bulk sends meanwhile, in units of the rate that it had alone; and the least that it gets if there are no others.
/// Beside those it gets 0.6 to 0.75.
const SENT_SHARE: f64 = 0.85;
const MIN_DELIVERED_SHARE: f64 = 0.78;
/// The least in flight at the end, as a part of what that rate needs.
const MIN_FILL: f64 = 0.8;
/// By how much the round trip may become longer, in quarters.
const MAX_LONGER_QUARTERS: u32 = 1;
/// Only bulk that gets this part of its fair share, on average of so many rounds, may have the path for itself.
const MIN_FAIR_PART: f64 = 0.9;
const MEAN_ROUNDS: f64 = 8.0;
/// BBR that measures its round trip sends nothing for as long: one answer is none.
const MIN_ANSWERS: u32 = 2;
/// Until the next probe: after an answer, round trips, and time in which others regain what they have lost; otherwise time, which
/// doubles.
const RETRY_RTTS: u32 = 4;
const RETRY_TIME: Duration = Duration::from_secs(1);
const FIRST_INTERVAL: Duration = Duration::from_secs(2);
const MAX_INTERVAL: Duration = Duration::from_secs(64);

#[derive(Debug)]
pub(crate) struct AloneProbe {
    running: Option<Running>,
    /// The mean rate of the last rounds.
    mean_rate: f64,
    next: Instant,
    interval: Duration,
    /// Consecutive probes that have found nobody.
    answers: u32,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    rounds: u32,
    /// The sum of the rates after the first round, which still shows what was before.
    rates: f64,
    /// The round trip at the beginning.
    rtt: Duration,
}

impl AloneProbe {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            running: None,
            mean_rate: 0.0,
            next: now + FIRST_INTERVAL,
            interval: FIRST_INTERVAL * 2,
            answers: 0,
        }
    }

    /// Begins with what earlier sharing has shown: intervals go on to double, unless it is long ago.
    pub(crate) fn begin_sharing(&mut self, now: Instant) {
        if now.saturating_duration_since(self.next) > MAX_INTERVAL {
            *self = Self::new(now);
        }
        self.next = self.next.max(now + FIRST_INTERVAL);
        (self.mean_rate, self.answers) = (0.0, 0);
        self.cancel();
    }

    pub(super) const fn cancel(&mut self) {
        self.running = None;
    }

    pub(crate) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the rate of bulk while a probe runs, where it had `alone` by itself.
    pub(super) fn rate(&self, alone: f64) -> Option<f64> {
        self.running.map(|_| alone * SENT_SHARE)
    }

    /// Ends a round in which bulk might send `fair`. Returns the path's round trip if there are no others.
    pub(super) fn on_round(
        &mut self,
        round: &SharedRound,
        fair: f64,
        alone: f64,
    ) -> Option<Duration> {
        self.mean_rate += (round.rate - self.mean_rate) / MEAN_ROUNDS;
        let Some(running) = &mut self.running else {
            if round.now >= self.next && self.mean_rate > fair * MIN_FAIR_PART {
                self.running = Some(Running { rounds: 0, rates: 0.0, rtt: round.rtt });
            }
            return None;
        };
        running.rounds += 1;
        if running.rounds > 1 {
            running.rates += round.rate;
        }
        if running.rounds < ROUNDS {
            return None;
        }
        let ended = *running;
        self.running = None;
        if round.in_flight < alone * SENT_SHARE * round.rtt.as_secs_f64() * MIN_FILL {
            // Congestion control allowed less: no answer.
            self.next = round.now + self.interval;
            return None;
        }
        let longest = ended.rtt + ended.rtt * MAX_LONGER_QUARTERS / 4;
        let delivered = ended.rates / f64::from(ROUNDS - 1);
        if delivered < alone * MIN_DELIVERED_SHARE || round.rtt > longest {
            self.answers = 0;
            self.next = round.now + self.interval;
            self.interval = (self.interval * 2).min(MAX_INTERVAL);
            return None;
        }
        self.answers += 1;
        self.next = round.now + (round.rtt * RETRY_RTTS).max(RETRY_TIME);
        if self.answers < MIN_ANSWERS {
            return None;
        }
        *self = Self::new(round.now);
        Some(ended.rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: f64 = 1_000_000.0;
    const FAIR: f64 = 550_000.0;

    /// Rounds of 100 ms with what is sent and delivered by `path`, which gets what bulk sends; the first that ends it.
    fn rounds_until_alone(path: impl Fn(f64) -> (f64, u64)) -> Option<u64> {
        let at = |round: u64| Instant::from_nanos(round * 100_000_000);
        let mut probe = AloneProbe::new(at(0));
        (1..600).find(|&number| {
            let (rate, millis) = path(probe.rate(ALONE).unwrap_or(FAIR));
            let rtt = Duration::from_millis(millis);
            let (base, threshold) = (Duration::from_millis(50), Duration::from_millis(10));
            let (now, in_flight) =
                (at(number), probe.rate(ALONE).unwrap_or(FAIR) * rtt.as_secs_f64());
            let round = SharedRound {
                now,
                base,
                rtt,
                is_rtt_measured: true,
                threshold,
                rate,
                in_flight,
                has_losses: false,
                mss: 1448,
            };
            probe.on_round(&round, FAIR, ALONE).is_some()
        })
    }

    #[test]
    fn a_longer_path_delivers_more_if_more_is_sent() {
        let found = rounds_until_alone(|sent| (sent, 110));
        assert!(found.is_some_and(|rounds| rounds < 40), "{found:?}");
    }

    #[test]
    fn others_keep_a_part_or_the_queue_grows() {
        let share = |sent: f64| sent / (sent + 0.31 * ALONE) * ALONE;
        assert_eq!(rounds_until_alone(|sent| (share(sent).min(sent), 110)), None);
        assert_eq!(rounds_until_alone(|sent| (sent, if sent > FAIR { 150 } else { 110 })), None);
    }

    #[test]
    fn bulk_that_gets_less_than_its_fair_share_sends_no_more() {
        assert_eq!(rounds_until_alone(|sent| (sent.min(FAIR * 0.8), 110)), None);
        let sent_more = std::cell::Cell::new(false);
        rounds_until_alone(|sent| {
            sent_more.set(sent_more.get() || sent > FAIR);
            (FAIR * 0.8, 110)
        });
        assert!(!sent_more.get());
    }
}
