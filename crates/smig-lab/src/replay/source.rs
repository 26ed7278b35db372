//! A recording as it is read: once, for the page's graph, for the digest of all that it has, and for what its servers answered.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use smig_survey::HarHeader;

use super::host::is_replayable_host;
use crate::har::{self, HarError, RecordedPage, RecordedRequest};

/// Maximum size of all bodies: servers have them in memory.
const MAX_BODIES_BYTES: u64 = 512 << 20;

/// The part of a HAR file with what was answered.
#[derive(Deserialize)]
pub(super) struct Har {
    pub(super) log: Log,
}

#[derive(Deserialize)]
pub(super) struct Log {
    #[serde(deserialize_with = "har::limited_entries")]
    pub(super) entries: Vec<Entry>,
}

#[derive(Deserialize)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) response: Response,
    #[serde(default)]
    pub(super) timings: Option<Timings>,
}

#[derive(Deserialize)]
pub(super) struct Request {
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    pub(super) headers: Option<Vec<HarHeader>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Response {
    #[serde(default)]
    pub(super) status: Option<f64>,
    #[serde(default)]
    pub(super) headers: Option<Vec<HarHeader>>,
    #[serde(default)]
    pub(super) content: Option<Content>,
    #[serde(default, rename = "redirectURL")]
    pub(super) redirect_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    #[serde(default)]
    pub(super) mime_type: Option<String>,
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) encoding: Option<String>,
    /// A file beside the recording: ours and Chromium's.
    #[serde(default, rename = "_file")]
    pub(super) file: Option<String>,
}

#[derive(Default, Deserialize)]
pub(super) struct Timings {
    #[serde(default)]
    pub(super) wait: Option<f64>,
}

/// A recording.
pub struct ReplaySource {
    name: String,
    /// What the files of bodies are relative to.
    dir: PathBuf,
    page: RecordedPage,
    entries: Vec<Entry>,
    /// The shortest time that a request waited for its response, by the server's address, or else by the host: about the round trip.
    least_wait_ms: HashMap<String, f64>,
    digest: [u8; 32],
    /// Found when somebody asks, and then kept: a campaign has many conditions.
    fault: OnceLock<Option<HarError>>,
}

impl fmt::Debug for ReplaySource {
    /// Without the bodies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplaySource").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ReplaySource {
    /// Reads a recording. `name` is how it is called in errors.
    ///
    /// # Errors
    /// It is no recording of a page. What is wrong with its bodies counts only where they are needed: [`Self::fault`].
    pub fn read(path: &Path, name: &str) -> Result<Self, HarError> {
        let file = har::read_bytes(path, name)?;
        let page = har::read(&file[..], name)?;
        let recorded: Har = smig_survey::parse_har(&file[..], name)?;
        let entries = recorded.log.entries;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
            _ => PathBuf::from("."),
        };
        Ok(Self {
            name: name.to_owned(),
            digest: digest_of(&file, &dir, &entries),
            dir,
            least_wait_ms: least_waits(&page, &entries),
            page,
            entries,
            fault: OnceLock::new(),
        })
    }

    /// Returns what the page asked for.
    #[must_use]
    pub const fn page(&self) -> &RecordedPage {
        &self.page
    }

    /// Returns the digest (SHA-256) of the file and of those with its bodies; of those that cannot be read, that they cannot.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Returns why servers cannot answer from this recording, if they cannot: the document has no body, or a body cannot be read or is too
    /// large.
    #[must_use]
    pub fn fault(&self) -> Option<&HarError> {
        self.fault.get_or_init(|| self.check().err()).as_ref()
    }

    fn check(&self) -> Result<(), HarError> {
        let mut total_bytes: u64 = 0;
        for (resource, request) in self.replayed() {
            let entry = self.entry(request);
            let known_bytes = self.check_body(request, entry)?;
            if resource == 0 && known_bytes.is_none() {
                let what = "the document has no body: record the page with smig lab record, or save the HAR file with content";
                return Err(self.content_fault(request, what));
            }
            // What was coded is coded again, to the recorded size.
            let known_bytes = known_bytes.filter(|_| !entry.response.is_coded());
            total_bytes = total_bytes.saturating_add(known_bytes.unwrap_or(request.bytes));
            self.check_total(total_bytes)?;
        }
        Ok(())
    }

    pub(super) fn check_total(&self, total_bytes: u64) -> Result<(), HarError> {
        if total_bytes <= MAX_BODIES_BYTES {
            return Ok(());
        }
        let what = format!(
            "all bodies together have more than {} MB: take large entries out of the file",
            MAX_BODIES_BYTES >> 20
        );
        Err(HarError::content(&self.name, "log.entries", what))
    }

    /// Returns the requests that are answered, each with its index in the page.
    pub(super) fn replayed(&self) -> impl Iterator<Item = (usize, &RecordedRequest)> {
        let requests = self.page.requests.iter().enumerate();
        requests.filter(|(_, request)| is_replayable_host(&request.host))
    }

    /// Returns the file's entry of a request.
    pub(super) fn entry(&self, request: &RecordedRequest) -> &Entry {
        &self.entries[request.entry]
    }

    /// Returns for how long a server thought about a request, in ms.
    pub(super) fn think_ms(&self, request: &RecordedRequest) -> f64 {
        let wait_ms = self.entry(request).wait_ms().unwrap_or(0.0);
        wait_ms - self.least_wait_ms.get(&server_of(request)).copied().unwrap_or(wait_ms)
    }

    pub(super) fn content_fault(
        &self,
        request: &RecordedRequest,
        what: impl Into<String>,
    ) -> HarError {
        let key = format!("log.entries[{}].response.content", request.entry);
        HarError::content(&self.name, key, what)
    }

    /// Checks whether a body can be read; returns its size after decoding, `None` if the recording has none.
    fn check_body(
        &self,
        request: &RecordedRequest,
        entry: &Entry,
    ) -> Result<Option<u64>, HarError> {
        let bytes = match &entry.response.content {
            Some(Content { text: None, file: Some(file), .. }) if request.bytes > 0 => {
                open_beside(&self.dir, file).map_err(|what| self.content_fault(request, what))?.1
            }
            _ => self.body(request)?.map_or(0, |body| body.len() as u64),
        };
        // An empty response has an empty body; another one that is said to be empty was not recorded.
        Ok(Some(bytes).filter(|bytes| *bytes > 0 || request.bytes == 0))
    }

    /// Returns a body after decoding; `None` if the recording has none.
    pub(super) fn body(&self, request: &RecordedRequest) -> Result<Option<Vec<u8>>, HarError> {
        let fail = |what: String| self.content_fault(request, what);
        let decoded = match &self.entry(request).response.content {
            _ if request.bytes == 0 => return Ok(Some(Vec::new())),
            Some(Content { text: Some(text), encoding, .. }) => match encoding.as_deref() {
                Some("base64") => STANDARD.decode(text).map_err(|error| {
                    fail(format!("its text is no base64 ({error}): save the HAR file again"))
                })?,
                _ => text.clone().into_bytes(),
            },
            Some(Content { file: Some(file), .. }) => {
                let (mut opened, bytes) = open_beside(&self.dir, file).map_err(fail)?;
                let mut body = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
                opened.read_to_end(&mut body).map_err(|error| fail(cannot_read(file, &error)))?;
                body
            }
            _ => return Ok(None),
        };
        Ok(Some(decoded).filter(|body| !body.is_empty()))
    }
}

