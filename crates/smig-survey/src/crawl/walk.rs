//! The walk through one site's object tree: what to request next, and when to stop.
//!
//! Owns the levels, the limits and the bounds of loops. It must never wait, send a request or read
//! a clock: its caller passes the outcomes, from the network or from an earlier run's file.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};
use url::Url;

use super::judge::is_html;
use crate::Site;

/// Maximum number of redirects in a row.
const MAX_HOPS: u8 = 5;

/// Number of consecutive "retry later" responses after which the site is abandoned.
const MAX_LATER: u8 = 3;

/// Number of consecutive failed requests after which the site is abandoned.
const MAX_FAILED: u8 = 5;

/// Limits of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Levels of the object tree; the landing page is the first.
    pub levels: u8,
    /// HTML pages read for their links, per site.
    pub max_pages: u32,
    /// URLs requested, per site.
    pub max_objects: u32,
}

impl Default for Limits {
    /// The paper's three levels; at one request per second about 20 minutes per site.
    fn default() -> Self {
        Self { levels: 3, max_pages: 50, max_objects: 1000 }
    }
}

/// How a size was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeSource {
    /// The response to HEAD.
    Head,
    /// The response to GET, of which one byte or no content was read.
    Get,
    /// Reading the page.
    Reading,
    /// Reading the page up to a limit; it is larger.
    AtLeast,
}

/// The outcome of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// An object.
    Object {
        /// Its size in bytes.
        bytes: u64,
        /// How the size was determined.
        by: SizeSource,
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
    /// A status that is neither success nor a redirect.
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
pub enum End {
    /// The complete tree was visited.
    Complete,
    /// A limit cut it short.
    Limited,
    /// robots.txt disallows the landing page.
    Disallowed,
    /// The landing page could not be loaded.
    Unreachable,
    /// The server requested an end, or failed too often.
    TurnedAway,
}

impl End {
    /// Returns the end as text for the table.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Complete => "crawled completely",
            Self::Limited => "limited by --max-pages or --max-objects",
            Self::Disallowed => "disallowed by robots.txt",
            Self::Unreachable => "without a landing page",
            Self::TurnedAway => "abandoned after refusals or failures of the server",
        }
    }
}

/// A URL to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CrawlTarget {
    pub(super) url: Url,
    pub(super) level: u8,
    hops: u8,
    pub(super) wants: Wants,
}

/// What to determine about a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Its size.
    Size,
    /// Its links too, if it is a page.
    Links,
}

/// The walk through a site.
#[derive(Debug)]
pub(super) struct Walk {
    limits: Limits,
    site: Option<Site>,
    scheme: String,
    queue: VecDeque<CrawlTarget>,
    seen: HashSet<String>,
    pages: u32,
    later: u8,
    failed: u8,
    end: Option<End>,
}

impl Walk {
    pub(super) fn new(start: &Url, limits: Limits) -> Self {
        let mut walk = Self {
            limits,
            site: None,
            scheme: start.scheme().to_owned(),
            queue: VecDeque::new(),
            seen: HashSet::new(),
            pages: 0,
            later: 0,
            failed: 0,
            end: None,
        };
        walk.offer(start.clone(), 1, 0);
        walk
    }

    /// Returns the next URL to request; `None` at the end.
    pub(super) fn next(&mut self) -> Option<CrawlTarget> {
        let mut target = self.queue.pop_front()?;
        if target.level < self.limits.levels && self.pages < self.limits.max_pages {
            target.wants = Wants::Links;
        }
        Some(target)
    }

    /// Records the outcome of a target.
    pub(super) fn take(&mut self, target: &CrawlTarget, outcome: &Outcome) {
        let (later, failed) = (self.later, self.failed);
        (self.later, self.failed) = (0, 0);
        match outcome {
            Outcome::Object { media, links, .. } => {
                let is_page = media.as_deref().is_some_and(is_html);
                self.land(target);
                if is_page && target.wants == Wants::Links {
                    self.pages += 1;
                } else if is_page && target.level < self.limits.levels {
                    self.limited();
                }
                for link in links {
                    self.offer(link.clone(), target.level + 1, 0);
                }
            }
            Outcome::Unsized { .. } => self.land(target),
            Outcome::Redirect { to } if target.hops < MAX_HOPS => {
                self.offer(to.clone(), target.level, target.hops + 1);
            }
            Outcome::Refused { status: 429 | 503 } => {
                self.later = later + 1;
                if self.later == MAX_LATER {
                    self.turn_away();
                }
            }
            Outcome::Disallowed if self.site.is_none() => self.end = Some(End::Disallowed),
            Outcome::Redirect { .. } | Outcome::Refused { .. } | Outcome::Disallowed => {}
            Outcome::Failed { .. } => {
                self.failed = failed + 1;
                if self.failed == MAX_FAILED {
                    self.turn_away();
                }
            }
        }
    }

    /// Returns the site, once its landing page was loaded.
    pub(super) const fn site(&self) -> Option<&Site> {
        self.site.as_ref()
    }

    /// Returns how the walk ended. Valid once [`Self::next`] has returned `None`.
    pub(super) fn end(&self) -> End {
        match (self.end, &self.site) {
            (Some(End::Disallowed), None) => End::Disallowed,
            (_, None) => End::Unreachable,
            (Some(end), Some(_)) => end,
            (None, Some(_)) => End::Complete,
        }
    }

    /// Sets the site: the first object loaded is the landing page, wherever redirects led.
    fn land(&mut self, target: &CrawlTarget) {
        if self.site.is_none() {
            self.site = Site::of(&target.url);
            target.url.scheme().clone_into(&mut self.scheme);
        }
    }

    fn limited(&mut self) {
        self.end.get_or_insert(End::Limited);
    }

    fn turn_away(&mut self) {
        self.queue.clear();
        self.end = Some(End::TurnedAway);
    }

    /// Queues a URL of the site unless it was seen before.
    fn offer(&mut self, mut url: Url, level: u8, hops: u8) {
        if let Some(site) = &self.site {
            if Site::of(&url).as_ref() != Some(site) {
                return;
            }
            // http and https of one host are one site, requested with the landing page's scheme.
            if url.port().is_none() && url.set_scheme(&self.scheme).is_err() {
                return;
            }
        }
        if self.seen.contains(url.as_str()) {
            return;
        }
        if self.seen.len() as u64 >= self.limits.max_objects.into() {
            self.limited();
            return;
        }
        self.seen.insert(url.as_str().to_owned());
        self.queue.push_back(CrawlTarget { url, level, hops, wants: Wants::Size });
    }
}

#[cfg(test)]
#[path = "tests/walk.rs"]
mod tests;
