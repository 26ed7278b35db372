//! Sends requests: one at a time per host, with the host's pauses, as its robots.txt allows.
//!
//! Owns the requests. It must never read more of an object than its header section or one byte or,
//! of an HTML page, [`MAX_PAGE_BYTES`] bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, HeaderValue, RANGE, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use smig::{Client, Incoming};
use url::Url;

use super::classify::{ResponseClass, ResponseHead};
use super::robots::{MAX_ROBOTS_BYTES, RobotsRules};
use super::schedule::{HostSchedule, MAX_PAUSE, RequestRate};
use super::walk::{CrawlTarget, FetchScope, SizeSource, VisitOutcome};
use crate::html::page_links;
use crate::{Site, canonicalize};

/// The maximum number of bytes read of a page.
pub(super) const MAX_PAGE_BYTES: usize = 2 << 20;

/// Timeout of one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Back-off after a status that requests one without a Retry-After in seconds.
const DEFAULT_BACK_OFF: Duration = Duration::from_secs(30);

/// Maximum number of redirects of a robots.txt (RFC 9309 section 2.3.1.2).
const MAX_ROBOTS_REDIRECTS: usize = 5;

/// What to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchKind {
    /// The header section.
    Head,
    /// One byte; a complete page if the server ignores the range.
    Byte,
    /// A page.
    Page,
    /// robots.txt.
    Robots,
}

struct FetchedResponse {
    head: ResponseHead,
    body: Bytes,
    is_complete: bool,
}

/// Sends the requests to all hosts of a crawl.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client,
    user_agent: HeaderValue,
    rate: RequestRate,
    schedules_by_host: Mutex<HashMap<String, Arc<tokio::sync::Mutex<HostSchedule>>>>,
    rules_by_origin: Mutex<HashMap<String, Arc<RobotsRules>>>,
}

impl Fetcher {
    pub(super) fn new(client: Client, user_agent: HeaderValue, rate: RequestRate) -> Self {
        Self {
            client,
            user_agent,
            rate,
            schedules_by_host: Mutex::default(),
            rules_by_origin: Mutex::default(),
        }
    }

    /// Determines the outcome of a target, if robots.txt allows a request.
    pub(super) async fn fetch(&self, target: &CrawlTarget) -> VisitOutcome {
        match self.get_or_fetch_rules(&target.url).await {
            Err(why) => return VisitOutcome::Failed { why: format!("robots.txt: {why}") },
            Ok(rules) if !rules.allows(&target.url) => return VisitOutcome::Disallowed,
            Ok(_) => {}
        }
        self.fetch_allowed(target).await.unwrap_or_else(|why| VisitOutcome::Failed { why })
    }

    async fn fetch_allowed(&self, target: &CrawlTarget) -> Result<VisitOutcome, String> {
        let url = &target.url;
        let is_page_to_read =
            |head: &ResponseHead| head.is_html() && target.scope == FetchScope::Links;
        let head = self.request(url, FetchKind::Head).await?.head;
        let kind = match head.classify() {
            ResponseClass::Sized(_) | ResponseClass::Unsized if is_page_to_read(&head) => {
                FetchKind::Page
            }
            ResponseClass::Unsized if head.is_html() => FetchKind::Page,
            ResponseClass::Unsized | ResponseClass::MethodRejected => FetchKind::Byte,
            _ => return Ok(target_outcome(target, &head, SizeSource::Head, None)),
        };
        let mut response = self.request(url, kind).await?;
        let has_no_page = response.head.status != StatusCode::OK || response.body.is_empty();
        if kind == FetchKind::Byte && is_page_to_read(&response.head) && has_no_page {
            response = self.request(url, FetchKind::Page).await?;
        }
        let FetchedResponse { head, body, is_complete } = &response;
        let page = (!body.is_empty() && head.is_html()).then_some((body, *is_complete));
        Ok(target_outcome(target, head, SizeSource::Get, page))
    }

    /// Returns the robots.txt rules for a URL.
    async fn get_or_fetch_rules(&self, url: &Url) -> Result<Arc<RobotsRules>, String> {
        let origin = url.origin().ascii_serialization();
        if let Some(rules) = lock(&self.rules_by_origin).get(&origin) {
            return Ok(Arc::clone(rules));
        }
        let rules = Arc::new(self.fetch_rules(url).await?);
        lock(&self.rules_by_origin).insert(origin, Arc::clone(&rules));
        Ok(rules)
    }

    async fn fetch_rules(&self, url: &Url) -> Result<RobotsRules, String> {
        let mut location = url.join("/robots.txt").map_err(|error| error.to_string())?;
        let mut response = self.request(&location, FetchKind::Robots).await?;
        for _ in 0..MAX_ROBOTS_REDIRECTS {
            let ResponseClass::Redirect(to) = response.head.classify() else { break };
            let Some(next) = location.join(&to).ok().and_then(canonicalize) else { break };
            location = next;
            response = self.request(&location, FetchKind::Robots).await?;
        }
        let rules = RobotsRules::from_response(response.head.status.as_u16(), &response.body);
        let Some(pause) = rules.crawl_delay() else { return Ok(rules) };
        if pause > MAX_PAUSE {
            return Ok(RobotsRules::DisallowAll);
        }
        self.schedule_for(url).lock().await.set_min_pause(pause);
        Ok(rules)
    }

