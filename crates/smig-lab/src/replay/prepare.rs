//! From a recording to a directory that servers answer from.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use smig_survey::HarHeader;
use url::Url;

use super::encode::{filler, gzip};
use super::entry::{RecordedResponse, ReplayIndex};
use crate::har::{self, ContentKind, HarError, RecordedPage, RecordedRequest};

/// Maximum size of all bodies: servers have them in memory.
const MAX_BODIES_BYTES: u64 = 512 << 20;
/// Longest time for which a server thinks.
const MAX_THINK_MS: f64 = 10_000.0;
/// Header fields that are answered as recorded. All others are left out: of the connection, of cookies, and what would make the browser
/// or a proxy do something that no request of the recording did.
const KEPT_FIELDS: [&str; 14] = [
    "cache-control",
    "content-disposition",
    "content-language",
    "content-security-policy",
    "content-type",
    "cross-origin-embedder-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "etag",
    "expires",
    "last-modified",
    "link",
    "referrer-policy",
    "vary",
];
/// Everything is replayed over TLS: what a page names by `http:` is requested by `https:` (Upgrade Insecure Requests section 3.1).
const UPGRADE: (&str, &str) = ("content-security-policy", "upgrade-insecure-requests");

/// The part of a HAR file with what was answered.
#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    #[serde(deserialize_with = "har::limited_entries")]
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    request: Request,
    response: Response,
    #[serde(default)]
    timings: Option<Timings>,
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    method: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    status: Option<f64>,
    #[serde(default)]
    headers: Option<Vec<HarHeader>>,
    #[serde(default)]
    content: Option<Content>,
    #[serde(default, rename = "redirectURL")]
    redirect_url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default)]
    mime_type: Option<String>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    encoding: Option<String>,
    /// A file beside the recording: ours and Chromium's.
    #[serde(default, rename = "_file")]
    file: Option<String>,
}

#[derive(Default, Deserialize)]
struct Timings {
    #[serde(default)]
    wait: Option<f64>,
}

/// Writes a recording's responses into a directory, unless they are there. `name` is how the recording is called in errors.
///
/// # Errors
/// [`HarError`]: also if the directory cannot be written, or the document has no body.
pub fn prepare(har: &Path, name: &str, dir: &Path) -> Result<(), HarError> {
    let fail =
        |error: io::Error| HarError::Read { name: name.to_owned(), cause: error.to_string() };
    if ReplayIndex::exists(dir).map_err(fail)? {
        return Ok(());
    }
    let page = har::read_file(har, name)?;
    let file = std::fs::File::open(har).map_err(fail)?.take(har::MAX_FILE_BYTES);
    let recorded: Har = smig_survey::parse_har(file, name)?;
    let source = Source {
        name,
        dir: har.parent().map_or_else(PathBuf::new, Path::to_owned),
        entries: &recorded.log.entries,
        least_wait_ms: least_waits(&page, &recorded.log.entries),
    };
    std::fs::create_dir_all(dir).map_err(fail)?;
    let mut index = ReplayIndex::default();
    let mut total_bytes: u64 = 0;
    let check = |total_bytes| {
        let what = || format!("all bodies together have more than {} MB", MAX_BODIES_BYTES >> 20);
        let is_too_much = total_bytes > MAX_BODIES_BYTES;
        if is_too_much { Err(HarError::content(name, "log.entries", what())) } else { Ok(()) }
    };
    for (resource, request) in page.requests.iter().enumerate() {
        // Before a body is made as long as the recording says; a file beside it may be longer.
        check(total_bytes.saturating_add(request.bytes))?;
        let Some((mut response, body)) = source.response(resource, request, &mut index)? else {
            continue;
        };
        response.body_bytes = body.len() as u64;
        total_bytes = total_bytes.saturating_add(response.body_bytes);
        check(total_bytes)?;
        if !body.is_empty() {
            let file = format!("{resource}.body");
            std::fs::write(dir.join(&file), body).map_err(fail)?;
            response.body = Some(file);
        }
        index.responses.push(response);
    }
    // Last: it says that all bodies are there.
    index.write(dir).map_err(fail)
}

