//! The structural similarity of two frames (Wang et al. 2004), over windows beside each other.

use crate::image::Image;

/// Side of a window in pixels; those at the right and lower edge may be smaller.
const WINDOW_PX: usize = 8;
/// What keeps the quotients finite: (0.01 * 255)² and (0.03 * 255)².
const LUMINANCE_CONSTANT: f64 = 6.502_5;
const CONTRAST_CONSTANT: f64 = 58.522_5;

/// The luminance of each pixel of a frame.
#[derive(Debug, Clone)]
pub(crate) struct Luminance {
    width: usize,
    height: usize,
    values: Vec<f32>,
}

impl Luminance {
    pub(crate) fn of(image: &Image) -> Self {
        let luminance = |pixel: &[u8]| {
            let [red, green, blue] = [pixel[0], pixel[1], pixel[2]].map(f32::from);
            0.212_655 * red + 0.715_158 * green + 0.072_187 * blue
        };
        let values = image.rgb.chunks_exact(3).map(luminance).collect();
        Self { width: image.width, height: image.height, values }
    }

    /// Returns the mean similarity of the windows: 1 if both are equal. Both have the same size.
    pub(crate) fn similarity_to(&self, other: &Self) -> f64 {
        let (mut sum, mut count) = (0.0, 0);
        for top in (0..self.height).step_by(WINDOW_PX) {
            for left in (0..self.width).step_by(WINDOW_PX) {
                sum += self.window_similarity(other, left, top);
                count += 1;
            }
        }
        sum / f64::from(count.max(1))
    }

    fn window_similarity(&self, other: &Self, left: usize, top: usize) -> f64 {
        let right = (left + WINDOW_PX).min(self.width);
        let bottom = (top + WINDOW_PX).min(self.height);
        let rows = (top..bottom).map(|row| row * self.width + left..row * self.width + right);
        let pairs = rows.flat_map(|row| {
            let own = self.values[row.clone()].iter();
            own.zip(&other.values[row]).map(|(a, b)| (f64::from(*a), f64::from(*b)))
        });
        let count = ((right - left) * (bottom - top)) as f64;
        let (sum_a, sum_b) = pairs.clone().fold((0.0, 0.0), |(x, y), (a, b)| (x + a, y + b));
        let (mean_a, mean_b) = (sum_a / count, sum_b / count);
        let (mut variance_a, mut variance_b, mut covariance) = (0.0, 0.0, 0.0);
        for (a, b) in pairs {
            variance_a += (a - mean_a).powi(2);
            variance_b += (b - mean_b).powi(2);
            covariance += (a - mean_a) * (b - mean_b);
        }
        let degrees = (count - 1.0).max(1.0);
        let [variance_a, variance_b, covariance] =
            [variance_a, variance_b, covariance].map(|sum| sum / degrees);
        let luminance = (2.0 * mean_a * mean_b + LUMINANCE_CONSTANT)
            / (mean_a.powi(2) + mean_b.powi(2) + LUMINANCE_CONSTANT);
        let structure =
            (2.0 * covariance + CONTRAST_CONSTANT) / (variance_a + variance_b + CONTRAST_CONSTANT);
        luminance * structure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grey(width: usize, height: usize, value: impl Fn(usize, usize) -> u8) -> Luminance {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let rgb = pixels.flat_map(|(x, y)| [value(x, y); 3]).collect();
        Luminance::of(&Image { width, height, rgb })
    }

    #[test]
    fn equal_frames_are_similar_by_one_and_opposite_ones_by_nothing() {
        let stripes = grey(20, 9, |x, _| if x % 2 == 0 { 0 } else { 255 });
        let inverted = grey(20, 9, |x, _| if x % 2 == 0 { 255 } else { 0 });
        assert!((stripes.similarity_to(&stripes) - 1.0).abs() < 1e-12);
        assert!(stripes.similarity_to(&inverted) < -0.9);
        // Two even frames differ by their luminance only: C1 / (255² + C1).
        let (black, white) = (grey(16, 16, |_, _| 0), grey(16, 16, |_, _| 255));
        let expected = LUMINANCE_CONSTANT / (255.0_f64.powi(2) + LUMINANCE_CONSTANT);
        assert!((black.similarity_to(&white) - expected).abs() < 1e-6);
    }

    #[test]
    fn a_window_of_one_pixel_has_a_similarity() {
        let dot = grey(9, 9, |x, _| x as u8);
        assert!((dot.similarity_to(&dot) - 1.0).abs() < 1e-12);
    }
}
