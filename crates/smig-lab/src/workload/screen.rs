//! What browsers' screens showed: kept during a run, and evaluated after it.

use std::sync::PoisonError;
use std::time::Duration;

use smig_browser::ScreencastFrames;
use smig_filmstrip::{Frame, evaluate};

use super::result::{Observation, Outcome, PageLoad, ScreenFrame};
use super::run::{WorkloadRun, monotonic_ns};

/// As many bytes are kept of the pictures of all loads of a run: they are in memory until it has ended, and then in its recording.
const MAX_RUN_BYTES: usize = 256 << 20;

/// The frames of a run's loads.
#[derive(Debug, Default)]
pub(super) struct KeptFrames {
    frames: Vec<ScreenFrame>,
    bytes: usize,
}

impl KeptFrames {
    /// Keeps the frames of a load after its navigation; without any, the load has failed. Keeps none of a load whose frames would exceed
    /// `limit_bytes`, and counts them.
    fn keep(&mut self, load: &mut PageLoad, frames: Vec<(u64, &[u8])>, limit_bytes: usize) {
        if load.outcome == Outcome::Complete && frames.is_empty() {
            load.outcome = Outcome::Failed("no frame of its screen was taken".to_owned());
        }
        let bytes: usize = frames.iter().map(|(_, jpeg)| jpeg.len()).sum();
        if self.bytes + bytes > limit_bytes {
            load.omitted_frames = frames.len();
            return;
        }
        self.bytes += bytes;
        self.frames.extend(frames.into_iter().map(|(at_ns, jpeg)| ScreenFrame {
            page: load.name.clone(),
            load: load.number,
            at_ns,
            progress: 0,
            jpeg: jpeg.to_vec(),
        }));
    }

    pub(super) fn into_frames(self) -> Vec<ScreenFrame> {
        self.frames
    }
}

impl WorkloadRun {
    /// Keeps the frames of a load, unless there are too many.
    pub(super) fn keep_frames(&self, load: &mut PageLoad, taken: &ScreencastFrames) {
        if taken.omitted > 0 {
            load.omitted_frames = taken.omitted;
            return;
        }
        let frames = taken.frames.iter().map(|frame| {
            let at_ns = monotonic_ns(frame.painted).saturating_sub(self.start_monotonic_ns);
            (at_ns, frame.jpeg.as_slice())
        });
        let frames = frames.filter(|(at_ns, _)| *at_ns > load.started_ns).collect();
        let mut kept = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        kept.keep(load, frames, MAX_RUN_BYTES);
    }
}

/// Computes what the frames say of each load.
pub(super) fn evaluate_frames(mut observation: Observation) -> Observation {
    let frames = &mut observation.frames;
    for load in &mut observation.pages {
        let is_own =
            |frame: &&mut ScreenFrame| (&frame.page, frame.load) == (&load.name, load.number);
        let own: Vec<_> = frames.iter_mut().filter(is_own).collect();
        if load.outcome != Outcome::Complete || own.is_empty() {
            continue;
        }
        let since_navigation = |frame: &ScreenFrame| Frame {
            at: Duration::from_nanos(frame.at_ns.saturating_sub(load.started_ns)),
            jpeg: frame.jpeg.clone(),
        };
        let all: Vec<_> = own.iter().map(|frame| since_navigation(frame)).collect();
        match evaluate(&all) {
            Ok(Some(evaluation)) => {
                load.visual = Some(evaluation.times);
                for (frame, progress) in own.into_iter().zip(evaluation.progress) {
                    frame.progress = progress as u8;
                }
            }
            Ok(None) => {
                load.outcome = Outcome::Failed("its final screen is white".to_owned());
            }
            Err(error) => load.outcome = Outcome::Failed(format!("its screen: {error}")),
        }
    }
    observation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_whose_frames_are_broken_has_failed() {
        let load =
            |number| PageLoad::without_times("front", number, (1_000, 9_000), Outcome::Complete);
        let frame = ScreenFrame {
            page: "front".to_owned(),
            load: 1,
            at_ns: 5_000,
            progress: 0,
            jpeg: b"no picture".to_vec(),
        };
        let observation = Observation {
            pages: vec![load(0), load(1)],
            frames: vec![frame],
            ..Observation::default()
        };
        let evaluated = evaluate_frames(observation);
        // Without frames nothing is known of the screen.
        assert_eq!(
            (&evaluated.pages[0].outcome, evaluated.pages[0].visual),
            (&Outcome::Complete, None)
        );
        let Outcome::Failed(why) = &evaluated.pages[1].outcome else { panic!("{evaluated:?}") };
        assert!(why.contains("its screen: frame 0 cannot be decoded"), "{why}");
    }

    #[test]
    fn frames_of_all_loads_of_a_run_have_one_limit() {
        let mut kept = KeptFrames::default();
        let loads: Vec<_> = (0..3)
            .map(|number| {
                let times = (1_000, 9_000);
                let mut load = PageLoad::without_times("front", number, times, Outcome::Complete);
                // The second one would exceed the limit; the third one fits again.
                let size = [400, 700, 600][number as usize];
                let (first, last) = (vec![1; size / 2], vec![2; size / 2]);
                let frames = vec![(2_000, first.as_slice()), (3_000, last.as_slice())];
                kept.keep(&mut load, frames, 1_000);
                load
            })
            .collect();
        let omitted: Vec<_> = loads.iter().map(|load| load.omitted_frames).collect();
        assert_eq!(omitted, [0, 2, 0]);
        assert!(loads.iter().all(|load| load.outcome == Outcome::Complete), "{loads:?}");
        let numbers: Vec<_> = kept.into_frames().iter().map(|frame| frame.load).collect();
        assert_eq!(numbers, [0, 0, 2, 2]);
    }

    #[test]
    fn a_load_without_a_frame_has_failed() {
        let mut load = PageLoad::without_times("front", 0, (1_000, 9_000), Outcome::Complete);
        KeptFrames::default().keep(&mut load, Vec::new(), 1_000);
        assert_eq!(load.outcome, Outcome::Failed("no frame of its screen was taken".to_owned()));
    }
}