    fn schedule_for(&self, url: &Url) -> Arc<tokio::sync::Mutex<HostSchedule>> {
        let host = Site::from_url(url).map(|site| site.to_string()).unwrap_or_default();
        let new_schedule = || Arc::new(tokio::sync::Mutex::new(HostSchedule::new(self.rate)));
        Arc::clone(lock(&self.schedules_by_host).entry(host).or_insert_with(new_schedule))
    }

    /// Sends a request, and repeats it once after the back-off if the server requests that.
    async fn request(&self, url: &Url, kind: FetchKind) -> Result<FetchedResponse, String> {
        let response = self.request_once(url, kind).await?;
        match response.head.classify() {
            ResponseClass::RetryLater(_) if kind != FetchKind::Robots => {
                self.request_once(url, kind).await
            }
            _ => Ok(response),
        }
    }

    /// Sends one request. The host gets no other request until its response has been read.
    async fn request_once(&self, url: &Url, kind: FetchKind) -> Result<FetchedResponse, String> {
        let schedule = self.schedule_for(url);
        let mut schedule = schedule.lock().await;
        if let Some(ready) = schedule.ready_at() {
            tokio::time::sleep_until(ready.into()).await;
        }
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, self.send(url, kind)).await;
        let now = Instant::now();
        schedule.on_response(now);
        let response = response
            .map_err(|_| format!("no response within {} s", RESPONSE_TIMEOUT.as_secs()))
            .and_then(|answer| answer)?;
        if let ResponseClass::RetryLater(after) = response.head.classify() {
            schedule.back_off(now, after.unwrap_or(DEFAULT_BACK_OFF));
        }
        Ok(response)
    }

    async fn send(&self, url: &Url, kind: FetchKind) -> Result<FetchedResponse, String> {
        let method = if kind == FetchKind::Head { Method::HEAD } else { Method::GET };
        let mut request = Request::builder()
            .method(method)
            .uri(url.as_str())
            .header(USER_AGENT, &self.user_agent)
            .header(ACCEPT, "*/*");
        if kind == FetchKind::Byte {
            request = request.header(RANGE, "bytes=0-0");
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        let head = ResponseHead::from_response(&response);
        let max_bytes = match kind {
            FetchKind::Robots => MAX_ROBOTS_BYTES,
            FetchKind::Byte | FetchKind::Page if head.is_html() => MAX_PAGE_BYTES,
            _ => 0,
        };
        let is_read = head.status == StatusCode::OK && max_bytes > 0;
        if !is_read {
            // Dropping the response cancels the rest.
            return Ok(FetchedResponse { head, body: Bytes::new(), is_complete: false });
        }
        let (body, is_complete) = read_body(response, max_bytes).await?;
        Ok(FetchedResponse { head, body, is_complete })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the body up to a limit, and returns whether that is all of it.
async fn read_body(
    mut response: Response<Incoming>,
    max_bytes: usize,
) -> Result<(Bytes, bool), String> {
    let mut body = BytesMut::new();
    while let Some(frame) = response.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        let Ok(data) = frame.into_data() else { continue };
        let room = max_bytes - body.len();
        if data.len() > room {
            body.extend_from_slice(&data[..room]);
            return Ok((body.freeze(), false));
        }
        body.extend_from_slice(&data);
    }
    Ok((body.freeze(), true))
}

/// Returns the outcome of a target from its last response.
fn target_outcome(
    target: &CrawlTarget,
    head: &ResponseHead,
    size_source: SizeSource,
    page: Option<(&Bytes, bool)>,
) -> VisitOutcome {
    let status = head.status.as_u16();
    let (bytes, size_source) = match (head.classify(), page) {
        (ResponseClass::Redirect(to), _) => {
            return match target.url.join(&to).ok().and_then(canonicalize) {
                Some(to) => VisitOutcome::Redirect { to },
                None => VisitOutcome::Refused { status },
            };
        }
        (
            ResponseClass::RetryLater(_) | ResponseClass::MethodRejected | ResponseClass::Refused,
            _,
        ) => {
            return VisitOutcome::Refused { status };
        }
        (ResponseClass::Sized(bytes), _) => (bytes, size_source),
        (ResponseClass::Unsized, Some((body, true))) => (body.len() as u64, SizeSource::Reading),
        (ResponseClass::Unsized, Some((body, false))) => {
            (body.len() as u64, SizeSource::PartialReading)
        }
        (ResponseClass::Unsized, None) => {
            return VisitOutcome::Unsized { media: head.media_type() };
        }
    };
    let (mut links, mut off_host_links) = (Vec::new(), 0);
    if let Some((body, _)) = page.filter(|_| target.scope == FetchScope::Links) {
        let site = Site::from_url(&target.url);
        for link in page_links(body, &target.url) {
            if Site::from_url(&link) == site {
                links.push(link);
            } else {
                off_host_links += 1;
            }
        }
    }
    VisitOutcome::Object {
        bytes,
        size_source,
        media: head.media_type(),
        links,
        off_host: off_host_links,
    }
}
