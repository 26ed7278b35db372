//! A recorded page in a browser: the same results as a player's, by the requests that the browser makes.
//!
//! A page that runs scripts need not ask for the same as when it was recorded. What it asks for and was recorded are the resources of the
//! page's graph; what was not is answered by 404, or has no address, and is named.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use smig_browser::{NetworkRequest, RequestEnd};
use url::Url;

use super::browser::{BrowserClient, BrowserLoad};
use super::browser_page::{PageClock, failure, reported_load};
use super::page::{Load, transfer_of};
use super::result::{ObjectResult, Outcome, PageLoad, ReplayNotes, RequestPhases};
use super::run::WorkloadRun;
use crate::har::host_of;
use crate::replay::{Answers, RecordedResponse, ReplayIndex, RequestKey};
use crate::scenario::{Page, Recording, Resource, ResourceKind};

/// As many requests that were not recorded are named.
const MAX_UNKNOWN: usize = 20;
/// What a browser asks for, or not, whatever the page says.
const FAVICON_PATH: &str = "/favicon.ico";
/// As much is kept of a URL.
const MAX_URL_CHARS: usize = 300;
/// The browser's words for what servers or connections did wrong; others are of the page, or of what was not recorded.
const FAULTS: [&str; 9] = [
    "net::ERR_ADDRESS",
    "net::ERR_CERT",
    "net::ERR_CONNECTION",
    "net::ERR_CONTENT",
    "net::ERR_EMPTY_RESPONSE",
    "net::ERR_HTTP2",
    "net::ERR_INCOMPLETE",
    "net::ERR_INVALID",
    "net::ERR_SSL",
];

/// A request of the browser, and the recorded response to it.
struct Matched<'a> {
    request: &'a NetworkRequest,
    response: &'a RecordedResponse,
    index: &'a ReplayIndex,
}

