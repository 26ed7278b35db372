//! Pseudorandom numbers from a seed.

use std::ops::Range;

/// A small generator (SplitMix64): sufficient for plans, not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the generator of one of several runs.
    pub(crate) fn of_run(seed: u64, run: usize) -> Self {
        let mut rng = Self(seed ^ (run as u64).wrapping_mul(0xd134_2543_de82_ef95));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in a range; its start if the range is empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        match range.end.saturating_sub(range.start) {
            0 => range.start,
            size => range.start + self.next() % size,
        }
    }

    /// Returns true with a probability of `percent`.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// Returns one of several values.
    pub(crate) fn one_of<T: Copy>(&mut self, first: T, rest: &[T]) -> T {
        let index = self.within(0..rest.len() as u64 + 1) as usize;
        index.checked_sub(1).and_then(|index| rest.get(index)).copied().unwrap_or(first)
    }

    /// Returns `count` offsets in ascending order.
    pub(crate) fn offsets(&mut self, count: u64, range: &Range<u64>) -> Vec<u64> {
        let mut offsets: Vec<_> = (0..count).map(|_| self.within(range.clone())).collect();
        offsets.sort_unstable();
        offsets
    }
}
