//! Crawls sites politely: three levels by default, one host, robots.txt, a rate limit. HTML pages are read
//! for their links; of other objects at most the header section and one byte.
//!
//! Owns the order of sites; `Walk` owns the order of a site's URLs, `Fetcher` the requests,
//! [`ResultsFile`] the file from which a stopped crawl resumes. Dropping [`crawl`]'s future stops
//! the crawl; its findings so far are in the file.

mod classify;
mod fetch;
mod results;
mod robots;
mod schedule;
mod walk;

use std::collections::VecDeque;
use std::sync::Arc;

use http::HeaderValue;
use smig::{Client, Config, Trust};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use results::{CrawlSummary, ResultsFile, SiteEnd, Visit};
pub use robots::PRODUCT_TOKEN;
pub use schedule::RequestRate;
pub use url::Url;
pub use walk::{SizeSource, VisitOutcome, WalkEnd, WalkLimits};

use super::{SurveyError, canonicalize};
use fetch::Fetcher;
use results::{ResultLine, Visits};
use walk::Walk;

/// Options of a crawl. The limits of each walk are an argument of [`ResultsFile::open`].
#[derive(Debug, Clone)]
pub struct CrawlOptions {
    /// The maximum request rate per host. A host's Crawl-delay can lower it.
    pub rate: RequestRate,
    /// The number of sites crawled concurrently.
    pub parallel_sites: usize,
    /// Contact for the sites' owners: a URL or an email address. It is sent in the User-Agent.
    pub contact: String,
}

/// A progress event, for display.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum CrawlEvent<'a> {
    /// A URL was visited.
    Visited(&'a Visit),
    /// A site's walk ended.
    Ended(&'a SiteEnd),
}

/// Parses a start address: a URL, or a host, which implies https.
///
/// # Errors
/// When the text is neither, with the reason.
pub fn parse_start(text: &str) -> Result<Url, SurveyError> {
    let text = text.trim();
    let full = if text.contains("://") { text.to_owned() } else { format!("https://{text}/") };
    let invalid = |why: String| SurveyError::InvalidArgument(format!("{text}: {why}"));
    let url = Url::parse(&full).map_err(|error| invalid(format!("not a URL or host: {error}")))?;
    canonicalize(url).ok_or_else(|| invalid("only http:// and https:// can be crawled".into()))
}

/// Builds a client for third-party servers: plain HTTP/2 or HTTP/1.1, without SMig.
///
/// # Errors
/// When certificates cannot be read.
pub fn build_client(trust: Trust) -> Result<Client, SurveyError> {
    let config = Config { smig: None, ..Config::client() };
    Client::builder()
        .trust(trust)
        .engine(config)
        .spares(0)
        .plain_connections(1)
        .build()
        .map_err(|error| SurveyError::Client(error.to_string()))
}

/// Crawls the sites whose walk has not ended in the results file, or ended as unreachable, and appends their results.
///
/// # Errors
/// When the contact is not a valid header value, or the results file cannot be written.
pub async fn crawl(
    starts: &[Url],
    options: &CrawlOptions,
    client: Client,
    results: &mut ResultsFile,
    on_event: &mut dyn FnMut(CrawlEvent<'_>),
) -> Result<(), SurveyError> {
    let fetcher = Arc::new(Fetcher::new(client, user_agent(&options.contact)?, options.rate));
    let mut pending: VecDeque<_> = starts.iter().filter(|start| !results.is_done(start)).collect();
    let (line_tx, mut line_rx) = mpsc::channel(64);
    let mut walks = JoinSet::new();
    loop {
        while walks.len() < options.parallel_sites.max(1) {
            let Some(start) = pending.pop_front() else { break };
            let earlier_visits = results.take_visits(start);
            let walk = Walk::new(start, results.limits());
            walks.spawn(crawl_site(
                start.clone(),
                walk,
                earlier_visits,
                Arc::clone(&fetcher),
                line_tx.clone(),
            ));
        }
        if walks.is_empty() {
            break;
        }
        tokio::select! {
            Some(line) = line_rx.recv() => record_line(results, &line, on_event)?,
            ended = walks.join_next() => {
                if let Some(Err(panic)) = ended {
                    std::panic::resume_unwind(panic.into_panic());
                }
            }
        }
    }
    while let Ok(line) = line_rx.try_recv() {
        record_line(results, &line, on_event)?;
    }
    Ok(())
}

fn record_line(
    results: &mut ResultsFile,
    line: &ResultLine,
    on_event: &mut dyn FnMut(CrawlEvent<'_>),
) -> Result<(), SurveyError> {
    results.write(line)?;
    match line {
        ResultLine::Visit(visit) => on_event(CrawlEvent::Visited(visit)),
        ResultLine::Site(ended) => on_event(CrawlEvent::Ended(ended)),
        ResultLine::Survey(_) => {}
    }
    Ok(())
}

/// Crawls one site, from its start to its end.
async fn crawl_site(
    start: Url,
    mut walk: Walk,
    earlier_visits: Visits,
    fetcher: Arc<Fetcher>,
    line_tx: mpsc::Sender<ResultLine>,
) {
    while let Some(target) = walk.next() {
        if let Some(outcome) = earlier_visits.get(target.url.as_str()) {
            walk.record(&target, outcome);
            continue;
        }
        let outcome = fetcher.fetch(&target).await;
        walk.record(&target, &outcome);
        let (start, level) = (start.clone(), target.level);
        let visit = Visit { start, url: target.url, level, outcome };
        // The receiver is closed if the crawl was dropped; then this task ends as well.
        if line_tx.send(ResultLine::Visit(Box::new(visit))).await.is_err() {
            return;
        }
    }
    let site_end = SiteEnd { site: walk.site().cloned(), end: walk.end(), start };
    let _ = line_tx.send(ResultLine::Site(site_end)).await;
}

/// Returns the User-Agent value. Its comment has the contact that robots should send in the field From
/// (RFC 9110 section 10.1.2).
fn user_agent(contact: &str) -> Result<HeaderValue, SurveyError> {
    let contact = contact.trim();
    let is_contact = contact.contains("://") || contact.contains('@');
    let text = format!("{PRODUCT_TOKEN}/{} (+{contact})", env!("CARGO_PKG_VERSION"));
    HeaderValue::from_str(&text).ok().filter(|_| is_contact && !contact.contains(')')).ok_or_else(
        || {
            let why = "a contact is a URL or an email address for the sites' owners";
            SurveyError::InvalidArgument(format!("\"{contact}\": {why}"))
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
            assert_eq!(parse_start(text).unwrap().as_str(), url);
        }
        for text in ["", "ftp://example.com/", "a b"] {
            assert!(parse_start(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_user_agent_contains_the_contact() {
        let agent = user_agent("https://example.org/survey").unwrap();
        let text = agent.to_str().unwrap();
        assert!(
            text.starts_with("smig-survey/") && text.ends_with("(+https://example.org/survey)")
        );
        for contact in ["", "me", "https://x/)\n"] {
            assert!(user_agent(contact).is_err(), "{contact}");
        }
    }
}
