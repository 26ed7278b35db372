//! Sends requests: one at a time per host, at the host's pace, as its robots.txt allows.
//!
//! Owns the requests. It must never read more of an object than its header section or one byte or,
//! of an HTML page, [`MAX_PAGE`] bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, HeaderValue, RANGE, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use smig::{Client, Incoming};
use url::Url;

use super::judge::{Head, ResponseClass};
use super::pace::{HostSchedule, LONGEST_PAUSE, RequestRate};
use super::robots::{MAX_FILE, Rules};
use super::walk::{CrawlTarget, Outcome, SizeSource, Wants};
use crate::html::page_links;
use crate::{Site, canonical};

/// The maximum number of bytes read of a page.
pub(super) const MAX_PAGE: usize = 2 << 20;

/// Timeout of one response.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to back off when a host requests it without giving a time.
const BACK_OFF: Duration = Duration::from_secs(30);

/// Maximum number of redirects of a robots.txt (RFC 9309 section 2.3.1.2).
const ROBOTS_HOPS: usize = 5;

/// What to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchKind {
    /// The header section.
    Head,
    /// One byte; a page if the server sends one nevertheless.
    Byte,
    /// A page.
    Page,
    /// robots.txt.
    Robots,
}

struct Answer {
    head: Head,
    body: Bytes,
    is_whole: bool,
}

/// Sends the requests to all hosts of a crawl.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client,
    agent: HeaderValue,
    rate: RequestRate,
    hosts: Mutex<HashMap<String, Arc<tokio::sync::Mutex<HostSchedule>>>>,
    rules: Mutex<HashMap<String, Arc<Rules>>>,
}

impl Fetcher {
    pub(super) fn new(client: Client, agent: HeaderValue, rate: RequestRate) -> Self {
        Self { client, agent, rate, hosts: Mutex::default(), rules: Mutex::default() }
    }

    /// Returns the outcome of a target.
    pub(super) async fn look(&self, target: &CrawlTarget) -> Outcome {
        match self.rules(&target.url).await {
            Err(why) => return Outcome::Failed { why: format!("robots.txt: {why}") },
            Ok(rules) if !rules.allows(&target.url) => return Outcome::Disallowed,
            Ok(_) => {}
        }
        self.look_at(target).await.unwrap_or_else(|why| Outcome::Failed { why })
    }

    async fn look_at(&self, target: &CrawlTarget) -> Result<Outcome, String> {
        let url = &target.url;
        let is_read = |head: &Head| head.is_html() && target.wants == Wants::Links;
        let head = self.ask(url, FetchKind::Head).await?.head;
        let how = match head.meaning() {
            ResponseClass::Sized(_) | ResponseClass::Unsized if is_read(&head) => FetchKind::Page,
            ResponseClass::Unsized if head.is_html() => FetchKind::Page,
            ResponseClass::Unsized | ResponseClass::Method => FetchKind::Byte,
            _ => return Ok(conclude(target, &head, SizeSource::Head, None)),
        };
        let mut answer = self.ask(url, how).await?;
        let has_no_page = answer.head.status != StatusCode::OK || answer.body.is_empty();
        if how == FetchKind::Byte && is_read(&answer.head) && has_no_page {
            answer = self.ask(url, FetchKind::Page).await?;
        }
        let Answer { head, body, is_whole } = &answer;
        let page = (!body.is_empty() && head.is_html()).then_some((body, *is_whole));
        Ok(conclude(target, head, SizeSource::Get, page))
    }

    /// Returns the robots.txt rules for a URL.
    async fn rules(&self, url: &Url) -> Result<Arc<Rules>, String> {
        let origin = url.origin().ascii_serialization();
        if let Some(rules) = locked(&self.rules).get(&origin) {
            return Ok(Arc::clone(rules));
        }
        let rules = Arc::new(self.fetch_rules(url).await?);
        locked(&self.rules).insert(origin, Arc::clone(&rules));
        Ok(rules)
    }

    async fn fetch_rules(&self, url: &Url) -> Result<Rules, String> {
        let mut place = url.join("/robots.txt").map_err(|error| error.to_string())?;
        let mut answer = self.ask(&place, FetchKind::Robots).await?;
        for _ in 0..ROBOTS_HOPS {
            let ResponseClass::Redirect(to) = answer.head.meaning() else { break };
            let Some(next) = place.join(&to).ok().and_then(canonical) else { break };
            place = next;
            answer = self.ask(&place, FetchKind::Robots).await?;
        }
        let rules = Rules::of(answer.head.status.as_u16(), &answer.body);
        let Some(pause) = rules.pause() else { return Ok(rules) };
        if pause > LONGEST_PAUSE {
            return Ok(Rules::Nothing);
        }
        self.pace(url).lock().await.ask_for(pause);
        Ok(rules)
    }