/// Returns the files beside a recording that have its bodies, as far as it can be read.
#[must_use]
pub fn body_files(har: &Path) -> Vec<PathBuf> {
    let Ok(file) = std::fs::File::open(har) else { return Vec::new() };
    let recorded = smig_survey::parse_har::<Har>(file.take(har::MAX_FILE_BYTES), "the recording");
    let Ok(recorded) = recorded else { return Vec::new() };
    let dir = har.parent().unwrap_or_else(|| Path::new("."));
    let contents = recorded.log.entries.into_iter().filter_map(|entry| entry.response.content);
    contents.filter_map(|content| Some(dir.join(content.file?))).collect()
}

/// Returns the shortest time that a request waited for its response, by the server's address, or else by the host: about the round trip.
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

impl Entry {
    fn wait_ms(&self) -> Option<f64> {
        self.timings.as_ref()?.wait.filter(|ms| *ms >= 0.0)
    }
}

/// A body as it is transferred.
struct Body {
    bytes: Vec<u8>,
    /// Whether it is the recording's.
    is_known: bool,
    /// Whether it is UTF-8 after decoding.
    is_utf8: bool,
}

/// A recording.
struct Source<'a> {
    name: &'a str,
    /// What the files of bodies are relative to.
    dir: PathBuf,
    entries: &'a [Entry],
    least_wait_ms: HashMap<String, f64>,
}

