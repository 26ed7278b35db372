//! A browser that loads the pages of a scenario.
//!
//! Its calls block: they run on threads of their own, in the clients' host.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use smig_browser::{
    Browser, BrowserContext, BrowserError, BrowserLaunch, NetworkLog, PageReport, Tab, WindowSize,
    local_addresses, trusted_key_sha256,
};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::run::now_ns;
use super::tile_page::{PAGE_HEIGHT_PX, PAGE_WIDTH_PX};
use crate::servers::find_browser;

const WINDOW: WindowSize = WindowSize { width: PAGE_WIDTH_PX, height: PAGE_HEIGHT_PX };
/// A browser's first page takes longer on any link: it is one without a network.
const WARM_UP_URL: &str = "data:text/html,<title>warm-up</title><p>text<img src='data:image/gif;base64,\
    R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'>";
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// A browser that loads one page after the other.
#[derive(Debug)]
pub(super) struct BrowserClient {
    /// `None` after it has failed.
    idle: Mutex<Option<IdleBrowser>>,
    http2: bool,
    /// Ends what waits for the browser.
    _stop: DropGuard,
}

/// What a browser knows of a load.
#[derive(Debug)]
pub(super) struct BrowserLoad {
    pub(super) report: PageReport,
    /// Time at which the report was read, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) read_ns: u64,
    /// The same instant.
    pub(super) read_at: SystemTime,
    /// The client's end of each connection, by the URL of the response; empty unless sockets are logged.
    pub(super) local_addresses: BTreeMap<String, SocketAddr>,
}

/// A browser between two loads, with an empty tab: making one takes a fifth of a second, in which a link that varies would go on.
#[derive(Debug)]
struct IdleBrowser {
    browser: Browser,
    tab: (BrowserContext, Tab),
}

impl BrowserClient {
    /// Starts it in the calling thread's host, with a home directory that exists and this certificate to trust, PEM.
    pub(super) async fn start(
        home: PathBuf,
        certificate: String,
        http2: bool,
        logs_sockets: bool,
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
            http2,
            logs_sockets,
            stop,
        };
        let started = spawn_blocking(move || {
            let mut browser = launch.start(None)?;
            let tab = new_tab(&mut browser)?;
            let mut idle = IdleBrowser { browser, tab };
            idle.load(WARM_UP_URL, Instant::now() + WARM_UP_TIMEOUT)?;
            idle.renew_tab()?;
            Ok::<_, BrowserError>(idle)
        });
        let idle = started.await.map_err(|_| "its thread panicked")?;
        let idle = idle.map_err(|error| error.to_string())?;
        Ok(Self { idle: Mutex::new(Some(idle)), http2, _stop: stop_guard })
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
        if self.http2 { "h2" } else { "http/1.1" }
    }
}

impl IdleBrowser {
    fn load(&mut self, url: &str, deadline: Instant) -> Result<BrowserLoad, BrowserError> {
        let devtools = &mut self.browser.devtools;
        let tab = &self.tab.1;
        let mut network = NetworkLog::default();
        tab.load_observed(devtools, url, deadline, &mut |event| network.observe(event))?;
        let report = PageReport::read(devtools, tab)?;
        let read_ns = now_ns();
        let read_at = SystemTime::now();
        let socket_log = self.browser.socket_log.as_ref();
        let local_addresses =
            socket_log.map(|log| local_addresses(network.requests(), log)).unwrap_or_default();
        Ok(BrowserLoad { report, read_ns, read_at, local_addresses })
    }

    fn renew_tab(&mut self) -> Result<(), BrowserError> {
        let next = new_tab(&mut self.browser)?;
        let (context, _) = std::mem::replace(&mut self.tab, next);
        // Its tab is closed with it, and what is still being loaded.
        context.dispose(&mut self.browser.devtools)
    }
}

/// Opens a tab in a context of its own.
fn new_tab(browser: &mut Browser) -> Result<(BrowserContext, Tab), BrowserError> {
    let context = BrowserContext::create(&mut browser.devtools, None)?;
    let tab = Tab::open(&mut browser.devtools, &context, WINDOW)?;
    if browser.socket_log.is_some() {
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
