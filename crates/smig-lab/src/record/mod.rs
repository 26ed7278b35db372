//! Records a page with a browser: what it asked for as HAR 1.2, and the bodies as files beside it.
//!
//! Owns the browser's start and end, what it trusts, and the directory that is written: it appears when all of it is there.

mod page_url;
mod trust;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
pub use smig_browser::BrowserError;
use smig_browser::{
    BrowserContext, BrowserLaunch, PageRecording, RecordOptions, RequestEnd, Tab, WindowSize,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::har::{self, BodyFile, HarError, LeftOut, to_har};
use crate::servers::{find_browser, is_executable_file};
pub use page_url::PageUrl;
use trust::TrustedKeys;

/// Name of the recording in its directory.
const HAR_NAME: &str = "page.har";
const BODIES_DIR: &str = "bodies";
/// A laptop's window.
const WINDOW: WindowSize = WindowSize { width: 1366, height: 768 };
/// How often a page is loaded until all of its servers are trusted: each load shows the hosts that the one before did not reach.
const MAX_TRUST_ROUNDS: u32 = 3;

/// What is recorded, and how.
#[derive(Debug, Clone)]
pub struct RecordSpec {
    /// The page.
    pub url: PageUrl,
    /// Directory for the recording, which does not exist, or is empty.
    pub out: PathBuf,
    /// Certificates that are trusted besides the browser's own, PEM.
    pub cacert: Option<PathBuf>,
    /// Path of the browser; one in PATH if absent.
    pub browser: Option<PathBuf>,
    /// Whether it speaks HTTP/2.
    pub http2: bool,
    /// Time until the load event.
    pub time_limit: Duration,
    /// For how long after the load event requests are recorded, at most.
    pub after_load: Duration,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordedSummary {
    /// The recording's path.
    pub har: PathBuf,
    /// URL of the document, after redirects.
    pub url: String,
    /// Its title.
    pub title: String,
    /// Name and version of the browser.
    pub browser: String,
    /// Time from the first request to the load event in ms.
    pub load_ms: f64,
    /// Hosts that the player loads from, the document's first.
    pub hosts: Vec<HostSummary>,
    /// Number of requests that the browser made.
    pub requests: usize,
    /// Requests that were too many to be recorded.
    pub omitted: u64,
    /// Number of bodies.
    pub bodies: usize,
    /// Requests that failed, each with the browser's reason.
    pub failed: Vec<FailedRequest>,
    /// What is no part of the page's load, by reason.
    #[serde(skip)]
    pub left_out: LeftOut,
}

/// A host of a recorded page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostSummary {
    /// Its name, with the port unless it is the scheme's own.
    pub host: String,
    /// Number of requests.
    pub requests: usize,
    /// Bytes of all bodies as transferred.
    pub bytes: u64,
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedRequest {
    /// Its URL.
    pub url: String,
    /// The browser's reason.
    pub reason: String,
}

/// Why a page was not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no browser.
    #[error("{0}")]
    NoBrowser(String),
    /// The directory exists.
    #[error("{} exists and is not empty: name another directory, or remove it", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot {what}: {cause}")]
    Io {
        /// What failed, with the path.
        what: String,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// What is to be trusted cannot be.
    #[error("{0}")]
    Trust(String),
    /// The browser, or the page.
    #[error(transparent)]
    Browser(#[from] BrowserError),
    /// What was recorded is no page.
    #[error(transparent)]
    Har(#[from] HarError),
}

/// Records a page. Nothing is left behind if it fails, or soon after `stop` is cancelled.
///
/// # Errors
/// [`RecordError`].
pub fn record(spec: &RecordSpec, stop: &CancellationToken) -> Result<RecordedSummary, RecordError> {
    let program = browser_program(spec.browser.as_deref())?;
    let out = std::path::absolute(&spec.out).unwrap_or_else(|_| spec.out.clone());
    check_is_free(&out)?;
    let mut keys = TrustedKeys::new(spec.cacert.as_deref(), spec.url.as_url())?;
    let parent = out.parent().unwrap_or(&out);
    fs::create_dir_all(parent).map_err(fail(format!("create {}", parent.display())))?;
    let mut round = 1;
    loop {
        let part = TempDir::with_prefix_in(".recording-", parent)
            .map_err(fail(format!("write to {}", parent.display())))?;
        let load = load(spec, &program, &keys, part.path(), stop)?;
        // The servers of some hosts are known only now: they are checked, and the page is loaded again.
        if round < MAX_TRUST_ROUNDS && keys.add_refused(&load.recording, stop) {
            round += 1;
            continue;
        }
        return finish(load, part, &out);
    }
}

/// Bodies beyond this sum are left out.
const MAX_BODIES_BYTES: u64 = 256 << 20;

/// A load whose bodies are in a directory.
struct Load {
    recording: PageRecording,
    bodies: Vec<Option<BodyFile>>,
    browser: String,
}

fn load(
    spec: &RecordSpec,
    program: &Path,
    keys: &TrustedKeys,
    part: &Path,
    stop: &CancellationToken,
) -> Result<Load, RecordError> {
    // In the directory for temporary files: Chromium's socket needs a short path.
    let home = TempDir::with_prefix("smig-").map_err(fail("create a directory".to_owned()))?;
    let launch = BrowserLaunch {
        resolver_rules: None,
        logs_sockets: false,
        program: program.to_owned(),
        trusted_key_sha256: keys.as_argument(),
        home: home.path().to_owned(),
        window: WINDOW,
        http2: spec.http2,
        sandbox: !rustix::process::geteuid().is_root(),
        stop: stop.clone(),
    };
    let bodies_dir = part.join(BODIES_DIR);
    fs::create_dir(&bodies_dir).map_err(fail(format!("create {}", bodies_dir.display())))?;
    let mut browser = launch.start(None).map_err(|error| explain(error, home.path()))?;
    let context = BrowserContext::create(&mut browser.devtools, None)?;
    let tab = Tab::open(&mut browser.devtools, &context, WINDOW)?;
    let options = RecordOptions { time_limit: spec.time_limit, after_load: spec.after_load };
    let (mut sizes, mut total_bytes) = (Vec::new(), 0);
    let mut on_body = |index: usize, body: Vec<u8>| {
        total_bytes += body.len() as u64;
        if total_bytes > MAX_BODIES_BYTES {
            return Ok(());
        }
        fs::write(bodies_dir.join(index.to_string()), &body)?;
        sizes.push((index, body.len() as u64));
        Ok(())
    };
    let recording =
        tab.record(&mut browser.devtools, spec.url.as_url().as_str(), options, &mut on_body)?;
    let mut bodies = vec![None; recording.requests.len()];
    for (index, bytes) in sizes {
        let name = body_name(&recording, index);
        let (from, to) = (bodies_dir.join(index.to_string()), bodies_dir.join(&name));
        fs::rename(&from, &to).map_err(fail(format!("write {}", to.display())))?;
        bodies[index] = Some(BodyFile { path: format!("{BODIES_DIR}/{name}"), bytes });
    }
    let name = browser.name.clone();
    // It writes into its home until it has ended.
    drop(browser);
    Ok(Load { recording, bodies, browser: name })
}

/// Writes the recording, checks that it can be read, and gives the directory its name.
fn finish(load: Load, part: TempDir, out: &Path) -> Result<RecordedSummary, RecordError> {
    let Load { recording, bodies, browser } = load;
    let path = part.path().join(HAR_NAME);
    let write = || {
        let mut file = BufWriter::new(File::create(&path)?);
        serde_json::to_writer_pretty(&mut file, &to_har(&recording, &bodies, &browser))?;
        file.flush()
    };
    write().map_err(fail(format!("write {}", path.display())))?;
    let page = har::read_file(&path, HAR_NAME)?;
    let part = part.keep();
    let moved = make_readable(&part).and_then(|()| fs::rename(&part, out));
    moved.map_err(|cause| {
        // It is the error that counts; the rest is removed as far as possible.
        let _ = fs::remove_dir_all(&part);
        fail(format!("write {}", out.display()))(cause)
    })?;
    let first_s = recording.requests.first().map_or(0.0, |request| request.started_s);
    let failed = recording.requests.iter().filter_map(|request| match &request.end {
        Some((_, RequestEnd::Failed(reason))) => {
            Some(FailedRequest { url: request.url.clone(), reason: reason.clone() })
        }
        _ => None,
    });
    Ok(RecordedSummary {
        har: out.join(HAR_NAME),
        url: page.url.clone(),
        title: recording.title.clone(),
        browser,
        load_ms: ((recording.loaded_s.unwrap_or(first_s) - first_s) * 1e4).round() / 10.0,
        hosts: page
            .hosts()
            .into_iter()
            .map(|(host, requests, bytes)| HostSummary { host: host.to_owned(), requests, bytes })
            .collect(),
        requests: recording.requests.len(),
        omitted: recording.omitted,
        bodies: bodies.iter().flatten().count(),
        failed: failed.collect(),
        left_out: page.left_out,
    })
}

/// Gives a directory that was for this user only the usual mode of new ones, but for the group's and others' right to write.
fn make_readable(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))
}

fn browser_program(given: Option<&Path>) -> Result<PathBuf, RecordError> {
    match given {
        Some(path) if is_executable_file(path) => Ok(path.to_owned()),
        Some(path) => {
            Err(RecordError::NoBrowser(format!("{} is no program: see --chromium", path.display())))
        }
        None => find_browser().ok_or_else(|| {
            let what = "there is no Chromium in PATH: apt-get install chromium, or name one with --chromium FILE";
            RecordError::NoBrowser(what.to_owned())
        }),
    }
}

fn check_is_free(out: &Path) -> Result<(), RecordError> {
    match fs::read_dir(out).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(RecordError::Exists(out.to_owned())),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(fail(format!("write to {}", out.display()))(error)),
    }
}

/// Adds the browser's own last words to the error of one that does not start.
fn explain(error: BrowserError, home: &Path) -> BrowserError {
    let log = fs::read_to_string(home.join("browser.log")).unwrap_or_default();
    match (&error, log.lines().rev().find(|line| !line.trim().is_empty())) {
        (BrowserError::Browser(why), Some(last)) => {
            let last: String = last.chars().filter(|c| !c.is_control()).take(300).collect();
            BrowserError::Browser(format!("{why}; its last words: {last}"))
        }
        _ => error,
    }
}

/// Returns the name of a body's file: its number, and an ending that says what it is.
fn body_name(recording: &PageRecording, index: usize) -> String {
    let request = &recording.requests[index];
    let media_type = request.response.as_ref().map_or("", |response| &response.media_type);
    let ending = match media_type {
        "text/html" => "html",
        "text/css" => "css",
        "text/javascript" | "application/javascript" | "application/x-javascript" => "js",
        "application/json" => "json",
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/avif" => "avif",
        "image/svg+xml" => "svg",
        "font/woff2" => "woff2",
        "font/woff" => "woff",
        "text/plain" => "txt",
        _ => "bin",
    };
    format!("{index:04}.{ending}")
}

fn fail(what: String) -> impl FnOnce(io::Error) -> RecordError {
    move |cause| RecordError::Io { what, cause }
}
