//! A browser that loads the pages of a scenario.
//!
//! Its calls block: they run on threads of their own, in the clients' host.

use std::path::{Path, PathBuf};
use std::time::Instant;

use smig_browser::{
    Browser, BrowserContext, BrowserError, BrowserLaunch, PageReport, Tab, WindowSize,
    trusted_key_sha256,
};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::tile_page::{PAGE_HEIGHT_PX, PAGE_WIDTH_PX, PICTURE_SIDE_PX};
use crate::servers::find_browser;

const WINDOW: WindowSize = WindowSize { width: PAGE_WIDTH_PX, height: PAGE_HEIGHT_PX };
/// A browser's first page takes longer on any link: it is one without a network.
const WARM_UP_URL: &str = "data:text/html,<title>warm-up</title><p>text<img src='data:image/gif;base64,\
    R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'>";

/// A browser, between two loads.
#[derive(Debug)]
pub(super) struct BrowserClient {
    browser: Mutex<Option<Browser>>,
    /// Ends what waits for the browser.
    _stop: DropGuard,
}

impl BrowserClient {
    /// Starts it in the calling thread's host, with a home directory that exists and this certificate to trust, PEM.
    pub(super) async fn start(
        home: PathBuf,
        certificate: String,
        http2: bool,
    ) -> Result<Self, String> {
        let program = find_browser().ok_or("there is no Chromium in PATH")?;
        let stop = CancellationToken::new();
        let launch = BrowserLaunch {
            program,
            trusted_key_sha256: trusted_key_sha256(&certificate)?,
            home,
            window: WINDOW,
            http2,
            stop: stop.clone(),
        };
        let started = spawn_blocking(move || {
            let mut browser = launch.start(None)?;
            load(&mut browser, WARM_UP_URL, None)?;
            Ok::<_, BrowserError>(browser)
        });
        let browser = started.await.map_err(|_| "its thread panicked")?;
        let browser = browser.map_err(|error| error.to_string())?;
        Ok(Self { browser: Mutex::new(Some(browser)), _stop: stop.drop_guard() })
    }

    /// Loads a page with an empty cache and new connections, and returns its report.
    pub(super) async fn load(
        &self,
        url: String,
        deadline: Instant,
    ) -> Result<PageReport, BrowserError> {
        let mut slot = self.browser.lock().await;
        let Some(mut browser) = slot.take() else {
            return Err(BrowserError::Browser("its thread panicked".into()));
        };
        let loaded = spawn_blocking(move || {
            let report = load(&mut browser, &url, Some(deadline));
            (browser, report)
        });
        let panicked = |_| BrowserError::Browser("its thread panicked".into());
        let (browser, report) = loaded.await.map_err(panicked)?;
        *slot = Some(browser);
        report
    }
}

/// Loads a page in a context and a tab of its own.
fn load(
    browser: &mut Browser,
    url: &str,
    deadline: Option<Instant>,
) -> Result<PageReport, BrowserError> {
    let devtools = &mut browser.devtools;
    let context = BrowserContext::create(devtools, None)?;
    let report = Tab::open(devtools, &context, WINDOW).and_then(|tab| {
        match deadline {
            Some(deadline) => tab.load_before(devtools, url, deadline)?,
            None => tab.load(devtools, url)?,
        }
        PageReport::read(devtools, &tab)
    });
    // Its tab is closed with it, and what is still being loaded.
    context.dispose(devtools)?;
    report
}

/// Returns what is wrong with a page of so many pictures, if anything is.
pub(super) fn fault(report: &PageReport, pictures: usize) -> Option<String> {
    let is_complete = |size: &&(u32, u32)| **size == (PICTURE_SIDE_PX, PICTURE_SIDE_PX);
    let complete = report.image_sizes.iter().filter(is_complete).count();
    (complete != pictures || report.image_sizes.len() != pictures)
        .then(|| format!("{complete} of {pictures} pictures were complete"))
}

/// Returns the URL of a page's document.
pub(super) fn page_url(server: std::net::SocketAddr, directory: &str) -> String {
    format!("https://{server}/{directory}/{}", super::tile_page::DOCUMENT_NAME)
}

/// Creates a browser's home directory for one client.
pub(super) fn create_home(scratch: &Path, client: &str) -> Result<PathBuf, String> {
    let home = scratch.join(format!("browser-{client}"));
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    Ok(home)
}
