//! Sites and the canonical form of a URL.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::Url;

/// Maximum length of a URL. Longer ones are crawler traps more often than objects.
const MAX_URL_BYTES: usize = 4096;

/// A site: the host of its landing page, with the port unless it is the scheme's default.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Site(String);

impl Site {
    /// Returns the site that a URL belongs to; `None` unless it is http or https with a host.
    #[must_use]
    pub fn from_url(url: &Url) -> Option<Self> {
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        let host = url.host_str()?;
        Some(Self(match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }))
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the canonical form of a URL: no fragment, no user, no empty query, percent-encodings
/// normalised as in RFC 3986 section 6.2.2. `None` if it is not http or https, or is too long.
#[must_use]
pub fn canonicalize(mut url: Url) -> Option<Url> {
    if !matches!(url.scheme(), "http" | "https") || url.as_str().len() > MAX_URL_BYTES {
        return None;
    }
    url.set_fragment(None);
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    let path = normalize_percents(url.path());
    if path != url.path() {
        url.set_path(&path);
    }
    match url.query() {
        Some("") => url.set_query(None),
        Some(query) => {
            let normalized = normalize_percents(query);
            if normalized != query {
                url.set_query(Some(&normalized));
            }
        }
        None => {}
    }
    Some(url)
}

/// Decodes percent-encodings of unreserved characters, and writes the others in upper case.
pub(super) fn normalize_percents(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        normalized.push_str(before);
        // The parser alone would accept a sign.
        let digits = after.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
                if is_unreserved {
                    normalized.push(byte.into());
                } else {
                    normalized.push_str(&format!("%{byte:02X}"));
                }
                rest = &after[2..];
            }
            None => {
                normalized.push('%');
                rest = after;
            }
        }
    }
    normalized.push_str(rest);
    normalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_one_spelling() {
        for (text, expected) in [
            ("HTTPS://Example.COM:443", "https://example.com/"),
            ("https://example.com/a/../b/./c#part", "https://example.com/b/c"),
            ("https://example.com/%7euser/%e4?", "https://example.com/~user/%E4"),
            ("https://me:secret@example.com/?q=%2f%41%", "https://example.com/?q=%2FA%"),
            ("http://example.com:8080/x%+y", "http://example.com:8080/x%+y"),
            ("http://example.com:8080/x%+a", "http://example.com:8080/x%+a"),
        ] {
            assert_eq!(canonicalize(text.parse().unwrap()).unwrap().as_str(), expected, "{text}");
        }
        for text in ["data:text/html,x", "ftp://example.com/", "mailto:a@example.com"] {
            assert_eq!(canonicalize(text.parse().unwrap()), None, "{text}");
        }
        let long = format!("https://example.com/{}", "x".repeat(MAX_URL_BYTES));
        assert_eq!(canonicalize(long.parse().unwrap()), None);
    }

    #[test]
    fn a_site_is_a_host_with_its_port() {
        let site = |text: &str| Site::from_url(&text.parse().unwrap()).map(|site| site.to_string());
        assert_eq!(site("https://www.example.com/x").as_deref(), Some("www.example.com"));
        assert_eq!(site("http://www.example.com:80/").as_deref(), Some("www.example.com"));
        assert_eq!(site("https://127.0.0.1:8443/").as_deref(), Some("127.0.0.1:8443"));
        assert_eq!(site("blob:https://example.com/1"), None);
    }
}
