//! One load of the page: navigates, records what is displayed, reads the times.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::data::{Frame, PageLoad, TileTiming, Timing};
use super::devtools::{DevTools, Event};
use super::error::BrowserError;
use super::mosaic::{HEIGHT, Mosaic, SIDE, WIDTH};
use crate::demo::BackgroundLoad;
use tokio_util::sync::CancellationToken;

/// Timeout of a page load.
const PATIENCE: Duration = Duration::from_secs(180);
/// Time from the load event until everything is displayed.
const SHOWING: Duration = Duration::from_millis(400);
/// Poll interval of the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The page's report when it has loaded.
#[derive(Debug, Deserialize)]
struct PageTimings {
    origin: f64,
    navigation: Value,
    resources: Vec<Resource>,
    /// Width and height of the image in each place.
    sizes: Vec<(usize, usize)>,
}

/// An entry of Resource Timing.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    name: String,
    start_time: f64,
    response_end: f64,
    encoded_body_size: u64,
}

const ASK: &str = "JSON.stringify({\
    origin: performance.timeOrigin,\
    navigation: performance.getEntriesByType('navigation')[0].toJSON(),\
    resources: performance.getEntriesByType('resource').map(entry => entry.toJSON()),\
    sizes: [...document.images].map(image => [image.naturalWidth, image.naturalHeight])})";

/// The parameters of a page load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit<'a> {
    pub(super) url: &'a str,
    pub(super) proxy: &'a str,
    pub(super) mosaic: &'a Mosaic,
    pub(super) load: BackgroundLoad,
    pub(super) stop: &'a CancellationToken,
}

