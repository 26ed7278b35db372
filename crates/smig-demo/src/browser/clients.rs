//! The clients of a run, in the clients' host: page loads alone, then page loads beside a download.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use smig_browser::{Browser, BrowserLaunch};
use smig_lab::workload::{Clients, Observation, RunPhase, WorkloadError, WorkloadSpec};
use tokio_util::sync::CancellationToken;

use super::data::{BrowserEvent, PageLoad, VariantRun};
use super::direct::Direct;
use super::error::BrowserError;
use super::mosaic::Mosaic;
use super::through_agent::ThroughAgent;
use super::variant::{BrowserVariant, Route};
use super::visit::Visit;
use crate::demo::BackgroundLoad;

/// Minimum time from the download's request to the first page beside it: slow start is over, and
/// streams have migrated.
const MIN_HEAD_START: Duration = Duration::from_secs(4);
/// Minimum number of downloaded bytes by then, for slow links.
const MIN_HEAD_START_BYTES: u64 = 2_000_000;
/// Timeout of [`MIN_HEAD_START_BYTES`]; a slower download has stalled.
const HEAD_START_TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two page loads.
const PAGE_PAUSE: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// What depends on the route: how pages are loaded, and who downloads beside them.
pub(super) trait RouteClients {
    fn page_url(&self) -> String;

    /// Loads the page once.
    fn load_page(
        &mut self,
        browser: &mut Browser,
        visit: Visit<'_>,
    ) -> Result<PageLoad, BrowserError>;

    fn start_download(&mut self, browser: &mut Browser) -> Result<(), BrowserError>;

    /// Returns the number of body bytes received so far; an error if the download has ended, which it
    /// must not.
    fn downloaded_bytes(&mut self, browser: &mut Browser) -> Result<u64, BrowserError>;

    /// Ends the download and adds to the run what the programs between browser and files counted.
    fn finish(
        self: Box<Self>,
        browser: &mut Browser,
        run: &mut VariantRun,
    ) -> Result<(), BrowserError>;
}

/// The browser and the download. What they measure is sent over a channel, because a trial's result has
/// no fields for page loads.
#[derive(Debug)]
pub(super) struct BrowserClients {
    pub(super) route: Route,
    pub(super) variant: BrowserVariant,
    pub(super) launch: BrowserLaunch,
    pub(super) mosaic: Arc<Mosaic>,
    /// Number of page loads alone, and of those beside the download.
    pub(super) loads_per_background: u32,
    /// The output of the browser's server, with its access log if the route is direct.
    pub(super) server_output: PathBuf,
    pub(super) event_sender: mpsc::Sender<BrowserEvent>,
    /// The run stops soon after this is cancelled.
    pub(super) stop: CancellationToken,
}

impl Clients for BrowserClients {
    fn run(
        self,
        spec: WorkloadSpec,
        pause: &mut dyn FnMut(RunPhase),
    ) -> Result<Observation, WorkloadError> {
        self.measure(&spec, pause).map_err(|error| WorkloadError::Other(error.into()))?;
        Ok(Observation::default())
    }
}

impl BrowserClients {
    fn measure(
        &self,
        spec: &WorkloadSpec,
        pause: &mut dyn FnMut(RunPhase),
    ) -> Result<(), BrowserError> {
        let (mut browser, mut clients) = self.start(spec)?;
        self.send(BrowserEvent::BrowserStarted(browser.name.clone()))?;
        let visit = Visit {
            url: &clients.page_url(),
            mosaic: &self.mosaic,
            background: BackgroundLoad::Unloaded,
        };
        // A browser's first page takes longer on any link: it is a warm-up and is not counted.
        clients.load_page(&mut browser, visit)?;
        pause(RunPhase::Ready);
        let mut run = VariantRun::new(self.variant);
        for _ in 0..self.loads_per_background {
            run.loads.push(self.load_page(visit, &mut *clients, &mut browser)?);
        }
        clients.start_download(&mut browser)?;
        self.send(BrowserEvent::DownloadStarted)?;
        self.wait_for_head_start(&mut *clients, &mut browser)?;
        let visit = Visit { background: BackgroundLoad::BigFile, ..visit };
        for _ in 0..self.loads_per_background {
            run.loads.push(self.load_page(visit, &mut *clients, &mut browser)?);
        }
        run.rate_download();
        pause(RunPhase::Finished);
        clients.finish(&mut browser, &mut run)?;
        self.send(BrowserEvent::RunFinished(Box::new(run)))
    }

    fn start(&self, spec: &WorkloadSpec) -> Result<(Browser, Box<dyn RouteClients>), BrowserError> {
        match self.route {
            Route::Direct => {
                let mut browser = self.launch.start(None)?;
                let direct = Direct::open(&mut browser, spec, &self.server_output)?;
                Ok((browser, Box::new(direct)))
            }
            Route::Agent => {
                let clients = ThroughAgent::new(spec);
                let browser = self.launch.start(Some(&clients.proxy_url()))?;
                Ok((browser, Box::new(clients)))
            }
        }
    }

    fn load_page(
        &self,
        visit: Visit<'_>,
        clients: &mut dyn RouteClients,
        browser: &mut Browser,
    ) -> Result<PageLoad, BrowserError> {
        self.sleep_unless_stopped(PAGE_PAUSE)?;
        let page = clients.load_page(browser, visit)?;
        self.send(BrowserEvent::PageLoaded(page.background, page.load_time_ms()))?;
        Ok(page)
    }

    fn wait_for_head_start(
        &self,
        clients: &mut dyn RouteClients,
        browser: &mut Browser,
    ) -> Result<(), BrowserError> {
        self.sleep_unless_stopped(MIN_HEAD_START)?;
        let deadline = Instant::now() + HEAD_START_TIMEOUT;
        loop {
            let bytes = clients.downloaded_bytes(browser)?;
            if bytes >= MIN_HEAD_START_BYTES {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = format!("only {bytes} bytes arrived in time");
                return Err(BrowserError::Download(text));
            }
            self.sleep_unless_stopped(POLL_INTERVAL)?;
        }
    }

    fn send(&self, event: BrowserEvent) -> Result<(), BrowserError> {
        self.event_sender.send(event).map_err(|_| BrowserError::Stopped)
    }

    fn sleep_unless_stopped(&self, duration: Duration) -> Result<(), BrowserError> {
        let deadline = Instant::now() + duration;
        while Instant::now() < deadline {
            if self.stop.is_cancelled() {
                return Err(BrowserError::Stopped);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}
