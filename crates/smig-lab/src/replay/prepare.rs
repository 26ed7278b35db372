//! From a recording to a directory that servers answer from.

use std::io;
use std::path::Path;

use http::{HeaderMap, HeaderValue, header};
use smig::ContentRange;
use smig_survey::HarHeader;
use url::Url;

use super::encode::{filler, gzip};
use super::entry::{RecordedResponse, ReplayIndex};
use super::source::{Entry, ReplaySource};
use crate::har::{self, ContentKind, HarError, RecordedRequest};

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

/// A body as it is transferred.
struct Body {
    bytes: Vec<u8>,
    /// Whether it is the recording's.
    is_known: bool,
    /// Whether it is UTF-8 after decoding.
    is_utf8: bool,
}

impl ReplaySource {
    /// Writes the responses into a directory, unless they are there.
    ///
    /// # Errors
    /// The directory cannot be written, or the recording has a [fault](Self::fault).
    pub fn prepare(&self, dir: &Path) -> io::Result<()> {
        if ReplayIndex::exists(dir)? {
            return Ok(());
        }
        if let Some(fault) = self.fault() {
            return Err(io::Error::other(fault.clone()));
        }
        std::fs::create_dir_all(dir)?;
        let mut index = ReplayIndex::default();
        let mut total_bytes: u64 = 0;
        for (resource, request) in self.replayed() {
            let response = self.response(resource, request).map_err(io::Error::other)?;
            let Some((mut response, body)) = response else { continue };
            response.body_bytes = body.bytes.len() as u64;
            total_bytes = total_bytes.saturating_add(response.body_bytes);
            // Some codings are shorter than gzip, and files may have changed since they were checked.
            self.check_total(total_bytes).map_err(io::Error::other)?;
            if !body.bytes.is_empty() {
                let file = format!("{resource}.body");
                std::fs::write(dir.join(&file), body.bytes)?;
                response.body = Some(file);
            }
            index.without_body += usize::from(!body.is_known);
            index.responses.push(response);
        }
        // Last: it says that all bodies are there.
        index.write(dir)
    }

    /// Returns the response to a request, with its body as it is transferred; `None` if it only leads from `http:` to `https:`.
    fn response(
        &self,
        resource: usize,
        request: &RecordedRequest,
    ) -> Result<Option<(RecordedResponse, Body)>, HarError> {
        let entry = self.entry(request);
        let url = over_tls(&request.url);
        let mut fields: Vec<(String, String)> = Vec::new();
        for HarHeader { name, value } in entry.response.headers.iter().flatten() {
            let name = name.to_ascii_lowercase();
            if KEPT_FIELDS.contains(&name.as_str()) && HeaderValue::from_str(value).is_ok() {
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
        let is_coded = entry.response.is_coded();
        let body = self.transferred_body(request, is_coded)?;
        if body.is_known && is_coded {
            fields.push(("content-encoding".into(), "gzip".into()));
        }
        set_content_type(&mut fields, entry, body.is_utf8);
        let part = if status == 206 && !is_coded { part(entry, body.bytes.len()) } else { None };
        let (range, status) = match part {
            Some((range, content_range)) => {
                fields.push(("content-range".into(), content_range));
                (Some(range), status)
            }
            None => (None, if status == 206 { 200 } else { status }),
        };
        let response = RecordedResponse {
            resource,
            method: entry.request.method.as_deref().unwrap_or("GET").to_ascii_uppercase(),
            host: har::host_of(&url),
            path: url.path().to_owned(),
            query: url.query().unwrap_or_default().to_owned(),
            range,
            status,
            fields,
            body: None,
            body_bytes: 0,
            think_us: (self.think_ms(request).clamp(0.0, MAX_THINK_MS) * 1e3) as u64,
        };
        Ok(Some((response, body)))
    }

    /// Returns a body as it is transferred.
    fn transferred_body(
        &self,
        request: &RecordedRequest,
        is_coded: bool,
    ) -> Result<Body, HarError> {
        let fail = |error: io::Error| self.content_fault(request, error.to_string());
        let Some(decoded) = self.body(request)? else {
            let bytes = filler(request.kind, request.bytes).map_err(fail)?;
            return Ok(Body { bytes, is_known: false, is_utf8: true });
        };
        let is_utf8 = std::str::from_utf8(&decoded).is_ok();
        if !is_coded || decoded.is_empty() {
            return Ok(Body { bytes: decoded, is_known: true, is_utf8 });
        }
        let bytes = gzip(&decoded, request.bytes).map_err(fail)?;
        Ok(Body { bytes, is_known: true, is_utf8 })
    }
}

/// Returns the fields Range and Content-Range of a part, if they say where these bytes are.
fn part(entry: &Entry, bytes: usize) -> Option<(String, String)> {
    let mut fields = entry.response.headers.iter().flatten();
    let field = fields.find(|field| field.name.eq_ignore_ascii_case("content-range"))?;
    let value = HeaderValue::from_str(field.value.trim()).ok()?;
    let headers = HeaderMap::from_iter([(header::CONTENT_RANGE, value)]);
    let ContentRange { first_pos, last_pos, .. } = ContentRange::from_headers(&headers)?;
    let is_all = (last_pos - first_pos).checked_add(1) == Some(bytes as u64);
    is_all.then(|| Some((entry.range()?.to_owned(), field.value.trim().to_owned())))?
}

/// Sets the media type. Recordings have texts in UTF-8, whatever they were sent in; other bodies have what they had.
fn set_content_type(fields: &mut Vec<(String, String)>, entry: &Entry, is_utf8: bool) {
    let recorded = fields.iter().position(|(name, _)| name == "content-type");
    let recorded = recorded.map(|index| fields.remove(index).1);
    let named = entry.response.content.as_ref().and_then(|content| content.mime_type.clone());
    let media_type = recorded.or(named);
    let is_field = |text: &String| !text.is_empty() && HeaderValue::from_str(text).is_ok();
    let Some(media_type) = media_type.filter(is_field) else { return };
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = essence.starts_with("text/")
        || ["javascript", "json", "xml"].iter().any(|kind| essence.ends_with(kind));
    let media_type =
        if is_text && is_utf8 { format!("{essence}; charset=utf-8") } else { media_type };
    fields.push(("content-type".into(), media_type));
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
