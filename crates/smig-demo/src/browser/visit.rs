//! One load of the page: navigates, records what is displayed, reads the times.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::data::{DownloadShare, NavigationTiming, PageLoad, ScreencastFrame, TileTiming};
use super::devtools::{DevTools, DevToolsEvent};
use super::error::BrowserError;
use super::mosaic::{Mosaic, PAGE_HEIGHT_PX, PAGE_WIDTH_PX, TILE_SIDE_PX};
use super::tab::{BrowserContext, Tab};
use crate::demo::BackgroundLoad;

/// Timeout of a page load.
const LOAD_TIMEOUT: Duration = Duration::from_secs(180);
/// Time from the load event until everything is displayed.
const RENDER_DELAY: Duration = Duration::from_millis(400);

/// The page's report when it has loaded.
#[derive(Debug, Deserialize)]
struct PageTimings {
    origin: f64,
    navigation: Value,
    resources: Vec<ResourceTiming>,
    /// Width and height of each image, in the page's order.
    sizes: Vec<(usize, usize)>,
}

/// An entry of Resource Timing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceTiming {
    name: String,
    start_time: f64,
    response_end: f64,
    encoded_body_size: u64,
}

/// The expression that the page evaluates to report its [`PageTimings`].
const TIMINGS_SCRIPT: &str = "JSON.stringify({\
    origin: performance.timeOrigin,\
    navigation: performance.getEntriesByType('navigation')[0].toJSON(),\
    resources: performance.getEntriesByType('resource').map(entry => entry.toJSON()),\
    sizes: [...document.images].map(image => [image.naturalWidth, image.naturalHeight])})";

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
        let tab = Tab::open(devtools, context)?;
        let size = json!({"width": PAGE_WIDTH_PX, "height": PAGE_HEIGHT_PX, "deviceScaleFactor": 1, "mobile": false});
        devtools.call(&tab.session_id, "Emulation.setDeviceMetricsOverride", size)?;
        let screencast = json!({"format": "jpeg", "quality": 80, "everyNthFrame": 1,
            "maxWidth": PAGE_WIDTH_PX * 3 / 4, "maxHeight": PAGE_HEIGHT_PX * 3 / 4});
        devtools.call(&tab.session_id, "Page.startScreencast", screencast)?;
        let recording = self.record(devtools, &tab, count_bytes)?;
        let timings_json = tab.evaluate(devtools, TIMINGS_SCRIPT)?;
        let timings: PageTimings = serde_json::from_str(timings_json.as_str().unwrap_or_default())
            .map_err(BrowserError::unexpected_response)?;
        tab.close(devtools)?;
        let frame = |(seconds, jpeg): (f64, String)| ScreencastFrame {
            at_ms: seconds * 1e3 - timings.origin,
            jpeg,
        };
        let frames = recording.raw_frames.into_iter().map(frame).collect();
        let timing = navigation_timing(&timings.navigation)?;
        let tiles = self.tile_timings(&timings)?;
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
        let session_id = tab.session_id.as_str();
        let (bytes_before, started_at) = (count_bytes(devtools)?, Instant::now());
        let mut deadline = started_at + LOAD_TIMEOUT;
        tab.navigate(devtools, self.url, deadline)?;
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
                "Page.loadEventFired" => {
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
            BrowserError::Incomplete(text)
        })?;
        Ok(Recording { raw_frames, download })
    }

    /// Returns the times of all images; each must have loaded with its original size.
    fn tile_timings(self, timings: &PageTimings) -> Result<Vec<TileTiming>, BrowserError> {
        let complete_count =
            timings.sizes.iter().filter(|size| **size == (TILE_SIDE_PX, TILE_SIDE_PX)).count();
        let tiles = &self.mosaic.tiles;
        if complete_count != tiles.len() {
            // Without any, it may be an error page of the browser.
            let text = format!("only {complete_count} of {} images have loaded", tiles.len());
            return Err(BrowserError::Incomplete(text));
        }
        tiles
            .iter()
            .map(|tile| {
                let resource = timings.resources.iter().find(|r| r.name.ends_with(&tile.name));
                let resource = resource.filter(|r| r.encoded_body_size == tile.png.len() as u64);
                resource
                    .map(|r| TileTiming {
                        start_ms: r.start_time,
                        end_ms: r.response_end,
                        bytes: r.encoded_body_size,
                    })
                    .ok_or_else(|| {
                        BrowserError::Incomplete(format!("{} did not arrive completely", tile.name))
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

fn navigation_timing(navigation: &Value) -> Result<NavigationTiming, BrowserError> {
    let field = |name: &str| {
        navigation[name]
            .as_f64()
            .ok_or_else(|| BrowserError::unexpected_response(format!("no {name}")))
    };
    Ok(NavigationTiming {
        connect_start_ms: field("connectStart")?,
        secure_connection_start_ms: field("secureConnectionStart")?,
        connect_end_ms: field("connectEnd")?,
        request_start_ms: field("requestStart")?,
        response_start_ms: field("responseStart")?,
        response_end_ms: field("responseEnd")?,
        load_event_end_ms: field("loadEventEnd")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_timings(mosaic: &Mosaic) -> PageTimings {
        let resource = |tile: &super::super::mosaic::Tile| ResourceTiming {
            name: format!("https://10.99.0.1/{}", tile.name),
            start_time: 10.0,
            response_end: 20.5,
            encoded_body_size: tile.png.len() as u64,
        };
        PageTimings {
            origin: 0.0,
            navigation: json!({"connectStart": 1.5, "secureConnectionStart": 2, "connectEnd": 3,
                "requestStart": 4, "responseStart": 5, "responseEnd": 6, "loadEventEnd": 7}),
            resources: mosaic.tiles.iter().rev().map(resource).collect(),
            sizes: vec![(32, 32); mosaic.tiles.len()],
        }
    }

    #[test]
    fn a_page_counts_only_if_every_image_is_complete() {
        let mosaic = Mosaic::draw().unwrap();
        let visit = Visit { url: "", mosaic: &mosaic, background: BackgroundLoad::Unloaded };
        let tiles = visit.tile_timings(&page_timings(&mosaic)).unwrap();
        assert_eq!(tiles.len(), mosaic.tiles.len());
        assert_eq!(tiles[7].bytes, mosaic.tiles[7].png.len() as u64);
        let mut missing = page_timings(&mosaic);
        missing.sizes[3] = (0, 0);
        assert!(visit.tile_timings(&missing).unwrap_err().to_string().contains("233 of 234"));
        let mut truncated = page_timings(&mosaic);
        truncated.resources[0].encoded_body_size -= 1;
        assert!(visit.tile_timings(&truncated).unwrap_err().to_string().contains("233.png"));
    }

    #[test]
    fn times_are_those_of_navigation_timing() {
        let timings = page_timings(&Mosaic::draw().unwrap());
        let timing = navigation_timing(&timings.navigation).unwrap();
        assert_eq!((timing.connect_start_ms, timing.load_event_end_ms), (1.5, 7.0));
        assert!(navigation_timing(&json!({})).is_err());
    }
}
