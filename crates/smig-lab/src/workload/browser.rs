//! A browser that loads the pages of a scenario.
//!
//! Its calls block: they run on threads of their own, in the clients' host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use smig_browser::{
    Browser, BrowserContext, BrowserError, BrowserLaunch, ClockReading, NetworkLog, NetworkRequest,
    PageReport, Screencast, ScreencastFrames, Tab, WindowSize, local_addresses, trusted_key_sha256,
};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::tile_page::{PAGE_HEIGHT_PX, PAGE_WIDTH_PX};
use crate::servers::find_browser;

const WINDOW: WindowSize = WindowSize { width: PAGE_WIDTH_PX, height: PAGE_HEIGHT_PX };
/// A browser's first page takes longer on any link: it is one without a network.
const WARM_UP_URL: &str = "data:text/html,<title>warm-up</title><p>text<img src='data:image/gif;base64,\
    R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'>";
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(60);
/// A screen that has not changed for so long after the load is final.
const QUIET_SCREEN: Duration = Duration::from_millis(250);
/// So long after the load a screen that goes on changing is taken as it is: animations.
const QUIET_SCREEN_LIMIT: Duration = Duration::from_secs(2);

/// What a browser speaks, and what it records.
#[derive(Debug, Clone)]
pub(super) struct BrowserOptions {
    /// Whether it speaks HTTP/2.
    pub(super) http2: bool,
    /// Whether responses are joined with connections.
    pub(super) logs_sockets: bool,
    /// Whether frames of the screen are taken.
    pub(super) takes_frames: bool,
    /// Where names lead; absent if it loads no recorded pages.
    pub(super) resolver_rules: Option<String>,
}

/// A browser that loads one page after the other.
#[derive(Debug)]
pub(super) struct BrowserClient {
    /// `None` after it has failed.
    idle: Mutex<Option<IdleBrowser>>,
    options: BrowserOptions,
    /// Ends what waits for the browser.
    _stop: DropGuard,
}

/// What a browser knows of a load.
#[derive(Debug)]
pub(super) struct BrowserLoad {
    pub(super) report: PageReport,
    /// The page's clock after the load.
    pub(super) clock: ClockReading,
    /// How far the page's times may be off on this clock.
    pub(super) clock_error: Duration,
    /// What the screen showed; `None` without frames.
    pub(super) frames: Option<ScreencastFrames>,
    /// The client's end of each connection, by the URL of the response; empty unless sockets are logged.
    pub(super) local_addresses: BTreeMap<String, SocketAddr>,
    /// Its requests; empty unless sockets are logged or recorded pages are loaded.
    pub(super) requests: Vec<NetworkRequest>,
}

/// A browser between two loads, with an empty tab: making one takes a fifth of a second, in which a link that varies would go on.
#[derive(Debug)]
struct IdleBrowser {
    browser: Browser,
    tab: (BrowserContext, Tab),
    takes_frames: bool,
    /// Whether requests of frames and workers are followed, too.
    follows_requests: bool,
}

impl BrowserClient {
    /// Starts it in the calling thread's host, with a home directory that exists and this certificate to trust, PEM.
    pub(super) async fn start(
        home: PathBuf,
        certificate: String,
        options: BrowserOptions,
    ) -> Result<Self, String> {
        let program = find_browser().ok_or("there is no Chromium in PATH")?;
        let stop = CancellationToken::new();
        let stop_guard = stop.clone().drop_guard();
        let launch = BrowserLaunch {
            program,
            trusted_key_sha256: trusted_key_sha256(&certificate)?,
            // It loads only our own pages, perhaps as root.
            sandbox: false,
            home,
            window: WINDOW,
            http2: options.http2,
            logs_sockets: options.logs_sockets,
            resolver_rules: options.resolver_rules.clone(),
            stop,
        };
        let takes_frames = options.takes_frames;
        let follows_requests = options.resolver_rules.is_some();
        let started = spawn_blocking(move || {
            let mut browser = launch.start(None)?;
            let tab = new_tab(&mut browser, follows_requests)?;
            let mut idle = IdleBrowser { browser, tab, takes_frames, follows_requests };
            idle.load(WARM_UP_URL, Instant::now() + WARM_UP_TIMEOUT)?;
            idle.renew_tab()?;
            Ok::<_, BrowserError>(idle)
        });
        let idle = started.await.map_err(|_| "its thread panicked")?;
        let idle = idle.map_err(|error| error.to_string())?;
        Ok(Self { idle: Mutex::new(Some(idle)), options, _stop: stop_guard })
    }