impl Source<'_> {
    /// Returns the response to a request, with its body as it is transferred; `None` if it only leads from `http:` to `https:`.
    fn response(
        &self,
        resource: usize,
        request: &RecordedRequest,
        index: &mut ReplayIndex,
    ) -> Result<Option<(RecordedResponse, Vec<u8>)>, HarError> {
        let entry = &self.entries[request.entry];
        let url = over_tls(&request.url);
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut is_coded = false;
        for HarHeader { name, value } in entry.response.headers.iter().flatten() {
            let name = name.to_ascii_lowercase();
            is_coded |= name == "content-encoding" && !matches!(value.trim(), "" | "identity");
            if KEPT_FIELDS.contains(&name.as_str()) && http::HeaderValue::from_str(value).is_ok() {
                fields.push((name, value.clone()));
            }
        }
        let target = entry.response.redirect_url.as_deref().filter(|target| !target.is_empty());
        let status = entry.response.status.unwrap_or(0.0) as u16;
        if let Some(target) = target.filter(|_| (300..400).contains(&status)) {
            let Ok(target) = request.url.join(target) else { return Ok(None) };
            let target = over_tls(&target);
            if target == url {
                return Ok(None);
            }
            fields.push(("location".into(), target.into()));
        }
        let is_html = request.kind == ContentKind::Document;
        if is_html {
            fields.push((UPGRADE.0.into(), UPGRADE.1.into()));
        }
        let Body { bytes: body, is_known, is_utf8 } = self.body(request, entry, is_coded)?;
        if is_known && is_coded {
            fields.push(("content-encoding".into(), "gzip".into()));
        }
        if !is_known {
            if resource == 0 {
                let key = format!("log.entries[{}].response.content", request.entry);
                let what = "the document has no body: record the page with smig lab record, or save the HAR file with content";
                return Err(HarError::content(self.name, key, what));
            }
            index.without_body += 1;
        }
        Self::set_content_type(&mut fields, entry, is_utf8);
        let wait_ms = entry.wait_ms().unwrap_or(0.0);
        let least_ms = self.least_wait_ms.get(&server_of(request)).copied().unwrap_or(wait_ms);
        let response = RecordedResponse {
            resource,
            method: entry.request.method.as_deref().unwrap_or("GET").to_ascii_uppercase(),
            host: har::host_of(&url),
            path: url.path().to_owned(),
            query: url.query().unwrap_or_default().to_owned(),
            status: if status == 206 { 200 } else { status },
            fields,
            body: None,
            body_bytes: 0,
            think_us: ((wait_ms - least_ms).clamp(0.0, MAX_THINK_MS) * 1e3) as u64,
        };
        Ok(Some((response, body)))
    }

    /// Returns a body as it is transferred.
    fn body(
        &self,
        request: &RecordedRequest,
        entry: &Entry,
        is_coded: bool,
    ) -> Result<Body, HarError> {
        let new = |bytes, is_known, is_utf8| Body { bytes, is_known, is_utf8 };
        if request.bytes == 0 {
            return Ok(new(Vec::new(), true, true));
        }
        let fail = |what: String| {
            let key = format!("log.entries[{}].response.content", request.entry);
            HarError::content(self.name, key, what)
        };
        let decoded = match &entry.response.content {
            Some(Content { text: Some(text), encoding, .. }) => match encoding.as_deref() {
                Some("base64") => {
                    Some(STANDARD.decode(text).map_err(|error| fail(error.to_string()))?)
                }
                _ => Some(text.clone().into_bytes()),
            },
            Some(Content { file: Some(file), .. }) => Some(self.read(file).map_err(fail)?),
            _ => None,
        };
        let Some(decoded) = decoded.filter(|body| !body.is_empty()) else {
            let body = filler(request.kind, request.bytes);
            return Ok(new(body.map_err(|error| fail(error.to_string()))?, false, true));
        };
        let is_utf8 = std::str::from_utf8(&decoded).is_ok();
        if !is_coded {
            return Ok(new(decoded, true, is_utf8));
        }
        let coded = gzip(&decoded, request.bytes).map_err(|error| fail(error.to_string()))?;
        Ok(new(coded, true, is_utf8))
    }

    /// Reads a file beside the recording.
    fn read(&self, file: &str) -> Result<Vec<u8>, String> {
        let path = Path::new(file);
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_below {
            return Err(format!("{file:?} is not a file below the recording's directory"));
        }
        let path = self.dir.join(path);
        // Where links lead, too.
        let (real, dir) = (path.canonicalize(), self.dir_or_here().canonicalize());
        let cannot = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let (real, dir) = (real.map_err(cannot)?, dir.map_err(cannot)?);
        let metadata = real.metadata().map_err(cannot)?;
        if !real.starts_with(dir) || !metadata.is_file() || metadata.len() > MAX_BODIES_BYTES {
            return Err(format!(
                "{file:?} is not a file below the recording's directory, of {} MB at most",
                MAX_BODIES_BYTES >> 20
            ));
        }
        std::fs::read(&real).map_err(cannot)
    }

    fn dir_or_here(&self) -> &Path {
        if self.dir.as_os_str().is_empty() { Path::new(".") } else { &self.dir }
    }

    /// Sets the media type. Recordings have texts in UTF-8, whatever they were sent in; other bodies have what they had.
    fn set_content_type(fields: &mut Vec<(String, String)>, entry: &Entry, is_utf8: bool) {
        let recorded = fields.iter().position(|(name, _)| name == "content-type");
        let recorded = recorded.map(|index| fields.remove(index).1);
        let named = entry.response.content.as_ref().and_then(|content| content.mime_type.clone());
        let media_type = recorded.or(named);
        let is_field =
            |text: &String| !text.is_empty() && http::HeaderValue::from_str(text).is_ok();
        let Some(media_type) = media_type.filter(is_field) else { return };
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_text = essence.starts_with("text/")
            || ["javascript", "json", "xml"].iter().any(|kind| essence.ends_with(kind));
        let media_type =
            if is_text && is_utf8 { format!("{essence}; charset=utf-8") } else { media_type };
        fields.push(("content-type".into(), media_type));
    }
}

fn over_tls(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    if url.scheme() == "http" {
        // Both schemes have a default port, which is not written.
        let _ = url.set_scheme("https");
    }
    url
}
