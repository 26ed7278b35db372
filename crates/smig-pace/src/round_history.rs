//! Whether something happened, in each of the last round trips.

/// The last [`RoundHistory::LEN`] rounds; nothing happened in those before the first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundHistory {
    /// A bit for each round, the last one lowest.
    rounds: u32,
}

impl RoundHistory {
    pub(crate) const LEN: u32 = u32::BITS;

    /// Ends a round.
    pub(crate) const fn push(&mut self, happened: bool) {
        self.rounds = self.rounds << 1 | happened as u32;
    }

    /// Returns in how many of the last rounds, at most [`Self::LEN`], it happened.
    pub(crate) fn count(self, last_rounds: u32) -> u32 {
        let mask = (1_u64 << last_rounds.min(Self::LEN)) - 1;
        (u64::from(self.rounds) & mask).count_ones()
    }

    /// Returns the number of separate sequences of consecutive rounds in which it happened.
    pub(crate) const fn sequences(self) -> u32 {
        (self.rounds & !(self.rounds << 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_and_sequences_are_counted_and_forgotten() {
        let mut history = RoundHistory::default();
        [true, true, false, true].iter().for_each(|&happened| history.push(happened));
        assert_eq!((history.count(32), history.count(2), history.count(0)), (3, 1, 0));
        assert_eq!(history.sequences(), 2);
        (0..30).for_each(|_| history.push(false));
        assert_eq!((history.count(32), history.sequences()), (1, 1));
        (0..2).for_each(|_| history.push(false));
        assert_eq!(history.count(32), 0);
    }
}
