//! Pseudo-random numbers, reproducible on all platforms for the same seed (SplitMix64).

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator whose numbers depend only on `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: u32) -> u32 {
        let wide = (self.bits() >> 32) * u64::from(end);
        u32::try_from(wide >> 32).unwrap_or(0)
    }

    /// Returns true with a probability of `percent`.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(u32::try_from(choices.len()).unwrap_or(1)) as usize]
    }

    /// Returns a length of at most `max`, distributed over its magnitudes: short ones are as
    /// likely as long ones.
    pub fn log_uniform(&mut self, max: u32) -> u32 {
        let bits = 32 - max.leading_zeros();
        let width = self.below(bits + 1);
        self.below(1_u32.checked_shl(width).unwrap_or(u32::MAX)).min(max)
    }
}

/// Mixes the bits of a number.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
