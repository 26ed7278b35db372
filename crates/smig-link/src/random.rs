//! Random number generator of the link model: reproducible from a seed, on every
//! machine and in every version of this program. Not cryptographically secure.

/// The generator of Steele, Lea and Flood (2014): one word of state, equidistributed.
#[derive(Debug, Clone)]
pub(super) struct SplitMix64(u64);

impl SplitMix64 {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates an independent generator for one `purpose` of a seed.
    pub(super) const fn for_purpose(seed: u64, purpose: Purpose) -> Self {
        Self(mix(seed ^ mix(purpose as u64 + 1)))
    }

    pub(super) const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a uniform number in [0, 1).
    pub(super) fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true with this probability.
    pub(super) fn bernoulli(&mut self, probability: f64) -> bool {
        self.next_f64() < probability
    }

    /// Returns a standard normal number (Box and Muller).
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.next_f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.next_f64()).cos()
    }

    /// Returns a Poisson-distributed number (Knuth: count factors until their product is small).
    pub(super) fn poisson(&mut self, mean: f64) -> u32 {
        let (mut count, mut remaining) = (0, mean);
        while remaining > 0.0 {
            // In parts, so that the exponential does not underflow.
            let part = remaining.min(500.0);
            remaining -= part;
            let (threshold, mut product) = ((-part).exp(), self.next_f64());
            while product > threshold {
                count += 1;
                product *= self.next_f64();
            }
        }
        count
    }
}

/// Purposes for which a direction of a link draws random numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Loss,
    Jitter,
    Flows,
    Rate,
    Aggregation,
}

/// Mixes the bits of `word`: each one affects the whole result.
pub(super) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        let mut random = SplitMix64::new(1_234_567);
        let words = [random.next_u64(), random.next_u64(), random.next_u64()];
        assert_eq!(
            words,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn the_distributions_have_their_moments() {
        let mut random = SplitMix64::new(7);
        let draws = 200_000;
        let moments = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            (mean, square / values.len() as f64)
        };
        let normal: Vec<_> = (0..draws).map(|_| random.normal()).collect();
        let (mean, variance) = moments(&normal);
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        let poisson: Vec<_> = (0..draws).map(|_| f64::from(random.poisson(3.5))).collect();
        let (mean, variance) = moments(&poisson);
        assert!((mean - 3.5).abs() < 0.02 && (variance - 3.5).abs() < 0.06, "{mean} {variance}");
        assert!((f64::from(random.poisson(2_000.0)) - 2_000.0).abs() < 250.0);
    }
}
