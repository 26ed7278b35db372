//! The URL of a page that can be recorded.

use std::str::FromStr;

use url::Url;

/// The URL of a page that can be recorded: http or https.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageUrl(Url);

impl PageUrl {
    /// Returns its host; an IPv6 address in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub(super) const fn as_url(&self) -> &Url {
        &self.0
    }
}

impl FromStr for PageUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = Url::parse(text)
            .map_err(|error| format!("{error}; a URL is such as https://www.example.org/"))?;
        match (url.scheme(), url.has_host()) {
            ("http" | "https", true) => Ok(Self(url)),
            _ => Err("only http and https pages can be recorded".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_the_web_are_recorded() {
        assert_eq!("https://[::1]:9/x?y".parse::<PageUrl>().unwrap().host(), "[::1]");
        for url in ["a.example", "file:///etc/passwd", "javascript:1", "https://"] {
            assert!(url.parse::<PageUrl>().is_err(), "{url}");
        }
    }
}
