//! One load of the page: navigates, records what is displayed, reads the times.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use smig_browser::{BrowserContext, DevTools, DevToolsEvent, PageReport, Tab};

use super::data::{DownloadShare, PageLoad, ScreencastFrame, TileTiming};
use super::error::BrowserError;
use super::mosaic::{Mosaic, PAGE_HEIGHT_PX, PAGE_SIZE, PAGE_WIDTH_PX, TILE_SIDE_PX};
use crate::demo::BackgroundLoad;

/// Timeout of a page load.
const LOAD_TIMEOUT: Duration = Duration::from_secs(180);
/// Time from the load event until everything is displayed.
const RENDER_DELAY: Duration = Duration::from_millis(400);

/// The parameters of a page load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit<'a> {
    pub(super) url: &'a str,
    pub(super) mosaic: &'a Mosaic,
    pub(super) background: BackgroundLoad,
}

/// Returns the number of bytes of the download so far.
pub(super) type CountBytes<'a, W> =
    &'a mut dyn FnMut(&mut DevTools<W>) -> Result<u64, BrowserError>;

/// What was recorded until the page had loaded.
struct Recording {
    /// Frames displayed, with their wall-clock times in seconds.
    raw_frames: Vec<(f64, String)>,
    /// What the download received until the load event.
    download: DownloadShare,
}

impl Visit<'_> {
    /// Loads the page in a new tab of a context.
    pub(super) fn run<W: Write>(
        self,
        devtools: &mut DevTools<W>,
        context: &BrowserContext,
        count_bytes: CountBytes<'_, W>,
    ) -> Result<PageLoad, BrowserError> {
        let tab = Tab::open(devtools, context, PAGE_SIZE)?;
        let screencast = json!({"format": "jpeg", "quality": 80, "everyNthFrame": 1,
            "maxWidth": PAGE_WIDTH_PX * 3 / 4, "maxHeight": PAGE_HEIGHT_PX * 3 / 4});
        devtools.call(tab.session_id(), "Page.startScreencast", screencast)?;
        let recording = self.record(devtools, &tab, count_bytes)?;
        let report = PageReport::read(devtools, &tab)?;
        tab.close(devtools)?;
        let frame = |(seconds, jpeg): (f64, String)| ScreencastFrame {
            at_ms: seconds * 1e3 - report.origin_ms,
            jpeg,
        };
        let frames = recording.raw_frames.into_iter().map(frame).collect();
        let (timing, tiles) = (report.navigation, self.tile_timings(&report)?);
        let download = (self.background == BackgroundLoad::BigFile).then_some(recording.download);
        Ok(PageLoad { background: self.background, timing, tiles, download, frames })
    }

    /// Navigates, and records until the page has loaded.
    fn record<W: Write>(
        self,
        devtools: &mut DevTools<W>,
        tab: &Tab,
        count_bytes: CountBytes<'_, W>,
    ) -> Result<Recording, BrowserError> {
        let session_id = tab.session_id();
        let (bytes_before, started_at) = (count_bytes(devtools)?, Instant::now());
        let mut deadline = started_at + LOAD_TIMEOUT;
        let navigation = tab.navigate(devtools, self.url, deadline)?;
        let (mut raw_frames, mut download) = (Vec::new(), None);
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            let Some(event) = devtools.next_event(remaining)? else { break };
            match event.method.as_str() {
                _ if event.session_id != session_id => {}
                "Page.screencastFrame" => {
                    let ack = json!({"sessionId": event.params["sessionId"]});
                    devtools.send(session_id, "Page.screencastFrameAck", ack)?;
                    raw_frames.extend(parse_frame(event));
                }
                _ if tab.is_load_event(&event, &navigation) => {
                    let bytes = count_bytes(devtools)? - bytes_before;
                    let elapsed_ms = started_at.elapsed().as_secs_f64() * 1e3;
                    download = Some(DownloadShare { bytes, elapsed_ms });
                    deadline = Instant::now() + RENDER_DELAY;
                }
                _ => {}
            }
        }
        let download = download.ok_or_else(|| {
            let text = format!("no load event within {} s", LOAD_TIMEOUT.as_secs());
            BrowserError::incomplete(text)
        })?;
        Ok(Recording { raw_frames, download })
    }

    /// Returns the times of all images; each must have loaded with its original size.
    fn tile_timings(self, report: &PageReport) -> Result<Vec<TileTiming>, BrowserError> {
        let side = TILE_SIDE_PX as u32;
        let complete_count =
            report.image_sizes.iter().filter(|size| **size == (side, side)).count();
        let tiles = &self.mosaic.tiles;
        if complete_count != tiles.len() {
            // Without any, it may be an error page of the browser.
            let text = format!("only {complete_count} of {} images have loaded", tiles.len());
            return Err(BrowserError::incomplete(text));
        }
        tiles
            .iter()
            .map(|tile| {
                let resource = report.resources.iter().find(|r| r.name.ends_with(&tile.name));
                let resource = resource.filter(|r| r.encoded_body_size == tile.png.len() as u64);
                resource
                    .map(|r| TileTiming {
                        start_ms: r.start_ms,
                        end_ms: r.response_end_ms,
                        bytes: r.encoded_body_size,
                    })
                    .ok_or_else(|| {
                        BrowserError::incomplete(format!("{} did not arrive completely", tile.name))
                    })
            })
            .collect()
    }
}

fn parse_frame(mut event: DevToolsEvent) -> Option<(f64, String)> {
    let at_s = event.params["metadata"]["timestamp"].as_f64()?;
    match event.params["data"].take() {
        Value::String(jpeg) => Some((at_s, jpeg)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use smig_browser::{NavigationTiming, ResourceTiming};

    use super::*;

    fn page_report(mosaic: &Mosaic) -> PageReport {
        let resource = |tile: &super::super::mosaic::Tile| ResourceTiming {
            name: format!("https://10.99.0.1/{}", tile.name),
            start_ms: 10.0,
            connect_start_ms: 0.0,
            connect_end_ms: 0.0,
            request_start_ms: 0.0,
            response_start_ms: 15.0,
            response_end_ms: 20.5,
            encoded_body_size: tile.png.len() as u64,
            next_hop_protocol: "h2".into(),
        };
        PageReport {
            origin_ms: 0.0,
            navigation: NavigationTiming::default(),
            document_bytes: 30_000,
            first_contentful_paint_ms: None,
            resources: mosaic.tiles.iter().rev().map(resource).collect(),
            image_sizes: vec![(32, 32); mosaic.tiles.len()],
        }
    }

    #[test]
    fn a_page_counts_only_if_every_image_is_complete() {
        let mosaic = Mosaic::draw().unwrap();
        let visit = Visit { url: "", mosaic: &mosaic, background: BackgroundLoad::Unloaded };
        let tiles = visit.tile_timings(&page_report(&mosaic)).unwrap();
        assert_eq!(tiles.len(), mosaic.tiles.len());
        assert_eq!(tiles[7].bytes, mosaic.tiles[7].png.len() as u64);
        let mut missing = page_report(&mosaic);
        missing.image_sizes[3] = (0, 0);
        assert!(visit.tile_timings(&missing).unwrap_err().to_string().contains("233 of 234"));
        let mut truncated = page_report(&mosaic);
        truncated.resources[0].encoded_body_size -= 1;
        assert!(visit.tile_timings(&truncated).unwrap_err().to_string().contains("233.png"));
    }
}
