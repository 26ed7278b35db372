//! robots.txt (RFC 9309): which paths a host allows, and how often it may be requested.
//!
//! Owns the file's syntax and the meaning of the response's status. There are no regular
//! expressions: a hostile file costs at most one pass over the path for each rule.

use std::time::Duration;

use url::{Position, Url};

use crate::site::normalize_percents;

/// Product token of this crawler in robots.txt and User-Agent (RFC 9309 section 2.2.1).
pub const PRODUCT_TOKEN: &str = "smig-survey";

/// The maximum number of bytes read of a file (RFC 9309 section 2.5).
pub(super) const MAX_ROBOTS_BYTES: usize = 500 << 10;

/// Maximum length of a pattern. A longer `Disallow` is truncated, which disallows more.
const MAX_PATTERN_BYTES: usize = 2048;

/// What a host allows.
#[derive(Debug)]
pub(super) enum RobotsRules {
    /// There are no rules.
    AllowAll,
    /// Nothing is allowed: the response is 429 or a server error (section 2.3.1.4), or the rules demand
    /// a pause above [`MAX_PAUSE`](super::schedule::MAX_PAUSE).
    DisallowAll,
    File(Group),
}

impl RobotsRules {
    /// Returns the rules that a response for robots.txt implies.
    pub(super) fn from_response(status: u16, body: &[u8]) -> Self {
        match status {
            200..=299 => Self::File(Group::parse(&body[..body.len().min(MAX_ROBOTS_BYTES)])),
            // 429 Too Many Requests does not permit further requests.
            429 => Self::DisallowAll,
            300..=499 => Self::AllowAll,
            _ => Self::DisallowAll,
        }
    }

    pub(super) fn allows(&self, url: &Url) -> bool {
        match self {
            Self::AllowAll => true,
            Self::DisallowAll => false,
            Self::File(group) => group.allows(&url[Position::BeforePath..Position::AfterQuery]),
        }
    }

    /// Returns the pause that the host requests.
    pub(super) const fn crawl_delay(&self) -> Option<Duration> {
        match self {
            Self::File(group) => group.crawl_delay,
            Self::AllowAll | Self::DisallowAll => None,
        }
    }
}

/// The lines of a file that apply to this crawler.
#[derive(Debug, Default)]
pub(super) struct Group {
    rules: Vec<Rule>,
    crawl_delay: Option<Duration>,
}

#[derive(Debug)]
struct Rule {
    access: Access,
    pattern: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Allow,
    Disallow,
}

/// Which user agents the current group names.
#[derive(Debug, Clone, Copy, Default)]
struct GroupAgents {
    this_crawler: bool,
    all_crawlers: bool,
}

impl Group {
    /// Merges all groups that name this crawler or, without any, all groups for `*` (section 2.2.1).
    /// Lines before the first user-agent line count as a group for `*`.
    fn parse(file: &[u8]) -> Self {
        let text = String::from_utf8_lossy(file);
        let (mut own_group, mut wildcard_group, mut is_named) =
            (Self::default(), Self::default(), false);
        let mut agents = GroupAgents { this_crawler: false, all_crawlers: true };
        let mut has_rules = true;
        for line in text.trim_start_matches('\u{feff}').split(['\r', '\n', '\0']) {
            let line = line.split_once('#').map_or(line, |(line, _)| line);
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            if key == "user-agent" {
                if has_rules {
                    agents = GroupAgents::default();
                }
                has_rules = false;
                agents.all_crawlers |= value == "*";
                agents.this_crawler |= is_own_token(value);
                is_named |= agents.this_crawler;
            } else if let Some(directive) = Directive::parse(&key, value) {
                has_rules = true;
                if agents.this_crawler {
                    own_group.add(&directive);
                }
                if agents.all_crawlers {
                    wildcard_group.add(&directive);
                }
            }
        }
        if is_named { own_group } else { wildcard_group }
    }

