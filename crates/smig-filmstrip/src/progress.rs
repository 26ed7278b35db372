//! Visual progress over time, and the times that follow from it.

use std::time::Duration;

/// Which frames are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Examination {
    /// All of them.
    Exact,
    /// As Lighthouse does: not those between two that differ by little, which count as the earlier one. Little is 5 % between
    /// frames at the same time, 3 % a second apart, and nothing from four and a half seconds on.
    Fast,
}

/// Most that two frames at the same time may differ by, in per cent, so that nothing between them is looked at.
const MAX_DIFFERENCE: f64 = 5.0;
/// The same a second apart.
const DIFFERENCE_AFTER_A_SECOND: f64 = 3.0;
/// The same for frames that are very far apart: they always differ by more.
const FINAL_DIFFERENCE: f64 = -1.0;

/// Returns by how much frames that are so far apart may differ, in per cent.
fn allowed_difference(apart: Duration) -> f64 {
    let range = MAX_DIFFERENCE - FINAL_DIFFERENCE;
    let after_a_second = (DIFFERENCE_AFTER_A_SECOND - FINAL_DIFFERENCE) / range;
    range * after_a_second.powf(apart.as_secs_f64()) + FINAL_DIFFERENCE
}

/// How much of the final screen could be seen, over time.
#[derive(Debug, Clone, PartialEq)]
pub struct VisualProgress {
    points: Vec<(Duration, f64)>,
}

impl VisualProgress {
    /// Derives it from frames at these times since the navigation, in order, of which the first is the white screen. `progress_of` returns a
    /// frame's progress in per cent.
    #[must_use]
    pub fn of(
        times: &[Duration],
        examination: Examination,
        progress_of: impl Fn(usize) -> f64,
    ) -> Self {
        let mut points: Vec<_> = times.iter().map(|at| (*at, 0.0)).collect();
        match examination {
            Examination::Exact => {
                for (index, (_, progress)) in points.iter_mut().enumerate() {
                    *progress = progress_of(index);
                }
            }
            Examination::Fast => {
                let mut ranges: Vec<_> =
                    times.len().checked_sub(1).map(|last| (0, last)).into_iter().collect();
                while let Some((from, to)) = ranges.pop() {
                    let (before, after) = (progress_of(from), progress_of(to));
                    (points[from].1, points[to].1) = (before, after);
                    let apart = times[to].saturating_sub(times[from]);
                    if (before - after).abs() < allowed_difference(apart) {
                        points[from..to].iter_mut().for_each(|point| point.1 = before);
                    } else if to - from > 1 {
                        let middle = usize::midpoint(from, to);
                        ranges.extend([(from, middle), (middle, to)]);
                    }
                }
            }
        }
        Self { points }
    }

    /// Returns the times of the frames since the navigation, with their progress in per cent.
    #[must_use]
    pub fn points(&self) -> &[(Duration, f64)] {
        &self.points
    }

    /// Returns when the screen changed first; `None` if it never did.
    #[must_use]
    pub fn first_change(&self) -> Option<Duration> {
        self.points.iter().find(|(_, progress)| *progress > 0.0).map(|(at, _)| *at)
    }

    /// Returns when so much of the final screen was there first, in per cent.
    #[must_use]
    pub fn reached(&self, percent: f64) -> Option<Duration> {
        self.points.iter().find(|(_, progress)| *progress >= percent).map(|(at, _)| *at)
    }

    /// Returns SpeedIndex: the area above the curve of the progress, from the navigation on. `None` if the screen never changed.
    #[must_use]
    pub fn speed_index(&self) -> Option<Duration> {
        let first = self.first_change()?;
        let mut index_s = first.as_secs_f64();
        for pair in self.points.windows(2) {
            let ((from, progress), (to, _)) = (pair[0], pair[1]);
            if to > first {
                index_s +=
                    to.saturating_sub(from.max(first)).as_secs_f64() * (1.0 - progress / 100.0);
            }
        }
        // The progress of a frame is 100 % at most, so that this is not negative.
        Some(Duration::from_secs_f64(index_s.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(examination: Examination, points: &[(u64, f64)]) -> VisualProgress {
        let times: Vec<_> = points.iter().map(|(ms, _)| Duration::from_millis(*ms)).collect();
        VisualProgress::of(&times, examination, |index| points[index].1)
    }

    #[test]
    fn speed_index_is_the_area_above_the_curve() {
        let points = [(0, 0.0), (1_000, 50.0), (2_000, 50.0), (3_000, 100.0), (9_000, 100.0)];
        let progress = progress(Examination::Exact, &points);
        assert_eq!(progress.first_change(), Some(Duration::from_secs(1)));
        assert_eq!(progress.speed_index(), Some(Duration::from_secs(2)));
        assert_eq!(progress.reached(85.0), Some(Duration::from_secs(3)));
        assert_eq!(progress.reached(50.0), Some(Duration::from_secs(1)));
    }

    #[test]
    fn what_is_hidden_again_counts_as_not_seen() {
        let points = [(0, 0.0), (1_000, 100.0), (2_000, 20.0), (3_000, 100.0)];
        let index = progress(Examination::Exact, &points).speed_index();
        assert_eq!(index, Some(Duration::from_millis(1_800)));
    }

    #[test]
    fn a_screen_that_stays_white_has_no_speed_index() {
        let white = progress(Examination::Exact, &[(0, 0.0), (1_000, 0.0)]);
        assert_eq!((white.first_change(), white.speed_index()), (None, None));
        assert_eq!(VisualProgress::of(&[], Examination::Fast, |_| 0.0).speed_index(), None);
    }

    #[test]
    fn the_fast_examination_looks_only_between_frames_that_differ() {
        let looked = std::cell::RefCell::new(Vec::new());
        let percent = [0.0, 0.0, 1.0, 0.0, 96.0, 98.0, 99.0, 99.0, 100.0];
        let times: Vec<_> = (0..9).map(|index| Duration::from_millis(50 * index)).collect();
        let progress = VisualProgress::of(&times, Examination::Fast, |index| {
            looked.borrow_mut().push(index);
            percent[index]
        });
        // From 96 to 100 % is less than what is allowed 200 ms apart (4.5 %): the four are alike.
        let seen: Vec<_> = progress.points().iter().map(|(_, percent)| *percent).collect();
        assert_eq!(seen, [0.0, 0.0, 1.0, 0.0, 96.0, 96.0, 96.0, 96.0, 100.0]);
        assert!([1, 5, 6, 7].iter().all(|index| !looked.borrow().contains(index)));
        assert!((allowed_difference(Duration::from_millis(200)) - 4.532_9).abs() < 1e-3);
        assert!(allowed_difference(Duration::from_secs(5)) < 0.0);
    }
}
