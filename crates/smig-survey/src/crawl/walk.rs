//! The walk through one site's object tree: the next request, and the end.
//!
//! Owns the levels, the limits and the bounds of loops. It must never wait, send a request or read
//! a clock: its caller passes the outcomes, from the network or from an earlier run's file.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};
use url::Url;

use super::classify::is_html;
use crate::Site;

/// Maximum number of redirects in a row.
const MAX_REDIRECTS: u8 = 5;

/// Number of consecutive URLs, each requested twice, that were answered with "retry later" after which the site is abandoned.
const MAX_CONSECUTIVE_RETRY_LATER: u8 = 3;

/// Number of consecutive URLs with a failed request after which the site is abandoned.
const MAX_CONSECUTIVE_FAILURES: u8 = 5;

/// Limits of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkLimits {
    /// Levels of the object tree; the landing page is the first.
    pub levels: u8,
    /// HTML pages read for their links, per site.
    pub max_pages: u32,
    /// URLs requested, per site; earlier results files name it `max_objects`.
    #[serde(alias = "max_objects")]
    pub max_urls: u32,
}

impl Default for WalkLimits {
    /// The paper's three levels; at one request per second about 20 minutes per site.
    fn default() -> Self {
        Self { levels: 3, max_pages: 50, max_urls: 1000 }
    }
}

/// How a size was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeSource {
    /// The response to HEAD.
    Head,
    /// The header section of the response to GET. Its content was read only if it is a page with links.
    Get,
    /// Reading the page.
    Reading,
    /// Reading the page up to a limit; it is larger.
    #[serde(rename = "at-least")]
    PartialReading,
}

/// The outcome of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum VisitOutcome {
    /// An object.
    Object {
        /// Its size in bytes.
        bytes: u64,
        /// How the size was determined.
        #[serde(rename = "by")]
        size_source: SizeSource,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media: Option<String>,
        /// URLs of the same site in it, if it is a page that was read for its links.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        links: Vec<Url>,
        /// Number of its links to other hosts.
        #[serde(default, skip_serializing_if = "is_zero")]
        off_host: u32,
    },
    /// An object whose size is unknown.
    Unsized {
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media: Option<String>,
    },
    /// A redirect.
    Redirect {
        /// The target.
        to: Url,
    },
    /// Disallowed by robots.txt.
    Disallowed,
    /// Any other response: an error, one without an object (204), or a redirect without a usable target.
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// No response.
    Failed {
        /// The reason.
        why: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How a site's walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WalkEnd {
    /// The complete tree was visited.
    Complete,
    /// A limit ended it early.
    Limited,
    /// robots.txt disallows the landing page, demands too long a pause, or is answered with 429 or a
    /// server error.
    Disallowed,
    /// The landing page could not be loaded.
    Unreachable,
    /// Too many URLs in a row failed, or were to be requested again later (429, 503) even when repeated.
    #[serde(rename = "turned-away")]
    Abandoned,
}

impl WalkEnd {
    /// Returns the end as text for the table.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Complete => "crawled completely",
            Self::Limited => "limited by --max-pages or --max-urls",
            Self::Disallowed => "disallowed by robots.txt",
            Self::Unreachable => "without a landing page",
            Self::Abandoned => "abandoned after refusals or failures of the server",
        }
    }
}

/// A URL to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CrawlTarget {
    pub(super) url: Url,
    pub(super) level: u8,
    redirects: u8,
    pub(super) scope: FetchScope,
}

/// What to determine about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchScope {
    /// Its size.
    Size,
    /// Its links too, if it is a page.
    Links,
}

/// The walk through a site.
#[derive(Debug)]
pub(super) struct Walk {
    limits: WalkLimits,
    site: Option<Site>,
    scheme: String,
    queue: VecDeque<CrawlTarget>,
    seen_urls: HashSet<String>,
    page_count: u32,
    consecutive_retry_later: u8,
    consecutive_failures: u8,
    end: Option<WalkEnd>,
}

impl Walk {
    pub(super) fn new(start: &Url, limits: WalkLimits) -> Self {
        let mut walk = Self {
            limits,
            site: None,
            scheme: start.scheme().to_owned(),
            queue: VecDeque::new(),
            seen_urls: HashSet::new(),
            page_count: 0,
            consecutive_retry_later: 0,
            consecutive_failures: 0,
            end: None,
        };
        walk.enqueue_if_new(start.clone(), 1, 0);
        walk
    }