impl WorkloadRun {
    /// Loads a recorded page once.
    pub(super) async fn replay_in_browser(
        &self,
        browser: &BrowserClient,
        (name, number): (&str, u32),
        (page, recording): (&Page, &Recording),
    ) -> Load {
        let started_ns = self.since_began();
        let failed = |outcome| {
            let times = (started_ns, self.since_began());
            (PageLoad::without_times(name, number, times, outcome), Vec::new())
        };
        let Some(index) = self.spec.replays.indexes.get(&recording.digest) else {
            return failed(Outcome::Failed("its servers have no recording".to_owned()));
        };
        let loaded = browser.load(recording.replay_url(), self.deadline.into_std()).await;
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return failed(failure(&error)),
        };
        let clock = PageClock::new(&loaded, self.start_monotonic_ns);
        let resources = page.resources();
        let (matched, unknown) = match_requests(&loaded.requests, index);
        let client = self.spec.scenario.client_of(page.client.as_deref()).unwrap_or_default();
        let first = number.saturating_mul(u32::try_from(resources.len()).unwrap_or(u32::MAX));
        let objects: Vec<_> = matched
            .iter()
            .filter_map(|matched| {
                let resource = resources.get(matched.response.resource)?;
                let number = first + u32::try_from(matched.response.resource).ok()?;
                let result = self.new_result(name, number, &transfer_of(client, resource));
                self.object_of(result, matched, &loaded)
            })
            .collect();
        let pictures = matched.iter().filter(|matched| is_picture(matched, &resources));
        let arrived = pictures.filter_map(|matched| Some(self.at(matched.request.end.as_ref()?.0)));
        let outcome = fault(&loaded, &matched, browser.protocol());
        let outcome = outcome.map_or(Outcome::Complete, Outcome::Failed);
        let shown = (outcome, arrived.collect());
        let mut load = reported_load((name, number), &loaded.report, clock, shown);
        load.clock_error_ns = u64::try_from(loaded.clock_error.as_nanos()).ok();
        load.replay = Some(ReplayNotes {
            unknown,
            not_requested: not_requested(index, &matched),
            without_body: index.without_body,
        });
        if let Some(taken) = &loaded.frames {
            self.keep_frames(&mut load, taken);
        }
        (load, objects)
    }

    /// Returns a time of the browser's log, seconds of the monotonic clock, on the run's.
    fn at(&self, monotonic_s: f64) -> u64 {
        ((monotonic_s.max(0.0) * 1e9) as u64).saturating_sub(self.start_monotonic_ns)
    }

    /// Returns the result of a request; `None` if it had not ended when the page's report was read.
    fn object_of(
        &self,
        mut result: ObjectResult,
        matched: &Matched<'_>,
        loaded: &BrowserLoad,
    ) -> Option<ObjectResult> {
        let Matched { request, response, .. } = matched;
        let (ended_s, end) = request.end.as_ref()?;
        result.size = response.body_bytes;
        result.started_ns = self.at(request.started_s);
        result.ended_ns = self.at(*ended_s);
        let timing = request.response.as_ref().and_then(|response| response.timing);
        let at = |timing: smig_browser::NetworkTiming, ms| self.at(timing.request_s + ms / 1e3);
        result.phases = RequestPhases {
            connect_ns: timing.and_then(|timing| Some(at(timing, timing.connect_ms?.0))),
            sent_ns: timing.map(|timing| at(timing, timing.send_ms.0)),
            finished_ns: Some(result.ended_ns),
        };
        result.head_ns = timing.map(|timing| at(timing, timing.head_ms));
        result.first_byte_ns = result.head_ns;
        result.outcome = match end {
            RequestEnd::Complete(_) | RequestEnd::Redirected(_) => {
                matched.wrong_status().map_or(Outcome::Complete, Outcome::Failed)
            }
            RequestEnd::Failed(reason) => Outcome::Failed(reason.clone()),
        };
        if result.outcome == Outcome::Complete && !request.from_cache {
            result.bytes = response.body_bytes;
        }
        let address = loaded.local_addresses.get(&request.url);
        // Linux gives a port to connections of several destinations: then it does not say which connection it is.
        if let Some(address) = address.filter(|address| has_one_connection(**address, loaded)) {
            result.connections = vec![self.browser_connection(*address, result.bytes)];
        }
        Some(result)
    }
}

fn is_picture(matched: &Matched<'_>, resources: &[Resource]) -> bool {
    let resource = resources.get(matched.response.resource);
    resource.is_some_and(|resource| resource.kind == ResourceKind::Image)
}

/// Returns the first request for each recorded response, by the same rules as the servers, and the URLs of those that were not recorded.
fn match_requests<'a>(
    requests: &'a [NetworkRequest],
    index: &'a ReplayIndex,
) -> (Vec<Matched<'a>>, Vec<String>) {
    let (mut matched, mut unknown) = (Vec::new(), BTreeSet::new());
    let (mut answers, mut seen) = (Answers::default(), BTreeSet::new());
    for request in requests.iter().filter(|request| request.url.starts_with("http")) {
        let Ok(url) = Url::parse(&request.url) else { continue };
        let target = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let mut fields = request.fields.iter();
        let range = fields.find(|(name, _)| name.eq_ignore_ascii_case("range"));
        let key = RequestKey {
            method: &request.method,
            host: &host_of(&url),
            target: &target,
            range: range.map(|(_, value)| value.as_str()),
        };
        let found = answers.next(&index.responses, &key);
        match found.and_then(|found| index.responses.get(found)) {
            // Only the header section, of what was recorded as a whole.
            Some(response) if response.method != request.method => {}
            Some(response) if seen.insert(response.resource) => {
                matched.push(Matched { request, response, index });
            }
            Some(_) => {}
            // The check of another origin is answered whether it was recorded or not.
            None if request.method == "OPTIONS" || unknown.len() == MAX_UNKNOWN => {}
            None if url.path() == FAVICON_PATH => {}
            None => drop(unknown.insert(request.url.chars().take(MAX_URL_CHARS).collect())),
        }
    }
    (matched, unknown.into_iter().collect())
}

