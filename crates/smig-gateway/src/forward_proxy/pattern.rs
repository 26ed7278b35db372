//! Patterns for destinations in the configuration: `example.com`, `*.example.com`, `10.0.0.0/8`, `[fd00::/8]:443`,
//! `*:8000-8999`.

use std::net::IpAddr;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};

use crate::ip_net::IpNet;

/// A pattern for hosts and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationPattern {
    host: Hosts,
    ports: PortRange,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Any,
    /// Exactly this name.
    Name(String),
    /// Every name with this suffix, which starts with a dot.
    Subdomains(String),
    /// Every address in this network.
    Network(IpNet),
}

/// An inclusive range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    const ALL: Self = Self::new(0, u16::MAX);

    /// The range from `first` to `last`, both included.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Self {
        Self { first, last }
    }

    /// Returns whether the range includes `port`.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!("{text:?} is not a port or range; examples: 443, 8000-8999")),
        }
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl DestinationPattern {
    /// Returns whether the pattern matches this name and port. `host` is in lower case.
    pub(super) fn matches_name(&self, host: &str, port: u16) -> bool {
        self.ports.contains(port)
            && match &self.host {
                Hosts::Any => true,
                Hosts::Name(name) => name == host,
                Hosts::Subdomains(suffix) => host.ends_with(suffix) && host.len() > suffix.len(),
                Hosts::Network(_) => false,
            }
    }

    /// Returns the pattern's network, if it has one that includes this address, and the port matches.
    pub(super) fn network_of(&self, ip: IpAddr, port: u16) -> Option<IpNet> {
        match self.host {
            Hosts::Network(network) if self.matches_address(ip, port) => Some(network),
            _ => None,
        }
    }

    /// Returns whether the pattern has a network that includes this address, and the port matches.
    pub(super) fn matches_address(&self, ip: IpAddr, port: u16) -> bool {
        let Hosts::Network(network) = self.host else { return false };
        self.ports.contains(port) && network.contains(ip)
    }
}

impl FromStr for DestinationPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = |text: &str| text.parse().map(Hosts::Network);
        if let Ok(host) = network(text) {
            return Ok(Self { host, ports: PortRange::ALL });
        }
        let syntax_error =
            || format!("{text:?} is not a destination; examples: *.example.com:443, 10.0.0.0/8");
        if let Some(rest) = text.strip_prefix('[') {
            let (network_text, tail) = rest.split_once(']').ok_or_else(syntax_error)?;
            let ports = match tail.strip_prefix(':') {
                Some(ports) => ports.parse()?,
                None if tail.is_empty() => PortRange::ALL,
                None => return Err(syntax_error()),
            };
            return Ok(Self { host: network(network_text).map_err(|_| syntax_error())?, ports });
        }
        let (host, ports) = match text.split_once(':') {
            Some((host, ports)) => (host, ports.parse()?),
            None => (text, PortRange::ALL),
        };
        if let Ok(host) = network(host) {
            return Ok(Self { host, ports });
        }
        let name = host.to_ascii_lowercase();
        let (name_or_suffix, is_wildcard) = match name.strip_prefix('*') {
            Some("") => return Ok(Self { host: Hosts::Any, ports }),
            Some(suffix) if suffix.starts_with('.') => (suffix, true),
            Some(_) => return Err(syntax_error()),
            None => (&*name, false),
        };
        let labels = name_or_suffix.strip_prefix('.').unwrap_or(name_or_suffix);
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|o| o.is_ascii_alphanumeric() || o == b'-' || o == b'_')
        };
        if !labels.split('.').all(is_label) || name_or_suffix.starts_with('.') != is_wildcard {
            return Err(syntax_error());
        }
        let name_or_suffix = name_or_suffix.to_owned();
        Ok(Self {
            host: if is_wildcard {
                Hosts::Subdomains(name_or_suffix)
            } else {
                Hosts::Name(name_or_suffix)
            },
            ports,
        })
    }
}

impl<'de> Deserialize<'de> for DestinationPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> DestinationPattern {
        text.parse().unwrap()
    }

    #[test]
    fn name_patterns_match() {
        assert!(pattern("Example.com").matches_name("example.com", 1));
        assert!(!pattern("example.com").matches_name("a.example.com", 1));
        assert!(pattern("*.example.com").matches_name("a.b.example.com", 1));
        assert!(!pattern("*.example.com").matches_name("example.com", 1));
        assert!(!pattern("*.example.com").matches_name("badexample.com", 1));
        assert!(pattern("*:25").matches_name("x", 25));
        assert!(!pattern("*:25").matches_name("x", 26));
        assert!(pattern("x:10-20").matches_name("x", 20));
    }

    #[test]
    fn network_patterns_match() {
        let covers =
            |text: &str, ip: &str, port| pattern(text).matches_address(ip.parse().unwrap(), port);
        assert!(covers("10.0.0.0/8", "10.1.2.3", 1));
        assert!(!covers("10.0.0.0/8", "11.0.0.1", 1));
        assert!(covers("10.0.0.1:443", "10.0.0.1", 443));
        assert!(!covers("10.0.0.1:443", "10.0.0.1", 444));
        assert!(covers("0.0.0.0/0", "1.2.3.4", 1));
        assert!(!covers("0.0.0.0/0", "::1", 1));
        assert!(covers("::/0", "::1", 1));
        assert!(covers("fd00::/8", "fd12::1", 1));
        assert!(covers("[fd00::/8]:443", "fd12::1", 443));
        assert!(!covers("[fd00::/8]:443", "fd12::1", 80));
        assert!(covers("[::1]", "::1", 80));
    }

    #[test]
    fn malformed_patterns_are_rejected() {
        for bad in [
            "",
            "a b",
            "*a.b",
            "a..b",
            "a:0x1",
            "10.0.0.0/33",
            "[::1",
            "[a]:1",
            ".a",
            "a*",
            "::1]:2",
            "*.",
        ] {
            assert!(bad.parse::<DestinationPattern>().is_err(), "{bad}");
        }
    }
}
