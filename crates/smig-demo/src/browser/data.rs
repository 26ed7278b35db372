//! The measurement's record. Serialised, it is the `--json` output: names end in their unit.

use std::fmt;

use serde::{Deserialize, Serialize};
use smig_browser::NavigationTiming;
use smig_lab::trial::TrialResult;
use smig_link::{LinkReport, LinkSpec};

use super::variant::{BrowserVariant, Route};
use crate::demo::BackgroundLoad;

/// The setup that all page loads share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrowserSetup {
    /// The route from the browser to the server.
    pub route: Route,
    /// The emulated link.
    pub link: LinkSpec,
    /// The variants, in the order of the runs.
    pub variants: Vec<BrowserVariant>,
    /// The hosts' congestion control.
    pub congestion_control: String,
    /// Number of page loads without the download, and again during it.
    pub loads: u32,
    /// Number of images of the page.
    #[serde(rename = "tiles")]
    pub tile_count: usize,
    /// Size of all images together in bytes.
    pub tiles_bytes: u64,
    /// The browser's name and version.
    pub browser: String,
    /// The `smig` program and its version.
    pub program: String,
    /// nginx and its version, if it is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nginx: Option<String>,
    /// The kernel's name and version.
    pub kernel: String,
}

/// Resource Timing of one image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TileTiming {
    /// When the browser started the fetch.
    pub start_ms: f64,
    /// When its last byte had arrived.
    pub end_ms: f64,
    /// Size of its body in bytes.
    pub bytes: u64,
}

/// A screenshot of the page, valid until the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct ScreencastFrame {
    /// When it was first displayed; negative for what was displayed before the navigation.
    pub at_ms: f64,
    /// The JPEG, in base64.
    pub jpeg: String,
}

/// What the download received between a page's navigation and its load event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DownloadShare {
    /// Body bytes.
    pub bytes: u64,
    /// The time between the two counts of bytes, in ms.
    pub elapsed_ms: f64,
}

/// One load of the page. Through an agent, the browser has no open connection and an empty cache; otherwise
/// it has one connection, and stores nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageLoad {
    /// The concurrent load on the link.
    #[serde(rename = "load")]
    pub background: BackgroundLoad,
    /// The page's times as the browser reports them.
    pub timing: NavigationTiming,
    /// The images' times as it reports them, in the page's order.
    pub tiles: Vec<TileTiming>,
    /// What the download received meanwhile; `None` if the page was alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<DownloadShare>,
    /// Frames displayed, in chronological order; not serialised.
    #[serde(skip)]
    pub frames: Vec<ScreencastFrame>,
}

impl PageLoad {
    /// Returns the time from the beginning of the navigation to the end of the load event.
    #[must_use]
    pub const fn load_time_ms(&self) -> f64 {
        self.timing.load_event_end_ms
    }

    /// Returns the frame displayed at a moment.
    #[must_use]
    pub fn frame_at(&self, at_ms: f64) -> Option<&ScreencastFrame> {
        self.frames.iter().rev().find(|frame| frame.at_ms <= at_ms)
    }
}

/// Requests that arrived at the server on one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRequests {
    /// The protocol of its first request.
    pub protocol: String,
    /// Requests for the page and its images, also those of the warm-up.
    pub page_requests: u64,
    /// Requests for the big file.
    pub downloads: u64,
}

impl fmt::Display for ConnectionRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, page_requests, downloads } = self;
        let plural = if *downloads == 1 { "" } else { "s" };
        write!(
            f,
            "{page_requests} requests of the page and {downloads} download{plural} ({protocol})"
        )
    }
}

/// All loads of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantRun {
    /// The variant.
    pub variant: BrowserVariant,
    /// Page loads, in chronological order.
    pub loads: Vec<PageLoad>,
    /// Number of stream migrations that the agent counted; `None` if the route is direct, where nothing
    /// migrates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrations: Option<u64>,
    /// The connections that carried requests, by the server's access log; only if the route is direct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionRequests>,
    /// Rate of the download from each navigation beside it to the load event, without the time between
    /// two page loads, in Mbit/s.
    pub download_mbit_per_s: Option<f64>,
    /// Problems, in complete sentences.
    pub problems: Vec<String>,
    /// Counters of the emulated link.
    pub link: Option<LinkReport>,
}

impl VariantRun {
    /// Returns an empty run.
    #[must_use]
    pub const fn new(variant: BrowserVariant) -> Self {
        Self {
            variant,
            loads: Vec::new(),
            migrations: None,
            connections: Vec::new(),
            download_mbit_per_s: None,
            problems: Vec::new(),
            link: None,
        }
    }

    /// Computes the rate of the download from its shares in the page loads.
    pub(super) fn rate_download(&mut self) {
        let shares = self.loads.iter().filter_map(|page| page.download);
        let (bytes, elapsed_ms) = shares.fold((0, 0.0), |(bytes, elapsed_ms), share| {
            (bytes + share.bytes, elapsed_ms + share.elapsed_ms)
        });
        self.download_mbit_per_s = (elapsed_ms > 0.0).then(|| bytes as f64 * 8e-3 / elapsed_ms);
    }

    /// Adds what the trial reports of the link.
    pub(super) fn add_link(&mut self, trial: &TrialResult) {
        self.link = Some(trial.link);
        let drops = trial.device_drops;
        if drops > 0 {
            self.problems.push(format!(
                "The hosts' network devices dropped {drops} packets: the machine was overloaded."
            ));
        }
    }

    /// Returns the median page load with one background load; of an even number, the faster of the two.
    #[must_use]
    pub fn median_load(&self, background: BackgroundLoad) -> Option<&PageLoad> {
        let mut loads: Vec<_> = self.loads.iter().filter(|l| l.background == background).collect();
        loads.sort_by(|a, b| a.load_time_ms().total_cmp(&b.load_time_ms()));
        loads.get(loads.len().checked_sub(1)? / 2).copied()
    }
}

/// The result of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrowserResult {
    /// The setup that the runs share.
    pub setup: BrowserSetup,
    /// The runs, in chronological order.
    pub runs: Vec<VariantRun>,
}

/// A progress event.
#[derive(Debug, Clone, PartialEq)]
pub enum BrowserEvent {
    /// The measurement begins; its setup does not name the browser yet.
    Started(Box<BrowserSetup>),
    /// The run of a variant begins.
    RunStarted(BrowserVariant),
    /// Its browser has started: name and version.
    BrowserStarted(String),
    /// A page was loaded: the load on the link, and the time in ms.
    PageLoaded(BackgroundLoad, f64),
    /// The download has begun.
    DownloadStarted,
    /// The run is complete, except for what its trial's result adds.
    RunFinished(Box<VariantRun>),
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    #[test]
    fn the_downloads_rate_is_that_during_the_page_loads() {
        let mut run = fixtures::result().runs.remove(0);
        run.loads.iter_mut().for_each(|page| page.download = None);
        run.rate_download();
        assert_eq!(run.download_mbit_per_s, None);
        run.loads[3].download = Some(DownloadShare { bytes: 1_000_000, elapsed_ms: 1_000.0 });
        run.loads[4].download = Some(DownloadShare { bytes: 500_000, elapsed_ms: 500.0 });
        run.rate_download();
        assert_eq!(run.download_mbit_per_s, Some(8.0));
    }
}
