//! What a page reports of its own load: Navigation Timing, Paint Timing and Resource Timing.

use std::io::Write;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::devtools::DevTools;
use crate::error::BrowserError;
use crate::screencast::Screencast;
use crate::tab::Tab;

/// The expression that the page evaluates. What the load event has seen is painted with the next frame: it waits a second for that.
const SCRIPT: &str = "(async () => {\
    const painted = () => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null;\
    for (let i = 0; painted() === null && i < 40; i++) await new Promise(done => setTimeout(done, 25));\
    const navigation = performance.getEntriesByType('navigation')[0].toJSON();\
    return JSON.stringify({\
    origin_ms: performance.timeOrigin,\
    navigation,\
    document_bytes: navigation.encodedBodySize,\
    first_contentful_paint_ms: painted(),\
    resources: performance.getEntriesByType('resource').map(entry => entry.toJSON()),\
    image_sizes: [...document.images].map(image => [image.naturalWidth, image.naturalHeight])})})()";

/// A page's times, in ms since its navigation began.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PageReport {
    /// When the navigation began, in ms of wall-clock time since the epoch.
    pub origin_ms: f64,
    /// Times of the document.
    #[serde(deserialize_with = "reported_navigation")]
    pub navigation: NavigationTiming,
    /// Size of the document's body in bytes.
    pub document_bytes: u64,
    /// When text or a picture was painted first; `None` if nothing was.
    pub first_contentful_paint_ms: Option<f64>,
    /// Times of the resources, in the order of their requests.
    pub resources: Vec<ResourceTiming>,
    /// Width and height of each picture in pixels, in the document's order; zero if it could not be decoded.
    pub image_sizes: Vec<(u32, u32)>,
}

/// Navigation Timing, in ms; 0 where the browser reports nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NavigationTiming {
    /// The browser begins to connect: to the server, or to its proxy.
    pub connect_start_ms: f64,
    /// The TLS handshake begins; with a proxy, in the open tunnel.
    pub secure_connection_start_ms: f64,
    /// The TLS handshake is complete.
    pub connect_end_ms: f64,
    /// The page is requested.
    pub request_start_ms: f64,
    /// Its first byte.
    pub response_start_ms: f64,
    /// Its last byte.
    pub response_end_ms: f64,
    /// The end of the load event: everything has arrived.
    pub load_event_end_ms: f64,
}

/// The same as the browser names it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportedNavigation {
    connect_start: f64,
    secure_connection_start: f64,
    connect_end: f64,
    request_start: f64,
    response_start: f64,
    response_end: f64,
    load_event_end: f64,
}

impl From<ReportedNavigation> for NavigationTiming {
    fn from(reported: ReportedNavigation) -> Self {
        Self {
            connect_start_ms: reported.connect_start,
            secure_connection_start_ms: reported.secure_connection_start,
            connect_end_ms: reported.connect_end,
            request_start_ms: reported.request_start,
            response_start_ms: reported.response_start,
            response_end_ms: reported.response_end,
            load_event_end_ms: reported.load_event_end,
        }
    }
}

fn reported_navigation<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<NavigationTiming, D::Error> {
    ReportedNavigation::deserialize(deserializer).map(NavigationTiming::from)
}

/// An entry of Resource Timing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTiming {
    /// Its URL.
    pub name: String,
    /// When the browser started the fetch.
    #[serde(rename = "startTime")]
    pub start_ms: f64,
    /// When the browser began to connect for it; without a new connection, when it had one.
    #[serde(rename = "connectStart", default)]
    pub connect_start_ms: f64,
    /// When the handshakes were complete.
    #[serde(rename = "connectEnd", default)]
    pub connect_end_ms: f64,
    /// When it was sent.
    #[serde(rename = "requestStart", default)]
    pub request_start_ms: f64,
    /// When its first byte had arrived.
    #[serde(rename = "responseStart")]
    pub response_start_ms: f64,
    /// When its last byte had arrived.
    #[serde(rename = "responseEnd")]
    pub response_end_ms: f64,
    /// Size of its body in bytes.
    pub encoded_body_size: u64,
    /// ALPN identifier of its protocol.
    #[serde(default)]
    pub next_hop_protocol: String,
}

impl PageReport {
    /// Reads the report of the page that a tab shows, after its load event.
    ///
    /// # Errors
    /// The page does not report what is expected.
    pub fn read<W: Write>(devtools: &mut DevTools<W>, tab: &Tab) -> Result<Self, BrowserError> {
        let json = tab.evaluate(devtools, SCRIPT)?;
        serde_json::from_str(json.as_str().unwrap_or_default())
            .map_err(BrowserError::unexpected_response)
    }

