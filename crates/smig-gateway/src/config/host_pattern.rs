//! The host of a route: a name, all names below one, or an address.

use std::net::IpAddr;
use std::str::FromStr;

/// Maximum length of a host's text. No valid name is longer: RFC 1035 section 2.3.4 limits its wire form, which is
/// longer than the text, to this number.
pub(crate) const MAX_HOST_BYTES: usize = 255;

/// The host of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this name or address, in lower case.
    Exact(String),
    /// Every name that ends with a dot and this name, in lower case.
    Wildcard(String),
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        if let Ok(ip) = lower.parse::<IpAddr>() {
            return Ok(Self::Exact(ip.to_string()));
        }
        let (name, is_wild) = match lower.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (&*lower, false),
        };
        let is_label = |label: &str| {
            let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !label.is_empty() && label.bytes().all(is_valid)
        };
        if !name.split('.').all(is_label) || name.len() > MAX_HOST_BYTES {
            return Err(format!(
                "{text:?} is not a host; write a name, *.NAME, or an address, without a port"
            ));
        }
        let name = name.to_owned();
        Ok(if is_wild { Self::Wildcard(name) } else { Self::Exact(name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_hosts_are_accepted() {
        for good in ["a", "A.example", "*.a.example", "::1", "10.0.0.1", "under_score.example"] {
            assert!(good.parse::<HostPattern>().is_ok(), "{good}");
        }
        for bad in ["", "*", "a:80", "*.", "a..b", "a.*.b", "https://a", "a/b"] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }
}
