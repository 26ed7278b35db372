//! The ways in which a page is loaded.

use std::fmt;
use std::str::FromStr;

use toml::{Table, Value};

use super::host_plan::HostPlan;
use super::spec::PAGE_NAME;

/// What loads the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// The lab's page player.
    Player,
    /// Chromium.
    Browser {
        /// Whether frames of its screen are taken.
        frames: bool,
    },
}

/// Version of HTTP, with what it is served by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// HTTP/1.1 over six connections, from nginx.
    Http1,
    /// HTTP/2 over one connection, from nginx.
    Http2,
    /// HTTP/1.1 for some hosts, and HTTP/2 for the others, from nginx: HTTPX of "Mind the Delay", section 5.
    Httpx,
    /// HTTP/2 over one connection, from `smig serve`, which paces bulk.
    Paced,
    /// HTTP/2 with stream migration at both ends.
    Smig,
    /// HTTP/3, by quic-go at both ends.
    Http3,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Http1, Self::Http2, Self::Httpx, Self::Paced, Self::Smig, Self::Http3];

    /// Returns the name, as on the command line and in results.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Httpx => "httpx",
            Self::Paced => "paced",
            Self::Smig => "smig",
            Self::Http3 => "http3",
        }
    }

    /// Returns what it is, for tables and help.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1, six connections, nginx",
            Self::Http2 => "HTTP/2, nginx",
            Self::Httpx => "HTTP/1.1 or HTTP/2 by host, nginx",
            Self::Paced => "HTTP/2, smig serve",
            Self::Smig => "HTTP/2 with SMig, smig serve",
            Self::Http3 => "HTTP/3, quic-go",
        }
    }

    /// Returns whether a browser speaks it: none speaks SMig, and the lab's HTTP/3 server is for its own client.
    #[must_use]
    pub const fn has_browser(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2 | Self::Httpx | Self::Paced)
    }

    /// Returns the keys of the scenario that differ between versions.
    pub(super) fn variant(self, loader: Loader, hosts: &HostPlan) -> Table {
        let kind = match self {
            Self::Http1 | Self::Http2 | Self::Httpx => "nginx",
            Self::Paced | Self::Smig => "smig",
            Self::Http3 => "http3",
        };
        let mut client = Table::new();
        if let Loader::Browser { frames } = loader {
            client.insert("kind".into(), "chromium".into());
            if frames {
                client.insert("frames".into(), true.into());
            }
            if self == Self::Http1 {
                client.insert("http2".into(), false.into());
            }
        } else {
            let kind = match self {
                Self::Http1 => "http1",
                Self::Http2 | Self::Httpx | Self::Paced => "h2",
                Self::Smig => "smig",
                Self::Http3 => "http3",
            };
            client.insert("kind".into(), kind.into());
            if matches!(self, Self::Http2 | Self::Httpx | Self::Paced | Self::Smig) {
                client.insert("priorities".into(), "sent".into());
            }
        }
        let is_httpx = self == Self::Httpx;
        client.insert("server".into(), hosts.document_server(is_httpx).into());
        let mut variant = Table::from_iter([
            ("servers".to_owned(), Value::Table(hosts.servers(kind, is_httpx))),
            (
                "clients".to_owned(),
                Value::Table(Table::from_iter([("browser".to_owned(), Value::Table(client))])),
            ),
        ]);
        let of_hosts = hosts.page_hosts(is_httpx);
        if !of_hosts.is_empty() {
            let page = Table::from_iter([("hosts".to_owned(), Value::Table(of_hosts))]);
            let pages = Table::from_iter([(PAGE_NAME.to_owned(), Value::Table(page))]);
            let workload = Table::from_iter([("pages".to_owned(), Value::Table(pages))]);
            variant.insert("workload".into(), Value::Table(workload));
        }
        variant
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|protocol| protocol.as_str() == text).ok_or_else(|| {
            // That of hosts is chosen by a command of its own.
            let of_pages = Self::ALL.iter().filter(|protocol| **protocol != Self::Httpx);
            let names: Vec<_> = of_pages.map(|protocol| protocol.as_str()).collect();
            format!("known: {}", names.join(", "))
        })
    }
}
