//! Pictures side by side, whose sizes add up: the synthetic page of studies of many objects.

use serde::{Deserialize, Serialize};

use super::value::Size;

const MAX_OBJECTS: u32 = 10_000;
/// The least mean size of an object: a picture of one colour.
const MIN_MEAN_BYTES: u64 = 64;
/// The least size of a PNG of one colour that is made longer by a chunk.
const MIN_PICTURE_BYTES: u64 = 128;
/// Standard deviation of the logarithm of sizes that differ.
const LOG_DEVIATION: f64 = 1.0;

/// The tiles of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tiles {
    /// Their number.
    pub objects: u32,
    /// The sum of their sizes.
    pub total: Size,
    /// How the total is divided.
    #[serde(default)]
    pub sizes: TileSizes,
    /// Size of the smallest one, at least: what is left of the total is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<Size>,
    /// Seed of sizes that differ.
    #[serde(default = "first_seed")]
    pub seed: u64,
}

const fn first_seed() -> u64 {
    1
}

/// How the sizes of tiles are distributed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TileSizes {
    /// All alike.
    #[default]
    Equal,
    /// Log-normal: the largest of a hundred is about ten times the median.
    LogNormal,
}

impl Tiles {
    /// Returns the size of each tile in bytes; they add up to the total.
    #[must_use]
    pub(super) fn sizes(&self) -> Vec<u64> {
        let weights: Vec<f64> = match self.sizes {
            TileSizes::Equal => (0..self.objects).map(|_| 1.0).collect(),
            TileSizes::LogNormal => {
                let mut random = Random(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
                (0..self.objects).map(|_| (random.normal() * LOG_DEVIATION).exp()).collect()
            }
        };
        let least = self.least_bytes();
        let divided = self.total.0.saturating_sub(least * u64::from(self.objects));
        let sum: f64 = weights.iter().sum();
        // Each ends where its part of the total ends, so that nothing is lost by rounding.
        let (mut end, mut weight_end) = (0, 0.0);
        let size = |weight: f64| {
            let begin = end;
            weight_end += weight;
            let share = divided as f64 * weight_end / sum;
            end = (share.round() as u64).clamp(begin, divided);
            least + end - begin
        };
        weights.into_iter().map(size).collect()
    }

    fn least_bytes(&self) -> u64 {
        self.least.map_or(0, |least| least.0)
    }

    /// Returns what keeps them from being pictures, if anything does.
    pub(super) fn picture_fault(&self) -> Option<String> {
        if self.fault().is_some() {
            return None;
        }
        let is_small = self.sizes().into_iter().any(|size| size < MIN_PICTURE_BYTES);
        let what = || {
            format!(
                "a browser's picture has at least {MIN_PICTURE_BYTES} bytes; take a larger total, or least = \"{MIN_PICTURE_BYTES}B\" if sizes differ"
            )
        };
        is_small.then(what)
    }

    /// Returns what is wrong, if anything is.
    pub(super) fn fault(&self) -> Option<String> {
        if !(1..=MAX_OBJECTS).contains(&self.objects) {
            return Some(format!("objects must be 1 to {MAX_OBJECTS}"));
        }
        if self.total.0 < MIN_MEAN_BYTES * u64::from(self.objects) {
            return Some(format!("total must be at least {MIN_MEAN_BYTES} bytes for each object"));
        }
        if self.total.0 < self.least_bytes().saturating_mul(u64::from(self.objects)) {
            return Some("least is more than total has for each object".to_owned());
        }
        self.sizes().contains(&0).then(|| "a tile is empty; take a larger total".to_owned())
    }
}

/// xorshift64.
struct Random(u64);

impl Random {
    /// Returns a uniform random number in (0, 1].
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a standard normal random number, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), self.uniform());
        radius * (angle * std::f64::consts::TAU).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(sizes: TileSizes, objects: u32, total: u64, seed: u64) -> Vec<u64> {
        let tiles = Tiles { objects, total: Size(total), sizes, least: None, seed };
        assert_eq!(tiles.fault(), None);
        tiles.sizes()
    }

    #[test]
    fn sizes_add_up_to_the_total() {
        for (objects, total) in [(1, 64), (6, 40_000), (7, 1_000), (192, 9_000_000)] {
            for distribution in [TileSizes::Equal, TileSizes::LogNormal] {
                let sizes = sizes(distribution, objects, total, 3);
                assert_eq!((sizes.len(), sizes.iter().sum()), (objects as usize, total));
            }
        }
        let equal = sizes(TileSizes::Equal, 7, 1_000, 1);
        assert!(equal.iter().all(|size| (142..=143).contains(size)), "{equal:?}");
    }

    #[test]
    fn log_normal_sizes_differ_as_the_seed_says() {
        let of_seed = |seed| {
            let mut sizes = sizes(TileSizes::LogNormal, 100, 1_000_000, seed);
            sizes.sort_unstable();
            sizes
        };
        let first = of_seed(1);
        assert_eq!(first, of_seed(1));
        assert_ne!(first, of_seed(2));
        let ratio = first[99] as f64 / first[50] as f64;
        assert!((4.0..40.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn the_smallest_tile_of_different_ones_can_be_a_picture() {
        let tiles = |least: Option<u64>| Tiles {
            objects: 234,
            total: Size(93_000),
            sizes: TileSizes::LogNormal,
            least: least.map(Size),
            seed: 1,
        };
        assert!(tiles(None).picture_fault().is_some_and(|fault| fault.contains("least")));
        let mosaic = tiles(Some(MIN_PICTURE_BYTES));
        assert_eq!((mosaic.fault(), mosaic.picture_fault()), (None, None));
        let mut sizes = mosaic.sizes();
        assert_eq!(sizes.iter().sum::<u64>(), 93_000);
        sizes.sort_unstable();
        assert!(sizes[233] > 5 * sizes[117], "{sizes:?}");
        assert!(tiles(Some(400)).fault().is_some_and(|fault| fault.contains("least")));
    }
}
