//! What the rounds of a limited upload have in common: their rates, and how many of them had losses.

/// Each loss costs about a round; one in so many rounds is less than the limit's 3 %...
const ROUNDS_PER_LOSS: u32 = 40;
/// ...beyond the first ones.
const MAX_LOSSES: u32 = 3;

/// The rates of the last `N` rounds.
#[derive(Debug)]
pub(super) struct Rates<const N: usize> {
    last: [u64; N],
    count: usize,
}

impl<const N: usize> Default for Rates<N> {
    fn default() -> Self {
        Self { last: [0; N], count: 0 }
    }
}

impl<const N: usize> Rates<N> {
    pub(super) fn push(&mut self, rate: u64) {
        self.last.rotate_right(1);
        self.last[0] = rate;
        self.count = (self.count + 1).min(N);
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn mean(&self) -> u64 {
        self.mean_of_last(N)
    }

    pub(super) fn mean_of_last(&self, rounds: usize) -> u64 {
        let rounds = rounds.min(self.count);
        let sum = self.last.iter().take(rounds).fold(0, |sum: u64, &rate| sum.saturating_add(rate));
        sum / rounds.max(1) as u64
    }
}

/// Watches whether packets are lost again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct LossWatch {
    out_of_order: u32,
    losses: u32,
    rounds: u32,
}

impl LossWatch {
    pub(super) const fn new(out_of_order: u32) -> Self {
        Self { out_of_order, losses: 0, rounds: 0 }
    }

    /// Counts a round. Returns whether losses cost more than pacing may.
    pub(super) fn is_lossy(&mut self, out_of_order: u32) -> bool {
        self.rounds += 1;
        if self.rounds >= ROUNDS_PER_LOSS {
            (self.rounds, self.losses) = (0, self.losses.saturating_sub(1));
        }
        self.losses += u32::from(out_of_order != self.out_of_order);
        self.out_of_order = out_of_order;
        self.losses >= MAX_LOSSES
    }
}
