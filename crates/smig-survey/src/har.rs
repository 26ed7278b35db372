//! Reader of HAR 1.2 files: the requests of a browser.
//!
//! Owns the size rules: bytes on the connection, or bytes after decoding. Bodies that a HAR file
//! holds are skipped while it is read.

use std::io::{BufReader, Read};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use super::counts::{Exclusion, SurveyCounts};
use super::error::{DamagedInput, SurveyError};
use super::site::{Site, canonicalize};

/// Maximum number of redirects that lead to a landing page.
const MAX_REDIRECTS: usize = 20;

/// Which of an object's sizes is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SizeRule {
    /// The body as transferred, with its compression: these bytes delay other streams.
    #[default]
    Transferred,
    /// The content after decoding.
    Decoded,
}

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    pageref: Option<String>,
    request: Request,
    response: HarResponse,
}

#[derive(Deserialize)]
struct Request {
    url: String,
}

/// The response of a HAR entry. Tools write absent sizes as -1, null or nothing, and some write
/// fractions.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HarResponse {
    /// Its status code; 0 or absent if there was no response.
    pub status: Option<f64>,
    /// Where a redirect leads, perhaps relative; empty or absent for others.
    #[serde(default, rename = "redirectURL")]
    pub redirect_url: Option<String>,
    #[serde(default)]
    headers: Option<Vec<HarHeader>>,
    #[serde(default)]
    headers_size: Option<f64>,
    #[serde(default)]
    body_size: Option<f64>,
    #[serde(default, rename = "_transferSize")]
    transfer_size: Option<f64>,
    #[serde(default)]
    content: Option<Content>,
}

/// A header field of a request or a response.
#[derive(Debug, Deserialize)]
pub struct HarHeader {
    /// Its name, as the tool writes it.
    pub name: String,
    /// Its value.
    pub value: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default)]
    size: Option<f64>,
    #[serde(default)]
    compression: Option<f64>,
    #[serde(default)]
    mime_type: Option<String>,
}

impl HarResponse {
    /// Returns the object's size in bytes, 0 if it is empty, `None` if no field gives it.
    pub(super) fn bytes(&self, rule: SizeRule) -> Option<u64> {
        let full_size = (self.status == Some(206.0)).then(|| self.total_of_range()).flatten();
        let size = self.content.as_ref().and_then(|content| positive_size(content.size));
        match rule {
            SizeRule::Decoded => full_size.or(size).or_else(|| self.transferred_bytes()),
            SizeRule::Transferred => full_size.or_else(|| self.transferred_bytes()),
        }
        .or_else(|| self.is_reported_empty().then_some(0))
    }

    /// Returns the bytes of the body that were transferred, 0 if it is empty, `None` if no field gives them. Of a range those are its own.
    #[must_use]
    pub fn body_bytes(&self) -> Option<u64> {
        self.transferred_bytes().or_else(|| self.is_reported_empty().then_some(0))
    }

    /// Returns the media type of the content, with its parameters; empty if it is not known.
    #[must_use]
    pub fn mime_type(&self) -> &str {
        self.content.as_ref().and_then(|content| content.mime_type.as_deref()).unwrap_or_default()
    }

    fn transferred_bytes(&self) -> Option<u64> {
        let transfer_without_headers = || {
            let transfer_bytes = positive_size(self.transfer_size)?;
            Some(
                positive_size(self.headers_size)
                    .map_or(transfer_bytes, |headers| transfer_bytes.saturating_sub(headers)),
            )
        };
        let content_before_decoding = || {
            let content = self.content.as_ref()?;
            let size = positive_size(content.size)?;
            Some(size.saturating_sub(positive_size(content.compression).unwrap_or(0)))
        };
        positive_size(self.body_size)
            .or_else(transfer_without_headers)
            .or_else(content_before_decoding)
    }

    fn is_reported_empty(&self) -> bool {
        let content = self.content.as_ref().and_then(|content| content.size);
        [self.body_size, self.transfer_size, content].contains(&Some(0.0))
    }

    /// Returns the complete size from `content-range: bytes 0-0/1234`.
    fn total_of_range(&self) -> Option<u64> {
        let is_range = |header: &&HarHeader| header.name.eq_ignore_ascii_case("content-range");
        let header = self.headers.iter().flatten().find(is_range)?;
        header.value.rsplit_once('/')?.1.trim().parse().ok()
    }

    /// Returns whether it redirects.
    #[must_use]
    pub const fn is_redirect(&self) -> bool {
        matches!(self.status, Some(status) if status >= 300.0 && status < 400.0)
    }

    /// Returns whether the response carries the object, complete or in part.
    pub(super) fn carries_object(&self) -> bool {
        self.status.is_some_and(|status| [200.0, 203.0, 206.0].contains(&status))
    }
}

/// Returns a size if it is present and not 0.
fn positive_size(size: Option<f64>) -> Option<u64> {
    size.filter(|size| *size >= 1.0).map(|size| size as u64)
}

