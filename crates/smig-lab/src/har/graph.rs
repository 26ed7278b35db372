//! From entries to a graph: what the page asked for, in the order of time, and who asked for it.

use std::collections::HashMap;
use std::net::IpAddr;

use url::Url;

use super::entry::Entry;
use super::error::{HarError, one_line};
use super::instant::Instant;
use super::kind::ContentKind;

/// Maximum size of one body.
const MAX_BODY_BYTES: u64 = 1 << 30;
/// Maximum size of all bodies of a page.
const MAX_PAGE_BYTES: u64 = 4 << 30;

/// A page as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedPage {
    /// The document's URL.
    pub url: String,
    /// What was transferred: the document first, the others in the order of their requests.
    pub requests: Vec<RecordedRequest>,
    /// Entries that are no part of the page's load.
    pub left_out: LeftOut,
}

/// A request and its response.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// Index in the file's entries.
    pub entry: usize,
    /// Its URL, without fragment.
    pub url: Url,
    /// Host, with the port unless it is the scheme's own.
    pub host: String,
    /// What it is.
    pub kind: ContentKind,
    /// Whether the browser did not wait for it: a script with the priority of one that is `async` or `defer`.
    pub is_deferred: bool,
    /// Size of the body as transferred; a redirect, and what is empty, has none.
    pub bytes: u64,
    /// Who asked for it.
    pub found: Found,
    /// The server's address.
    pub server_ip: Option<IpAddr>,
    /// Identifies the connection among those to this address, if the tool says which it was.
    pub connection: Option<String>,
}

/// Who asked for a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Found {
    /// The user: the document.
    Start,
    /// An element of the document.
    Document {
        /// Where in the document, from 0, its beginning, to 1.
        position: f64,
    },
    /// Another resource: a script that ran, a style sheet, a document in a frame, a redirect.
    By {
        /// Its index in the page's requests, which is smaller than the resource's own.
        index: usize,
    },
}

/// Numbers of entries that are no part of the page's load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Of later pages in the same file.
    pub other_pages: u32,
    /// Not over HTTP: `data:`, `blob:`, `wss:`.
    pub not_http: u32,
    /// From a cache.
    pub cached: u32,
    /// Without a response: blocked, cancelled, failed.
    pub failed: u32,
    /// Requested before the document, such as the redirects that led to it.
    pub before_document: u32,
    /// Whose size no field gives.
    pub without_size: u32,
}

impl LeftOut {
    /// Returns each number with its reason, without those that are 0.
    #[must_use]
    pub fn reasons(&self) -> Vec<(u32, &'static str)> {
        let all = [
            (self.other_pages, "of later pages"),
            (self.not_http, "not over HTTP"),
            (self.cached, "from a cache"),
            (self.failed, "without a response"),
            (self.before_document, "before the document"),
            (self.without_size, "without a size"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }
}

/// An entry that has a place in the page.
struct Candidate<'a> {
    index: usize,
    entry: &'a Entry,
    url: Url,
    /// `None` if nothing says what it is.
    kind: Option<ContentKind>,
    bytes: u64,
    start_ms: f64,
    first_byte_ms: f64,
    end_ms: f64,
}

impl RecordedPage {
    pub(super) fn from_entries(entries: &[Entry], name: &str) -> Result<Self, HarError> {
        let fault = |key: &str, message: &str| HarError::content(name, key, message);
        if entries.is_empty() {
            let message =
                "there are none: load the page while the network panel is open, and save again";
            return Err(fault("log.entries", message));
        }
        let mut left_out = LeftOut::default();
        let mut candidates = candidates(entries, name, &mut left_out)?;
        // Stable: what began at the same time is in the order of the file.
        candidates.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
        let document = document_of(&candidates).ok_or_else(|| {
            let message = "no entry has a response over HTTP that is not a redirect: record the page anew, with an empty cache";
            fault("log.entries", message)
        })?;
        left_out.before_document += u32::try_from(document).unwrap_or(u32::MAX);
        candidates.drain(..document);
        if candidates[0].bytes == 0 {
            let key = format!("log.entries[{}].response", candidates[0].index);
            let message = "the document is empty: record the page anew, with an empty cache";
            return Err(HarError::content(name, key, message));
        }
        let mut total: u64 = 0;
        for candidate in &candidates {
            total = total.saturating_add(candidate.bytes);
            if candidate.bytes > MAX_BODY_BYTES || total > MAX_PAGE_BYTES {
                let key = format!("log.entries[{}].response", candidate.index);
                let message = "a body has at most 1 GiB, and all together 4 GiB: take this entry out of the file";
                return Err(HarError::content(name, key, message));
            }
        }
        let found = Finder::new(&candidates).find_all();
        let requests: Vec<_> = candidates
            .into_iter()
            .zip(found)
            .map(|(candidate, found)| candidate.request(found))
            .collect();
        Ok(Self { url: requests[0].url.to_string(), requests, left_out })
    }

