//! A decoded frame, and the histograms by which frames are compared.

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Width and height in pixels of the largest frame.
const MAX_SIDE_PX: usize = 4_096;
/// From this value on in each channel, a pixel counts as white.
const NEARLY_WHITE: u8 = 249;
const CHANNELS: usize = 3;

/// Why frames cannot be evaluated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame is no JPEG.
    #[error("frame {number} cannot be decoded: {why}")]
    Decode {
        /// Its number, from 0.
        number: usize,
        /// What is wrong.
        why: String,
    },
    /// The window was resized.
    #[error("frame {0} has not the size of the last one")]
    Size(usize),
}

/// A frame's pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Red, green and blue of each pixel, row by row.
    pub(crate) rgb: Vec<u8>,
}

impl Image {
    /// Decodes a JPEG.
    pub(crate) fn decode(jpeg: &[u8]) -> Result<Self, String> {
        let options = DecoderOptions::default()
            .set_max_width(MAX_SIDE_PX)
            .set_max_height(MAX_SIDE_PX)
            .jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(jpeg), options);
        let rgb = decoder.decode().map_err(|error| error.to_string())?;
        let (width, height) = decoder.dimensions().ok_or("it has no size")?;
        if width * height == 0 || rgb.len() != width * height * CHANNELS {
            return Err("it has no pixels".to_owned());
        }
        Ok(Self { width, height, rgb })
    }

    /// Returns a white image of the same size: the screen at the navigation.
    pub(crate) fn white_like(&self) -> Self {
        Self { rgb: vec![u8::MAX; self.rgb.len()], ..*self }
    }

    pub(crate) fn has_size_of(&self, other: &Self) -> bool {
        (self.width, self.height) == (other.width, other.height)
    }
}

/// The number of pixels by value, for red, green and blue, of those that are not white.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Histogram {
    counts: Vec<[u32; CHANNELS]>,
}

impl Histogram {
    /// Returns that of a white screen.
    pub(crate) fn white() -> Self {
        Self { counts: vec![[0; CHANNELS]; 256] }
    }

    pub(crate) fn of(image: &Image) -> Self {
        let mut histogram = Self::white();
        for pixel in image.rgb.chunks_exact(CHANNELS) {
            if pixel.iter().all(|value| *value >= NEARLY_WHITE) {
                continue;
            }
            for (channel, value) in pixel.iter().enumerate() {
                histogram.counts[usize::from(*value)][channel] += 1;
            }
        }
        histogram
    }

    /// Returns how much of the way from a white screen to `target` this one has made, in whole per cent, and 100 if there is none.
    pub(crate) fn progress_to(&self, target: &Self) -> f64 {
        let (mut matching, mut total) = (0_u64, 0_u64);
        for (own, target) in self.counts.iter().flatten().zip(target.counts.iter().flatten()) {
            matching += u64::from(*own.min(target));
            total += u64::from(*target);
        }
        (matching * 100).checked_div(total).map_or(100.0, |percent| percent as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(pixels: &[[u8; 3]]) -> Image {
        Image { width: pixels.len(), height: 1, rgb: pixels.concat() }
    }

    #[test]
    fn progress_is_the_share_of_the_final_pixels_and_white_is_none() {
        let (white, red, blue) = ([249, 255, 250], [200, 0, 0], [0, 0, 200]);
        let target = Histogram::of(&image(&[red, red, blue, white]));
        let progress = |pixels: &[[u8; 3]]| Histogram::of(&image(pixels)).progress_to(&target);
        assert_eq!(progress(&[white; 4]), 0.0);
        assert_eq!(progress(&[red, red, blue, white]), 100.0);
        // Where a pixel is does not matter, only its colour.
        assert_eq!(progress(&[white, blue, red, red]), 100.0);
        // Of nine values of three pixels, six: 66.67 %.
        assert_eq!(progress(&[red, red, white, white]), 66.0);
        // Each channel counts for itself: black has the zeros of both colours.
        assert_eq!(progress(&[[0, 0, 0], white, white, white]), 33.0);
        assert_eq!(Histogram::white().progress_to(&Histogram::white()), 100.0);
    }

    #[test]
    fn what_is_no_jpeg_is_an_error() {
        for bytes in [&b""[..], b"GIF89a", b"\xff\xd8\xff\xe0", &[0xff; 64]] {
            assert!(Image::decode(bytes).is_err());
        }
    }
}