/// Returns how many recorded responses were not asked for.
fn not_requested(index: &ReplayIndex, matched: &[Matched<'_>]) -> usize {
    let resources: BTreeSet<_> = matched.iter().map(|matched| matched.response.resource).collect();
    let left = index.responses.iter().filter(|response| !resources.contains(&response.resource));
    left.filter(|response| response.path != FAVICON_PATH).count()
}

impl Matched<'_> {
    /// Returns what is wrong with the status of the response, if anything is.
    fn wrong_status(&self) -> Option<String> {
        let status = self.request.response.as_ref()?.status;
        let recorded = self.response.status;
        // Of several responses to one URL: what is sent at the same time arrives in any order. A part also answers other ranges, as a whole.
        let is_own = |other: &RecordedResponse| {
            let names = |response: &RecordedResponse| {
                (response.method.clone(), response.host.clone(), response.path.clone())
            };
            names(other) == names(self.response)
                && (other.status == status || (other.range.is_some() && status == 200))
        };
        let is_recorded = status == recorded || self.index.responses.iter().any(is_own);
        (!is_recorded).then(|| format!("answered {status}, recorded {recorded}"))
    }
}

/// Returns whether only one of the browser's connections had this end.
fn has_one_connection(address: SocketAddr, loaded: &BrowserLoad) -> bool {
    let own = |request: &&NetworkRequest| {
        !request.from_cache && loaded.local_addresses.get(&request.url) == Some(&address)
    };
    let connections = loaded.requests.iter().filter(own);
    let connections: BTreeSet<_> =
        connections.filter_map(|request| Some(request.response.as_ref()?.connection)).collect();
    connections.len() == 1
}

/// Returns what is wrong with a load, if anything is. What was not recorded is no fault of it, nor what the page ends itself.
fn fault(loaded: &BrowserLoad, matched: &[Matched<'_>], protocol: &str) -> Option<String> {
    let of_server = |matched: &Matched<'_>| {
        let url: String = matched.request.url.chars().take(MAX_URL_CHARS).collect();
        if let Some((_, RequestEnd::Failed(reason))) = &matched.request.end {
            let is_fault = FAULTS.iter().any(|fault| reason.starts_with(fault));
            return is_fault.then(|| format!("{url}: {reason}"));
        }
        matched.wrong_status().map(|wrong| format!("{url}: {wrong}"))
    };
    if let Some(fault) = matched.iter().find_map(of_server) {
        return Some(fault);
    }
    // A browser with HTTP/2 speaks HTTP/1.1 with servers that offer nothing else.
    let is_other = |request: &&NetworkRequest| {
        let response = request.response.as_ref().filter(|_| !request.from_cache);
        response.is_some_and(|response| protocol == "http/1.1" && response.protocol == "h2")
    };
    if let Some(other) = loaded.requests.iter().find(is_other) {
        return Some(format!("{} came by h2, not {protocol}", other.url));
    }
    if loaded.report.first_contentful_paint_ms.is_none() {
        return Some("nothing was painted within a second after the load event".to_owned());
    }
    let has_load_event = loaded.report.navigation.load_event_end_ms > 0.0;
    (!has_load_event).then(|| "it has no load event".to_owned())
}

#[cfg(test)]
mod tests {
    use smig_browser::NetworkResponse;

    use super::*;

    fn request(method: &str, url: &str, status: u16) -> NetworkRequest {
        NetworkRequest {
            method: method.into(),
            url: url.into(),
            response: Some(NetworkResponse { status, ..NetworkResponse::default() }),
            end: Some((2.0, RequestEnd::Complete(100))),
            ..NetworkRequest::default()
        }
    }