    /// Returns the hosts, the document's first, each with the number of its requests and their bytes.
    #[must_use]
    pub fn hosts(&self) -> Vec<(&str, usize, u64)> {
        let mut hosts: Vec<(&str, usize, u64)> = Vec::new();
        for request in &self.requests {
            match hosts.iter_mut().find(|(host, ..)| *host == request.host) {
                Some((_, count, bytes)) => {
                    *count += 1;
                    *bytes += request.bytes;
                }
                None => hosts.push((&request.host, 1, request.bytes)),
            }
        }
        hosts
    }
}

/// Returns the entries of the first page that were transferred.
fn candidates<'a>(
    entries: &'a [Entry],
    name: &str,
    left_out: &mut LeftOut,
) -> Result<Vec<Candidate<'a>>, HarError> {
    let first_page = entries.iter().find_map(|entry| entry.pageref.as_deref());
    let (mut candidates, mut last_start_ms) = (Vec::new(), 0.0);
    for (index, entry) in entries.iter().enumerate() {
        let key = |key: &str| format!("log.entries[{index}].{key}");
        let start_ms = match entry.started_date_time.as_deref() {
            // Where a tool leaves it out, entries are in the order of time.
            None | Some("") => last_start_ms,
            Some(text) => match Instant::parse(text) {
                Some(instant) => instant.0,
                None => {
                    let message = format!(
                        "\"{}\" is no instant such as 2026-01-31T12:00:00.000Z",
                        one_line(&text.chars().take(60).collect::<String>())
                    );
                    return Err(HarError::content(name, key("startedDateTime"), message));
                }
            },
        };
        last_start_ms = start_ms;
        if entry.pageref.as_deref().is_some_and(|page| Some(page) != first_page) {
            left_out.other_pages += 1;
            continue;
        }
        let mut url = Url::parse(&entry.request.url).map_err(|error| {
            let shown: String = entry.request.url.chars().take(60).collect();
            let message = format!("\"{}\" is not a URL: {error}", one_line(&shown));
            HarError::content(name, key("request.url"), message)
        })?;
        url.set_fragment(None);
        let status = entry.response.status.unwrap_or(0.0);
        let skipped = if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            Some(&mut left_out.not_http)
        } else if entry.from_cache || status == 304.0 {
            Some(&mut left_out.cached)
        } else if !(200.0..600.0).contains(&status) {
            Some(&mut left_out.failed)
        } else if entry.response.body_bytes().is_none() && !entry.response.is_redirect() {
            Some(&mut left_out.without_size)
        } else {
            None
        };
        if let Some(count) = skipped {
            *count += 1;
            continue;
        }
        let (first_byte_ms, end_ms) = entry.response_ms();
        candidates.push(Candidate {
            index,
            entry,
            kind: kind_of(entry, &url),
            url,
            bytes: entry.response.body_bytes().unwrap_or(0),
            start_ms,
            first_byte_ms: start_ms + first_byte_ms,
            end_ms: start_ms + end_ms,
        });
    }
    Ok(candidates)
}

fn kind_of(entry: &Entry, url: &Url) -> Option<ContentKind> {
    let kind = entry
        .resource_type()
        .and_then(ContentKind::from_resource_type)
        .or_else(|| ContentKind::from_media_type(entry.response.mime_type()))
        .or_else(|| ContentKind::from_path(url.path()));
    if entry.method().eq_ignore_ascii_case("OPTIONS") { Some(ContentKind::Other) } else { kind }
}

/// Returns the index of the page's document: the first document, or if nothing is one the first response of all.
fn document_of(candidates: &[Candidate<'_>]) -> Option<usize> {
    let is_final = |candidate: &Candidate<'_>| !candidate.entry.response.is_redirect();
    let is_document = |candidate: &Candidate<'_>| {
        is_final(candidate) && candidate.kind == Some(ContentKind::Document)
    };
    candidates.iter().position(is_document).or_else(|| candidates.iter().position(is_final))
}

/// Returns the host of a URL, with the port unless it is the scheme's own.
pub(crate) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

impl Candidate<'_> {
    fn request(self, found: Found) -> RecordedRequest {
        let host = host_of(&self.url);
        let is_start = found == Found::Start;
        let kind = if is_start { Some(ContentKind::Document) } else { self.kind };
        RecordedRequest {
            entry: self.index,
            host,
            kind: kind.unwrap_or(ContentKind::Other),
            is_deferred: kind == Some(ContentKind::Script) && self.entry.has_low_priority(),
            bytes: self.bytes,
            found,
            server_ip: self
                .entry
                .server_ip
                .as_deref()
                .and_then(|ip| ip.trim_matches(['[', ']']).parse().ok()),
            connection: self
                .entry
                .connection
                .clone()
                .filter(|name| !name.is_empty() && name != "0"),
            url: self.url,
        }
    }

    /// Returns where a redirect leads.
    fn redirect_target(&self) -> Option<Url> {
        let target = self.entry.response.redirect_url.as_deref().filter(|url| !url.is_empty())?;
        let mut target =
            self.entry.response.is_redirect().then(|| self.url.join(target).ok()).flatten()?;
        target.set_fragment(None);
        Some(target)
    }
}