    /// Loads a page with an empty cache and new connections.
    pub(super) async fn load(
        &self,
        url: String,
        deadline: Instant,
    ) -> Result<BrowserLoad, BrowserError> {
        let mut slot = self.idle.lock().await;
        let Some(mut idle) = slot.take() else {
            return Err(BrowserError::Browser("it has failed before".into()));
        };
        let loaded = spawn_blocking(move || {
            let report = idle.load(&url, deadline);
            // Without a new tab the next page would find a cache and open connections.
            let idle = idle.renew_tab().ok().map(|()| idle);
            (idle, report)
        });
        let panicked = |_| BrowserError::Browser("its thread panicked".into());
        let (idle, report) = loaded.await.map_err(panicked)?;
        *slot = idle;
        report
    }

    /// Returns the ALPN identifier of what it speaks.
    pub(super) const fn protocol(&self) -> &'static str {
        if self.options.http2 { "h2" } else { "http/1.1" }
    }
}

impl IdleBrowser {
    fn load(&mut self, url: &str, deadline: Instant) -> Result<BrowserLoad, BrowserError> {
        let devtools = &mut self.browser.devtools;
        let tab = &self.tab.1;
        let clock_before = ClockReading::read(devtools, tab)?;
        let takes_frames = self.takes_frames;
        let mut screencast = takes_frames.then(|| Screencast::start(devtools, tab)).transpose()?;
        let mut network = NetworkLog::default();
        let follows_requests = self.follows_requests;
        tab.load_observed(devtools, url, deadline, &mut |devtools, event| {
            if follows_requests {
                network.follow(devtools, event)?;
            } else {
                network.observe(event);
            }
            screencast.as_mut().map_or(Ok(()), |screencast| screencast.observe(devtools, event))
        })?;
        let report = match &mut screencast {
            Some(screencast) => {
                let waits = (QUIET_SCREEN, QUIET_SCREEN_LIMIT);
                PageReport::read_beside(screencast, devtools, tab, waits)?
            }
            None => PageReport::read(devtools, tab)?,
        };
        let frames = screencast.map(|screencast| screencast.finish(devtools)).transpose()?;
        let clock = ClockReading::read(devtools, tab)?;
        let socket_log = self.browser.socket_log.as_ref();
        let local_addresses =
            socket_log.map(|log| local_addresses(network.requests(), log)).unwrap_or_default();
        let clock_error = clock.error_since(&clock_before);
        let requests = network.into_requests();
        Ok(BrowserLoad { report, clock, clock_error, frames, local_addresses, requests })
    }

    fn renew_tab(&mut self) -> Result<(), BrowserError> {
        let next = new_tab(&mut self.browser, self.follows_requests)?;
        let (context, _) = std::mem::replace(&mut self.tab, next);
        // Its tab is closed with it, and what is still being loaded.
        context.dispose(&mut self.browser.devtools)
    }
}

/// Opens a tab in a context of its own.
fn new_tab(
    browser: &mut Browser,
    follows_requests: bool,
) -> Result<(BrowserContext, Tab), BrowserError> {
    let context = BrowserContext::create(&mut browser.devtools, None)?;
    let tab = Tab::open(&mut browser.devtools, &context, WINDOW)?;
    if follows_requests {
        tab.follow_requests(&mut browser.devtools)?;
    } else if browser.socket_log.is_some() {
        browser.devtools.call(tab.session_id(), "Network.enable", json!({}))?;
    }
    Ok((context, tab))
}

/// Returns the URL of a page's document.
pub(super) fn page_url(server: SocketAddr, directory: &str) -> String {
    format!("https://{server}/{directory}/{}", super::tile_page::DOCUMENT_NAME)
}

/// Creates the home directory of the browser with this number. Its path must be short: Chromium exits if that of its socket, 45 bytes
/// longer, has more than 107.
pub(super) fn create_home(scratch: &Path, number: usize) -> Result<PathBuf, String> {
    let home = scratch.join(format!("b{number}"));
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    Ok(home)
}