    fn index() -> ReplayIndex {
        let response = |resource, path: &str| RecordedResponse {
            resource,
            method: "GET".into(),
            host: "a.example".into(),
            path: path.into(),
            query: String::new(),
            range: None,
            status: 200,
            fields: Vec::new(),
            body: None,
            body_bytes: 7,
            think_us: 0,
        };
        let responses = vec![response(0, "/"), response(1, "/a.js")];
        ReplayIndex { responses, without_body: 0 }
    }

    #[test]
    fn requests_are_those_of_the_recording_or_named() {
        let long = format!("https://a.example/{}", "x".repeat(10_000));
        let requests = [
            request("GET", "https://a.example/", 200),
            // Only its header section: not the resource.
            request("HEAD", "https://a.example/a.js", 200),
            request("GET", "https://a.example/a.js?1", 200),
            request("GET", "https://a.example/a.js?2", 200),
            request("GET", "https://b.example/", 0),
            request("GET", "https://[::1]/x", 0),
            request("OPTIONS", "https://a.example/api", 204),
            request("GET", "https://a.example/favicon.ico", 404),
            request("GET", "data:text/plain,a", 200),
            request("GET", &long, 404),
        ];
        let index = index();
        let (matched, unknown) = match_requests(&requests, &index);
        let pairs: Vec<_> = matched
            .iter()
            .map(|matched| (matched.request.url.as_str(), matched.response.resource))
            .collect();
        assert_eq!(pairs, [("https://a.example/", 0), ("https://a.example/a.js?1", 1)]);
        assert_eq!(unknown.len(), 3, "{unknown:?}");
        assert_eq!(not_requested(&index, &matched), 0);
        let mut larger = index.clone();
        let extra = |resource, path: &str| RecordedResponse {
            resource,
            path: path.to_owned(),
            ..index.responses[1].clone()
        };
        larger.responses.extend([extra(8, "/other.js"), extra(9, "/favicon.ico")]);
        assert_eq!(not_requested(&larger, &matched), 1);
        assert!(unknown.iter().all(|url| url.len() <= MAX_URL_CHARS), "{unknown:?}");
        for url in ["https://b.example/", "https://[::1]/x"] {
            assert!(unknown.contains(&url.to_owned()), "{unknown:?}");
        }
    }

    #[test]
    fn equal_requests_are_the_recorded_ones_in_any_order() {
        let mut index = index();
        index.responses.push(RecordedResponse {
            resource: 2,
            status: 204,
            ..index.responses[1].clone()
        });
        let url = "https://a.example/a.js";
        let requests =
            [request("GET", url, 204), request("GET", url, 200), request("GET", url, 204)];
        let (matched, unknown) = match_requests(&requests, &index);
        let resources: Vec<_> = matched.iter().map(|matched| matched.response.resource).collect();
        assert_eq!((resources, unknown.len()), (vec![1, 2], 0));
        assert!(matched.iter().all(|matched| matched.wrong_status().is_none()));
    }

    #[test]
    fn a_part_is_that_of_its_range_or_the_whole() {
        let mut index = index();
        let range = Some("bytes=0-6".to_owned());
        index.responses[1] = RecordedResponse { range, status: 206, ..index.responses[1].clone() };
        let with = |range: &str, status| {
            let fields = vec![("Range".to_owned(), range.to_owned())];
            NetworkRequest { fields, ..request("GET", "https://a.example/a.js", status) }
        };
        for (range, status) in [("bytes=0-6", 206), ("bytes=7-", 200)] {
            let requests = [with(range, status)];
            let (matched, _) = match_requests(&requests, &index);
            assert!(matched.len() == 1 && matched[0].wrong_status().is_none(), "{range}");
        }
    }

    #[test]
    fn another_status_than_the_recorded_one_is_wrong() {
        let requests = [
            request("GET", "https://a.example/", 502),
            request("GET", "https://a.example/a.js", 200),
        ];
        let index = index();
        let (matched, _) = match_requests(&requests, &index);
        let wrong: Vec<_> = matched.iter().map(Matched::wrong_status).collect();
        assert_eq!(wrong, [Some("answered 502, recorded 200".to_owned()), None]);
    }
}
