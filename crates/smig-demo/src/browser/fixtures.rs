//! Synthetic results for tests and previews of the output. Not measurements.

use smig_link::LinkSpec;

use super::data::{
    BrowserResult, BrowserSetup, NavigationTiming, PageLoad, ScreencastFrame, TileTiming,
    VariantRun,
};
use crate::demo::fixtures::link_report;
use crate::demo::{BackgroundLoad, Variant};

const TILE_COUNT: usize = 234;

/// A result with two variants, three loads each alone and beside the download.
pub fn result() -> BrowserResult {
    let setup = BrowserSetup {
        link: LinkSpec::paper_wired(),
        variants: vec![Variant::PlainHttp2, Variant::Smig],
        congestion_control: "cubic".into(),
        loads: 3,
        tile_count: TILE_COUNT,
        tiles_bytes: 100_000,
        browser: "Chrome 1.2.3".into(),
        program: "smig 0.1.0".into(),
        kernel: "Linux 6.18".into(),
    };
    let run = |variant, during_download_ms: [f64; 3], migrations, rate| VariantRun {
        loads: [610.0, 640.0, 620.0]
            .map(|took| page_load(BackgroundLoad::Unloaded, took))
            .into_iter()
            .chain(during_download_ms.map(|took| page_load(BackgroundLoad::BigFile, took)))
            .collect(),
        migrations,
        download_mbit_per_s: Some(rate),
        link: Some(link_report()),
        ..VariantRun::new(variant)
    };
    let runs = vec![
        run(Variant::PlainHttp2, [3_200.0, 3_100.0, 3_700.0], 0, 9.4),
        run(Variant::Smig, [700.0, 760.0, 720.0], 1, 8.9),
    ];
    BrowserResult { setup, runs }
}

/// A page load: tiles arrive evenly during the last two thirds; the display changes eight times.
fn page_load(background: BackgroundLoad, load_time_ms: f64) -> PageLoad {
    let timing = NavigationTiming {
        connect_start_ms: 5.0,
        secure_connection_start_ms: load_time_ms * 0.1,
        connect_end_ms: load_time_ms * 0.2,
        request_start_ms: load_time_ms * 0.2,
        response_start_ms: load_time_ms * 0.3,
        response_end_ms: load_time_ms * 0.3,
        load_event_end_ms: load_time_ms,
    };
    let tile = |index: usize| {
        let end_ms = load_time_ms * (1.0 + 2.0 * index as f64 / (TILE_COUNT - 1) as f64) / 3.0;
        TileTiming { start_ms: load_time_ms / 3.0, end_ms, bytes: 427 }
    };
    // Only the start and the end of a JPEG: it is not decoded here.
    let frame = |index: u32| ScreencastFrame {
        at_ms: load_time_ms * f64::from(index) / 8.0,
        jpeg: "/9j/4AAQSkZJRgABAQAAAQABAAD/2Q==".into(),
    };
    PageLoad {
        background,
        timing,
        tiles: (0..TILE_COUNT).map(tile).collect(),
        frames: (0..=8).map(frame).collect(),
    }
}
