//! What is recorded. Serialised, this is the `--json` output: names end in their unit.

use serde::{Deserialize, Serialize};

use crate::demo::{Load, Variant};
use crate::link::{LinkReport, LinkSpec};

/// What all page loads have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrowserSetup {
    /// The emulated link.
    pub link: LinkSpec,
    /// What is compared, in the order of the runs.
    pub variants: Vec<Variant>,
    /// The hosts' congestion control.
    pub congestion_control: String,
    /// Page loads alone, and as many beside the download.
    pub loads: u32,
    /// Pictures of the page.
    pub tiles: usize,
    /// Octets of all of them.
    pub tiles_bytes: u64,
    /// The browser's name and version.
    pub browser: String,
    /// The `smig` program and its version.
    pub program: String,
    /// The kernel's name and version.
    pub kernel: String,
}

/// Moments of Navigation Timing, in ms; 0 where the browser says nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The browser began to connect to the proxy.
    pub connect_start_ms: f64,
    /// The tunnel is open, TLS begins.
    pub secure_connection_start_ms: f64,
    /// TLS is done.
    pub connect_end_ms: f64,
    /// The page is asked for.
    pub request_start_ms: f64,
    /// Its first octet.
    pub response_start_ms: f64,
    /// Its last octet.
    pub response_end_ms: f64,
    /// The end of the load event: everything has come.
    pub load_event_end_ms: f64,
}

/// Resource Timing of one picture.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TileTiming {
    /// When the browser wanted it.
    pub start_ms: f64,
    /// When its last octet had come.
    pub end_ms: f64,
    /// Octets of its body.
    pub bytes: u64,
}

/// What the browser showed from a moment on: a JPEG.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// When it was shown first; before 0 for what was there before.
    pub at_ms: f64,
    /// The picture, in base64.
    pub jpeg: String,
}

/// One load of the page, by a browser without cache and connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageLoad {
    /// What it had to share the link with.
    pub load: Load,
    /// What the browser says of the page.
    pub timing: Timing,
    /// What it says of the pictures, in the page's order.
    pub tiles: Vec<TileTiming>,
    /// What it showed, in order of time; not in files.
    #[serde(skip)]
    pub frames: Vec<Frame>,
}

impl PageLoad {
    /// From the beginning of the navigation to the end of the load event.
    #[must_use]
    pub const fn took_ms(&self) -> f64 {
        self.timing.load_event_end_ms
    }

    /// What the browser showed at a moment.
    #[must_use]
    pub fn frame_at(&self, at_ms: f64) -> Option<&Frame> {
        self.frames.iter().rev().find(|frame| frame.at_ms <= at_ms)
    }
}

/// All loads of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantRun {
    /// What it did differently.
    pub variant: Variant,
    /// In the order of time.
    pub loads: Vec<PageLoad>,
    /// Streams that went to another connection, as the gateway counts them.
    pub moves: u64,
    /// What the download got while pages were loaded beside it, Mbit/s.
    pub download_mbit_per_s: Option<f64>,
    /// What went wrong: whole sentences.
    pub problems: Vec<String>,
    /// What the emulated link counted.
    pub link: Option<LinkReport>,
}

impl VariantRun {
    /// A run of which nothing is known yet.
    #[must_use]
    pub const fn new(variant: Variant) -> Self {
        Self {
            variant,
            loads: Vec::new(),
            moves: 0,
            download_mbit_per_s: None,
            problems: Vec::new(),
            link: None,
        }
    }

    /// The load in the middle of those under one load of the link; of two the slower one.
    #[must_use]
    pub fn median(&self, load: Load) -> Option<&PageLoad> {
        let mut loads: Vec<_> = self.loads.iter().filter(|l| l.load == load).collect();
        loads.sort_by(|a, b| a.took_ms().total_cmp(&b.took_ms()));
        loads.get(loads.len() / 2).copied()
    }
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrowserResult {
    /// What the runs have in common.
    pub setup: BrowserSetup,
    /// In the order they were made.
    pub runs: Vec<VariantRun>,
}

/// What happens while it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum BrowserEvent {
    /// The browser is there; the measurement begins.
    Began(Box<BrowserSetup>),
    /// A variant's turn.
    RunStarted(Variant),
    /// A page was loaded: under what, and how long it took in ms.
    Loaded(Load, f64),
    /// The download has begun.
    DownloadStarted,
    /// The variant is done.
    RunFinished {
        /// As in [`VariantRun::moves`].
        moves: u64,
        /// As in [`VariantRun::download_mbit_per_s`].
        download_mbit_per_s: Option<f64>,
    },
}