/// Counts a HAR file. Each of its pages belongs to the site where its first request ended up, after
/// redirects; `name` identifies the file in errors.
///
/// # Errors
/// When the input is not HAR 1.2, with the line and the entry. Then none of the file is counted.
pub fn read_har(
    input: impl Read,
    name: &str,
    rule: SizeRule,
    counts: &mut SurveyCounts,
) -> Result<(), SurveyError> {
    let har: Har = parse_har(input, name)?;
    let mut urls = Vec::with_capacity(har.log.entries.len());
    for (number, entry) in har.log.entries.iter().enumerate() {
        let url = Url::parse(&entry.request.url).map_err(|error| DamagedInput {
            name: name.to_owned(),
            location: format!("log.entries[{number}].request.url"),
            reason: format!("\"{}\" is not a URL: {error}", shorten(&entry.request.url)),
        })?;
        urls.push(url);
    }
    let entries: Vec<_> = har.log.entries.iter().zip(urls).collect();
    for page in group_by_page(&entries) {
        count_page(&page, rule, counts);
    }
    Ok(())
}

type EntryWithUrl<'a> = (&'a Entry, Url);

/// Parses a HAR file as a type that has the fields that are needed; all others are skipped while it is read. `name` identifies the file
/// in errors.
///
/// # Errors
/// When the input is not JSON, or not of this type, with the line and the key.
pub fn parse_har<T: DeserializeOwned>(input: impl Read, name: &str) -> Result<T, SurveyError> {
    let mut reader = BufReader::new(input);
    let read_error = |cause| SurveyError::Read { name: name.to_owned(), cause };
    skip_byte_order_mark(&mut reader).map_err(read_error)?;
    let mut json = serde_json::Deserializer::from_reader(reader);
    let har = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let cause = error.into_inner();
        if cause.is_io() {
            return read_error(cause.into());
        }
        let location = format!("line {}, {path}", cause.line());
        let reason = format!("{cause}; a HAR 1.2 file is expected");
        DamagedInput { name: name.to_owned(), location, reason }.into()
    })?;
    json.end().map_err(|error| DamagedInput {
        name: name.to_owned(),
        location: format!("line {}", error.line()),
        reason: "data after the HAR; a file holds one HAR".into(),
    })?;
    Ok(har)
}

/// Skips the byte order mark that some tools write.
pub(super) fn skip_byte_order_mark(reader: &mut impl std::io::BufRead) -> std::io::Result<()> {
    if reader.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        reader.consume(3);
    }
    Ok(())
}

/// Returns the entries of each page, in the order in which the pages began. Entries that name no
/// page belong to the first.
fn group_by_page<'a, 'b>(entries: &'b [EntryWithUrl<'a>]) -> Vec<Vec<&'b EntryWithUrl<'a>>> {
    let first_page = entries.iter().find_map(|(entry, _)| entry.pageref.as_deref());
    let mut pages: Vec<(Option<&str>, Vec<&EntryWithUrl<'a>>)> = Vec::new();
    for entry_with_url in entries {
        let page = entry_with_url.0.pageref.as_deref().or(first_page);
        match pages.iter_mut().find(|(known, _)| *known == page) {
            Some((_, entries)) => entries.push(entry_with_url),
            None => pages.push((page, vec![entry_with_url])),
        }
    }
    pages.into_iter().map(|(_, entries)| entries).collect()
}

/// Returns the site where the first request ended up.
fn landing_site(page: &[&EntryWithUrl<'_>]) -> Option<Site> {
    let mut index = page.iter().position(|(_, url)| Site::from_url(url).is_some())?;
    for _ in 0..MAX_REDIRECTS {
        let (entry, url) = page[index];
        let target = entry.response.redirect_url.as_deref().filter(|to| !to.is_empty());
        let Some(target) = target.filter(|_| entry.response.is_redirect()) else { break };
        let Ok(target) = url.join(target) else { break };
        let next = page.iter().skip(index + 1).position(|(_, url)| *url == target);
        let Some(next) = next else { return Site::from_url(&target) };
        index += 1 + next;
    }
    Site::from_url(&page[index].1)
}

fn count_page(page: &[&EntryWithUrl<'_>], rule: SizeRule, counts: &mut SurveyCounts) {
    let Some(site) = landing_site(page) else {
        page.iter().for_each(|_| counts.exclude(Exclusion::NotWeb));
        return;
    };
    counts.add_site(&site);
    for (entry, url) in page {
        let Some(host) = Site::from_url(url) else {
            counts.exclude(Exclusion::NotWeb);
            continue;
        };
        if host != site {
            counts.exclude(Exclusion::OffHost);
        } else if !entry.response.carries_object() {
            counts.exclude(Exclusion::Status);
        } else if let Some(bytes) = entry.response.bytes(rule) {
            let url = canonicalize(url.clone()).unwrap_or_else(|| url.clone());
            counts.add_object(&site, url.as_str(), bytes);
        } else {
            counts.exclude(Exclusion::NoSize);
        }
    }
}

/// Returns at most the first 60 characters of a text, for a message.
pub(super) fn shorten(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}...") } else { short }
}

#[cfg(test)]
#[path = "tests/har.rs"]
mod tests;