    /// Returns the next URL to request; `None` at the end.
    pub(super) fn next(&mut self) -> Option<CrawlTarget> {
        let mut target = self.queue.pop_front()?;
        if target.level < self.limits.levels && self.page_count < self.limits.max_pages {
            target.scope = FetchScope::Links;
        }
        Some(target)
    }

    /// Records the outcome of a target.
    pub(super) fn record(&mut self, target: &CrawlTarget, outcome: &VisitOutcome) {
        let (retry_later_count, failure_count) =
            (self.consecutive_retry_later, self.consecutive_failures);
        (self.consecutive_retry_later, self.consecutive_failures) = (0, 0);
        match outcome {
            VisitOutcome::Object { media, links, .. } => {
                let is_page = media.as_deref().is_some_and(is_html);
                self.set_site(target);
                if is_page && target.scope == FetchScope::Links {
                    self.page_count += 1;
                } else if is_page && target.level < self.limits.levels {
                    self.mark_limited();
                }
                for link in links {
                    self.enqueue_if_new(link.clone(), target.level + 1, 0);
                }
            }
            VisitOutcome::Unsized { .. } => self.set_site(target),
            VisitOutcome::Redirect { to } if target.redirects < MAX_REDIRECTS => {
                self.enqueue_if_new(to.clone(), target.level, target.redirects + 1);
            }
            VisitOutcome::Refused { status: 429 | 503 } => {
                self.consecutive_retry_later = retry_later_count + 1;
                if self.consecutive_retry_later == MAX_CONSECUTIVE_RETRY_LATER {
                    self.abandon();
                }
            }
            VisitOutcome::Disallowed if self.site.is_none() => self.end = Some(WalkEnd::Disallowed),
            VisitOutcome::Redirect { .. }
            | VisitOutcome::Refused { .. }
            | VisitOutcome::Disallowed => {}
            VisitOutcome::Failed { .. } => {
                self.consecutive_failures = failure_count + 1;
                if self.consecutive_failures == MAX_CONSECUTIVE_FAILURES {
                    self.abandon();
                }
            }
        }
    }

    /// Returns the site, once its landing page was loaded.
    pub(super) const fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    /// Returns how the walk ended. Valid once [`Self::next`] has returned `None`.
    pub(super) fn end(&self) -> WalkEnd {
        match (self.end, &self.site) {
            (Some(WalkEnd::Disallowed), None) => WalkEnd::Disallowed,
            (_, None) => WalkEnd::Unreachable,
            (Some(end), Some(_)) => end,
            (None, Some(_)) => WalkEnd::Complete,
        }
    }

    /// Sets the site: the first object loaded is the landing page, wherever redirects led.
    fn set_site(&mut self, target: &CrawlTarget) {
        if self.site.is_none() {
            self.site = Site::from_url(&target.url);
            target.url.scheme().clone_into(&mut self.scheme);
        }
    }

    fn mark_limited(&mut self) {
        self.end.get_or_insert(WalkEnd::Limited);
    }

    fn abandon(&mut self) {
        self.queue.clear();
        self.end = Some(WalkEnd::Abandoned);
    }

    /// Queues a URL of the site unless it was seen before.
    fn enqueue_if_new(&mut self, mut url: Url, level: u8, redirects: u8) {
        if let Some(site) = &self.site {
            if Site::from_url(&url).as_ref() != Some(site) {
                return;
            }
            // http and https of one host are one site, requested with the landing page's scheme.
            if url.port().is_none() && url.set_scheme(&self.scheme).is_err() {
                return;
            }
        }
        if self.seen_urls.contains(url.as_str()) {
            return;
        }
        if self.seen_urls.len() as u64 >= self.limits.max_urls.into() {
            self.mark_limited();
            return;
        }
        self.seen_urls.insert(url.as_str().to_owned());
        self.queue.push_back(CrawlTarget { url, level, redirects, scope: FetchScope::Size });
    }
}

#[cfg(test)]
#[path = "tests/walk.rs"]
mod tests;