impl Visit<'_> {
    /// Loads the page without any state of an earlier load: cache, connections, sessions.
    pub(super) fn make<W: Write>(
        self,
        devtools: &mut DevTools<W>,
    ) -> Result<PageLoad, BrowserError> {
        let context = json!({"disposeOnDetach": true, "proxyServer": self.proxy,
            "proxyBypassList": "<-loopback>"});
        let context =
            text(&devtools.call("", "Target.createBrowserContext", context)?, "browserContextId")?;
        let target = json!({"url": "about:blank", "browserContextId": context,
            "width": WIDTH, "height": HEIGHT});
        let target = text(&devtools.call("", "Target.createTarget", target)?, "targetId")?;
        let attach = json!({"targetId": target, "flatten": true});
        let session = text(&devtools.call("", "Target.attachToTarget", attach)?, "sessionId")?;
        devtools.call(&session, "Page.enable", json!({}))?;
        let size =
            json!({"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false});
        devtools.call(&session, "Emulation.setDeviceMetricsOverride", size)?;
        let screencast = json!({"format": "jpeg", "quality": 80, "everyNthFrame": 1,
            "maxWidth": WIDTH * 3 / 4, "maxHeight": HEIGHT * 3 / 4});
        devtools.call(&session, "Page.startScreencast", screencast)?;
        let shown = self.watch(devtools, &session)?;
        let ask = json!({"expression": ASK, "returnByValue": true});
        let told = devtools.call(&session, "Runtime.evaluate", ask)?;
        let told = told["result"]["value"].as_str().unwrap_or_default();
        let told: PageTimings = serde_json::from_str(told).map_err(odd)?;
        devtools.call("", "Target.disposeBrowserContext", json!({"browserContextId": context}))?;
        let frame =
            |(seconds, jpeg): (f64, String)| Frame { at_ms: seconds * 1e3 - told.origin, jpeg };
        let frames = shown.into_iter().map(frame).collect();
        let timing = timing(&told.navigation)?;
        let tiles = self.tiles(&told)?;
        Ok(PageLoad { load: self.load, timing, tiles, frames })
    }

    /// Returns the frames from the navigation's beginning to its end, with their wall-clock times in seconds.
    fn watch<W: Write>(
        self,
        devtools: &mut DevTools<W>,
        session: &str,
    ) -> Result<Vec<(f64, String)>, BrowserError> {
        devtools.send(session, "Page.navigate", json!({"url": self.url}))?;
        let mut until = Instant::now() + PATIENCE;
        let (mut shown, mut loaded) = (Vec::new(), false);
        loop {
            if self.stop.is_cancelled() {
                return Err(BrowserError::Stopped);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let Some(event) = devtools.next_event(left.min(LOOK_EVERY))? else { continue };
            match event.method.as_str() {
                _ if event.session_id != session => {}
                "Page.screencastFrame" => {
                    let ack = json!({"sessionId": event.params["sessionId"]});
                    devtools.send(session, "Page.screencastFrameAck", ack)?;
                    shown.extend(frame(event));
                }
                "Page.loadEventFired" => {
                    loaded = true;
                    until = Instant::now() + SHOWING;
                }
                _ => {}
            }
        }
        if loaded {
            Ok(shown)
        } else {
            let text = format!("no load event within {} s", PATIENCE.as_secs());
            Err(BrowserError::NotWhole(text))
        }
    }

    /// Returns the times of all images; each must have loaded with its original size.
    fn tiles(self, told: &PageTimings) -> Result<Vec<TileTiming>, BrowserError> {
        let whole = told.sizes.iter().filter(|size| **size == (SIDE, SIDE)).count();
        let tiles = &self.mosaic.tiles;
        if whole != tiles.len() {
            // Without any, it is an error page of the browser's own.
            let text = format!("only {whole} of {} images have loaded", tiles.len());
            return Err(BrowserError::NotWhole(text));
        }
        tiles
            .iter()
            .map(|tile| {
                let came = told.resources.iter().find(|r| r.name.ends_with(&tile.name));
                let came = came.filter(|r| r.encoded_body_size == tile.png.len() as u64);
                came.map(|r| TileTiming {
                    start_ms: r.start_time,
                    end_ms: r.response_end,
                    bytes: r.encoded_body_size,
                })
                .ok_or_else(|| {
                    BrowserError::NotWhole(format!("{} did not arrive completely", tile.name))
                })
            })
            .collect()
    }
}

fn frame(mut event: Event) -> Option<(f64, String)> {
    let at = event.params["metadata"]["timestamp"].as_f64()?;
    match event.params["data"].take() {
        Value::String(jpeg) => Some((at, jpeg)),
        _ => None,
    }
}

fn text(answer: &Value, name: &str) -> Result<String, BrowserError> {
    answer[name].as_str().map(str::to_owned).ok_or_else(|| odd(format!("no {name} in it")))
}

fn odd(what: impl std::fmt::Display) -> BrowserError {
    BrowserError::Browser(format!("unexpected response: {what}"))
}

fn timing(navigation: &Value) -> Result<Timing, BrowserError> {
    let moment = |name: &str| navigation[name].as_f64().ok_or_else(|| odd(format!("no {name}")));
    Ok(Timing {
        connect_start_ms: moment("connectStart")?,
        secure_connection_start_ms: moment("secureConnectionStart")?,
        connect_end_ms: moment("connectEnd")?,
        request_start_ms: moment("requestStart")?,
        response_start_ms: moment("responseStart")?,
        response_end_ms: moment("responseEnd")?,
        load_event_end_ms: moment("loadEventEnd")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(mosaic: &Mosaic) -> PageTimings {
        let resource = |tile: &super::super::mosaic::Tile| Resource {
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
    fn a_page_counts_when_every_picture_is_whole() {
        let (mosaic, stop) = (Mosaic::draw().unwrap(), CancellationToken::default());
        let visit = Visit {
            url: "",
            proxy: "",
            mosaic: &mosaic,
            load: BackgroundLoad::Unloaded,
            stop: &stop,
        };
        let tiles = visit.tiles(&told(&mosaic)).unwrap();
        assert_eq!(tiles.len(), mosaic.tiles.len());
        assert_eq!(tiles[7].bytes, mosaic.tiles[7].png.len() as u64);
        let mut missing = told(&mosaic);
        missing.sizes[3] = (0, 0);
        assert!(visit.tiles(&missing).unwrap_err().to_string().contains("233 of 234"));
        let mut cut = told(&mosaic);
        cut.resources[0].encoded_body_size -= 1;
        assert!(visit.tiles(&cut).unwrap_err().to_string().contains("233.png"));
    }

    #[test]
    fn times_are_those_of_navigation_timing() {
        let told = told(&Mosaic::draw().unwrap());
        let timing = timing(&told.navigation).unwrap();
        assert_eq!((timing.connect_start_ms, timing.load_event_end_ms), (1.5, 7.0));
        assert!(super::timing(&json!({})).is_err());
    }
}
