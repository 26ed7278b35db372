//! From frames to the times of a load.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::image::{FrameError, Histogram, Image};
use crate::progress::{Examination, VisualProgress};
use crate::similarity::Luminance;

/// Share of the final screen whose time is told, in per cent.
const MOSTLY_COMPLETE: f64 = 85.0;
const COMPLETE: f64 = 100.0;

/// What a screen showed from an instant on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Time since the navigation.
    pub at: Duration,
    /// The picture.
    pub jpeg: Vec<u8>,
}

/// The times of a load by what its screen showed, in microseconds since the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VisualTimes {
    /// Number of frames that showed something new.
    pub frames: u32,
    /// When the screen changed first.
    pub first_us: u64,
    /// SpeedIndex by all frames.
    pub speed_index_us: u64,
    /// SpeedIndex as Lighthouse computes it, which skips frames.
    pub fast_speed_index_us: u64,
    /// SpeedIndex by the structural similarity with the final screen instead of its colours.
    pub perceptual_speed_index_us: u64,
    /// When 85 % of the final screen could be seen.
    pub mostly_complete_us: u64,
    /// When the final screen could be seen.
    pub complete_us: u64,
}

/// What frames say of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The times.
    pub times: VisualTimes,
    /// The progress of each frame in per cent, in their order.
    pub progress: Vec<f64>,
}

/// Evaluates the frames of a load, in the order of their times; the last one is the final screen. The screen is white at the navigation.
/// `None` without frames, or if the final screen is white.
///
/// # Errors
/// A frame is no JPEG, or has another size than the last one.
pub fn evaluate(frames: &[Frame]) -> Result<Option<Evaluation>, FrameError> {
    let Some((last, earlier)) = frames.split_last() else { return Ok(None) };
    let decode = |number: usize, frame: &Frame| {
        Image::decode(&frame.jpeg).map_err(|why| FrameError::Decode { number, why })
    };
    let target = decode(earlier.len(), last)?;
    let target_histogram = Histogram::of(&target);
    let target_luminance = Luminance::of(&target);
    let similarity_at_first = Luminance::of(&target.white_like()).similarity_to(&target_luminance);
    let mut progress = vec![Histogram::white().progress_to(&target_histogram)];
    let mut perceptual = vec![0.0];
    let mut times = vec![Duration::ZERO];
    let mut of_all = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        // What shows nothing new is no frame, as in Lighthouse's library: its fast mode halves the number of frames, not their time.
        if number > 0 && frames[number - 1].jpeg == frame.jpeg {
            of_all.extend(progress.last().copied());
            continue;
        }
        let image = decode(number, frame)?;
        if !image.has_size_of(&target) {
            return Err(FrameError::Size(number));
        }
        times.push(frame.at);
        progress.push(Histogram::of(&image).progress_to(&target_histogram));
        of_all.extend(progress.last().copied());
        let similarity = Luminance::of(&image).similarity_to(&target_luminance);
        let share = (similarity - similarity_at_first) / (1.0 - similarity_at_first);
        perceptual.push(if share.is_finite() { (share * 100.0).max(0.0) } else { 0.0 });
    }
    if progress[0] >= COMPLETE {
        return Ok(None);
    }
    let by = |examination, all: &[f64]| VisualProgress::of(&times, examination, |index| all[index]);
    let exact = by(Examination::Exact, &progress);
    let index_of = |progress: &VisualProgress| progress.speed_index().map(micros);
    let visual_times = || {
        Some(VisualTimes {
            frames: u32::try_from(times.len() - 1).unwrap_or(u32::MAX),
            first_us: micros(exact.first_change()?),
            speed_index_us: index_of(&exact)?,
            fast_speed_index_us: index_of(&by(Examination::Fast, &progress))?,
            perceptual_speed_index_us: index_of(&by(Examination::Exact, &perceptual))?,
            mostly_complete_us: micros(exact.reached(MOSTLY_COMPLETE)?),
            complete_us: micros(exact.reached(COMPLETE)?),
        })
    };
    Ok(visual_times().map(|times| Evaluation { times, progress: of_all }))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 pixels square: white, its upper half green, and all of it green.
    const WHITE: &[u8] = include_bytes!("../tests/known/white.jpg");
    const HALF: &[u8] = include_bytes!("../tests/known/half.jpg");
    const FULL: &[u8] = include_bytes!("../tests/known/full.jpg");

    fn frame(at_ms: u64, jpeg: &[u8]) -> Frame {
        Frame { at: Duration::from_millis(at_ms), jpeg: jpeg.to_vec() }
    }

    #[test]
    fn half_a_screen_after_a_second_and_the_rest_after_three_is_two_seconds() {
        let frames = [frame(0, WHITE), frame(1_000, HALF), frame(3_000, FULL), frame(5_000, FULL)];
        let evaluation = evaluate(&frames).unwrap().unwrap();
        let times = evaluation.times;
        // The last frame shows nothing new.
        assert_eq!((times.frames, times.first_us, times.complete_us), (3, 1_000_000, 3_000_000));
        assert_eq!(times.mostly_complete_us, 3_000_000);
        assert!(times.speed_index_us.abs_diff(2_000_000) < 20_000, "{times:?}");
        assert!(times.perceptual_speed_index_us.abs_diff(2_000_000) < 100_000, "{times:?}");
        assert_eq!(evaluation.progress.len(), 4);
        assert_eq!(evaluation.progress[2..], [100.0, 100.0]);
    }

    #[test]
    fn nothing_is_said_of_a_white_screen_or_without_frames() {
        assert!(evaluate(&[]).unwrap().is_none());
        assert!(evaluate(&[frame(0, WHITE), frame(100, WHITE)]).unwrap().is_none());
    }

    #[test]
    fn a_broken_frame_is_named() {
        let error = evaluate(&[frame(0, b"no picture"), frame(100, FULL)]).unwrap_err();
        assert!(error.to_string().starts_with("frame 0 cannot be decoded"), "{error}");
    }
}
