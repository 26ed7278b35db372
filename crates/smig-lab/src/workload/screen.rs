//! What browsers' screens showed: kept during a run, and evaluated after it.

use std::sync::PoisonError;
use std::time::Duration;

use smig_browser::ScreencastFrame;
use smig_filmstrip::{Frame, evaluate};

use super::result::{Observation, Outcome, PageLoad, ScreenFrame};
use super::run::WorkloadRun;

impl WorkloadRun {
    /// Keeps the frames of a load that were painted after its navigation; without any, the load has failed. `to_run_ns` converts a time of the
    /// browser, in ms since the epoch.
    pub(super) fn keep_frames(
        &self,
        load: &mut PageLoad,
        frames: &[ScreencastFrame],
        to_run_ns: &dyn Fn(f64) -> u64,
    ) {
        let after_navigation =
            |frame: &&ScreencastFrame| to_run_ns(frame.painted_ms) > load.started_ns;
        if load.outcome == Outcome::Complete && !frames.iter().any(|frame| after_navigation(&frame))
        {
            load.outcome = Outcome::Failed("no frame of its screen was taken".to_owned());
        }
        let frames = frames.iter().filter(after_navigation).map(|frame| ScreenFrame {
            page: load.name.clone(),
            load: load.number,
            at_ns: to_run_ns(frame.painted_ms),
            progress: 0,
            jpeg: frame.jpeg.clone(),
        });
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).extend(frames);
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
}
