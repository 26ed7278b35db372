//! Page and download over one HTTP/2 connection of the browser, without proxy, agent or extension.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use smig_browser::{Browser, BrowserContext, DevTools, Tab};
use smig_lab::workload::WorkloadSpec;

use super::access_log;
use super::clients::RouteClients;
use super::data::{PageLoad, VariantRun};
use super::error::BrowserError;
use super::mosaic::PAGE_SIZE;
use super::scenario::{BIG_FILE_NAME, BROWSER};
use super::visit::Visit;

/// The page that downloads the big file.
pub(super) const DOWNLOAD_PAGE_NAME: &str = "download.html";
/// The expression that it evaluates to report its progress.
const PROGRESS_SCRIPT: &str = "JSON.stringify({bytes: receivedBytes, ended: ended})";
/// Timeout of the last line of the server's access log.
const LOG_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The progress of the download.
#[derive(Debug, serde::Deserialize)]
struct Progress {
    bytes: u64,
    /// Why it has ended; empty while it runs.
    ended: String,
}

/// A browser context with a tab that downloads, and a tab for each page load.
#[derive(Debug)]
pub(super) struct Direct {
    origin: String,
    context: BrowserContext,
    download: Option<Tab>,
    server_output: PathBuf,
    /// Requests for the page and its images, with those of the warm-up.
    page_requests: u64,
}

impl Direct {
    pub(super) fn open(
        browser: &mut Browser,
        spec: &WorkloadSpec,
        server_output: &Path,
    ) -> Result<Self, BrowserError> {
        Ok(Self {
            origin: format!("https://{}/", spec.server_by_client[BROWSER]),
            context: BrowserContext::create(&mut browser.devtools, None)?,
            download: None,
            server_output: server_output.to_owned(),
            page_requests: 0,
        })
    }

    /// Returns the server's access log with the line of the download, which is written once it has ended.
    fn read_access_log(&self, browser: &Browser) -> Result<String, BrowserError> {
        let deadline = Instant::now() + LOG_TIMEOUT;
        loop {
            browser.devtools.check_stop()?;
            let log = fs::read_to_string(&self.server_output)?;
            if access_log::has_request(&log, BIG_FILE_NAME) {
                return Ok(log);
            }
            if Instant::now() > deadline {
                let text = format!("the server's access log has no {BIG_FILE_NAME}");
                return Err(BrowserError::Connections(text));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl RouteClients for Direct {
    fn page_url(&self) -> String {
        self.origin.clone()
    }

    fn load_page(
        &mut self,
        browser: &mut Browser,
        visit: Visit<'_>,
    ) -> Result<PageLoad, BrowserError> {
        self.page_requests += 1 + visit.mosaic.tiles.len() as u64;
        let download = self.download.as_ref();
        visit.run(&mut browser.devtools, &self.context, &mut |devtools| {
            received_bytes(download, devtools)
        })
    }

    fn start_download(&mut self, browser: &mut Browser) -> Result<(), BrowserError> {
        let tab = Tab::open(&mut browser.devtools, &self.context, PAGE_SIZE)?;
        tab.load(&mut browser.devtools, &format!("{}{DOWNLOAD_PAGE_NAME}", self.origin))?;
        self.download = Some(tab);
        Ok(())
    }

    fn downloaded_bytes(&mut self, browser: &mut Browser) -> Result<u64, BrowserError> {
        received_bytes(self.download.as_ref(), &mut browser.devtools)
    }

    fn finish(
        mut self: Box<Self>,
        browser: &mut Browser,
        run: &mut VariantRun,
    ) -> Result<(), BrowserError> {
        if let Some(tab) = self.download.take() {
            tab.close(&mut browser.devtools)?;
        }
        run.connections = access_log::requests_by_connection(&self.read_access_log(browser)?);
        access_log::check_one_connection(&run.connections, self.page_requests)?;
        Ok(self.context.dispose(&mut browser.devtools)?)
    }
}

/// Returns the number of bytes that a download's tab has received so far; an error if it has ended.
fn received_bytes<W: Write>(
    download: Option<&Tab>,
    devtools: &mut DevTools<W>,
) -> Result<u64, BrowserError> {
    let Some(tab) = download else { return Ok(0) };
    let json = tab.evaluate(devtools, PROGRESS_SCRIPT)?;
    let progress: Progress = serde_json::from_str(json.as_str().unwrap_or_default())
        .map_err(BrowserError::unexpected_response)?;
    if progress.ended.is_empty() {
        Ok(progress.bytes)
    } else {
        Err(BrowserError::Download(progress.ended))
    }
}

/// Returns the page that downloads the big file and discards it.
pub(super) fn download_page() -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Download</title>\
         <link rel=\"icon\" href=\"data:,\"><script>\
         let receivedBytes = 0, ended = '';\
         (async () => {{\
         const response = await fetch('{BIG_FILE_NAME}');\
         if (!response.ok) throw new Error('status ' + response.status);\
         const reader = response.body.getReader();\
         for (;;) {{\
         const chunk = await reader.read();\
         if (chunk.done) throw new Error('it ended before the last page load');\
         receivedBytes += chunk.value.length;\
         }}\
         }})().catch(error => {{ ended = String(error); }});\
         </script></html>\n"
    )
}