    /// Like [`Self::read`], without losing a frame of the screen: waits before and after it as [`Screencast::wait_until_quiet`] does.
    ///
    /// # Errors
    /// The same, and those of [`Screencast::wait_until_quiet`].
    pub fn read_beside<W: Write>(
        screencast: &mut Screencast,
        devtools: &mut DevTools<W>,
        tab: &Tab,
        (quiet, limit): (Duration, Duration),
    ) -> Result<Self, BrowserError> {
        // While a call waits for its response no frame is acknowledged, and the browser drops what it paints meanwhile.
        screencast.wait_until_quiet(devtools, quiet, limit)?;
        let report = Self::read(devtools, tab)?;
        // The report waits for the first paint.
        screencast.wait_until_quiet(devtools, quiet, limit)?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::os::unix::net::UnixStream;

    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn read(value: &serde_json::Value) -> Result<PageReport, BrowserError> {
        let answer = json!({"id": 1, "result": {"result": {"value": value.to_string()}}});
        let input = format!("{answer}\0").into_bytes();
        let stop = CancellationToken::default();
        let mut devtools = DevTools::new(Vec::new(), Cursor::new(input), stop).unwrap();
        PageReport::read(&mut devtools, &Tab::with_session("S"))
    }

    #[test]
    fn a_page_reports_navigation_paint_and_resources() {
        let report = read(&json!({
            "origin_ms": 1.7e12,
            "navigation": {"connectStart": 1.5, "secureConnectionStart": 2, "connectEnd": 3,
                "requestStart": 4, "responseStart": 5, "responseEnd": 6, "loadEventEnd": 7, "type": "navigate"},
            "document_bytes": 1_600,
            "first_contentful_paint_ms": null,
            "resources": [{"name": "https://10.99.0.1/0.png", "startTime": 8.0, "connectStart": 8.1,
                "connectEnd": 8.5, "requestStart": 8.6, "responseStart": 9.0, "responseEnd": 10.5, "encodedBodySize": 300, "nextHopProtocol": "h2"}],
            "image_sizes": [[16, 16]],
        }))
        .unwrap();
        let navigation = report.navigation;
        assert_eq!((navigation.connect_start_ms, navigation.load_event_end_ms), (1.5, 7.0));
        assert_eq!(report.first_contentful_paint_ms, None);
        assert_eq!((report.resources[0].response_end_ms, report.image_sizes[0]), (10.5, (16, 16)));
        assert_eq!(report.resources[0].next_hop_protocol, "h2");
        let first = &report.resources[0];
        assert_eq!((first.connect_start_ms, first.connect_end_ms), (8.1, 8.5));
        assert_eq!(first.request_start_ms, 8.6);
    }

    #[test]
    fn a_report_without_its_times_is_an_error() {
        let error = read(&json!({"origin_ms": 0, "navigation": {}})).unwrap_err().to_string();
        assert!(error.contains("connectStart"), "{error}");
    }

    /// A browser that paints its final screen while it answers the call for the page's report.
    struct LatePainter {
        messages: UnixStream,
        request: Vec<u8>,
    }

    impl Write for LatePainter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.request.extend_from_slice(bytes);
            if bytes.last() != Some(&0) {
                return Ok(bytes.len());
            }
            self.request.pop();
            let request: serde_json::Value =
                serde_json::from_slice(&std::mem::take(&mut self.request))?;
            let result = match request["method"].as_str().unwrap() {
                "Page.screencastFrameAck" => return Ok(bytes.len()),
                "Runtime.evaluate" => {
                    write!(
                        self.messages,
                        "{}\0",
                        json!({"method": "Page.screencastFrame", "sessionId": "S",
                        "params": {"data": "ZmluYWw=", "metadata": {"timestamp": 1.0}, "sessionId": 1}})
                    )?;
                    let report = json!({"origin_ms": 1.0, "navigation": {"connectStart": 0, "secureConnectionStart": 0,
                        "connectEnd": 0, "requestStart": 0, "responseStart": 0, "responseEnd": 0, "loadEventEnd": 5},
                        "document_bytes": 1, "first_contentful_paint_ms": 4.0, "resources": [], "image_sizes": []});
                    json!({"result": {"value": report.to_string()}})
                }
                _ => json!({}),
            };
            write!(self.messages, "{}\0", json!({"id": request["id"], "result": result}))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_painted_while_the_page_is_asked_for_its_report_is_kept() {
        let (messages, reader) = UnixStream::pair().unwrap();
        let browser = LatePainter { messages, request: Vec::new() };
        let mut devtools = DevTools::new(browser, reader, CancellationToken::default()).unwrap();
        let tab = Tab::with_session("S");
        let mut screencast = Screencast::start(&mut devtools, &tab).unwrap();
        let waits = (Duration::ZERO, Duration::from_secs(600));
        let report = PageReport::read_beside(&mut screencast, &mut devtools, &tab, waits).unwrap();
        assert_eq!(report.first_contentful_paint_ms, Some(4.0));
        let taken = screencast.finish(&mut devtools).unwrap();
        assert_eq!(taken.frames.len(), 1);
        assert_eq!(taken.frames[0].jpeg, b"final");
    }
}