    fn add(&mut self, directive: &Directive<'_>) {
        match *directive {
            Directive::Rule(access, value) => self.rules.extend(Rule::new(access, value)),
            Directive::CrawlDelay(pause) => {
                self.crawl_delay =
                    Some(self.crawl_delay.map_or(pause, |previous| previous.max(pause)))
            }
        }
    }

    /// Applies the longest matching pattern; of two equally long ones, `Allow` (section 2.2.2).
    fn allows(&self, path: &str) -> bool {
        // `*` in a pattern is always the wildcard; a literal one is written %2A.
        let path = normalize_percents(path).replace('*', "%2A");
        let matching = self.rules.iter().filter(|rule| pattern_matches(&rule.pattern, &path));
        let best = matching.max_by_key(|rule| (rule.pattern.len(), rule.access == Access::Allow));
        path == "/robots.txt" || best.is_none_or(|rule| rule.access == Access::Allow)
    }
}

/// A line with an effect.
enum Directive<'a> {
    Rule(Access, &'a str),
    CrawlDelay(Duration),
}

impl<'a> Directive<'a> {
    fn parse(key: &str, value: &'a str) -> Option<Self> {
        match key {
            "allow" => Some(Self::Rule(Access::Allow, value)),
            "disallow" => Some(Self::Rule(Access::Disallow, value)),
            "crawl-delay" => {
                let seconds = value.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0)?;
                Some(Self::CrawlDelay(
                    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
                ))
            }
            _ => None,
        }
    }
}

/// Compares a user-agent line's product token, without any suffix, with this crawler's.
fn is_own_token(value: &str) -> bool {
    let end = value.find(|c: char| !(c.is_ascii_alphabetic() || c == '-' || c == '_'));
    value[..end.unwrap_or(value.len())].eq_ignore_ascii_case(PRODUCT_TOKEN)
}

impl Rule {
    /// Returns `None` for an empty pattern, which has no effect.
    fn new(access: Access, value: &str) -> Option<Self> {
        let mut pattern = String::with_capacity(value.len());
        for byte in value.bytes() {
            // Percent-encode as in the URLs that the pattern is compared with.
            if (0x21..0x7f).contains(&byte) && !b"\"<>`{}".contains(&byte) {
                pattern.push(byte.into());
            } else {
                pattern.push_str(&format!("%{byte:02X}"));
            }
        }
        let mut pattern = normalize_percents(&pattern);
        if pattern.len() > MAX_PATTERN_BYTES {
            if access == Access::Allow {
                return None;
            }
            pattern.truncate(MAX_PATTERN_BYTES);
            // At the end, a `$` from within the pattern would be an anchor, which disallows less.
            pattern.truncate(pattern.trim_end_matches('$').len());
        }
        (!pattern.is_empty()).then_some(Self { access, pattern })
    }
}