/// Opens a regular file below the recording's directory; returns its size, too. Its name comes out of the recording.
fn open_beside(recording_dir: &Path, file: &str) -> Result<(File, u64), String> {
    let path = Path::new(file);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_below {
        return Err(format!(
            "{file:?} is not a file below the recording's directory: record the page anew"
        ));
    }
    let cannot = |error: io::Error| cannot_read(file, &error);
    // Where links lead, too.
    let real = recording_dir.join(path).canonicalize().map_err(cannot)?;
    let dir = recording_dir.canonicalize().map_err(cannot)?;
    let metadata = real.metadata().map_err(cannot)?;
    if !real.starts_with(dir) || !metadata.is_file() || metadata.len() > MAX_BODIES_BYTES {
        return Err(format!(
            "{file:?} is not a file below the recording's directory, of {} MB at most: record the page anew",
            MAX_BODIES_BYTES >> 20
        ));
    }
    Ok((File::open(&real).map_err(cannot)?, metadata.len()))
}

fn cannot_read(file: &str, error: &io::Error) -> String {
    format!(
        "cannot read {file:?} beside it: {error}; keep the bodies with the recording, or record the page anew"
    )
}

impl Entry {
    fn wait_ms(&self) -> Option<f64> {
        self.timings.as_ref()?.wait.filter(|ms| *ms >= 0.0)
    }

    /// Returns the field Range of the request.
    pub(super) fn range(&self) -> Option<&str> {
        let mut fields = self.request.headers.iter().flatten();
        fields.find(|field| field.name.eq_ignore_ascii_case("range")).map(|f| f.value.as_str())
    }
}

impl Response {
    /// Returns whether the body was transferred coded.
    pub(super) fn is_coded(&self) -> bool {
        let is_coding = |value: &str| !matches!(value.trim(), "" | "identity");
        let mut fields = self.headers.iter().flatten();
        fields.any(|HarHeader { name, value }| {
            name.eq_ignore_ascii_case("content-encoding") && is_coding(value)
        })
    }
}

fn least_waits(page: &RecordedPage, entries: &[Entry]) -> HashMap<String, f64> {
    let mut least = HashMap::new();
    for request in &page.requests {
        if let Some(wait_ms) = entries.get(request.entry).and_then(Entry::wait_ms) {
            let shortest = least.entry(server_of(request)).or_insert(wait_ms);
            *shortest = wait_ms.min(*shortest);
        }
    }
    least
}

fn server_of(request: &RecordedRequest) -> String {
    request.server_ip.map_or_else(|| request.host.clone(), |ip| ip.to_string())
}

fn digest_of(har: &[u8], dir: &Path, entries: &[Entry]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(har);
    let contents = entries.iter().filter_map(|entry| entry.response.content.as_ref());
    for file in contents.filter_map(|content| content.file.as_ref()) {
        // So that no file's end passes for the next one's beginning.
        hash.update([0; 16]);
        if let Err(error) = add_file(&mut hash, dir, file) {
            hash.update(error);
        }
    }
    hash.finalize().into()
}

fn add_file(hash: &mut Sha256, dir: &Path, file: &str) -> Result<(), String> {
    let (opened, bytes) = open_beside(dir, file)?;
    let mut opened = opened.take(bytes);
    let mut block = vec![0; 64 << 10];
    loop {
        match opened.read(&mut block).map_err(|error| cannot_read(file, &error))? {
            0 => return Ok(()),
            count => hash.update(&block[..count]),
        }
    }
}