    fn pace(&self, url: &Url) -> Arc<tokio::sync::Mutex<HostSchedule>> {
        let host = Site::of(url).map(|site| site.to_string()).unwrap_or_default();
        let pace = || Arc::new(tokio::sync::Mutex::new(HostSchedule::new(self.rate)));
        Arc::clone(locked(&self.hosts).entry(host).or_insert_with(pace))
    }

    /// Sends a request, and once more later if the server requests that.
    async fn ask(&self, url: &Url, how: FetchKind) -> Result<Answer, String> {
        let answer = self.ask_once(url, how).await?;
        match answer.head.meaning() {
            ResponseClass::Later(_) if how != FetchKind::Robots => self.ask_once(url, how).await,
            _ => Ok(answer),
        }
    }

    /// Sends one request. The host gets no other request until its response has been read.
    async fn ask_once(&self, url: &Url, how: FetchKind) -> Result<Answer, String> {
        let pace = self.pace(url);
        let mut pace = pace.lock().await;
        if let Some(ready) = pace.ready() {
            tokio::time::sleep_until(ready.into()).await;
        }
        let answer = tokio::time::timeout(PATIENCE, self.send(url, how)).await;
        let now = Instant::now();
        pace.answered(now);
        let answer = answer
            .map_err(|_| format!("no response within {} s", PATIENCE.as_secs()))
            .and_then(|answer| answer)?;
        if let ResponseClass::Later(after) = answer.head.meaning() {
            pace.back_off(now, after.unwrap_or(BACK_OFF));
        }
        Ok(answer)
    }

    async fn send(&self, url: &Url, how: FetchKind) -> Result<Answer, String> {
        let method = if how == FetchKind::Head { Method::HEAD } else { Method::GET };
        let mut request = Request::builder()
            .method(method)
            .uri(url.as_str())
            .header(USER_AGENT, &self.agent)
            .header(ACCEPT, "*/*");
        if how == FetchKind::Byte {
            request = request.header(RANGE, "bytes=0-0");
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        let head = Head::of(&response);
        let most = match how {
            FetchKind::Robots => MAX_FILE,
            FetchKind::Byte | FetchKind::Page if head.is_html() => MAX_PAGE,
            _ => 0,
        };
        let is_read = head.status == StatusCode::OK && most > 0;
        if !is_read {
            // Dropping the response cancels the rest.
            return Ok(Answer { head, body: Bytes::new(), is_whole: false });
        }
        let (body, is_whole) = read(response, most).await?;
        Ok(Answer { head, body, is_whole })
    }
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the body up to a limit, and returns whether that is all of it.
async fn read(mut response: Response<Incoming>, most: usize) -> Result<(Bytes, bool), String> {
    let mut body = BytesMut::new();
    while let Some(frame) = response.frame().await {
        let frame = frame.map_err(|error| error.to_string())?;
        let Ok(data) = frame.into_data() else { continue };
        let room = most - body.len();
        if data.len() > room {
            body.extend_from_slice(&data[..room]);
            return Ok((body.freeze(), false));
        }
        body.extend_from_slice(&data);
    }
    Ok((body.freeze(), true))
}

/// Returns the outcome that the last response for a target implies.
fn conclude(
    target: &CrawlTarget,
    head: &Head,
    by: SizeSource,
    page: Option<(&Bytes, bool)>,
) -> Outcome {
    let status = head.status.as_u16();
    let (bytes, by) = match (head.meaning(), page) {
        (ResponseClass::Redirect(to), _) => {
            return match target.url.join(&to).ok().and_then(canonical) {
                Some(to) => Outcome::Redirect { to },
                None => Outcome::Refused { status },
            };
        }
        (ResponseClass::Later(_) | ResponseClass::Method | ResponseClass::Refused, _) => {
            return Outcome::Refused { status };
        }
        (ResponseClass::Sized(bytes), _) => (bytes, by),
        (ResponseClass::Unsized, Some((body, true))) => (body.len() as u64, SizeSource::Reading),
        (ResponseClass::Unsized, Some((body, false))) => (body.len() as u64, SizeSource::AtLeast),
        (ResponseClass::Unsized, None) => return Outcome::Unsized { media: head.media() },
    };
    let (mut links, mut off_host) = (Vec::new(), 0);
    if let Some((body, _)) = page.filter(|_| target.wants == Wants::Links) {
        let site = Site::of(&target.url);
        for link in page_links(body, &target.url) {
            if Site::of(&link) == site {
                links.push(link);
            } else {
                off_host += 1;
            }
        }
    }
    Outcome::Object { bytes, by, media: head.media(), links, off_host }
}