/// Matches a path's prefix with a pattern: `*` matches anything, a final `$` the path's end.
fn pattern_matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_anchored) = match pattern.strip_suffix('$') {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut pieces = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return !is_anchored || rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if is_anchored && pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"\xef\xbb\xbfUser-agent: other\nDisallow: /\n\nUser-Agent: Smig-Survey/1.0 # us\n\
        Disallow: /private\r\nAllow: /private/but\nSitemap: https://a.example/s\nDisallow: /*.iso$\n\
        Crawl-delay: 2.5\nDisallow:\n\nUser-agent: *\nDisallow: /x\n\nuser-agent: a\nUSER-AGENT: smig-survey\n\
        disallow : /more\n";

    fn allows(rules: &RobotsRules, path: &str) -> bool {
        rules.allows(&format!("https://a.example{path}").parse().unwrap())
    }

    #[test]
    fn groups_that_name_this_crawler_apply() {
        let rules = RobotsRules::from_response(200, FILE);
        for (path, allowed) in [
            ("/", true),
            ("/x", true),
            ("/private/a", false),
            ("/private/but/x", true),
            ("/big.iso", false),
            ("/big.iso.txt", true),
            ("/big.iso?x", true),
            ("/private?x", false),
            ("/more", false),
            ("/robots.txt", true),
        ] {
            assert_eq!(allows(&rules, path), allowed, "{path}");
        }
        assert_eq!(rules.crawl_delay(), Some(Duration::from_millis(2500)));
    }

    #[test]
    fn patterns_match_as_in_rfc_9309() {
        for (pattern, path, is_match) in [
            ("/", "/anything", true),
            ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", true),
            ("/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https://foo.bar", true),
            ("/foo/bar/\u{30c4}", "/foo/bar/%E3%83%84", true),
            ("/foo/bar/%e3%83%84", "/foo/bar/\u{30c4}", true),
            ("/foo/bar/%62%61%7A", "/foo/bar/baz", true),
            ("/a b", "/a b", true),
            ("/*", "/", true),
            ("*", "/x", true),
            ("*/x$", "/a/x/b/x", true),
            ("/a*b*c$", "/abbc", true),
            ("/a*b*c$", "/acb", false),
            ("/a*aa$", "/aa", false),
            ("/fish$", "/fish", true),
            ("/fish$", "/fishes", false),
            ("/fish*", "/fish", true),
            ("/Fish", "/fish", false),
        ] {
            let rules = RobotsRules::from_response(
                200,
                format!("User-agent: *\nDisallow: {pattern}").as_bytes(),
            );
            assert_eq!(!allows(&rules, path), is_match, "{pattern} {path}");
        }
        let both = RobotsRules::from_response(
            200,
            b"Allow: /page\nDisallow: /*.ph\nAllow: /p\nDisallow: /p\n",
        );
        assert!(allows(&both, "/page.htm") && allows(&both, "/p"));
        assert!(!allows(&both, "/x.php"));
        let longest =
            RobotsRules::from_response(200, b"user-agent:*\nAllow: /p\nDisallow: /page\n");
        assert!(!allows(&longest, "/page") && allows(&longest, "/pal"));
    }

    #[test]
    fn a_truncated_pattern_disallows_more() {
        let path = format!("/{}$bbbb", "a".repeat(MAX_PATTERN_BYTES - 2));
        let rules =
            RobotsRules::from_response(200, format!("User-agent: *\nDisallow: {path}").as_bytes());
        assert!(!allows(&rules, &path));
        assert!(!allows(&rules, &format!("{path}/c")));
    }

    #[test]
    fn the_status_and_the_file_determine_the_rules() {
        for (status, body, allowed) in [
            (200, &b""[..], true),
            (200, b"<html>no such page: \xff", true),
            (200, b"User-agent: *\nDisallow: /", false),
            (200, b"User-agent: *\nUser-agent: x\nDisallow: /", false),
            (200, b"User-agent: smig-surveyor\nDisallow: /", true),
            (301, b"", true),
            (404, b"", true),
            (403, b"", true),
            (429, b"", false),
            (500, b"", false),
            (503, b"", false),
        ] {
            assert_eq!(
                allows(&RobotsRules::from_response(status, body), "/"),
                allowed,
                "{status} {body:?}"
            );
        }
        let slow = RobotsRules::from_response(
            200,
            b"User-agent: *\nCrawl-delay: 99999999999999999999999\n",
        );
        assert_eq!(slow.crawl_delay(), Some(Duration::MAX));
        assert_eq!(
            RobotsRules::from_response(200, b"Crawl-delay: soon\nCrawl-delay: -1").crawl_delay(),
            None
        );
    }

    #[test]
    fn a_long_disallow_is_truncated() {
        let long = "a".repeat(3 * MAX_PATTERN_BYTES);
        let rules = RobotsRules::from_response(
            200,
            format!("Disallow: /{long}\nAllow: /{long}").as_bytes(),
        );
        assert!(!allows(&rules, &format!("/{long}")) && allows(&rules, "/aaa"));
    }
}
