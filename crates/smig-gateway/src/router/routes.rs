//! Maps a host and a path to a route, without allocating.

use std::collections::HashMap;

use crate::config::{HostPattern, MAX_HOST_BYTES};

/// Routes by host and path. Lookups return the route's index in the configuration.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    exact_hosts: HashMap<Box<str>, Paths>,
    wildcard_hosts: HashMap<Box<str>, Paths>,
    any_host: Paths,
}

/// The routes of one host, longest path first.
#[derive(Debug, Default)]
struct Paths(Vec<(Box<str>, usize)>);

impl Paths {
    fn insert(&mut self, path: &str, route_index: usize) {
        self.0.push((path.into(), route_index));
        self.0.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    }

    fn find(&self, path: &str) -> Option<usize> {
        let matches = |(prefix, _): &&(Box<str>, usize)| is_at_or_below(path, prefix);
        self.0.iter().find(matches).map(|(_, route)| *route)
    }
}

/// Returns whether `path` is `prefix` or below it. `/a` does not match the prefix `/a/`.
fn is_at_or_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
}

impl Routes {
    /// Adds a route. For the same host and path, the first one wins.
    pub(crate) fn insert(&mut self, host: Option<&HostPattern>, path: &str, route_index: usize) {
        let paths = match host {
            None => &mut self.any_host,
            Some(HostPattern::Exact(name)) => {
                self.exact_hosts.entry(name.as_str().into()).or_default()
            }
            Some(HostPattern::Wildcard(name)) => {
                self.wildcard_hosts.entry(name.as_str().into()).or_default()
            }
        };
        paths.insert(path, route_index);
    }

    /// Returns the route for a request. The most specific host decides, even if it has no route for the path.
    pub(crate) fn find(&self, host: Option<&str>, path: &str) -> Option<usize> {
        self.paths_of(host).unwrap_or(&self.any_host).find(path)
    }

    /// Returns whether any route has a host.
    pub(crate) fn has_hosts(&self) -> bool {
        !self.exact_hosts.is_empty() || !self.wildcard_hosts.is_empty()
    }

    /// Returns whether a route has this host, by name or wildcard.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.paths_of(Some(host)).is_some()
    }

    fn paths_of(&self, host: Option<&str>) -> Option<&Paths> {
        let mut buffer = [0; MAX_HOST_BYTES];
        let name = normalize_host(host?, &mut buffer)?;
        if let Some(paths) = self.exact_hosts.get(name) {
            return Some(paths);
        }
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(paths) = self.wildcard_hosts.get(parent) {
                return Some(paths);
            }
            rest = parent;
        }
        None
    }
}

/// Normalizes a host: lower case, no brackets, no trailing dot.
fn normalize_host<'a>(host: &str, buffer: &'a mut [u8; MAX_HOST_BYTES]) -> Option<&'a str> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    let name = buffer.get_mut(..host.len())?;
    name.copy_from_slice(host.as_bytes());
    name.make_ascii_lowercase();
    std::str::from_utf8(name).ok()
}

/// Returns whether a path has segments that another program may resolve: `.`, `..`, plain or percent-encoded, with or
/// without parameters (`..;a`, as Tomcat parses them). Such a path can mean one thing to the gateway and another to
/// the server.
pub(crate) fn has_dot_segments(path: &str) -> bool {
    // Most paths contain none of these.
    if !path.contains("/.") && !path.contains('%') && !path.contains('\\') {
        return false;
    }
    let is_dots = |segment: &[u8]| {
        let (mut rest, mut dots) = (segment, 0);
        while !rest.is_empty() && !rest.starts_with(b";") {
            rest = match rest {
                [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
                _ => return false,
            };
            dots += 1;
        }
        matches!(dots, 1 | 2)
    };
    let mut segment_start = 0;
    let bytes = path.as_bytes();
    let mut position = 0;
    while position <= bytes.len() {
        let rest = bytes.get(position..).unwrap_or_default();
        // A slash, or what some programs treat as one.
        let length = match rest {
            [] | [b'/' | b'\\', ..] => 1,
            [b'%', b'2', b'f' | b'F', ..] | [b'%', b'5', b'c' | b'C', ..] => 3,
            _ => {
                position += 1;
                continue;
            }
        };
        if is_dots(bytes.get(segment_start..position).unwrap_or_default()) {
            return true;
        }
        position += length;
        segment_start = position;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(all: &[(&str, &str)]) -> Routes {
        let mut routes = Routes::default();
        for (number, (host, path)) in all.iter().enumerate() {
            let host = (!host.is_empty()).then(|| host.parse().unwrap());
            routes.insert(host.as_ref(), path, number);
        }
        routes
    }

    #[test]
    fn the_most_specific_host_and_then_the_longest_path_win() {
        let routes = routes(&[
            ("", "/"),
            ("a.example", "/"),
            ("a.example", "/api"),
            ("a.example", "/api/v2/"),
            ("*.example", "/"),
            ("*.b.example", "/x"),
            ("192.0.2.1", "/"),
            ("2001:db8::1", "/"),
        ]);
        let find = |host: &str, path: &str| routes.find(Some(host), path);
        assert_eq!(find("a.example", "/"), Some(1));
        assert_eq!(find("A.Example.", "/api"), Some(2));
        assert_eq!(find("a.example", "/api/"), Some(2));
        assert_eq!(find("a.example", "/apis"), Some(1));
        assert_eq!(find("a.example", "/api/v2"), Some(2));
        assert_eq!(find("a.example", "/api/v2/x"), Some(3));
        assert_eq!(find("c.example", "/"), Some(4));
        assert_eq!(find("c.b.example", "/x/y"), Some(5));
        assert_eq!(find("c.b.example", "/"), None, "the best host decides");
        assert_eq!(find("example", "/"), Some(0), "a wildcard matches only names below it");
        assert_eq!(find("192.0.2.1", "/"), Some(6));
        assert_eq!(find("[2001:db8::1]", "/"), Some(7));
        assert_eq!(routes.find(None, "/x"), Some(0));
        assert_eq!(find(&"x".repeat(300), "/"), Some(0));
        assert!(routes.has_host("x.example") && !routes.has_host("x.org"));
    }

    #[test]
    fn dot_segments_are_detected_in_every_encoding() {
        for bad in [
            "/..",
            "/../",
            "/a/../b",
            "/a/./b",
            "/.",
            "/%2e%2e/a",
            "/.%2E/a",
            "/a/%2e",
            "/a%2f..%2fb",
            "/a\\..\\b",
            "/a%5c..",
            "/a/..;/b",
            "/a/%2e%2e;x=1/b",
            "/.;",
        ] {
            assert!(has_dot_segments(bad), "{bad}");
        }
        for good in [
            "/",
            "/a.b",
            "/.well-known/x",
            "/...",
            "/a..b/c",
            "/%2ehidden",
            "/100%25",
            "/a%2fb",
            "/a;..",
        ] {
            assert!(!has_dot_segments(good), "{good}");
        }
    }
}