/// Finds who asked for what. Only what began earlier can have asked, so there is no circle.
struct Finder<'a> {
    candidates: &'a [Candidate<'a>],
    /// Index of the last request of a URL so far.
    by_url: HashMap<String, usize>,
    /// The redirect, or the check of another origin (OPTIONS), that a request for a URL has to follow.
    before_url: HashMap<String, usize>,
    /// Scripts and styles, by index, that began so far.
    askers: Vec<usize>,
}

impl<'a> Finder<'a> {
    fn new(candidates: &'a [Candidate<'a>]) -> Self {
        let (by_url, before_url) = (HashMap::new(), HashMap::new());
        Self { candidates, by_url, before_url, askers: Vec::new() }
    }

    fn find_all(mut self) -> Vec<Found> {
        let mut found = Vec::with_capacity(self.candidates.len());
        for (index, candidate) in self.candidates.iter().enumerate() {
            found.push(if index == 0 { Found::Start } else { self.find(candidate) });
            let is_check = candidate.entry.method().eq_ignore_ascii_case("OPTIONS");
            if is_check {
                self.before_url.insert(candidate.url.to_string(), index);
            } else if let Some(target) = candidate.redirect_target() {
                self.before_url.insert(target.to_string(), index);
            }
            self.by_url.insert(candidate.url.to_string(), index);
            if matches!(candidate.kind, Some(ContentKind::Script | ContentKind::Style)) {
                self.askers.push(index);
            }
        }
        spread(&mut found);
        found
    }

    fn find(&mut self, candidate: &Candidate<'_>) -> Found {
        // Once: a later request for the same URL has nothing to wait for.
        if let Some(index) = self.before_url.remove(candidate.url.as_str()) {
            return Found::By { index };
        }
        let entry = candidate.entry;
        let named = [&entry.initiator, &entry.initiator_detail];
        let named = named.into_iter().flatten().flat_map(|initiator| &initiator.0);
        let by_initiator = named.filter_map(|url| self.earlier(url)).next();
        // A document is the referer of what its scripts ask for, too, so only another referer says who asked.
        let by_referer = || entry.referer().and_then(|url| self.earlier(url)).filter(|i| *i > 0);
        match by_initiator.or_else(by_referer) {
            Some(0) => self.in_document(candidate),
            Some(index) => Found::By { index },
            None => self.by_time(candidate),
        }
    }

    /// Returns the last request of a URL so far.
    fn earlier(&self, url: &str) -> Option<usize> {
        let mut url = Url::parse(url).ok()?;
        url.set_fragment(None);
        self.by_url.get(url.as_str()).copied()
    }

    /// Returns the part of the document that had arrived when a request began.
    fn in_document(&self, candidate: &Candidate<'_>) -> Found {
        let document = &self.candidates[0];
        let length_ms = document.end_ms - document.first_byte_ms;
        let since_ms = candidate.start_ms - document.first_byte_ms;
        let position = if length_ms > 0.0 { (since_ms / length_ms).clamp(0.0, 1.0) } else { 1.0 };
        Found::Document { position }
    }

    /// Nobody is named: an element of the document while it arrives, and then the script that arrived last before the request, or
    /// for what styles ask for, the style.
    fn by_time(&self, candidate: &Candidate<'_>) -> Found {
        let asker_kind = match candidate.kind {
            Some(ContentKind::Font) => ContentKind::Style,
            _ => ContentKind::Script,
        };
        let document_end_ms = self.candidates[0].end_ms;
        let has_ended = |index: &&usize| {
            let asker = &self.candidates[**index];
            asker.kind == Some(asker_kind)
                && asker.end_ms > document_end_ms
                && asker.end_ms <= candidate.start_ms
        };
        let last = self
            .askers
            .iter()
            .filter(has_ended)
            .max_by(|a, b| self.candidates[**a].end_ms.total_cmp(&self.candidates[**b].end_ms));
        last.map_or_else(|| self.in_document(candidate), |index| Found::By { index: *index })
    }
}

/// Spreads the elements over the document: one after the other at equal distances, but none after the part that had arrived when it
/// was requested. Of a document that arrived at once, which is most of them over a fast link, the times say nothing else.
fn spread(found: &mut [Found]) {
    let count = found.iter().filter(|found| matches!(found, Found::Document { .. })).count();
    let mut number = 0_u32;
    for found in found {
        if let Found::Document { position } = found {
            number += 1;
            *position = position.min(f64::from(number) / (count as f64 + 1.0));
        }
    }
}
