//! A load as HAR 1.2, for other viewers of waterfalls.

use serde_json::{Value, json};
use url::Url;

use super::protocol::Protocol;
use super::summary::{MeasuredLoad, PageSummary, median_load};
use crate::har::Instant;
use crate::timeline::page_load::{Phase, phases, requests_of};
use crate::timeline::{PageSpan, Span, SpanOutcome};
use crate::trial::TrialResult;
use crate::workload::{PageLoad, PageMetric};

const PAGE_ID: &str = "page_1";
/// What the names of a page's resources are relative to: the lab's servers have addresses only.
const BASE_URL: &str = "https://lab.example/";

/// Returns the load with the median time; `None` if there is none, or it was not recorded.
#[must_use]
pub fn to_har(page_name: &str, loads: &[MeasuredLoad<'_>], summary: &PageSummary) -> Option<Value> {
    let (load, timeline) = median_load(loads, summary)?;
    let result = loads.get(summary.median_load?)?.result;
    let page = timeline.pages.first()?;
    let requests = requests_of(timeline, page);
    let start = Start::of(result, page);
    let entries: Vec<_> =
        requests.iter().map(|span| entry(span, &requests, &start, http_version(summary))).collect();
    Some(json!({"log": {
        "version": "1.2",
        "creator": {"name": "smig lab page", "version": env!("CARGO_PKG_VERSION")},
        "pages": [{
            "id": PAGE_ID,
            "startedDateTime": start.instant_of(page.from_us),
            "title": format!("{page_name}, {}, {}", summary.link, summary.protocol),
            "pageTimings": page_timings(load),
        }],
        "entries": entries,
    }}))
}

/// The wall clock of a load: to the second, as results have it.
struct Start {
    unix_s: u64,
    navigation_us: u64,
}

impl Start {
    const fn of(result: &TrialResult, page: &PageSpan) -> Self {
        Self { unix_s: result.unix_time, navigation_us: page.from_us }
    }

    fn instant_of(&self, at_us: u64) -> String {
        let since_ms = at_us.saturating_sub(self.navigation_us) as f64 / 1e3;
        Instant(self.unix_s as f64 * 1e3 + since_ms).to_string()
    }
}

fn page_timings(load: &PageLoad) -> Value {
    let ms = |metric: PageMetric| metric.of(load).map_or(-1.0, |seconds| seconds * 1e3);
    json!({
        // When the document had been parsed is not known.
        "onContentLoad": -1,
        "onLoad": ms(PageMetric::Loaded),
        "_firstRendered": ms(PageMetric::FirstRendered),
        "_speedIndexByArrival": ms(PageMetric::SpeedIndex),
        // What other programs call so is by frames.
        "_speedIndex": ms(PageMetric::SpeedIndexByFrames),
        "_visuallyComplete85": ms(PageMetric::MostlyVisible),
        "_visuallyComplete": ms(PageMetric::Visible),
    })
}

fn http_version(summary: &PageSummary) -> &'static str {
    match summary.protocol.parse() {
        Ok(Protocol::Http1) => "HTTP/1.1",
        Ok(Protocol::Http3) => "HTTP/3",
        _ => "HTTP/2",
    }
}

fn entry(span: &Span, requests: &[&Span], start: &Start, http_version: &str) -> Value {
    let part = span.part.as_ref();
    let kind = part.map_or("", |part| part.kind.as_str());
    let (resource_type, media_type) = types_of(kind);
    let timings = Timings::of(span);
    let is_complete = span.outcome == SpanOutcome::Complete;
    let mut entry = json!({
        "pageref": PAGE_ID,
        "startedDateTime": start.instant_of(span.from_us),
        "time": timings.total_ms(),
        "request": {
            "method": "GET", "url": url_of(span), "httpVersion": http_version, "cookies": [], "headers": [],
            "queryString": [], "headersSize": -1, "bodySize": 0,
        },
        "response": {
            "status": if is_complete { 200 } else { 0 }, "statusText": "", "httpVersion": http_version, "cookies": [],
            "headers": [], "content": {"size": span.bytes, "mimeType": media_type}, "redirectURL": "",
            "headersSize": -1, "bodySize": span.bytes,
        },
        "cache": {},
        "timings": timings.to_json(),
        "_resourceType": resource_type,
        "_initiator": {"type": "other"},
    });
    if let Some(connection) = &span.connection {
        entry["connection"] = json!(connection);
    }
    let found_in = part.and_then(|part| part.found_in.as_ref());
    let parent = found_in.and_then(|name| requests.iter().find(|other| other.name == *name));
    if let Some(parent) = parent {
        let is_script = parent.part.as_ref().is_some_and(|part| part.kind.ends_with("script"));
        let by = if is_script { "script" } else { "parser" };
        entry["_initiator"] = json!({"type": by, "url": url_of(parent)});
    }
    entry
}

/// Returns the URL of a request: the name of its resource below a host that does not exist.
fn url_of(span: &Span) -> String {
    let name = span.part.as_ref().map_or(span.name.as_str(), |part| part.resource.as_str());
    let mut url = Url::parse(BASE_URL).ok();
    if let Some(url) = &mut url {
        url.set_path(name);
    }
    url.map_or_else(|| BASE_URL.to_owned(), |url| url.to_string())
}

/// Returns what browsers call a kind of resource, and its media type.
fn types_of(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "document" | "frame" => ("document", "text/html"),
        "style" => ("stylesheet", "text/css"),
        "script" | "async-script" => ("script", "text/javascript"),
        "font" => ("font", "font/woff2"),
        "image" => ("image", "image/png"),
        "media" => ("media", "video/mp4"),
        "fetch" => ("fetch", "application/json"),
        _ => ("other", "application/octet-stream"),
    }
}

/// The phases of a request in ms; `None` where one does not apply. Names are resolved by nobody, and the handshakes are one phase.
#[derive(Debug, Default, PartialEq)]
struct Timings {
    blocked: f64,
    connect: Option<f64>,
    wait: f64,
    receive: f64,
}

impl Timings {
    fn of(span: &Span) -> Self {
        let mut timings = Self::default();
        let all = phases(span);
        let ends = all.iter().skip(1).map(|(_, from_us)| *from_us).chain([span.to_us]);
        for ((phase, from_us), end_us) in all.iter().zip(ends) {
            let ms = end_us.min(span.to_us).saturating_sub(*from_us) as f64 / 1e3;
            match phase {
                Phase::Queued => timings.blocked += ms,
                // Without a length it had a connection that was open.
                Phase::Connecting => timings.connect = (ms > 0.0).then_some(ms),
                Phase::Waiting => timings.wait += ms,
                Phase::Receiving => timings.receive += ms,
                // The response is complete: that it runs is not part of the request.
                Phase::Running => {}
            }
        }
        timings
    }

    fn total_ms(&self) -> f64 {
        self.blocked + self.connect.unwrap_or(0.0) + self.wait + self.receive
    }

    fn to_json(&self) -> Value {
        json!({"blocked": self.blocked, "dns": -1, "connect": self.connect.unwrap_or(-1.0), "ssl": -1, "send": 0,
            "wait": self.wait, "receive": self.receive})
    }
}
