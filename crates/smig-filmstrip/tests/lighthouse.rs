//! The times of loads whose frames Lighthouse's own library (speedline-core) has evaluated, too.
//!
//! Each dir beside this file has the frames of a load that Chromium painted, and what the library says of them;
//! `scripts/speedline-reference` writes both.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use smig_filmstrip::{Frame, evaluate};

/// Largest difference, as a share: decoders of JPEG round differently.
const TOLERANCE: f64 = 0.02;
/// The library's times are whole milliseconds.
const ROUNDING_MS: f64 = 1.0;

#[derive(Deserialize)]
struct Load {
    frames: Vec<LoadFrame>,
    speedline: Speedline,
}

#[derive(Deserialize)]
struct LoadFrame {
    at_us: u64,
    file: String,
}

#[derive(Deserialize)]
struct Speedline {
    first_ms: f64,
    complete_ms: f64,
    speed_index_ms: f64,
    fast_speed_index_ms: f64,
    perceptual_speed_index_ms: f64,
    progress: Vec<f64>,
}

#[test]
fn times_are_those_of_lighthouse() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for name in ["tiles", "slow"] {
        let dir = tests.join(name);
        let load = fs::read(dir.join("load.json")).unwrap();
        let load: Load = serde_json::from_slice(&load).unwrap();
        let frame = |frame: &LoadFrame| Frame {
            at: Duration::from_micros(frame.at_us),
            jpeg: fs::read(dir.join(&frame.file)).unwrap(),
        };
        let frames: Vec<_> = load.frames.iter().map(frame).collect();
        let evaluation = evaluate(&frames).unwrap().unwrap();
        let (ours, theirs) = (evaluation.times, load.speedline);
        for (what, ours_us, theirs_ms) in [
            ("first change", ours.first_us, theirs.first_ms),
            ("complete", ours.complete_us, theirs.complete_ms),
            ("SpeedIndex", ours.speed_index_us, theirs.speed_index_ms),
            ("fast SpeedIndex", ours.fast_speed_index_us, theirs.fast_speed_index_ms),
            ("perceptual", ours.perceptual_speed_index_us, theirs.perceptual_speed_index_ms),
        ] {
            let difference_ms = (ours_us as f64 / 1e3 - theirs_ms).abs();
            let allowed_ms = (theirs_ms * TOLERANCE).max(ROUNDING_MS);
            assert!(difference_ms <= allowed_ms, "{name}, {what}: {ours_us} us, {theirs_ms} ms");
        }
        let furthest = evaluation.progress.iter().zip(&theirs.progress);
        let furthest = furthest.map(|(ours, theirs)| (ours - theirs).abs()).fold(0.0, f64::max);
        assert!(furthest <= 2.0, "{name}: the progress of a frame differs by {furthest} %");
        assert_eq!(evaluation.progress.len(), theirs.progress.len());
    }
}
