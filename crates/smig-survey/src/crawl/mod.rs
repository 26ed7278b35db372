//! Crawls sites politely: three levels, one host, robots.txt, a rate limit, headers only.
//!
//! Owns the order of sites; `Walk` owns the order of a site's URLs, `Fetcher` the requests,
//! [`Results`] the file from which a stopped crawl resumes. Dropping [`crawl`]'s future stops it;
//! its findings so far are in the file.

mod ask;
mod judge;
mod pace;
mod record;
mod robots;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;

use http::HeaderValue;
use smig::{Client, Config, Trust};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use pace::RequestRate;
pub use record::{Crawled, Ended, Results, Visit};
pub use robots::PRODUCT;
pub use url::Url;
pub use walk::{End, Limits, Outcome, SizeSource};

use super::{SurveyError, canonical};
use ask::Fetcher;
use record::{Line, Visits};
use walk::Walk;

/// How to crawl. [`Results::open`] takes the limits of each walk.
#[derive(Debug, Clone)]
pub struct CrawlOptions {
    /// The maximum request rate per host. A host's Crawl-delay can lower it.
    pub rate: RequestRate,
    /// The number of sites crawled concurrently.
    pub parallel: usize,
    /// Contact for the sites' owners: a URL or a mail address. It is sent in the User-Agent.
    pub contact: String,
}

/// A progress event, for display.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CrawlEvent<'a> {
    /// A URL was visited.
    Visited(&'a Visit),
    /// A site's walk ended.
    Ended(&'a Ended),
}

/// Parses a start address: a URL, or a host, which implies https.
///
/// # Errors
/// Text that is neither, with the reason.
pub fn start(text: &str) -> Result<Url, SurveyError> {
    let text = text.trim();
    let full = if text.contains("://") { text.to_owned() } else { format!("https://{text}/") };
    let wrong = |why: String| SurveyError::Start(format!("{text}: {why}"));
    let url = Url::parse(&full).map_err(|error| wrong(format!("not a URL or host: {error}")))?;
    canonical(url).ok_or_else(|| wrong("only http:// and https:// can be crawled".into()))
}

/// Builds a client for foreign servers: plain HTTP/2 or HTTP/1.1, without SMig.
///
/// # Errors
/// Certificates that cannot be read.
pub fn client(trust: Trust) -> Result<Client, SurveyError> {
    let engine = Config { smig: None, ..Config::client() };
    Client::builder()
        .trust(trust)
        .engine(engine)
        .spares(0)
        .build()
        .map_err(|error| SurveyError::Client(error.to_string()))
}

/// Crawls the sites that the results file does not hold yet, and appends them to it.
///
/// # Errors
/// A contact that is not a valid header value, or a results file that cannot be written.
pub async fn crawl(
    starts: &[Url],
    manners: &CrawlOptions,
    client: Client,
    results: &mut Results,
    tell: &mut dyn FnMut(CrawlEvent<'_>),
) -> Result<(), SurveyError> {
    let asker = Arc::new(Fetcher::new(client, agent(&manners.contact)?, manners.rate));
    let mut waiting: VecDeque<_> = starts.iter().filter(|start| !results.is_done(start)).collect();
    let (send, mut lines) = mpsc::channel(64);
    let mut running = JoinSet::new();
    loop {
        while running.len() < manners.parallel.max(1) {
            let Some(start) = waiting.pop_front() else { break };
            let known = results.take_visits(start);
            let walk = Walk::new(start, results.limits());
            running.spawn(walk_through(
                start.clone(),
                walk,
                known,
                Arc::clone(&asker),
                send.clone(),
            ));
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            Some(line) = lines.recv() => keep(results, &line, tell)?,
            ended = running.join_next() => {
                if let Some(Err(panic)) = ended {
                    std::panic::resume_unwind(panic.into_panic());
                }
            }
        }
    }
    while let Ok(line) = lines.try_recv() {
        keep(results, &line, tell)?;
    }
    Ok(())
}

fn keep(
    results: &mut Results,
    line: &Line,
    tell: &mut dyn FnMut(CrawlEvent<'_>),
) -> Result<(), SurveyError> {
    results.write(line)?;
    match line {
        Line::Visit(visit) => tell(CrawlEvent::Visited(visit)),
        Line::Site(ended) => tell(CrawlEvent::Ended(ended)),
        Line::Survey(_) => {}
    }
    Ok(())
}

/// Crawls one site, from its start to its end.
async fn walk_through(
    start: Url,
    mut walk: Walk,
    known: Visits,
    asker: Arc<Fetcher>,
    lines: mpsc::Sender<Line>,
) {
    while let Some(target) = walk.next() {
        if let Some(outcome) = known.get(target.url.as_str()) {
            walk.take(&target, outcome);
            continue;
        }
        let outcome = asker.look(&target).await;
        walk.take(&target, &outcome);
        let (start, level) = (start.clone(), target.level);
        let visit = Visit { start, url: target.url, level, outcome };
        // The receiver is closed if the crawl was dropped; then this task ends as well.
        if lines.send(Line::Visit(Box::new(visit))).await.is_err() {
            return;
        }
    }
    let ended = Ended { site: walk.site().cloned(), end: walk.end(), start };
    let _ = lines.send(Line::Site(ended)).await;
}

/// Returns the User-Agent value, with the contact that RFC 9110 section 10.1.5 requires of robots.
fn agent(contact: &str) -> Result<HeaderValue, SurveyError> {
    let contact = contact.trim();
    let is_contact = contact.contains("://") || contact.contains('@');
    let text = format!("{PRODUCT}/{} (+{contact})", env!("CARGO_PKG_VERSION"));
    HeaderValue::from_str(&text).ok().filter(|_| is_contact && !contact.contains(')')).ok_or_else(
        || {
            let why = "a contact is a URL or an email address for the sites' owners";
            SurveyError::Start(format!("\"{contact}\": {why}"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_urls_or_hosts() {
        for (text, url) in [
            ("example.com", "https://example.com/"),
            (" http://example.com/a/../b#c ", "http://example.com/b"),
            ("localhost:8443", "https://localhost:8443/"),
        ] {
            assert_eq!(start(text).unwrap().as_str(), url);
        }
        for text in ["", "ftp://example.com/", "a b"] {
            assert!(start(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_crawler_says_who_it_is() {
        let agent = agent("https://example.org/survey").unwrap();
        let text = agent.to_str().unwrap();
        assert!(
            text.starts_with("smig-survey/") && text.ends_with("(+https://example.org/survey)")
        );
        for contact in ["", "me", "https://x/)\n"] {
            assert!(super::agent(contact).is_err(), "{contact}");
        }
    }
}
