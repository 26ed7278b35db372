//! Synthetic results for tests and previews of the output. Not measurements.

use smig_browser::NavigationTiming;
use smig_link::LinkSpec;

use super::data::{
    BrowserResult, BrowserSetup, ConnectionRequests, PageLoad, ScreencastFrame, TileTiming,
    VariantRun,
};
use super::variant::{BrowserVariant, Route};
use crate::demo::BackgroundLoad;
use crate::demo::fixtures::link_report;

const TILE_COUNT: usize = 234;

/// A result through an agent with two variants, three loads each alone and beside the download.
pub fn result() -> BrowserResult {
    let runs = vec![
        VariantRun {
            migrations: Some(0),
            download_mbit_per_s: Some(9.4),
            ..run(BrowserVariant::PlainHttp2, [3_200.0, 3_100.0, 3_700.0])
        },
        VariantRun {
            migrations: Some(1),
            download_mbit_per_s: Some(8.9),
            ..run(BrowserVariant::Smig, [700.0, 760.0, 720.0])
        },
    ];
    BrowserResult { setup: setup(Route::Agent, &runs), runs }
}

/// A result of the direct route with the five variants.
pub fn direct_result() -> BrowserResult {
    let runs = [
        (BrowserVariant::PlainHttp2, [2_200.0, 2_100.0, 2_700.0], 9.4),
        (BrowserVariant::NotsentLowat, [1_200.0, 1_100.0, 1_300.0], 9.3),
        (BrowserVariant::Serve, [630.0, 640.0, 650.0], 8.8),
        (BrowserVariant::Gateway, [640.0, 630.0, 660.0], 8.7),
        (BrowserVariant::Nginx, [2_300.0, 2_100.0, 2_800.0], 9.5),
    ];
    let direct_run = |(variant, during_download_ms, rate)| VariantRun {
        download_mbit_per_s: Some(rate),
        connections: vec![ConnectionRequests {
            protocol: "HTTP/2.0".into(),
            page_requests: 7 * (1 + TILE_COUNT as u64),
            downloads: 1,
        }],
        ..run(variant, during_download_ms)
    };
    let runs: Vec<_> = runs.map(direct_run).into();
    let nginx = Some("nginx/1.2.3".into());
    BrowserResult { setup: BrowserSetup { nginx, ..setup(Route::Direct, &runs) }, runs }
}

fn setup(route: Route, runs: &[VariantRun]) -> BrowserSetup {
    BrowserSetup {
        route,
        link: LinkSpec::paper_wired(),
        variants: runs.iter().map(|run| run.variant).collect(),
        congestion_control: "cubic".into(),
        loads: 3,
        tile_count: TILE_COUNT,
        tiles_bytes: 100_000,
        browser: "Chrome 1.2.3".into(),
        program: "smig 0.1.0".into(),
        nginx: None,
        kernel: "Linux 6.18".into(),
    }
}

/// A run with the times of three loads beside the download in ms.
fn run(variant: BrowserVariant, during_download_ms: [f64; 3]) -> VariantRun {
    VariantRun {
        loads: [610.0, 640.0, 620.0]
            .map(|took| page_load(BackgroundLoad::Unloaded, took))
            .into_iter()
            .chain(during_download_ms.map(|took| page_load(BackgroundLoad::BigFile, took)))
            .collect(),
        link: Some(link_report()),
        ..VariantRun::new(variant)
    }
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
        download: None,
        frames: (0..=8).map(frame).collect(),
    }
}
