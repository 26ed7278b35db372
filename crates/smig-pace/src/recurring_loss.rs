//! Whether packets are lost again and again, so that the other streams of a connection wait for the retransmissions of a
//! large one. A migration to another connection ends that wait.
//!
//! What bulk itself loses when it overruns a queue is no reason: it happens once, or beside others whose queue drops the
//! packets of a separate small connection as well, which recovers more slowly.

use super::round_history::RoundHistory;

/// Separate sequences of rounds with losses, among the last 32, from which on losses recur...
const MIN_SEQUENCES: u32 = 3;
/// ...and the number of such rounds that counts as well, however few sequences they are.
const MIN_LOSSY_ROUNDS: u32 = 16;

/// The last 32 round trips of a path that no others are known to share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecurringLoss {
    /// The rounds in which packets were retransmitted.
    lossy_rounds: RoundHistory,
}

impl RecurringLoss {
    /// Ends a round in which so many packets were retransmitted.
    pub(crate) const fn on_round(&mut self, retransmitted: u64) {
        self.lossy_rounds.push(retransmitted > 0);
    }

    pub(crate) fn is_recurring(self) -> bool {
        self.lossy_rounds.sequences() >= MIN_SEQUENCES
            || self.lossy_rounds.count(RoundHistory::LEN) >= MIN_LOSSY_ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_recurring_after(rounds: &[u64]) -> bool {
        let mut loss = RecurringLoss::default();
        rounds.iter().for_each(|&retransmitted| loss.on_round(retransmitted));
        loss.is_recurring()
    }

    #[test]
    fn one_recovery_is_not_recurring_however_many_packets_it_has() {
        assert!(!is_recurring_after(&[]));
        assert!(!is_recurring_after(&[0, 300, 200, 100, 50, 1, 0, 0]));
        assert!(!is_recurring_after(&[1, 0, 1]));
    }

    #[test]
    fn three_recoveries_within_32_rounds_are() {
        assert!(is_recurring_after(&[1, 0, 1, 0, 1]));
        assert!(is_recurring_after(&[0, 5, 5, 0, 0, 0, 1, 0, 0, 2, 0]));
        let mut forgotten = vec![1, 0, 1, 0, 1];
        forgotten.extend([0; 28]);
        assert!(!is_recurring_after(&forgotten));
    }

    #[test]
    fn losses_in_every_round_are() {
        assert!(!is_recurring_after(&[1; 15]));
        assert!(is_recurring_after(&[1; 16]));
    }
}
